"""The payload of an event: every field that can be sent on creation (spec: Resources, Event), and its canonical bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Required, get_args, get_origin

import orjson
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict, get_type_hints, is_typeddict

from mappings.reasons import ReasonCode, Refusal, wrong_length
from mappings.strict import mistake
from mappings.zones import find_zone

_MOMENT = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])T(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)


@lru_cache(maxsize=4096)
def _check_moment(text: str) -> str:
    """Check a date and time with offset. It is memoised, because matching pydantic's pattern for every row takes longer (budget
    3).
    """
    try:
        is_moment = _MOMENT.fullmatch(text) is not None and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        is_moment = False
    if not is_moment:
        raise mistake(f'"{text}" is not a moment in the calendar')
    return text


@lru_cache(maxsize=256)
def _check_zone(name: str) -> str:
    if find_zone(name) is None:
        raise mistake(f'"{name}" is not an IANA zone')
    return name


class Accepted(NamedTuple):
    """What the service accepts in a field, in words, and the code of the reason for another value."""

    wanted: str = ""
    code: ReasonCode = ReasonCode.NOT_ACCEPTED


_IS_MOMENT = AfterValidator(_check_moment)
_Text = Annotated[str, Field(min_length=1)]
_Moment = Annotated[
    str,
    _IS_MOMENT,
    Accepted("a date and time with its offset, such as 2026-07-01T18:00:00+01:00", ReasonCode.NOT_A_DATE),
]
_ZoneName = Annotated[str, AfterValidator(_check_zone), Accepted("an IANA zone such as Europe/Lisbon", ReasonCode.NOT_A_ZONE)]
_Url = Annotated[
    str, Field(pattern=r"^https?://[!-~]+$"), Accepted("an address like https://example.org/tickets", ReasonCode.NOT_A_URL)
]
_Country = Annotated[str, Field(pattern="^[A-Z]{2}$"), Accepted("two capital letters, such as PT")]
_Slugs = Annotated[list[_Text], Field(min_length=1), Accepted("a list of at least one slug of the service")]


# Dictionaries rather than models: every row is checked, and budget 3 has no room for building models of it.
_open = with_config(ConfigDict(strict=True, extra="allow"))
"""Checks the specified fields strictly, and allows other fields, which the spec names without a type."""


@_open
class City(TypedDict, total=False):
    """The city of an event, its only required place."""

    placeId: Required[Annotated[_Text, Field(title="city")]]
    name: Annotated[_Text | None, Field(title="city")]
    countryCode: Annotated[_Country | None, Field(title="country")]


@_open
class ApproxLocation(TypedDict):
    """The approximate place of an event."""

    city: Annotated[
        City,
        Field(title="city"),
        Accepted("an object with a placeId (a text alone belongs in approxLocation.city.placeId)"),
    ]


@_open
class Offer(TypedDict, total=False):
    """A link to tickets sold elsewhere."""

    name: Annotated[_Text | None, Field(title="offer")]
    url: Annotated[_Url | None, Field(title="address of an offer")]
    availability: _Text | None


@_open
class Event(TypedDict, total=False):
    """The payload of an event (spec: Event). Texts are never empty; times have an offset. A title is the field's name for people;
    without one they see the name that the service uses.
    """

    channelId: Required[Annotated[int, Field(title="channel"), Accepted("the id of a channel, a whole number")]]
    title: Required[Annotated[_Text, Field(title="title")]]
    startAt: Required[Annotated[_Moment, Field(title="start")]]
    endAt: Annotated[_Moment | None, Field(title="end")]
    timezone: Required[Annotated[_ZoneName, Field(title="time zone")]]
    status: Annotated[Literal["draft", "published"] | None, Field(title="status"), Accepted("draft or published")]
    classifications: Required[Annotated[_Slugs, Field(title="kind of event")]]
    approxLocation: Required[Annotated[ApproxLocation, Field(title="place"), Accepted("an object with a city")]]
    locationName: Annotated[_Text | None, Field(title="venue")]
    coverImage: Annotated[int | None, Field(title="picture"), Accepted("the id of an uploaded picture, a whole number")]
    offers: Annotated[list[Offer], Field(min_length=1, title="offers"), Accepted("a list of at least one offer")] | None


_Kind = Literal["text", "moment", "number", "list", "object"]


@dataclass(frozen=True, slots=True)
class EventField:
    """A field of the payload: its name for people, "" without one; a list of objects is of kind `object`."""

    name: str
    kind: _Kind
    accepted: Accepted


@cache
def event_fields() -> Mapping[str, EventField]:
    """Return all fields of an event by path, without positions in lists: `offers.url`."""
    return dict(_fields_of(Event, ""))


def _fields_of(kind: object, before: str) -> Iterator[tuple[str, EventField]]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        parts = list(_parts_of(hint))
        objects = [part for part in parts if is_typeddict(part)]
        called = next((part.title for part in parts if isinstance(part, FieldInfo) and part.title), "")
        accepted = next((part for part in parts if isinstance(part, Accepted)), Accepted())
        yield before + name, EventField(called, _kind_of(parts), accepted)
        for inner in objects:
            yield from _fields_of(inner, f"{before}{name}.")


def _kind_of(parts: Sequence[Any]) -> _Kind:
    if any(map(is_typeddict, parts)):
        return "object"
    if any(get_origin(part) is list for part in parts):
        return "list"
    if int in parts:
        return "number"
    return "moment" if _IS_MOMENT in parts else "text"


def _parts_of(hint: object) -> Iterator[Any]:
    """Yield everything that a type is made of: `Annotated[list[Offer], Field(...)]` of `Offer` and the field's constraints."""
    yield hint
    for part in get_args(hint):
        yield from _parts_of(part)


