"""The values `at` and `in_zone`: a day and a time of day become a moment in a zone, or a moment is shown in one.

Here are the rules for whole days, times that only stand for "all day", 24:00, and ends written exclusively.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from mappings.compiler.base import CompiledValue, Compiler, lenient, refused_empty
from mappings.compiler.evaluation import Flow, Getter, RowState, compile_policy, required
from mappings.positions import ValuePosition
from mappings.refusals import ReasonCode, Refusal
from mappings.spec.values import At, Choose, FirstOf, From, InZoneValue, Value, Wall
from mappings.steps.step import Kind
from mappings.strict import UsePolicy
from mappings.zones import EndOfDay, Gap, Localise, TimeOfDay, find_zone, localiser

_CLOCK = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_A_DAY = timedelta(days=1)


class WallTime(NamedTuple):
    """A local date and time, in no zone yet. `is_all_day`: the time is the feed's own, not the partner's."""

    local: datetime
    is_all_day: bool = False


ReadWall = Callable[[RowState], WallTime | None]
"""Returns a row's wall time, None where it has no day; raises Refusal."""


def wall_reader(day: Getter, clock: Getter | None, wall: Wall, clock_column: str) -> ReadWall:
    """Compile how a row's day and clock (None where they are empty) are read together."""
    all_day = None if wall.all_day is None else time.fromisoformat(wall.all_day)
    sentinels = frozenset(_minute(time.fromisoformat(each)) for each in wall.sentinels)

    def read(row: RowState) -> WallTime | None:
        on = day(row)
        if on is None:
            return None
        shown = _own_clock(on) if clock is None else _shown(clock(row))
        if shown is not None and not (sentinels and _minute(shown) in sentinels):
            return WallTime(on if clock is None else together(on, shown))
        if all_day is None:
            raise required(clock_column, "a time of day is needed, or all_day in the mapping")
        return WallTime(together(on, all_day, back=1 if wall.exclusive else 0), is_all_day=True)

    return read


def together(day: Any, clock: TimeOfDay, back: int = 0) -> datetime:
    """Return a day at a time of day, `back` days earlier; 24:00 is the next day's midnight."""
    if type(day) is str:
        day = day_from_text(day)
    if isinstance(day, datetime):
        day = day.date()
    if not isinstance(day, date):
        raise Refusal(ReasonCode.NOT_A_DATE, "a date and a time of day are needed here", found=str(day))
    if isinstance(clock, EndOfDay):
        return shifted(datetime.combine(day, time()), 1 - back)
    wall = datetime.combine(day, clock)
    return shifted(wall, -back) if back else wall


def shifted(wall: datetime, days: int) -> datetime:
    """Return the same time of day so many days later."""
    try:
        return wall + days * _A_DAY
    except OverflowError:
        raise Refusal(ReasonCode.NOT_A_DATE, "a day up to 9999-12-31 would be accepted", found=wall.isoformat()) from None


@lru_cache(maxsize=256)
def clock_from_text(text: str) -> time:
    """Read a time that stands in the mapping file itself: 19:00."""
    if not _CLOCK.fullmatch(text):
        raise Refusal(ReasonCode.NOT_A_TIME, 'a time of day like "19:00" is needed here', found=text)
    return time.fromisoformat(text)


@lru_cache(maxsize=256)
def day_from_text(text: str) -> date:
    """Read a day that stands in the mapping file itself: 2026-07-01."""
    try:
        day = date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None:
        raise Refusal(ReasonCode.NOT_A_DATE, 'a date like "2026-07-01" is needed here', found=text)
    return day


def _own_clock(on: Any) -> TimeOfDay | None:
    return on.time() if isinstance(on, datetime) else None


def _shown(clock: Any) -> TimeOfDay | None:
    if clock is None or isinstance(clock, TimeOfDay):
        return clock
    if type(clock) is str:
        return clock_from_text(clock)
    raise Refusal(ReasonCode.NOT_A_TIME, "a time of day is needed here", found=str(clock))


