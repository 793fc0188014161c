"""All that can be said to the service when an event is created (spec: Resources, Event), and the bytes that say it.

How a row becomes this is `engine`'s; how it is sent is `connectors.event_api`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from mappings.measures import mistake
from mappings.refusals import ReasonCode, Refusal
from mappings.zones import find_zone

MOMENT = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$"
)
URL = r"^https?://[!-~]+$"
COUNTRY = "^[A-Z]{2}$"
STATES = ("draft", "published")


def _in_the_calendar(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise mistake(f'"{text}" is not a moment in the calendar') from None
    return text


def _known_zone(name: str) -> str:
    if find_zone(name) is None:
        raise mistake(f'"{name}" is not an IANA zone')
    return name


Filled = Annotated[str, Field(min_length=1)]
Moment = Annotated[str, Field(pattern=MOMENT), AfterValidator(_in_the_calendar)]
ZoneName = Annotated[str, AfterValidator(_known_zone)]
WebAddress = Annotated[str, Field(pattern=URL)]


class _Payload(BaseModel):
    """Strict in the fields the spec spells out, open to the optional ones that it only names."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")


class City(_Payload):
    """The city of an event: the one exact place the service asks for."""

    placeId: Filled  # noqa: N815 - the service's spelling
    name: Filled | None = None
    countryCode: Annotated[str, Field(pattern=COUNTRY)] | None = None  # noqa: N815 - as above


class ApproxLocation(_Payload):
    """Where the event is, roughly."""

    city: City


class Offer(_Payload):
    """A link to tickets sold elsewhere."""

    name: Filled | None = None
    url: WebAddress | None = None
    availability: Filled | None = None


class Event(_Payload):
    """The create payload (spec: Event). Texts are never empty; moments carry their offset."""

    channelId: int  # noqa: N815 - the service's spelling
    title: Filled
    startAt: Moment  # noqa: N815 - as above
    endAt: Moment | None = None  # noqa: N815 - as above
    timezone: ZoneName
    status: Literal["draft", "published"] | None = None
    classifications: Annotated[list[Filled], Field(min_length=1)]
    approxLocation: ApproxLocation  # noqa: N815 - as above
    locationName: Filled | None = None  # noqa: N815 - as above
    coverImage: int | None = None  # noqa: N815 - as above
    offers: Annotated[list[Offer], Field(min_length=1)] | None = None


EVENT: TypeAdapter[Event] = TypeAdapter(Event)
_validate = EVENT.validator.validate_python
NO_TEXT = "a text without bytes that cannot be decoded would be accepted"
REQUIRED_FIELDS = ("channelId", "title", "startAt", "timezone", "classifications", "approxLocation.city.placeId")
"""What no event may lack."""

_CODES: Mapping[str, ReasonCode] = {
    "startAt": ReasonCode.NOT_A_DATE,
    "endAt": ReasonCode.NOT_A_DATE,
    "timezone": ReasonCode.NOT_A_ZONE,
    "url": ReasonCode.NOT_A_URL,
}
_WANTED: Mapping[str, str] = {
    "startAt": "a date and time with its offset, such as 2026-07-01T18:00:00+01:00, would be accepted",
    "endAt": "a date and time with its offset, such as 2026-07-01T18:00:00+01:00, would be accepted",
    "timezone": "an IANA zone such as Europe/Lisbon would be accepted",
    "url": "an address like https://example.org/tickets would be accepted",
    "countryCode": "two capital letters, such as PT, would be accepted",
    "status": "draft or published would be accepted",
    "channelId": "the id of a channel, a whole number, would be accepted",
    "coverImage": "the id of an uploaded picture, a whole number, would be accepted",
    "city": "an object with a placeId would be accepted; a text alone belongs into approxLocation.city.placeId",
    "approxLocation": "an object with a city would be accepted",
    "classifications": "a list of the service's slugs, one at least, would be accepted",
    "offers": "a list of offers, one at least, would be accepted",
}


def judge(payload: Mapping[str, Any]) -> list[tuple[str, Refusal]]:
    """Return what the service would not accept in a payload, as (path, refusal); an empty list means an Event."""
    try:
        _validate(payload)
    except ValidationError as error:
        return [_refused(problem) for problem in error.errors(include_url=False, include_context=False)]
    return []


def _refused(problem: ErrorDetails) -> tuple[str, Refusal]:
    path = spell_path(problem["loc"])
    name = next((str(part) for part in reversed(problem["loc"]) if isinstance(part, str)), "")
    if problem["type"] == "missing":
        inner = REQUIRED_FIELDS[-1] if path in {"approxLocation", "approxLocation.city"} else path
        return inner, Refusal(ReasonCode.REQUIRED, "the service needs this field")
    if problem["type"] == "string_unicode":
        return path, Refusal(ReasonCode.BAD_TEXT, NO_TEXT)
    found = problem["input"] if isinstance(problem["input"], str) else ""
    return path, Refusal(_CODES.get(name, ReasonCode.NOT_ACCEPTED), _WANTED.get(name, problem["msg"]), found=found)


def spell_path(loc: Sequence[int | str]) -> str:
    """Write a place in the payload as people read it: `offers[0].url`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def dump(payload: Mapping[str, Any]) -> bytes:
    """Return canonical JSON: UTF-8, keys sorted, no spaces; equal payloads give equal bytes.

    Raises:
        orjson.JSONEncodeError: a text holds a lone surrogate.
    """
    # A copy: what orjson returns keeps the room in which it was written, eight times what is in it.
    return b"".join((orjson.dumps(payload, option=orjson.OPT_SORT_KEYS), b""))


def with_cover(body: bytes, media_id: int) -> bytes:
    """Return the same event with the id of its uploaded cover image."""
    return dump(orjson.loads(body) | {"coverImage": media_id})


def as_draft(body: bytes) -> bytes:
    """Return the same event as a draft."""
    return dump(orjson.loads(body) | {"status": "draft"})
