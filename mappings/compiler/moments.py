"""Compiles the values that give moments: `at`, `in_zone` and `plus`, with the days, times, zones and lengths that they take."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from mappings.compiler.base import CompiledValue, Compiler, Flow, Getter, RowState, compile_policy, lenient, required
from mappings.positions import ValuePosition
from mappings.reasons import ReasonCode, Refusal
from mappings.spec import values as spec
from mappings.spec.values import Value
from mappings.steps.step import Kind
from mappings.steps.zones import localiser
from mappings.strict import UsePolicy
from mappings.zones import EndOfDay, TimeOfDay, find_zone

_CLOCK, _DAY = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?"), re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@lru_cache(maxsize=256)
def clock_from_text(text: str) -> time:
    """Parse a time in the mapping file, such as 19:00."""
    if not _CLOCK.fullmatch(text):
        raise Refusal(ReasonCode.NOT_A_TIME, 'a time of day like "19:00" is needed here', found=text)
    return time.fromisoformat(text)


@lru_cache(maxsize=256)
def day_from_text(text: str) -> date:
    """Parse a date in the mapping file, such as 2026-07-01."""
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise Refusal(ReasonCode.NOT_A_DATE, 'a date like "2026-07-01" is needed here', found=text)


class _Operand(NamedTuple):
    """The allowed kinds of one operand of a moment, the hint for other kinds, and the parser for a constant in the file."""

    kinds: tuple[Kind, ...]
    hint: str
    read: Callable[[str], Any] | None = None


_DAY_OPERAND = _Operand((Kind.DATE, Kind.WALL, Kind.ANY), 'a date is needed: do: [{date: "%Y-%m-%d"}]', day_from_text)
_CLOCK_OPERAND = _Operand((Kind.CLOCK, Kind.ANY), 'a time is needed: do: [{time: "%H:%M"}]', clock_from_text)
_START_OPERAND = _Operand(
    (Kind.MOMENT, Kind.ANY), "the start is a moment, as `at` gives it: name it under let, and write start: $starts"
)
_LENGTH_OPERAND = _Operand(
    (Kind.DURATION, Kind.ANY), "a length of time is needed: do: [duration]; the step plus adds one that is the same in all rows"
)
_MOMENT_OPERAND = _Operand((Kind.MOMENT, Kind.ANY), 'a moment is needed: do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}]')


def compile_at(compiler: Compiler, value: spec.At, spot: ValuePosition) -> CompiledValue:
    """Compile `at`, a wall time in a zone."""
    wall, inner = value.at, spot.inner("at", may_be_empty=True)
    day = _compile_operand(compiler, wall.day, inner.inner("day"), _DAY_OPERAND)
    clock = None if wall.clock is None else _compile_operand(compiler, wall.clock, inner.inner("clock"), _CLOCK_OPERAND)
    if clock is None and wall.all_day is None and day.flow.kind is Kind.DATE:
        hint = 'add clock: {from: COLUMN, do: [{time: "%H:%M"}]}, or all_day: "00:00"'
        return compiler.misfit(spot.inner("at"), "a day alone is no moment: it has no time of day", hint)
    column = (clock.column if clock is not None else "") or day.column
    read_wall = _wall_reader(wall, day, clock)
    find = _compile_zone(compiler, wall.zone, spot.inner("at", "zone"))

    def place(row: RowState, local: datetime, *, is_all_day: bool) -> datetime:
        zone = find(row)
        if local.tzinfo is not None:
            hint = "it carries an offset already: use it as it is, or the step in_zone"
            raise Refusal(ReasonCode.NOT_A_DATE, hint, found=local.isoformat())
        # If the clocks skip midnight, a whole day begins after the gap: that midnight is ours, not the partner's.
        gap = "later" if is_all_day and wall.gap == "reject" else wall.gap
        return localiser(zone, gap, wall.overlap)(local)

    check = _compile_order(compiler, wall, spot, place)
    recover = compiler.compile_policies(value, spot)

    def moment(row: RowState) -> Any:
        found = ""
        try:
            local, is_all_day = read_wall(row)
            if local is None:
                return recover(row, required(day.column))
            found = local.isoformat(" ", "minutes")
            end = place(row, local, is_all_day=is_all_day)
            return end if check is None else check(row, local, end, is_all_day)
        except Refusal as refusal:
            at = ("", "") if refusal.is_empty else (found, "at")
            return recover(row, refusal.about(column, *at))

    # Inside another value, that value's own policy may still keep the row.
    is_last = spot.loc == ("event", spot.path)
    get = _with_both_reported(moment, clock.get, spot.path) if clock is not None and is_last else moment
    return CompiledValue(get, Flow(Kind.MOMENT), day.column)


def _with_both_reported(moment: Getter, clock: Getter, path: str) -> Getter:
    """Return a getter that also reads the clock when the day is refused, so that both problems are reported at once."""

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


def _wall_reader(
    wall: spec.Wall, day: CompiledValue, clock: CompiledValue | None
) -> Callable[[RowState], tuple[datetime | None, bool]]:
    """Return a function for a row's local time (None without a day), and whether its time of day is the feed's `all_day`."""
    read_day, read_clock = lenient(day.get), None if clock is None else lenient(clock.get)
    all_day = None if wall.all_day is None else time.fromisoformat(wall.all_day)

    def read(row: RowState) -> tuple[datetime | None, bool]:
        on = read_day(row)
        if on is None:
            return None, False
        given = on.time() if isinstance(on, datetime) else None
        shown = given if read_clock is None else _read_clock(read_clock(row))
        if shown is not None and not (wall.sentinels and shown.isoformat("minutes") in wall.sentinels):
            return on if read_clock is None else _together(on, shown), False
        if all_day is None:
            raise required("" if clock is None else clock.column, "a time of day is needed, or all_day in the mapping")
        return _together(on, all_day, days_back=int(wall.exclusive)), True

    return read


def _read_clock(clock: Any) -> TimeOfDay | None:
    if clock is None or isinstance(clock, TimeOfDay):
        return clock
    if type(clock) is str:
        return clock_from_text(clock)
    raise Refusal(ReasonCode.NOT_A_TIME, "a time of day is needed here", found=str(clock))


def _together(day: Any, clock: TimeOfDay, days_back: int = 0) -> datetime:
    """Combine a day and a time of day; 24:00 is midnight of the next day."""
    if type(day) is str:
        day = day_from_text(day)
    if not isinstance(day, date):
        raise Refusal(ReasonCode.NOT_A_DATE, "a date and a time of day are needed here", found=str(day))
    if isinstance(clock, EndOfDay):
        return _shift(datetime.combine(day, time()), 1 - days_back)
    return _shift(datetime.combine(day, clock), -days_back)


def _shift(local: datetime, days: int) -> datetime:
    try:
        return local + timedelta(days=days) if days else local
    except OverflowError:
        raise Refusal(ReasonCode.NOT_A_DATE, "expected a day up to 9999-12-31", found=local.isoformat()) from None


def _compile_order(
    compiler: Compiler, wall: spec.Wall, spot: ValuePosition, place: Callable[..., datetime]
) -> Callable[[RowState, datetime, datetime, bool], Any] | None:
    """Return a function that checks an end against its start, None if the mapping gives no start."""
    if wall.start is None:
        return None
    starts = _compile_operand(compiler, wall.start, spot.inner("at", "start", may_be_empty=True), _START_OPERAND)
    policy = wall.before_start
    recover = compile_policy(None if policy == "next_day" else policy, spot.path)

    def check(row: RowState, local: datetime, end: datetime, is_all_day: bool) -> Any:
        try:
            begins = starts.get(row)
        except Refusal:  # the start's own field reports it
            return end
        if not isinstance(begins, datetime) or begins.tzinfo is None or begins <= end:
            return end
        if policy == "next_day" and not is_all_day and local.date() == begins.date():
            return place(row, _shift(local, 1), is_all_day=False)
        hint = f"it starts {begins.isoformat()}: give an end after that"
        found = local.isoformat(" ", "minutes")
        times = {"start": begins.isoformat(), "end": end.isoformat()}
        return recover(row, Refusal(ReasonCode.END_BEFORE_START, hint, found=found, step="at", particulars=times))

    return check


def compile_in_zone(compiler: Compiler, value: spec.InZoneValue, spot: ValuePosition) -> CompiledValue:
    """Compile `in_zone`, a moment shown in a zone."""
    inner = spot.inner("in_zone")
    moment = _compile_operand(compiler, value.in_zone.moment, inner.inner("moment", may_be_empty=True), _MOMENT_OPERAND)
    find = _compile_zone(compiler, value.in_zone.zone, inner.inner("zone"))
    read = lenient(moment.get)

    def shown(row: RowState) -> Any:
        found = read(row)
        if found is None:
            return None
        zone = find(row)
        if not isinstance(found, datetime) or found.tzinfo is None:
            raise Refusal(ReasonCode.NOT_A_DATE, "a date and time with its offset is needed here", found=str(found))
        try:
            return found.astimezone(zone)
        except OverflowError:
            raise Refusal(ReasonCode.NOT_A_DATE, "expected a day up to 9999-12-31", found=str(found)) from None

    return compiler.finish(value, CompiledValue(shown, Flow(Kind.MOMENT), moment.column), spot, "in_zone")


def compile_plus(compiler: Compiler, value: spec.PlusValue, spot: ValuePosition) -> CompiledValue:
    """Compile `plus`, a moment later by a length of time."""
    inner = spot.inner("plus")
    moment = _compile_operand(compiler, value.plus.moment, inner.inner("moment", may_be_empty=True), _MOMENT_OPERAND)
    length = _compile_operand(compiler, value.plus.length, inner.inner("length", may_be_empty=True), _LENGTH_OPERAND)
    read_start, read_length = lenient(moment.get), lenient(length.get)

    def later(row: RowState) -> Any:
        start, passed = read_start(row), read_length(row)
        if start is None or passed is None:
            return None
        if not isinstance(passed, timedelta):
            raise Refusal(ReasonCode.NOT_A_DURATION, "a length of time is needed here", found=str(passed))
        if not isinstance(start, datetime) or start.tzinfo is None:
            raise Refusal(ReasonCode.NOT_A_DATE, "a date and time with its offset is needed here", found=str(start))
        try:
            return start + passed
        except OverflowError:
            raise Refusal(ReasonCode.NOT_A_DATE, "expected a day up to 9999-12-31", found=str(start)) from None

    return compiler.finish(value, CompiledValue(later, Flow(Kind.MOMENT), length.column), spot, "plus")


def _compile_operand(compiler: Compiler, value: Value, spot: ValuePosition, wanted: _Operand) -> CompiledValue:
    compiled = compiler.value(value, spot)
    if compiled.constant is not None and wanted.read is not None:
        try:
            constant = wanted.read(compiled.constant)
        except Refusal:
            return compiler.misfit(spot, f'"{compiled.constant}" does not fit here', wanted.hint)
        return CompiledValue(lambda _row: constant, Flow(wanted.kinds[0]), compiled.column)
    if compiled.flow.is_list or compiled.flow.kind not in wanted.kinds:
        return compiler.misfit(spot, f"a {compiled.flow.kind} does not fit here", wanted.hint)
    for key in ("on_empty", "on_error"):
        policy = getattr(value, key, None)
        if wanted.read is not None and isinstance(policy, UsePolicy):
            try:  # the replacement is a text of the file, and must be valid too
                wanted.read(policy.use if isinstance(policy.use, str) else "")
            except Refusal:
                compiler.misfit(spot.inner(key), f'"{policy.use}" cannot be used in its place', wanted.hint)
    return compiled


def _compile_zone(compiler: Compiler, value: Value, spot: ValuePosition) -> Callable[[RowState], ZoneInfo]:
    """Return a function for a row's zone; it raises Refusal if the row has none."""
    compiled = compiler.value(value, spot)
    if compiled.constant is not None and find_zone(compiled.constant) is None:
        compiler.misfit(spot, f'"{compiled.constant}" is not a time zone', 'write it like "Europe/Lisbon"')

    def find(row: RowState) -> ZoneInfo:
        name = str(compiled.get(row) or "")
        zone = find_zone(name)
        if zone is None:
            wanted = "expected an IANA zone such as Europe/Lisbon; the step zone knows old names"
            raise Refusal(ReasonCode.NOT_A_ZONE, wanted, column=compiled.column, found=name)
        return zone

    return find
