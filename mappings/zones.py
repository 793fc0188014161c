"""Time zones, from the IANA database of the package tzdata; wall times in a zone become moments, near a change of clocks too.

Nothing here reads the machine's own zone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, timezone
from functools import lru_cache, partial
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal
from zoneinfo import ZoneInfo

from mappings.reasons import ReasonCode, Refusal

Gap = Literal["reject", "later", "earlier"]
Overlap = Literal["reject", "earlier", "later"]
Localise = Callable[[datetime], datetime]
_MINUTE = timedelta(minutes=1)
_MEMO_SIZE = 4_096
"""Days and times come again (budget 3): a memo is a third of the cost of looking both offsets up."""


def localiser(zone: ZoneInfo, gap: Gap = "reject", overlap: Overlap = "earlier") -> Localise:
    """Return the function that says which moment a naive wall time in `zone` is.

    `gap`: a time that the clocks jump over is refused, or moved `later` (02:30 becomes 03:30, as a clock not yet
    changed would mean it) or `earlier` (01:30) by the length of the gap. `overlap`: a time that happens twice is its
    `earlier` moment, its `later` one, or refused. The function raises Refusal (NO_SUCH_TIME, AMBIGUOUS_TIME).
    """
    return lru_cache(maxsize=_MEMO_SIZE)(partial(_localise, zone, gap, overlap))


def _localise(zone: ZoneInfo, gap: Gap, overlap: Overlap, wall: datetime) -> datetime:
    first, second = wall.replace(tzinfo=zone, fold=0), wall.replace(tzinfo=zone, fold=1)
    before, after = first.utcoffset() or timedelta(), second.utcoffset() or timedelta()
    if before > after:
        if overlap == "reject":
            hint = f"the clocks go back: write {_clock(first)} or {_clock(second)}, or let the feed choose with overlap"
            raise Refusal(ReasonCode.AMBIGUOUS_TIME, hint)
        first = first if overlap == "earlier" else second
    elif before < after:
        later, earlier = (moment.astimezone(UTC).astimezone(zone) for moment in (first, second))
        if gap == "reject":
            hint = f"{_clock(earlier)[:5]} or {_clock(later)[:5]} would be accepted on that day"
            raise Refusal(ReasonCode.NO_SUCH_TIME, hint)
        first = later if gap == "later" else earlier
    offset = first.utcoffset() or timedelta()
    if offset % _MINUTE:
        hint = f"the clocks of {zone} had no offset of whole minutes then: a later day is needed"
        raise Refusal(ReasonCode.NOT_A_DATE, hint)
    return first.replace(tzinfo=timezone(offset), fold=0)


def _clock(moment: datetime) -> str:
    return moment.isoformat(timespec="minutes")[11:]


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return the names of all zones, old ones included."""
    return frozenset(zone_table("zones"))


@lru_cache(maxsize=1024)
def find_zone(name: str) -> ZoneInfo | None:
    """Return the IANA zone of that exact name, or None. Nothing of the machine's own database is read."""
    if name not in zone_names():
        return None
    with _folder().joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, key=name)


def zone_table(name: str) -> list[str]:
    """Return the lines of one of the database's own tables, without comments."""
    inside = () if name == "zones" else ("zoneinfo",)
    text = _folder().joinpath(*inside, name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _folder() -> Traversable:
    return resources.files("tzdata")


class EndOfDay:
    """24:00, the midnight at which a day ends, where a time of day is expected: later than every time of that day."""

    __slots__ = ()

    def isoformat(self, timespec: str = "auto") -> str:
        """Write 24:00:00, as ISO 8601 does."""
        return "24:00" if timespec == "minutes" else "24:00:00"

    __str__ = isoformat

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self


DAY_END = EndOfDay()
"""The only one of its kind."""
TimeOfDay = time | EndOfDay
