"""The service's answers as types: tolerant of fields that it adds, strict about the types of those that we read.

Nothing here raises on what a stranger might send, except on request.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError


class WireModel(BaseModel):
    """The base of the service's answers: unknown fields are its freedom to grow, types are never guessed."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


def _words(value: object) -> object:
    return value if isinstance(value, str) else ""


Words = Annotated[str, BeforeValidator(_words)]
"""Text for people: anything else in its place is left out rather than held against the answer."""
EventId = Annotated[int, Field(ge=1, lt=2**63)]
"""What can be the number of a document; zero, negative or beyond any database's reach it is a mistake."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class CreatedDoc(WireModel):
    """The event or media document that a create call returns (spec, Resources): only its id is relied upon."""

    id: EventId


class CreatedAnswer(WireModel):
    """`{ doc: { id, title } }` of a create call."""

    doc: CreatedDoc


class ErrorDetails(WireModel):
    """In validation errors: the field and what is wrong with it."""

    field: Words = ""
    issue: Words = ""


class ErrorBody(WireModel):
    """The inside of the error envelope. `code` makes it one of the service; the rest may be missing."""

    code: str
    message: Words = ""
    requestId: Words = ""  # noqa: N815  # the wire's own spelling
    details: Annotated[ErrorDetails, BeforeValidator(lambda told: told if isinstance(told, dict) else {})] = ErrorDetails()


class ErrorEnvelope(WireModel):
    """`{ error: { code, message, requestId, details? } }` (spec, Errors)."""

    error: ErrorBody


class Channel(WireModel):
    """A publish destination available to the key's owner (spec, Channel)."""

    id: int
    name: Words = ""
    slug: str


class Classification(WireModel):
    """A slug that events may be classified with (spec, Classification)."""

    slug: str
    name: Words = ""
    description: Words = ""


class ClassificationList(WireModel):
    """The classification list with its version, a date in the form YYYY-MM-DD."""

    version: str
    docs: tuple[Classification, ...]


class Paging(WireModel):
    """Where a page stands among the others: the full envelope, or the minimal one of the event list (spec, Pagination)."""

    page: int = 1
    limit: int = 0
    totalDocs: int | None = None  # noqa: N815  # the wire's own spelling
    hasNextPage: bool | None = None  # noqa: N815  # the wire's own spelling

    def is_followed(self, count: int) -> bool:
        """Return whether another page exists, after one of `count` documents."""
        if self.hasNextPage is not None:
            return self.hasNextPage
        if self.totalDocs is not None and self.limit > 0:
            return self.page * self.limit < self.totalDocs
        return False if self.limit <= 0 else count >= self.limit


class ChannelPage(Paging):
    """One page of the channel list."""

    docs: tuple[Channel, ...]


def created_id(body: bytes) -> int | None:
    """Return `doc.id` of a create answer, None where the body holds no such integer. Never raises."""
    try:
        return CreatedAnswer.model_validate_json(body.removeprefix(_BYTE_ORDER_MARK)).doc.id
    except ValidationError:
        return None


def error_body(body: bytes) -> ErrorBody | None:
    """Return the inside of the error envelope, None where the body is no such envelope. Never raises."""
    try:
        return ErrorEnvelope.model_validate_json(body.removeprefix(_BYTE_ORDER_MARK)).error
    except ValidationError:
        return None


API_PREFIX = "/api/public/v1"
