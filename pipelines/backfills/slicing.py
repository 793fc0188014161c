"""Cutting a window into slices: so many days each, or the weeks and months of the calendar.

What is done with a slice is the backfill's matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta

from mappings.errors import ConfigError
from pipelines.backfills.windows import By, Window

MOST_SLICES = 5_000
_DAYS = re.compile(r"[1-9]\d{0,3}", re.ASCII)
_WORDS = ("day", "week", "month")


def usual_slice(by: By) -> str:
    """Return how a window is cut where nobody says: by event each slice reads the source again, so that there should be few."""
    return "month" if by == "event" else "day"


def cut(window: Window, slice_: str) -> tuple[Window, ...]:
    """Return the slices of a window, the oldest first: `day`, `week` (from Monday), `month`, or a number of days.

    Raises:
        ConfigError: the word is none of these, or there would be too many slices.
    """
    if slice_ not in _WORDS and not _DAYS.fullmatch(slice_):
        raise ConfigError(f"--slice {slice_} is no length", hint="say day, week, month, or a number of days")
    days = (window.last - window.first).days + 1
    slices = []
    for first, last in _spans(window, slice_):
        slices.append(window.model_copy(update={"first": first, "last": last}))
        if len(slices) > MOST_SLICES:
            message = f"{days:,} days make more than {MOST_SLICES:,} slices by --slice {slice_}"
            raise ConfigError(message, hint="use a longer --slice, such as month")
    return tuple(slices)


def _spans(window: Window, slice_: str) -> Iterator[tuple[date, date]]:
    first = window.first
    while first <= window.last:
        last = min(_last_of(first, slice_), window.last)
        yield first, last
        first = last + timedelta(days=1)


def _last_of(first: date, slice_: str) -> date:
    match slice_:
        case "day":
            return first
        case "week":
            return first + timedelta(days=6 - first.weekday())
        case "month":
            return (first.replace(day=1) + timedelta(days=32)).replace(day=1) - timedelta(days=1)
        case days:
            return first + timedelta(days=int(days) - 1)
