"""Validation of an event's payload, field by field in the specification's order.

Only the first problem is reported, as the error envelope has room for one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sandbox.answers import invalid
from sandbox.switches import Contract, Switches

SHORT_TITLE_CHARS: Final = 40
"""The longest title under the contract `shorter_titles`."""
_REQUIRED: Final = "required: [channelId, title, startAt, timezone, classifications, approxLocation]"
_TITLE: Final = "title: {type: string, minLength: 1}\n        startAt"
_CHANGES: Final[Mapping[Contract, tuple[tuple[str, str], ...]]] = {
    "as_specified": (),
    "new_required_field": (
        (_REQUIRED, _REQUIRED.replace("title", "title, organizer")),
        (_TITLE, "organizer: {type: string, description: Who holds the event.}\n        " + _TITLE),
    ),
    "renamed_field": (
        (_REQUIRED, _REQUIRED.replace("title", "headline")),
        (_TITLE, _TITLE.replace("title", "headline")),
    ),
    "shorter_titles": ((_TITLE, _TITLE.replace("minLength: 1", f"minLength: 1, maxLength: {SHORT_TITLE_CHARS}")),),
    "moved": (("url: /api/public/v1", "url: /api/public/v2"),),
}


def contract_text(contract: Contract, specified: str) -> str:
    """Return the description of the API under a contract."""
    for old, new in _CHANGES[contract]:
        specified = specified.replace(old, new)
    return specified


def apply_contract(event: Mapping[str, Any], switches: Switches) -> Mapping[str, Any]:
    """Return the event with the field names of the specification. Raises ApiError 400 as the drifted contract."""
    if switches.contract_rules == "as_specified":
        return event
    match switches.contract:
        case "new_required_field" if not isinstance(event.get("organizer"), str):
            raise invalid("organizer", "is required")
        case "renamed_field" if "headline" not in event:
            raise invalid("headline", "is required")
        case "renamed_field":
            return {**event, "title": event["headline"]}
        case "shorter_titles" if len(str(event.get("title", ""))) > SHORT_TITLE_CHARS:
            raise invalid("title", f"must not be longer than {SHORT_TITLE_CHARS} characters")
        case _:
            return event


Payload = Mapping[str, Any]


# ISO 8601 as RFC 3339 profiles it, seconds optional; whether the day exists is left to `fromisoformat`.
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_COUNTRY: Final = re.compile(r"[A-Z]{2}", re.ASCII)
_URL: Final = re.compile(r"https?://[^\s/?#]+\S*")
EVENT_FIELDS: Final = frozenset(
    {
        "channelId",
        "title",
        "startAt",
        "endAt",
        "timezone",
        "status",
        "classifications",
        "approxLocation",
        "locationName",
        "coverImage",
        "offers",
    }
)
"""The fields of the create payload that the specification names."""
_LOCATION_FIELDS: Final = frozenset({"city"})
_CITY_FIELDS: Final = frozenset({"placeId", "name", "countryCode"})
_OFFER_FIELDS: Final = frozenset({"name", "url", "availability"})


@dataclass(frozen=True, slots=True)
class Rules:
    """What a payload is checked against: the known slugs, time zones and images, and the switches."""

    classifications: Collection[str]
    zones: Collection[str]
    images: Collection[int]
    switches: Switches


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A valid payload. `starts_at`: seconds since the epoch."""

    channel_id: int
    title: str
    status: str
    starts_at: float


def read_event(payload: object, rules: Rules) -> NewEvent:
    """Return the event of a parsed JSON body. Raises ApiError 400 naming the first field that is wrong."""
    event = apply_contract(_fields(payload, "body", "", EVENT_FIELDS, rules), rules.switches)
    channel_id = _whole(_required(event, "channelId"), "channelId")
    title = _text(_required(event, "title"), "title", rules.switches.max_title_chars)
    starts_at = _span(event, rules)
    _zone(_required(event, "timezone"), rules)
    status = _status(event, rules)
    _classifications(_required(event, "classifications"), rules)
    _place(_required(event, "approxLocation"), rules)
    _optional_text(event, "locationName", "locationName", rules)
    _cover(event, rules)
    _offers(event, rules)
    return NewEvent(channel_id, title, status, starts_at)


def _fields(value: object, path: str, prefix: str, known: frozenset[str], rules: Rules) -> Payload:
    if not isinstance(value, dict):
        raise invalid(path, "must be an object")
    if rules.switches.unknown_fields == "refused" and (strange := value.keys() - known):
        raise invalid(f"{prefix}{min(strange)}", "is not a known field")
    return value


