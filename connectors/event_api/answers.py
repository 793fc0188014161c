"""What one HTTP answer of the service means, as a closed union: a pure reading of status, headers and body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from connectors.retry import retry_after_s
from mappings.delivery import Answer


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
_LONGEST_TEXT = 500
_PASSING = frozenset({408, 425, 460, 499})
"""4xx that say nothing about the request but that it took too long, or came too early; the last two are proxies'."""
_TURNED_BACK = frozenset({407, 421})
"""4xx of what stands before the service: it wants a login of its own, or the connection leads elsewhere."""
_UNDER_WAY = re.compile(
    r"in[ _-]?progress|in[ _-]?flight|under ?way|concurrent|(still|being|currently) (being )?(process|execut|handl|run)"
    r"|not (yet )?(been )?(finish|complet)",
    re.IGNORECASE,
)
"""What a 409 says whose first request is still at work; its exact words are not shown by the spec."""


@dataclass(frozen=True, slots=True)
class Created:
    """2xx with an integer `doc.id`."""

    answer: Answer
    event_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A definitive 4xx in the service's envelope: nothing was created."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class NoAccess:
    """403 forbidden or 404: the channel is not accessible to this key."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class ScopeMissing:
    """403 insufficient_scope."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class KeyRefused:
    """401, with or without the envelope."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class KeyUsed:
    """409: usually the idempotency key (spec, Errors). `wait_s` as `Retry-After` asks.

    `is_under_way`: it says so, in its words or by naming a time to ask again; a bare 409 may mean anything.
    """

    answer: Answer
    wait_s: float | None = None
    is_under_way: bool = False


@dataclass(frozen=True, slots=True)
class RateLimited:
    """429: nothing was done; the route pauses for `wait_s`, or for as long as we think fit."""

    answer: Answer
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Failing:
    """408, 425, 499 or 5xx: another attempt may clear it; this one may still have been carried out."""

    answer: Answer
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """2xx without the document that was asked for: something was done, and we cannot know what."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Redirected:
    """3xx: never followed. `location` as the answer gives it, without its query.

    A 303 answers a request that was carried out (RFC 9110, 15.4.4); the others ask to make it elsewhere.
    """

    answer: Answer
    location: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A 4xx that is not in the service's envelope: a proxy's, or another host's."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class NotReached:
    """No connection could be established, or a proxy let nothing through: certainly nothing was done."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Lost:
    """The request left and its answer did not arrive whole: it may have been carried out."""

    answer: Answer


Meaning = (
    Created
    | Refused
    | NoAccess
    | ScopeMissing
    | KeyRefused
    | KeyUsed
    | RateLimited
    | Failing
    | Unreadable
    | Redirected
    | Foreign
    | NotReached
    | Lost
)


def interpret(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Meaning:
    """Read one answer to a create call. `headers` has lower-case names; `now` is aware. Never raises."""
    if not 200 <= status <= 299:
        return interpret_failure(status, headers, body, now)
    event_id = created_id(body)
    if event_id is None:
        return Unreadable(foreign_answer(status, headers, body))
    return Created(Answer(status=status, request_id=_kept(headers.get("x-request-id", ""))), event_id)


def interpret_failure(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Meaning:  # noqa: PLR0911  # the table, one line a status
    """Read one answer outside of 2xx, to any request. `headers` has lower-case names; `now` is aware. Never raises."""
    told = error_body(body)
    answer = _answer(status, headers, body)
    match status:
        case 401:
            return KeyRefused(answer)
        case 409:
            return _key_used(answer, retry_after_s(headers, now))
        case 429:
            return RateLimited(answer, retry_after_s(headers, now))
        case _ if 300 <= status <= 399:
            return Redirected(answer, _kept(re.split("[?#]", headers.get("location", ""), maxsplit=1)[0]))
        case _ if status in _TURNED_BACK:
            return NotReached(answer)
        case _ if not 400 <= status <= 499 or status in _PASSING:
            return Failing(answer, retry_after_s(headers, now))
        case _:
            return Foreign(answer) if told is None else _definitive(answer)


def _key_used(answer: Answer, wait_s: float | None) -> KeyUsed:
    said = f"{answer.code} {answer.message} {answer.issue}"
    return KeyUsed(answer, wait_s, is_under_way=wait_s is not None or _UNDER_WAY.search(said) is not None)


def _definitive(answer: Answer) -> Meaning:
    match answer.status, answer.code:
        case 403, "insufficient_scope":
            return ScopeMissing(answer)
        case ((403 | 404), _):
            return NoAccess(answer)
        case _:
            return Refused(answer)


def _answer(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    told = error_body(body)
    if told is None:
        return foreign_answer(status, headers, body)
    return Answer(
        status=status,
        code=_kept(told.code),
        message=_kept(told.message),
        request_id=_kept(told.requestId or headers.get("x-request-id", "")),
        field=_kept(told.details.field),
        issue=_kept(told.details.issue),
    )


def foreign_answer(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """Describe for people an answer that is not in the service's words: its type, its size, its first line."""
    kind = headers.get("content-type", "no content type").partition(";")[0]
    first = " ".join(body[:200].decode("utf-8", "replace").split())[:80]
    said = f"{kind}, {len(body)} bytes" + (f", beginning with: {first}" if first else "")
    return Answer(status=status, message=_kept(said), request_id=_kept(headers.get("x-request-id", "")))


def _kept(text: str) -> str:
    """Cut a stranger's text to a sane length; what no terminal should obey and no database takes as text becomes a mark."""
    cut = text[:_LONGEST_TEXT]
    return cut if cut.isprintable() else "".join(one if one.isprintable() else " " if one.isspace() else "\ufffd" for one in cut)


def in_short(answer: Answer) -> str:
    """Say what came back in one line, with the request id that support asks for."""
    said = " ".join(filter(None, (str(answer.status) if answer.status else "", answer.code)))
    about = f"{answer.field}: {answer.issue}" if answer.issue else answer.message
    quoted = f" (request {answer.request_id})" if answer.request_id else ""
    return (f"{said}: {about}" if about and said else said or about) + quoted