def _minute(clock: TimeOfDay) -> int:
    """The minute of the day; 24:00 is none of the day's own."""
    return -1 if isinstance(clock, EndOfDay) else clock.hour * 60 + clock.minute


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a part of a moment must be, how that is said to the author, and how the file itself may write it."""

    kinds: tuple[Kind, ...]
    hint: str
    read: Callable[[str], Any] | None = None


_DAY_WANTED = _Wanted((Kind.DATE, Kind.WALL, Kind.ANY), 'a date is needed: do: [{date: "%Y-%m-%d"}]', day_from_text)
_CLOCK_WANTED = _Wanted((Kind.CLOCK, Kind.ANY), 'a time is needed: do: [{time: "%H:%M"}]', clock_from_text)
_MOMENTS = (Kind.MOMENT, Kind.ANY)
Place = Callable[[RowState, WallTime], Any]
"""Returns the moment at which a row's clocks show that."""


def compile_moment(compiler: Compiler, value: At, spot: ValuePosition) -> CompiledValue:
    """Compile a wall time in a zone."""
    wall = value.at
    day = _operand(compiler, wall.day, spot.inner("at", "day", may_be_empty=True), _DAY_WANTED)
    clock_spot = spot.inner("at", "clock", may_be_empty=True)
    clock = None if wall.clock is None else _operand(compiler, wall.clock, clock_spot, _CLOCK_WANTED)
    if clock is None and wall.all_day is None and day.flow.kind is Kind.DATE:
        hint = 'add clock: {from: COLUMN, do: [{time: "%H:%M"}]}, or all_day: "00:00"'
        return compiler.misfit(spot.inner("at"), "a day alone is no moment: it has no time of day", hint)
    ends = compiler.ends(value, spot, day.column)
    clock_column = "" if clock is None else clock.column
    read = wall_reader(lenient(day.get), None if clock is None else lenient(clock.get), wall, clock_column)
    place = _ending(compiler, wall, spot, _placer(compiler, wall, spot.inner("at", "zone")))

    def moment(row: RowState) -> Any:
        shown: WallTime | None = None
        try:
            shown = read(row)
            return refused_empty(ends, row) if shown is None else place(row, shown)
        except Refusal as refusal:
            if refusal.is_empty:
                return ends.apply(row, refusal.about(clock_column or day.column, "", ""))
            found = "" if shown is None else shown.local.isoformat(" ", "minutes")
            return ends.apply(row, refusal.about(clock_column or day.column, found, "at"))

    if clock is None or spot.loc != ("event", spot.path):  # inside another value, that value's own policy may yet save the row
        return CompiledValue(moment, Flow(Kind.MOMENT), day.column)
    return CompiledValue(_with_both_reported(moment, clock.get, spot.path), Flow(Kind.MOMENT), day.column)


def _ending(compiler: Compiler, wall: Wall, spot: ValuePosition, place: Place) -> Place:
    """Check an end against its start, where the mapping names the start."""
    if wall.start is None:
        return place
    hint = "the start is a moment, as `at` gives it: name it under let, and write start: $starts"
    starts = _operand(compiler, wall.start, spot.inner("at", "start", may_be_empty=True), _Wanted(_MOMENTS, hint))
    mend = compile_policy(None if wall.before_start == "next_day" else wall.before_start, spot.path)

    def placed(row: RowState, shown: WallTime) -> Any:
        end = place(row, shown)
        try:
            begins = starts.get(row)
        except Refusal:  # reported where the start stands
            return end
        if not isinstance(begins, datetime) or begins.tzinfo is None or begins <= end:
            return end
        if wall.before_start == "next_day" and not shown.is_all_day and shown.local.date() == begins.date():
            return place(row, WallTime(shifted(shown.local, 1)))
        hint = f"it starts {begins.isoformat()}: an end after that would be accepted"
        found = shown.local.isoformat(" ", "minutes")
        return mend(row, Refusal(ReasonCode.END_BEFORE_START, hint, found=found, step="at"))

    return placed


def _with_both_reported(moment: Getter, clock: Getter, path: str) -> Getter:
    """Where the day rejects the row, read the clock as well, so that both are reported at once."""

    def both(row: RowState) -> Any:
        try:
            return moment(row)
        except Refusal as first:
            try:
                clock(row)
            except Refusal as second:
                if not second.is_empty and second.reason(path) != first.reason(path):
                    row.reasons.append(second.reason(path))
            raise

    return both


