"""Compiles each kind of value and condition to a function of one row: columns, `choose`, joins, lookups, lists."""

from __future__ import annotations

import operator
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from mappings.compiler.base import (
    CompiledValue,
    Compiler,
    Flow,
    Getter,
    Holds,
    RowState,
    ValueCompiler,
    Watch,
    combined,
    compile_policy,
    first_column,
    is_empty,
    is_reference,
    lenient,
    nothing,
    present,
    required,
)
from mappings.lookup_table import normaliser, plain
from mappings.patterns import compile_pattern
from mappings.positions import Loc, ValuePosition
from mappings.reasons import ReasonCode, Refusal, did_you_mean
from mappings.spec import values as spec
from mappings.spec.values import Condition, TestName, Value
from mappings.steps.lookups import part_missed, split_columns, table_finder
from mappings.steps.step import Kind, short_enough, text_of
from mappings.steps.zones import localiser
from mappings.strict import UsePolicy
from mappings.zones import EndOfDay, TimeOfDay, find_zone

Check = Callable[[Any, RowState], bool]
"""Returns whether a value of a row passes one test."""


def compile_condition(compiler: Compiler, condition: Condition, loc: Loc) -> Holds:
    """Compile a condition; each use is reported to the compiler's `watch`."""
    holds = _compile_condition(compiler, condition, loc)
    if compiler.watch is None or not isinstance(condition, spec.Test):
        return holds
    return _reported(compiler, condition, loc, holds, compiler.watch)


def _reported(compiler: Compiler, test: spec.Test, loc: Loc, holds: Holds, watch: Watch) -> Holds:
    """Wrap a test so that each use is reported with the values that it reads."""
    field = f"rule {int(loc[1]) + 1}" if loc[0] == "rows" else f"${loc[1]}" if loc[0] == "let" else str(loc[1])
    names = [name for name in (test.value, test.equals, test.before, test.after) if name and is_reference(name)]
    seen = {test.column: compiler.column(test.column).get} if test.column else {}
    seen |= {name: lenient(compiler.operand(name, ValuePosition(loc)).get) for name in names}

    def reported(row: RowState) -> bool:
        values: Any = None
        try:
            values = {name: get(row) for name, get in seen.items()}
            values = values if len(values) > 1 else next(iter(values.values()))
            is_so = holds(row)
        except Refusal as refusal:
            watch(field, str(test), values, refusal)
            raise
        watch(field, str(test), values, "yes" if is_so else "no")
        return is_so

    return reported


def _compile_condition(compiler: Compiler, condition: Condition, loc: Loc) -> Holds:
    match condition:
        case spec.All():
            parts = [compile_condition(compiler, part, (*loc, "all", place)) for place, part in enumerate(condition.all)]
            return lambda row: all(part(row) for part in parts)
        case spec.Any():
            parts = [compile_condition(compiler, part, (*loc, "any", place)) for place, part in enumerate(condition.any)]
            return lambda row: any(part(row) for part in parts)
        case spec.Not():
            negated = compile_condition(compiler, condition.negated, (*loc, "not"))
            return lambda row: not negated(row)
        case spec.Test():
            if condition.column is not None:
                subject = compiler.column(condition.column).get
            else:
                subject = lenient(compiler.operand(condition.value or "", ValuePosition(loc)).get)
            checks = [_compile_check(compiler, name, condition, loc) for name in condition.tests]

            def holds(row: RowState) -> bool:
                value = subject(row)
                return all(check(value, row) for check in checks)

            return holds


def column_of(condition: Condition) -> str:
    """Return the first column that a condition reads, "" if none."""
    match condition:
        case spec.Test():
            return condition.column or ""
        case spec.Not():
            return column_of(condition.negated)
        case spec.All(all=parts) | spec.Any(any=parts):
            return next(filter(None, map(column_of, parts)), "")


