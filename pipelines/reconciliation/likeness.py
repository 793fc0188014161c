"""How alike a payload of ours and an item of the service's list are, field by field, whichever fields the item has.

Pure. Which rows and events are compared, and what follows, is `matching`'s.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

KEY_FIELDS = ("idempotencyKey", "idempotency_key")
"""Where a service may tell the key that an event was created under; another key there is another row's event."""
REFERENCE_FIELDS = ("externalId", "external_id", "sourceId", "reference")
"""Where it may stand too; anything else there says nothing."""
_CHANNEL = ("channelId", "channel")
_NAMES_OF_A_THING = ("id", "slug", "name")
_UNTOLD: tuple[object, ...] = (None, "", [], {})
_CHANGES_LATER = frozenset({"status"})
"""A draft is published by hand later, or taken back: another status is the same event's."""
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")


class Strength(StrEnum):
    """How much an item says for being a row's event. `certain`: it shows the row's very key; `strong`: title and start
    agree, and nothing differs; `weak`: one of the two is not shown, and nothing differs; `near`: title and start agree, and
    something else than the channel differs, as after an edit by hand.
    """

    CERTAIN = "certain"
    STRONG = "strong"
    WEAK = "weak"
    NEAR = "near"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Likeness:
    """What agrees and what differs, by the names of our fields; what the item does not tell, or in a way that cannot be
    compared, is neither.
    """

    strength: Strength
    agree: tuple[str, ...]
    differ: tuple[str, ...]


def likeness(payload: Mapping[str, Any], key: str, item: Mapping[str, Any]) -> Likeness:
    """Compare a row's payload and key with an item."""
    told = {name: _is_alike(ours, _told(name, item)) for name, ours in payload.items()}
    agree = tuple(name for name, is_alike in told.items() if is_alike)
    differ = tuple(name for name, is_alike in told.items() if is_alike is False and name not in _CHANGES_LATER)
    if tells_key(item, key):
        return Likeness(Strength.CERTAIN, ("idempotency key", *agree), differ)
    if any(item.get(name) not in _UNTOLD for name in KEY_FIELDS):
        differ = (*differ, "idempotency key")
    return Likeness(_strength(agree, differ), agree, differ)


def tells_key(item: Mapping[str, Any], key: str) -> bool:
    """Whether an item tells this very idempotency key."""
    return any(item.get(name) == key for name in (*KEY_FIELDS, *REFERENCE_FIELDS))


def words(value: object) -> str:
    """Return a text without regard to case, spaces and Unicode form; "" for what is no text."""
    return " ".join(unicodedata.normalize("NFKC", value).casefold().split()) if isinstance(value, str) else ""


def moment(value: object) -> datetime | None:
    """Return the instant that a text names; None for what names none, or one of an unknown zone."""
    if not isinstance(value, str) or not _MOMENT.match(value):
        return None
    try:
        told = datetime.fromisoformat(value)
    except ValueError:
        return None
    return told if told.tzinfo is not None else None


def _strength(agree: tuple[str, ...], differ: tuple[str, ...]) -> Strength:
    shown = {"title", "startAt"} & set(agree)
    if differ:
        is_another = {"idempotency key", *_CHANNEL} & set(differ)
        return Strength.NEAR if len(shown) == 2 and not is_another else Strength.NONE
    return Strength.STRONG if len(shown) == 2 else Strength.WEAK if shown else Strength.NONE


def _told(name: str, item: Mapping[str, Any]) -> object:
    """Return what the item says about a field of ours; the channel may be told as a thing."""
    if name in _CHANNEL:
        return next((item[other] for other in _CHANNEL if item.get(other) not in _UNTOLD), None)
    return item.get(name)


def _is_alike(ours: object, theirs: object) -> bool | None:  # noqa: PLR0911  # a table, one line a kind
    """Compare two values; None where theirs is not told, or is of a kind that cannot be compared."""
    if ours in _UNTOLD or theirs in _UNTOLD:
        return None
    match ours, theirs:
        case dict(), dict():
            return _all_alike([_is_alike(value, theirs.get(name)) for name, value in ours.items()])
        case list(), list():
            return _is_list_alike(ours, theirs)
        case ((int() | str()), dict()):
            told = (theirs[name] for name in _NAMES_OF_A_THING if type(theirs.get(name)) is type(ours))
            return next((_is_alike(ours, value) for value in told), None)
        case str(), str():
            return _is_text_alike(ours, theirs)
        case int(), str() if theirs.strip().isdecimal():
            return ours == int(theirs)
        case ((int() | float()), (int() | float())):
            return ours == theirs
        case _:
            return None


def _is_text_alike(ours: str, theirs: str) -> bool | None:
    ours_at, theirs_at = moment(ours), moment(theirs)
    if ours_at is not None:
        return ours_at == theirs_at if theirs_at is not None else None
    return words(ours) == words(theirs)


def _is_list_alike(ours: list[Any], theirs: list[Any]) -> bool | None:
    if all(isinstance(one, str) for one in (*ours, *theirs)):
        return set(map(words, ours)) == set(map(words, theirs))
    if any(isinstance(one, str) for one in ours) and any(isinstance(one, dict) for one in theirs):
        return None  # slugs and things, perhaps in another order
    if len(ours) != len(theirs):
        return False
    return _all_alike([_is_alike(one, other) for one, other in zip(ours, theirs, strict=True)])


def _all_alike(verdicts: list[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return True if True in verdicts else None
