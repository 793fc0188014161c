"""Validation of an event's payload, field by field in the specification's order.

Only the first problem is reported: the error envelope has room for one.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from sandbox.answers import invalid
from sandbox.store import SLUGS
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
    "shorter_titles": ((_TITLE, _TITLE.replace("minLength: 1", f"minLength: 1, maxLength: {SHORT_TITLE_CHARS}")),),
}


def contract_text(contract: Contract, specified: str) -> str:
    """Return the OpenAPI description, changed as the contract says."""
    for old, new in _CHANGES[contract]:
        specified = specified.replace(old, new)
    return specified


def check_contract(event: Mapping[str, Any], switches: Switches) -> None:
    """Raise ApiError 400 for an event that breaks the changed contract."""
    if switches.contract_rules == "as_specified":
        return
    if switches.contract == "new_required_field" and not isinstance(event.get("organizer"), str):
        raise invalid("organizer", "is required")
    if switches.contract == "shorter_titles" and len(str(event.get("title", ""))) > SHORT_TITLE_CHARS:
        raise invalid("title", f"must not be longer than {SHORT_TITLE_CHARS} characters")


# ISO 8601 as RFC 3339 profiles it, seconds optional; whether the day exists is left to `fromisoformat`.
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_ZONES: Final = frozenset(zoneinfo.available_timezones())
_COUNTRY: Final = re.compile(r"[A-Z]{2}", re.ASCII)
_URL: Final = re.compile(r"https?://[^\s/?#]+\S*")
_MAX_TEXT_CHARS: Final = 5_000
_MAX_OFFERS: Final = 50


class NewEvent(NamedTuple):
    """The fields of a valid payload that the service stores. `starts_at`: seconds since the epoch."""

    channel_id: int
    title: str
    status: str
    starts_at: float


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of the payload at its path. Each method raises ApiError 400 with the path if the value is of another kind."""

    value: Any
    path: str

    def object(self) -> _Value:
        if not isinstance(self.value, dict):
            raise invalid(self.path or "body", "must be an object")
        return self

    def field(self, name: str) -> _Value:
        if name not in self.value:
            raise invalid(self._inside(name), "is required")
        return _Value(self.value[name], self._inside(name))

    def optional(self, name: str) -> list[_Value]:
        """Return the field as a list of one, or an empty list if it is absent."""
        return [self.field(name)] if name in self.value else []

    def _inside(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def items(self) -> list[_Value]:
        self.check(isinstance(self.value, list), "must be an array")
        return [_Value(one, f"{self.path}[{index}]") for index, one in enumerate(self.value)]

    def whole(self) -> int:
        # A bool is an int to Python, not to JSON.
        self.check(isinstance(self.value, int) and not isinstance(self.value, bool), "must be an integer")
        return int(self.value)

    def text(self, longest: int = _MAX_TEXT_CHARS) -> str:
        self.check(isinstance(self.value, str), "must be a string")
        self.check(bool(self.value.strip()), "must not be blank")
        self.check(len(self.value) <= longest, f"must not be longer than {longest} characters")
        return str(self.value)

    def instant(self) -> float:
        self.check(isinstance(self.value, str), "must be a string")
        is_instant = _INSTANT.fullmatch(self.value) is not None
        self.check(is_instant, "must be an ISO 8601 datetime with a UTC offset, such as 2026-05-01T19:30:00+02:00")
        try:
            return datetime.fromisoformat(self.value).timestamp()
        except (ValueError, OverflowError) as impossible:
            raise invalid(self.path, f"is not a date and time that exists: {impossible}") from impossible

    def check(self, is_good: bool, issue: str) -> None:
        if not is_good:
            raise invalid(self.path, issue)


def read_event(payload: object, switches: Switches, images: Collection[int]) -> NewEvent:
    """Validate a parsed JSON body; `images`: the ids of uploads. Raises ApiError 400 for the first invalid field."""
    event = _Value(payload, "").object()
    check_contract(event.value, switches)
    channel_id = event.field("channelId").whole()
    title = event.field("title").text(switches.max_title_chars)
    starts_at = event.field("startAt").instant()
    for end in event.optional("endAt"):
        end.check(end.instant() >= starts_at, "must not be before startAt")
    zone = event.field("timezone")
    zone.check(isinstance(zone.value, str), "must be a string")
    zone.check(zone.value in _ZONES, f"`{zone.value[:60]}` is not an IANA timezone identifier")
    status = "draft"
    for given in event.optional("status"):
        given.check(given.value in ("draft", "published"), "must be `draft` or `published`")
        status = given.value
    slugs = event.field("classifications")
    slugs.check(isinstance(slugs.value, list) and all(isinstance(one, str) for one in slugs.value), "must be an array of strings")
    slugs.check(bool(slugs.value), "must name at least one classification")
    for slug in slugs.value:
        slugs.check(slug in SLUGS[switches.classification_list], f"unknown classification slug `{slug[:60]}`")
    city = event.field("approxLocation").object().field("city").object()
    city.field("placeId").text()
    for name in city.optional("name"):
        name.text()
    for code in city.optional("countryCode"):
        code.check(isinstance(code.value, str) and bool(_COUNTRY.fullmatch(code.value)), "must be two uppercase letters")
    for venue in event.optional("locationName"):
        venue.text()
    for image in event.optional("coverImage"):
        image.check(image.whole() in images, f"no media doc has the id {image.value}")
    for offers in event.optional("offers"):
        items = offers.items()
        offers.check(len(items) <= _MAX_OFFERS, f"must not hold more than {_MAX_OFFERS} offers")
        for offer in items:
            _check_offer(offer)
    return NewEvent(channel_id, title, status, starts_at)


def _check_offer(offer: _Value) -> None:
    offer.object()
    for name in offer.optional("name"):
        name.text()
    for url in offer.optional("url"):
        url.check(bool(_URL.fullmatch(url.text())), "must be an http or https address")
    for stock in offer.optional("availability"):
        stock.check(stock.text() == "available", "must be `available`")