def _required(holder: Payload, name: str, prefix: str = "") -> Any:
    if name not in holder:
        raise invalid(f"{prefix}{name}", "is required")
    return holder[name]


def _is_given(holder: Payload, name: str, rules: Rules) -> bool:
    return name in holder and not (holder[name] is None and rules.switches.null_fields == "omitted")


def _whole(value: object, path: str) -> int:
    # A bool is an int to Python, not to JSON.
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(path, "must be an integer")
    return value


def _text(value: object, path: str, max_chars: int) -> str:
    if not isinstance(value, str):
        raise invalid(path, "must be a string")
    if not value.strip():
        raise invalid(path, "must not be blank")
    if len(value) > max_chars:
        raise invalid(path, f"must not be longer than {max_chars} characters")
    return value


def _optional_text(holder: Payload, name: str, path: str, rules: Rules) -> str | None:
    return _text(holder[name], path, rules.switches.max_text_chars) if _is_given(holder, name, rules) else None


def _span(event: Payload, rules: Rules) -> float:
    starts_at = _instant(_required(event, "startAt"), "startAt")
    if _is_given(event, "endAt", rules) and _instant(event["endAt"], "endAt") < starts_at:
        raise invalid("endAt", "must not be before startAt")
    return starts_at


def _instant(value: object, path: str) -> float:
    if not isinstance(value, str):
        raise invalid(path, "must be a string")
    if not _INSTANT.fullmatch(value):
        raise invalid(path, "must be an ISO 8601 datetime with a UTC offset, such as 2026-05-01T19:30:00+02:00")
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError) as impossible:
        raise invalid(path, f"is not a date and time that exists: {impossible}") from impossible


def _zone(value: object, rules: Rules) -> None:
    if not isinstance(value, str):
        raise invalid("timezone", "must be a string")
    if value not in rules.zones:
        raise invalid("timezone", f"`{value[:60]}` is not an IANA timezone identifier")


def _status(event: Payload, rules: Rules) -> str:
    if not _is_given(event, "status", rules):
        return rules.switches.default_status
    match event["status"]:
        case "draft" | "published" as status:
            return str(status)
        case _:
            raise invalid("status", "must be `draft` or `published`")


def _classifications(value: object, rules: Rules) -> None:
    if not isinstance(value, list) or not all(isinstance(slug, str) for slug in value):
        raise invalid("classifications", "must be an array of strings")
    if not value and rules.switches.empty_classifications == "refused":
        raise invalid("classifications", "must name at least one classification")
    for slug in value:
        if slug not in rules.classifications:
            raise invalid("classifications", f"unknown classification slug `{slug[:60]}`")


def _place(value: object, rules: Rules) -> None:
    location = _fields(value, "approxLocation", "approxLocation.", _LOCATION_FIELDS, rules)
    inside = "approxLocation.city"
    city = _fields(_required(location, "city", "approxLocation."), inside, f"{inside}.", _CITY_FIELDS, rules)
    _text(_required(city, "placeId", f"{inside}."), f"{inside}.placeId", rules.switches.max_text_chars)
    _optional_text(city, "name", f"{inside}.name", rules)
    if _is_given(city, "countryCode", rules):
        code = city["countryCode"]
        if not isinstance(code, str) or not _COUNTRY.fullmatch(code):
            raise invalid(f"{inside}.countryCode", "must be two uppercase letters")


def _cover(event: Payload, rules: Rules) -> None:
    if _is_given(event, "coverImage", rules) and _whole(event["coverImage"], "coverImage") not in rules.images:
        raise invalid("coverImage", f"no media doc has the id {event['coverImage']}")


def _offers(event: Payload, rules: Rules) -> None:
    if not _is_given(event, "offers", rules):
        return
    offers = event["offers"]
    if not isinstance(offers, list):
        raise invalid("offers", "must be an array")
    if len(offers) > rules.switches.max_offers:
        raise invalid("offers", f"must not hold more than {rules.switches.max_offers} offers")
    for index, offer in enumerate(offers):
        _offer(offer, f"offers[{index}]", rules)


def _offer(value: object, path: str, rules: Rules) -> None:
    offer = _fields(value, path, f"{path}.", _OFFER_FIELDS, rules)
    _optional_text(offer, "name", f"{path}.name", rules)
    url = _optional_text(offer, "url", f"{path}.url", rules)
    if url is not None and not _URL.fullmatch(url):
        raise invalid(f"{path}.url", "must be an http or https address")
    availability = _optional_text(offer, "availability", f"{path}.availability", rules)
    if availability not in {None, "available"} and rules.switches.availability == "available":
        raise invalid(f"{path}.availability", "must be `available`")
