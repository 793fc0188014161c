"""The values `at` and `in_zone`: a day and a clock in a zone, a moment seen from one. Steps that do so are in `transforms`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from mappings.compiling import Compiled, Compiler, Spot, lenient, refused_empty
from mappings.evaluation import Getter, RowState, required
from mappings.refusals import Refusal
from mappings.stepping import Flow
from mappings.transforms.step import Kind
from mappings.values import At, Seen, Wall
from mappings.vocabulary import ReasonCode
from mappings.zone_files import find_zone
from mappings.zones import Localise, localiser

_DAYS = (Kind.DATE, Kind.WALL, Kind.ANY)
_MOMENTS = (Kind.MOMENT, Kind.ANY)
_CLOCKS = (Kind.CLOCK, Kind.ANY)


def compile_moment(compiler: Compiler, value: At, spot: Spot) -> Compiled:
    """Compile a wall time in a zone."""
    wall = value.at
    day = _operand(
        compiler, wall.day, spot.inner("at", "day", may_be_empty=True), _DAYS, 'a date is needed: do: [{date: "%Y-%m-%d"}]'
    )
    clock = None
    if wall.clock is not None:
        clock_spot = spot.inner("at", "clock", may_be_empty=True)
        clock = _operand(compiler, wall.clock, clock_spot, _CLOCKS, 'a time is needed: do: [{time: "%H:%M"}]')
    elif wall.all_day is None and day.flow.kind is Kind.DATE:
        hint = 'add clock: {from: COLUMN, do: [{time: "%H:%M"}]}, or all_day: "00:00"'
        return compiler.misfit(spot.inner("at"), "a day alone is no moment: it has no time of day", hint)
    ends = compiler.ends(value, spot, day.column)
    clock_column = "" if clock is None else clock.column
    read = _wall_reader(lenient(day.get), None if clock is None else lenient(clock.get), wall, clock_column)
    place = _placer(compiler, wall, spot.inner("at", "zone"))

    def moment(row: RowState) -> Any:
        local: datetime | None = None
        try:
            local = read(row)
            return refused_empty(ends, row) if local is None else place(row, local)
        except Refusal as refusal:
            found = "" if local is None else local.isoformat(" ", "minutes")
            told = refusal.about(clock_column or day.column, found, "at")
            return (ends.on_empty if refusal.is_empty else ends.on_error)(row, told)

    if clock is None or spot.loc != ("event", spot.path):  # inside another value, that value's own policy may yet save the row
        return Compiled(moment, Flow(Kind.MOMENT), day.column)
    return Compiled(_with_both_told(moment, clock.get, spot.path), Flow(Kind.MOMENT), day.column)


def _with_both_told(moment: Getter, clock: Getter, path: str) -> Getter:
    """Where the day rejects the row, look at the clock as well: whoever mends the row wants to know both at once."""

    def told(row: RowState) -> Any:
        try:
            return moment(row)
        except Refusal as first:
            try:
                clock(row)
            except Refusal as second:
                if not second.is_empty and second.reason(path) != first.reason(path):
                    row.reasons.append(second.reason(path))
            raise

    return told


def compile_instant(compiler: Compiler, value: Seen, spot: Spot) -> Compiled:
    """Compile a moment shown in a zone."""
    asked, hint = value.in_zone, 'a moment is needed: do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}]'
    moment = _operand(compiler, asked.moment, spot.inner("in_zone", "moment", may_be_empty=True), _MOMENTS, hint)
    zone = _zone_finder(compiler, compiler.value(asked.zone, spot.inner("in_zone", "zone")), spot.inner("in_zone", "zone"))
    ends = compiler.ends(value, spot, moment.column)
    read = lenient(moment.get)

    def shown(row: RowState) -> Any:
        try:
            found = read(row)
            return refused_empty(ends, row) if found is None else _seen(found, zone(row))
        except Refusal as refusal:
            told = refusal.about(moment.column, "", "in_zone")
            return (ends.on_empty if refusal.is_empty else ends.on_error)(row, told)

    return Compiled(shown, Flow(Kind.MOMENT), moment.column)


def _seen(found: Any, zone: ZoneInfo) -> datetime:
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise Refusal(ReasonCode.NOT_A_DATE, "a date and time with its offset is needed here", found=str(found))
    try:
        return found.astimezone(zone)
    except OverflowError:
        raise Refusal(ReasonCode.NOT_A_DATE, "a day up to 9999-12-31 would be accepted", found=str(found)) from None


def _operand(compiler: Compiler, value: Any, spot: Spot, kinds: tuple[Kind, ...], hint: str) -> Compiled:
    compiled = compiler.value(value, spot)
    if compiled.flow.is_list or compiled.flow.kind not in kinds:
        return compiler.misfit(spot, f"a {compiled.flow.kind} does not fit here", hint)
    return compiled


def _wall_reader(day: Getter, clock: Getter | None, wall: Wall, clock_column: str) -> Callable[[RowState], datetime | None]:
    all_day = None if wall.all_day is None else time.fromisoformat(wall.all_day)

    def read(row: RowState) -> datetime | None:
        on = day(row)
        if on is None:
            return None
        shown = None if clock is None else clock(row)
        if isinstance(on, datetime) and clock is None:
            return on
        shown = all_day if shown is None else shown
        if shown is None:
            raise required(clock_column, "a time of day is needed, or all_day in the mapping")
        return _combined(on, shown)

    return read


def _combined(day: Any, clock: Any) -> datetime:
    if isinstance(day, datetime):
        day = day.date()
    if isinstance(day, date) and isinstance(clock, time):
        return datetime.combine(day, clock)
    raise Refusal(ReasonCode.NOT_A_DATE, "a date and a time of day are needed here", found=str(day))


def _placer(compiler: Compiler, wall: Wall, spot: Spot) -> Callable[[RowState, datetime], datetime]:
    compiled = compiler.value(wall.zone, spot)
    find = _zone_finder(compiler, compiled, spot)
    localise: Callable[[ZoneInfo], Localise] = lru_cache(maxsize=64)(lambda zone: localiser(zone, wall.gap, wall.overlap))
    constant = None if compiled.constant is None else find_zone(compiled.constant)
    if constant is not None:
        fixed = localise(constant)
        return lambda _row, local: fixed(_naive(local))
    return lambda row, local: localise(find(row))(_naive(local))


def _zone_finder(compiler: Compiler, compiled: Compiled, spot: Spot) -> Callable[[RowState], ZoneInfo]:
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
