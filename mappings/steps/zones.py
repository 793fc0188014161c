"""Conversion of wall times to moments, also at clock changes; steps that show a moment in a zone, shift it, or parse a zone's
name.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import lru_cache, partial
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from mappings.reasons import ReasonCode, Refusal
from mappings.steps.step import Family, Kind, Run, Step, plain_step
from mappings.strict import Duration, Switch, Zone
from mappings.zones import find_zone, zone_hint, zone_named

Gap = Literal["reject", "later", "earlier"]
Overlap = Literal["reject", "earlier", "later"]
Localise = Callable[[datetime], datetime]
_MINUTE = timedelta(minutes=1)
_MEMO_SIZE = 4_096
"""Days and times recur (budget 3), and a cached result costs a third of finding both offsets."""


def localiser(zone: ZoneInfo, gap: Gap = "reject", overlap: Overlap = "earlier") -> Localise:
    """Return a function that converts a naive wall time in `zone` to its moment.

    `gap`: a time that the clocks skip is refused, or moved `later` (02:30 becomes 03:30) or `earlier` (01:30) by the length of
    the gap. `overlap`: a time that occurs twice is its `earlier` moment, its `later` one, or refused. The function raises
    Refusal (NO_SUCH_TIME, AMBIGUOUS_TIME).
    """
    return partial(_localise, zone, gap, overlap)


@lru_cache(maxsize=_MEMO_SIZE)
def _localise(zone: ZoneInfo, gap: Gap, overlap: Overlap, wall: datetime) -> datetime:
    first, second = wall.replace(tzinfo=zone, fold=0), wall.replace(tzinfo=zone, fold=1)
    before, after = first.utcoffset() or timedelta(), second.utcoffset() or timedelta()
    if before > after:
        if overlap == "reject":
            hint = f"write {_hour_of(first)} or {_hour_of(second)}, or set overlap in the mapping"
            raise Refusal(ReasonCode.AMBIGUOUS_TIME, hint, particulars={"wall": wall.isoformat()})
        first = first if overlap == "earlier" else second
    elif before < after:
        later, earlier = (moment.astimezone(UTC).astimezone(zone) for moment in (first, second))
        if gap == "reject":
            hint = f"expected {_hour_of(earlier)[:5]} or {_hour_of(later)[:5]} on that day"
            instead = {"wall": wall.isoformat(), "earlier": _hour_of(earlier)[:5], "later": _hour_of(later)[:5]}
            raise Refusal(ReasonCode.NO_SUCH_TIME, hint, particulars=instead)
        first = later if gap == "later" else earlier
    offset = first.utcoffset() or timedelta()
    if offset % _MINUTE:
        hint = f"the clocks of {zone} had no offset of whole minutes then: a later day is needed"
        raise Refusal(ReasonCode.NOT_A_DATE, hint)
    return first.replace(tzinfo=timezone(offset), fold=0)


def _hour_of(moment: datetime) -> str:
    return moment.isoformat(timespec="minutes")[11:]


_DAYS = (Kind.DATE, Kind.WALL, Kind.MOMENT, Kind.ANY)


class WallTimeIn(Step, name="wall_time_in", family=Family.MOMENTS, takes=Kind.WALL, gives=Kind.MOMENT):
    """Convert a date and time in a zone to a moment (the step form of the value `at`).

    Examples:
        {wall_time_in: Europe/Lisbon}: "2026-07-01T18:00:00" -> "2026-07-01T18:00:00+01:00"
        {wall_time_in: Europe/Lisbon}: "2026-03-29T01:30:00" -> no_such_time
        {wall_time_in: Europe/Lisbon, gap: later}: "2026-03-29T01:30:00" -> "2026-03-29T02:30:00+01:00"
        {wall_time_in: Europe/Lisbon, overlap: later}: "2026-10-25T01:30:00" -> "2026-10-25T01:30:00+00:00"
    """

    zone: Zone = Field(alias="wall_time_in", description="The IANA zone of the time.")
    gap: Gap = Field(default="reject", description="What to do with a time that does not exist: the clocks go forward.")
    overlap: Overlap = Field(default="earlier", description="What to do with a time that occurs twice: the clocks go back.")

    def function(self) -> Run:
        return localiser(find_zone(self.zone) or find_zone("UTC"), self.gap, self.overlap)  # type: ignore[arg-type] # both exist


class InZone(Step, name="in_zone", family=Family.MOMENTS, takes=Kind.MOMENT, gives=Kind.MOMENT):
    """Show a moment in a zone: the same instant with another offset.

    Examples:
        {in_zone: Europe/Lisbon}: "2026-07-01T17:00:00+00:00" -> "2026-07-01T18:00:00+01:00"
    """

    zone: Zone = Field(alias="in_zone", description="The IANA zone to show it in.")

    def apply(self, moment: datetime) -> datetime:
        try:
            return moment.astimezone(find_zone(self.zone))
        except OverflowError:
            raise _out_of_range() from None


class _OfDates(Step):
    def misfit(self, kind: Kind) -> str:
        """Return why this step cannot work on a kind: it needs a date."""
        return "" if kind in _DAYS else f"it works on dates, and would get a {kind}: read it with date, datetime or iso first"


def _dated(value: object) -> date:
    """Return a value that is a date; raise Refusal for any other, whose kind the file did not show."""
    if isinstance(value, date):
        return value
    raise Refusal(ReasonCode.NOT_A_DATE, "a date, or a date and time, is needed here")


class Plus(_OfDates, name="plus", family=Family.MOMENTS, takes=Kind.ANY, gives=Kind.ANY):
    """Add or subtract a duration: elapsed time for a moment, whole days for a date.

    Examples:
        {plus: 1h30m}: "2026-07-01T18:00:00+01:00" -> "2026-07-01T19:30:00+01:00"
        {plus: -1d}: "2026-07-01" -> "2026-06-30"
    """

    length: Duration = Field(alias="plus", description="How much: 90m, 1h30m, 2d; -1d is a day earlier.")

    def apply(self, value: object) -> date:
        try:
            return _dated(value) + self.length
        except OverflowError:
            raise _out_of_range() from None

    def misfit(self, kind: Kind) -> str:
        """Return why this step cannot work on a kind: hours can be added only to a date with a time."""
        if kind is Kind.DATE and self.length % timedelta(days=1):
            return "a date has no hours to add to: give it a time with at, then add"
        return super().misfit(kind)


def _out_of_range() -> Refusal:
    return Refusal(ReasonCode.NOT_A_DATE, "expected a day up to 9999-12-31")


class DayOf(_OfDates, name="day_of", family=Family.MOMENTS, takes=Kind.ANY, gives=Kind.DATE, refuses=False):
    """Keep only the calendar day of a date and time.

    Examples:
        day_of: "2026-07-01T18:00:00+01:00" -> "2026-07-01"
    """

    switch: Switch = Field(default=True, alias="day_of")

    def apply(self, value: object) -> date:
        return value.date() if isinstance(value, datetime) else _dated(value)


class ClockOf(_OfDates, name="clock_of", family=Family.MOMENTS, takes=Kind.ANY, gives=Kind.CLOCK, refuses=False):
    """Keep only the time of day of a date and time.

    Examples:
        clock_of: "2026-07-01T18:00:00+01:00" -> "18:00:00"
    """

    switch: Switch = Field(default=True, alias="clock_of")

    def apply(self, value: object) -> time | None:
        return value.time() if isinstance(value, datetime) else None

    def misfit(self, kind: Kind) -> str:
        """Return why this step cannot work on a kind: a day alone has no time of day."""
        return "a day alone has no time of day" if kind is Kind.DATE else super().misfit(kind)


@plain_step("zone", Family.MOMENTS)
def read_zone(text: str) -> str:
    """Parse a zone's name, ignoring case; old names and Windows names are converted to today's IANA names.

    A name that Windows shows is read if the places in it have one time all year. Abbreviations (EST) and bare offsets (UTC+2)
    are refused: they do not determine summer time.

    Examples:
        zone: "US/Eastern" -> "America/New_York"
        zone: "asia/calcutta " -> "Asia/Kolkata"
        zone: "Eastern Standard Time" -> "America/New_York"
        zone: "(UTC+01:00) Amsterdam, Berlin, Bern, Rome, Stockholm, Vienna" -> "Europe/Berlin"
        zone: "EST" -> not_a_zone
        zone: "UTC+2" -> not_a_zone
    """
    found = zone_named(text)
    if not found:
        raise Refusal(ReasonCode.NOT_A_ZONE, zone_hint(text))
    return found