def _compile_check(compiler: Compiler, name: TestName, test: spec.Test, loc: Loc) -> Check:  # noqa: PLR0911 - one arm per test
    wanted: Any = getattr(test, name)
    same = normaliser(test.ignore)
    match name:
        case "equals" if is_reference(wanted):
            other = lenient(compiler.operand(wanted, ValuePosition(loc)).get)
            if not test.ignore:
                return lambda value, row: bool(value == other(row))
            return lambda value, row: same(_as_text(value)) == same(_as_text(other(row)))
        case "equals" | "among":
            known = frozenset(map(same, [wanted] if name == "equals" else wanted))
            return lambda value, _row: same(_as_text(value)) in known
        case "matches":
            finds = compile_pattern(wanted, ignore_case="case" in test.ignore).finds
            return lambda value, _row: finds(short_enough(_as_text(value)))
        case "contains":
            parts = tuple(map(same, wanted))

            def contains(value: Any, _row: RowState) -> bool:
                if isinstance(value, list):
                    return any(same(_as_text(item)) in parts for item in value)
                text = same(_as_text(value))
                return any(part in text for part in parts)

            return contains
        case "state":
            is_missing = wanted == "missing"
            return lambda value, _row: is_empty(value) is is_missing
        case "before" | "after":
            read = _compile_time(compiler, wanted, (*loc, name), is_text=test.column is not None)
            if name == "before":
                return lambda value, row: _is_earlier(value, read(row))
            return lambda value, row: _is_earlier(read(row), value)
        case "less" | "greater":
            bound, compare = _as_number(wanted), operator.lt if name == "less" else operator.gt
            return lambda value, _row: not is_empty(value) and compare(_as_number(value), bound)


def _compile_time(compiler: Compiler, text: str, loc: Loc, *, is_text: bool) -> Getter:
    """Compile the operand of `before` or `after`: a named value, or an ISO date (2026-07-01), time (18:00) or date and time."""
    spot = ValuePosition(loc)
    if is_text:
        hint = "name the column's date under let, and test that value"
        return compiler.misfit(spot, "a column is text: before and after compare dates and times", hint).get
    if is_reference(text):
        return lenient(compiler.operand(text, ValuePosition(loc[:-1])).get)
    kind = datetime if "T" in text or " " in text.strip() else time if ":" in text else date
    try:
        moment = kind.fromisoformat(text)
    except ValueError:
        compiler.misfit(spot, f'"{text}" is not a date or time', 'write it like "2026-07-01"')
        return nothing
    return lambda _row: moment


def _is_earlier(one: Any, other: Any) -> bool:
    """Return whether one date, time or moment is before another; False if one of them is empty."""
    if is_empty(one) or is_empty(other):
        return False
    if isinstance(one, datetime) != isinstance(other, datetime):
        one, other = (value.date() if isinstance(value, datetime) else value for value in (one, other))
    elif isinstance(one, datetime) and (one.tzinfo is None) != (other.tzinfo is None):
        one, other = one.replace(tzinfo=None), other.replace(tzinfo=None)
    try:
        return bool(one < other)
    except TypeError:
        raise Refusal(ReasonCode.NOT_A_DATE, "only two dates or two times can be compared", found=str(one)) from None


def _as_number(value: Any) -> Decimal:
    try:
        number = Decimal(value if isinstance(value, int | Decimal) else plain(str(value)).strip())
    except InvalidOperation:
        number = Decimal("nan")
    if number.is_finite():
        return number
    raise Refusal(ReasonCode.NOT_A_NUMBER, "a plain number such as 12.50 is needed to compare", found=str(value))


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, list | dict) else text_of(value)


_TEXT, _NUMBER = Flow(Kind.TEXT), Flow(Kind.NUMBER)


def _from(compiler: Compiler, value: spec.From, spot: ValuePosition) -> CompiledValue:
    if is_reference(value.source):
        return compiler.finish(value, compiler.operand(value.source, spot.inner("from")), spot)
    return compiler.finish(value, compiler.column(value.source.removeprefix("$")), spot)


def _items(compiler: Compiler, value: spec.Items, spot: ValuePosition) -> CompiledValue:
    parts = compiler.values(value.root, spot)
    items = combined(lambda row: present([part.get(row) for part in parts]), parts)
    return replace(items, flow=Flow(items.flow.kind, is_list=True), refuses=True)