EVENT: TypeAdapter[Event] = TypeAdapter(Event)
_validate = EVENT.validator.validate_python
NO_TEXT = "the text holds bytes that cannot be decoded"
REQUIRED_FIELDS = ("channelId", "title", "startAt", "timezone", "classifications", "approxLocation.city.placeId")
"""The fields that every event must have."""


def judge(payload: Mapping[str, Any]) -> list[tuple[str, Refusal]]:
    """Return what the service would refuse in a payload, as (path, refusal); an empty list means that it is a valid Event."""
    try:
        _validate(payload)
    except ValidationError as error:
        return refusals(error)
    return []


def refusals(error: ValidationError) -> list[tuple[str, Refusal]]:
    """Return what is wrong with a payload, as (path, refusal)."""
    return [_refused(problem) for problem in error.errors(include_url=False)]


def _refused(problem: ErrorDetails) -> tuple[str, Refusal]:
    path = spell_path(problem["loc"])
    if problem["type"] == "missing":
        inner = REQUIRED_FIELDS[-1] if path in {"approxLocation", "approxLocation.city"} else path
        return inner, Refusal(ReasonCode.REQUIRED, "the service requires this field")
    if problem["type"] == "string_unicode":
        return path, Refusal(ReasonCode.BAD_TEXT, NO_TEXT)
    found = problem["input"] if isinstance(problem["input"], str) else ""
    if problem["type"] in {"string_too_short", "string_too_long"}:
        bounds = problem["ctx"]
        refusal = wrong_length(found, least=bounds.get("min_length", 0), most=bounds.get("max_length"))
        return path, refusal.about("", found, "")
    field = event_fields().get(".".join(part for part in problem["loc"] if isinstance(part, str)))
    wanted, code = field.accepted if field else Accepted()
    return path, Refusal(code, f"expected {wanted}" if wanted else problem["msg"], found=found)


def spell_path(loc: Sequence[int | str]) -> str:
    """Return a position in the payload as text: `offers[0].url`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def dump(payload: Mapping[str, Any]) -> bytes:
    """Return canonical JSON: UTF-8, keys sorted, no spaces; equal payloads give equal bytes.

    Raises:
        orjson.JSONEncodeError: a text holds a lone surrogate.
    """
    # A copy: what orjson returns keeps the room in which it was written, eight times what is in it.
    return b"".join((orjson.dumps(payload, option=orjson.OPT_SORT_KEYS), b""))


def with_cover(body: bytes, media_id: int) -> bytes:
    """Return the body with the id of its uploaded cover image."""
    return dump(orjson.loads(body) | {"coverImage": media_id})


def as_draft(body: bytes) -> bytes:
    """Return the body with status `draft`."""
    return dump(orjson.loads(body) | {"status": "draft"})


@dataclass(frozen=True, slots=True)
class Directory:
    """The service's channel ids by slug, and its classification slugs; None if not known, which allows all.

    Offline, each channel slug gets a placeholder id, the same in every run.
    """

    channels: Mapping[str, int] | None = None
    classifications: frozenset[str] | None = None