def compile_instant(compiler: Compiler, value: InZoneValue, spot: ValuePosition) -> CompiledValue:
    """Compile a moment shown in a zone."""
    asked, hint = value.in_zone, 'a moment is needed: do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}]'
    moment = _operand(compiler, asked.moment, spot.inner("in_zone", "moment", may_be_empty=True), _Wanted(_MOMENTS, hint))
    zone = _zone_finder(compiler, compiler.value(asked.zone, spot.inner("in_zone", "zone")), spot.inner("in_zone", "zone"))
    ends = compiler.ends(value, spot, moment.column)
    read = lenient(moment.get)

    def shown(row: RowState) -> Any:
        try:
            found = read(row)
            return refused_empty(ends, row) if found is None else _seen(found, zone(row))
        except Refusal as refusal:
            return ends.apply(row, refusal.about(moment.column, "", "in_zone"))

    return CompiledValue(shown, Flow(Kind.MOMENT), moment.column)


def _seen(found: Any, zone: ZoneInfo) -> datetime:
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise Refusal(ReasonCode.NOT_A_DATE, "a date and time with its offset is needed here", found=str(found))
    try:
        return found.astimezone(zone)
    except OverflowError:
        raise Refusal(ReasonCode.NOT_A_DATE, "a day up to 9999-12-31 would be accepted", found=str(found)) from None


def _operand(compiler: Compiler, value: Value, spot: ValuePosition, wanted: _Wanted) -> CompiledValue:
    compiled = compiler.value(value, spot)
    written = compiled.constant
    if written is not None and wanted.read is not None and not _is_readable(written, wanted):
        return compiler.misfit(spot, f'"{written}" does not fit here', wanted.hint)
    if written is not None and wanted.read is not None:
        constant = wanted.read(written)
        return CompiledValue(lambda _row: constant, Flow(wanted.kinds[0]), compiled.column)
    if compiled.flow.is_list or compiled.flow.kind not in wanted.kinds:
        return compiler.misfit(spot, f"a {compiled.flow.kind} does not fit here", wanted.hint)
    _check_stand_ins(compiler, value, spot, wanted)
    return compiled


def _check_stand_ins(compiler: Compiler, value: Value, spot: ValuePosition, wanted: _Wanted) -> None:
    """What stands in by `{use: X}` is the file's own text, and must be readable as well."""
    if wanted.read is None or not isinstance(value, From | FirstOf | Choose):
        return
    for key, policy in (("on_empty", value.on_empty), ("on_error", value.on_error)):
        if isinstance(policy, UsePolicy) and not (isinstance(policy.use, str) and _is_readable(policy.use, wanted)):
            compiler.misfit(spot.inner(key), f'"{policy.use}" cannot stand in here', "write it like 19:00 or 2026-07-01")


def _is_readable(text: str, wanted: _Wanted) -> bool:
    try:
        return wanted.read is not None and wanted.read(text) is not None
    except Refusal:
        return False


def _placer(compiler: Compiler, wall: Wall, spot: ValuePosition) -> Place:
    compiled = compiler.value(wall.zone, spot)
    find = _zone_finder(compiler, compiled, spot)
    localise: Callable[[ZoneInfo], Localise] = lru_cache(maxsize=64)(lambda zone: localiser(zone, wall.gap, wall.overlap))
    begin: Callable[[ZoneInfo], Localise] = lru_cache(maxsize=64)(lambda zone: localiser(zone, _of_a_day(wall.gap), wall.overlap))
    return lambda row, shown: (begin if shown.is_all_day else localise)(find(row))(_naive(shown.local))


def _of_a_day(gap: Gap) -> Gap:
    """A day whose midnight the clocks jump over begins when they show a time again: the midnight is ours, not the partner's."""
    return "later" if gap == "reject" else gap


def _zone_finder(compiler: Compiler, compiled: CompiledValue, spot: ValuePosition) -> Callable[[RowState], ZoneInfo]:
    """Return the function that gives a row's zone; it raises Refusal where the row names none."""
    if compiled.constant is not None and find_zone(compiled.constant) is None:
        compiler.misfit(spot, f'"{compiled.constant}" is not a time zone', 'write it like "Europe/Lisbon"')

    def find(row: RowState) -> ZoneInfo:
        name = str(compiled.get(row) or "")
        zone = find_zone(name)
        if zone is None:
            wanted = "an IANA zone such as Europe/Lisbon would be accepted; the step zone knows old names"
            raise Refusal(ReasonCode.NOT_A_ZONE, wanted, column=compiled.column, found=name)
        return zone

    return find


def _naive(local: datetime) -> datetime:
    if local.tzinfo is not None:
        hint = "it carries an offset already: use it as it is, or the step in_zone"
        raise Refusal(ReasonCode.NOT_A_DATE, hint, found=local.isoformat())
    return local