def _meta(compiler: Compiler, value: spec.Meta, spot: ValuePosition) -> CompiledValue:
    """Compile a `meta` value; a row number and a day keep their kinds, others are texts."""
    compiler.look_further()
    match value.meta:
        case "row":
            compiler.reads_row_number = True
            source = CompiledValue(lambda row: row.location.number or None, _NUMBER)
        case "file" | "tab":
            place = ("file", "tab").index(value.meta)
            source = CompiledValue(lambda row: row.location.file_and_tab[place], _TEXT)
        case "run_date":
            day = compiler.as_of and compiler.as_of.astimezone(ZoneInfo(value.zone or "UTC")).date()
            compiler.run_dates.add(day.isoformat() if day else "")
            source = CompiledValue(lambda _row: day, Flow(Kind.DATE))
    return compiler.finish(value, source, spot)


def _first_of(compiler: Compiler, value: spec.FirstOf, spot: ValuePosition) -> CompiledValue:
    parts = compiler.values(value.first_of, spot.inner("first_of", may_be_empty=True))
    getters = [lenient(part.get) for part in parts]
    columns = [part.column for part in parts if part.column]

    def first(row: RowState) -> Any:
        for get in getters:
            if (found := get(row)) is not None:
                return found
        causes = [row.left_out[column] for column in columns if column in row.left_out]
        if causes:  # the cell to blame may be another one than the first
            row.left_out[columns[0]] = next((cause for cause in causes if cause.detail is not None), causes[0])
        return None

    if value.on_empty is not None and any(part.constant is not None for part in parts):
        message = "on_empty never applies: one of these values is the same in every row"
        compiler.misfit(spot.inner("on_empty"), message, "leave it out")
    return compiler.finish(value, combined(first, parts), spot)


def _choose(compiler: Compiler, value: spec.Choose, spot: ValuePosition) -> CompiledValue:
    branches: list[tuple[Holds, CompiledValue]] = []
    for place, choice in enumerate(value.choose):
        inner = spot.inner("choose", place)
        holds = compiler.condition(choice.when, inner.inner("when").loc)
        branches.append((holds, compiler.value(choice.then, inner.inner("then"))))
    if value.otherwise is not None:
        branches.append((lambda _row: True, compiler.value(value.otherwise, spot.inner("otherwise"))))
    chosen = combined(nothing, [part for _, part in branches])
    policies = compiler.policies(value, spot, chosen.column)
    may_end_empty = value.on_empty is None

    def choose(row: RowState) -> Any:
        try:
            found = next((part.get for holds, part in branches if holds(row)), nothing)(row)
        except Refusal as refusal:
            return policies.apply(row, refusal) if refusal.is_final or not may_end_empty else policies.on_error(row, refusal)
        return found if may_end_empty or not is_empty(found) else policies.on_empty(row, required(chosen.column))

    return replace(chosen, get=choose, refuses=True)


def _table_value(compiler: Compiler, value: spec.TableValue, spot: ValuePosition) -> CompiledValue:
    parts = compiler.values(value.by, spot.inner("by"))
    column = first_column(parts)
    policies = compiler.policies(value, spot, column)
    on_miss = policies.on_error if value.on_miss is None else compile_policy(value.on_miss, spot.path)
    table = compiler.tables[value.lookup]
    find, explain = table_finder(table, value.search), part_missed(table, value.search)
    getters = [part.get for part in parts]

    def look_up(row: RowState) -> Any:
        try:
            keys = [get(row) for get in getters]
        except Refusal as refusal:
            return policies.apply(row, refusal)
        for key, part in zip(keys, parts, strict=True):
            if is_empty(key):
                return policies.on_empty(row, required(part.column or column))
        try:
            return find("\x1f".join(map(str, keys)))
        except Refusal:
            place, missed = explain(tuple(map(str, keys)))
            return on_miss(row, missed.about(parts[place].column or column, "", "lookup"))

    results = split_columns(table, len(parts), value.take)[1]
    return CompiledValue(look_up, Flow(Kind.TEXT if len(results) == 1 else Kind.OBJECT, value.many), column)


