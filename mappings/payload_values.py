"""Values as the payload holds them: texts in NFC, times in ISO 8601, empties left out.

Which field holds which value is `settling`'s; what the service accepts is `event`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from mappings.evaluation import nfc
from mappings.stepping import Flow
from mappings.transforms.step import Kind

Settle = Callable[[Any], Any]
_NUMBERED = frozenset({"channelId", "coverImage"})
_LISTED = frozenset({"classifications"})


def settle_for(path: str, flow: Flow) -> Settle:
    """Return what makes a value of that flow what the payload holds at a path, None where that is nothing."""
    if path in _NUMBERED:
        return _settle_number
    if path in _LISTED:
        return _settle_list
    return _settle_text if flow == Flow(Kind.TEXT) else settle


def _settle_text(value: Any) -> Any:
    """Return the same as `settle`, sooner for texts."""
    if type(value) is not str:
        return settle(value)
    return (value if value.isascii() else nfc(value)) if value and not value.isspace() else None


def _settle_number(value: Any) -> Any:
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else settle(value)


def _settle_list(value: Any) -> Any:
    if type(value) is str:
        return [nfc(value)] if value and not value.isspace() else None
    settled = settle(value)
    if settled is None or type(settled) is list:
        return settled
    return [settled]


def settle(value: Any) -> Any:
    """Return a value as JSON holds it: texts in NFC, times in ISO 8601, empties as None."""
    match value:
        case str():
            return None if not value or value.isspace() else nfc(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list():
            return [item for item in map(settle, value) if item is not None] or None
        case dict():
            return {
                name: part for name, part in ((name, settle(part)) for name, part in value.items()) if part is not None
            } or None
        case _:
            return value
