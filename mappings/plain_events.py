"""Payloads that plainly are events, seen sooner than the model of `event` would say so.

Whatever is not plain is left to the model, which also says why not: nothing here refuses anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any

from mappings.event import COUNTRY, MOMENT, STATES, URL
from mappings.zones import find_zone

IsPlain = Callable[[Any], bool]
"""True for what plainly keeps the rules of Event; False, or an error of `DOUBTS`: look closer."""
DOUBTS = (AttributeError, KeyError, TypeError, UnicodeEncodeError)

_needed = itemgetter("channelId", "title", "startAt", "timezone", "classifications", "approxLocation")
_is_country = re.compile(COUNTRY).fullmatch
_is_url = re.compile(URL).fullmatch
_is_spelt = re.compile(MOMENT).fullmatch


def plain_test(fields: Collection[str], vouched: Collection[str]) -> IsPlain:
    """Return the test of a payload of these fields, of which those `vouched` for are plain wherever they are there."""
    rules = {field: rule for field, rule in PLAIN.items() if field in fields and field not in vouched}
    if "approxLocation" in rules and "approxLocation.city" in vouched:
        rules["approxLocation"] = _has_city
    asked = tuple(rules.items())

    def is_plain(payload: Mapping[str, Any]) -> bool:
        try:
            _needed(payload)
            for field, rule in asked:
                if field in payload and not rule(payload[field]):
                    return False
        except DOUBTS:
            return False
        return True

    return is_plain


def is_plainly(path: str, value: Any) -> bool:
    """True if a value of the field at a path plainly keeps the rules for it; there are none for paths beside `PLAIN`."""
    try:
        return path not in PLAIN or PLAIN[path](value)
    except DOUBTS:
        return False


def _is_text(value: Any) -> bool:
    return type(value) is str and value != "" and (value.isascii() or value.encode() != b"")


def _is_whole(value: Any) -> bool:
    return type(value) is int


@lru_cache(maxsize=4096)
def _is_moment(text: str) -> bool:
    try:
        return _is_spelt(text) is not None and datetime.fromisoformat(text) is not None
    except ValueError:
        return False


def _is_zone(name: str) -> bool:
    return find_zone(name) is not None


def _is_state(status: Any) -> bool:
    return status in STATES


def _are_slugs(slugs: Any) -> bool:
    return type(slugs) is list and len(slugs) > 0 and all(map(_is_text, slugs))


def _is_place(place: Any) -> bool:
    return _is_city(place["city"])


def _has_city(place: Any) -> bool:
    return "city" in place


def _is_city(city: Any) -> bool:
    is_known = "placeId" in city and ("countryCode" not in city or _is_country(city["countryCode"]) is not None)
    return is_known and all(map(_is_text, city.values()))


def _are_offers(offers: Any) -> bool:
    if type(offers) is not list or not offers:
        return False
    for offer in offers:
        if "url" in offer and _is_url(offer["url"]) is None:
            return False
        for value in offer.values():
            if not _is_text(value):
                return False
    return True


def unknown(_value: Any) -> bool:
    """Leave it to the model."""
    return False


PLAIN: Mapping[str, IsPlain] = {
    "channelId": _is_whole,
    "title": _is_text,
    "startAt": _is_moment,
    "endAt": _is_moment,
    "timezone": _is_zone,
    "status": _is_state,
    "classifications": _are_slugs,
    "approxLocation": _is_place,
    "approxLocation.city": _is_city,
    "locationName": _is_text,
    "offers": _are_offers,
    "coverImage": unknown,
}
"""The fields of which the model has something to say, and when it plainly has nothing against them."""