def _joined(compiler: Compiler, value: spec.JoinedText, spot: ValuePosition) -> CompiledValue:
    parts = compiler.values(value.join, spot.inner("join", may_be_empty=True))
    getters = [lenient(part.get) for part in parts]
    varying = [place for place, part in enumerate(parts) if not part.is_constant]

    def join(row: RowState) -> Any:
        pieces = [get(row) for get in getters]
        if varying and all(pieces[place] is None for place in varying):
            return ""
        return value.separator.join(str(found) for found in pieces if found is not None)

    return compiler.finish(value, combined(join, parts, _TEXT), spot)


def _channel(compiler: Compiler, value: spec.ChannelValue, spot: ValuePosition) -> CompiledValue:
    slug = compiler.value(value.channel, spot.inner("channel"))
    channels = compiler.channels
    if slug.constant is None:

        def read(row: RowState) -> Any:
            name = slug.get(row)
            return None if is_empty(name) else _find_channel(str(name), channels)

        return compiler.finish(value, CompiledValue(read, _NUMBER, slug.column), spot, "channel")
    try:
        channel_id = _find_channel(slug.constant, channels)
    except Refusal as refusal:
        return compiler.misfit(spot.inner("channel"), f'the key has no channel "{slug.constant}"', refusal.hint)
    for key in ("on_empty", "on_error"):
        if getattr(value, key) is not None:
            compiler.misfit(spot.inner(key), f"{key} never applies: the channel is the same in every row", "leave it out")
    return CompiledValue(lambda _row: channel_id, _NUMBER)


def _find_channel(slug: str, channels: Mapping[str, int] | None) -> int:
    """Return the id of a channel; offline, without the service's channels, a placeholder from 1 to 999,999 made of the slug."""
    if channels is None:
        return 1 + zlib.crc32(slug.encode("utf-8", "replace")) % 999_999
    if slug in channels:
        return channels[slug]
    hint = did_you_mean(slug, channels) or "the key's channels are " + ", ".join(sorted(channels)[:10])
    raise Refusal(ReasonCode.NOT_ACCEPTED, hint, found=slug)


def _misplaced(compiler: Compiler, value: object, spot: ValuePosition) -> CompiledValue:
    if isinstance(value, spec.ListEntry):
        hint = "use them in an item of offers, or in what for_each gives"
        return compiler.misfit(spot, "`when` and `require` belong to an object in a list", hint)
    hint = "an object, an image and for_each are allowed only in the event"
    return compiler.misfit(spot, "one value is needed here", hint)


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
_MOMENT_OPERAND = _Operand((Kind.MOMENT, Kind.ANY), 'a moment is needed: do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}]')


def _moment(compiler: Compiler, value: spec.At, spot: ValuePosition) -> CompiledValue:
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
    policies = compiler.policies(value, spot, day.column)

    def moment(row: RowState) -> Any:
        found = ""
        try:
            local, is_all_day = read_wall(row)
            if local is None:
                return policies.on_empty(row, required(day.column))
            found = local.isoformat(" ", "minutes")
            end = place(row, local, is_all_day=is_all_day)
            return end if check is None else check(row, local, end, is_all_day)
        except Refusal as refusal:
            at = ("", "") if refusal.is_empty else (found, "at")
            return policies.apply(row, refusal.about(column, *at))

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


def _instant(compiler: Compiler, value: spec.InZoneValue, spot: ValuePosition) -> CompiledValue:
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


VALUE_COMPILERS: Mapping[type, ValueCompiler] = {
    spec.From: _from,
    spec.FirstOf: _first_of,
    spec.Choose: _choose,
    spec.TableValue: _table_value,
    spec.JoinedText: _joined,
    spec.ChannelValue: _channel,
    spec.Items: _items,
    spec.At: _moment,
    spec.InZoneValue: _instant,
    spec.Meta: _meta,
    **dict.fromkeys((spec.ListEntry, spec.Fields, spec.ImageValue, spec.ForEach), _misplaced),
}
"""The compiler function of each type of value except texts."""
