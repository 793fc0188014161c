"""Compiles each kind of value and condition to a function of one row: columns, `choose`, joins, lookups, lists."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
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
from mappings.compiler.moments import compile_at, compile_in_zone, compile_plus
from mappings.lookup_table import normaliser, plain
from mappings.patterns import compile_pattern
from mappings.positions import Loc, ValuePosition
from mappings.reasons import ReasonCode, Refusal, did_you_mean
from mappings.spec import values as spec
from mappings.spec.values import Condition, TestName
from mappings.steps.lookups import part_missed, split_columns, table_finder
from mappings.steps.step import Kind, short_enough, text_of

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
            return lambda value, _row: _contains(value, parts, same)
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


def _contains(value: Any, parts: Collection[str], same: Callable[[str], str]) -> bool:
    """Return whether a list has one of the items, or a text one of the parts."""
    if isinstance(value, list):
        return any(same(_as_text(item)) in parts for item in value)
    text = same(_as_text(value))
    return any(part in text for part in parts)


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
    recover, on_error = compiler.compile_policies(value, spot), compile_policy(value.on_error, spot.path)
    may_end_empty = value.on_empty is None

    def choose(row: RowState) -> Any:
        try:
            found = next((part.get for holds, part in branches if holds(row)), nothing)(row)
        except Refusal as refusal:
            return (recover if refusal.is_final or not may_end_empty else on_error)(row, refusal)
        return found if may_end_empty or not is_empty(found) else recover(row, required(chosen.column))

    return replace(chosen, get=choose, refuses=True)


def _table_value(compiler: Compiler, value: spec.TableValue, spot: ValuePosition) -> CompiledValue:
    parts = compiler.values(value.by, spot.inner("by"))
    column = first_column(parts)
    recover = compiler.compile_policies(value, spot)
    on_miss = compile_policy(value.on_error if value.on_miss is None else value.on_miss, spot.path)
    table = compiler.tables[value.lookup]
    find, explain = table_finder(table, value.search), part_missed(table, value.search)
    getters = [part.get for part in parts]

    def look_up(row: RowState) -> Any:
        try:
            keys = [get(row) for get in getters]
        except Refusal as refusal:
            return recover(row, refusal)
        for key, part in zip(keys, parts, strict=True):
            if is_empty(key):
                return recover(row, required(part.column or column))
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
    column = first_column(parts)
    named = (compiler.let.get(piece[1:]) if isinstance(piece, str) else piece for piece in value.join)
    is_misplaced = value.on_empty is None and any(getattr(piece, "on_empty", None) for piece in named)
    hint = f"{required(column).hint}; if it may be empty, `on_empty: omit` belongs beside `join`, not in a piece"

    def join(row: RowState) -> Any:
        pieces = [get(row) for get in getters]
        if varying and all(pieces[place] is None for place in varying):
            raise required(column, hint if is_misplaced else "")
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


VALUE_COMPILERS: Mapping[type, ValueCompiler] = {
    spec.From: _from,
    spec.FirstOf: _first_of,
    spec.Choose: _choose,
    spec.TableValue: _table_value,
    spec.JoinedText: _joined,
    spec.ChannelValue: _channel,
    spec.Items: _items,
    spec.At: compile_at,
    spec.InZoneValue: compile_in_zone,
    spec.PlusValue: compile_plus,
    spec.Meta: _meta,
    **dict.fromkeys((spec.ListEntry, spec.Fields, spec.ImageValue, spec.ForEach), _misplaced),
}
"""The compiler function of each type of value except texts."""
