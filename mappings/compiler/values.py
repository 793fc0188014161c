"""Each kind of value compiled to a function of one row: columns, choices, joins, lookups, channels, lists, images, facts."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never
from zoneinfo import ZoneInfo

from mappings.compiler.base import (
    ANYTHING,
    CompiledValue,
    Compiler,
    Flow,
    Getter,
    RowState,
    compile_policy,
    is_empty,
    is_reference,
    lenient,
    nothing,
    present,
    required,
)
from mappings.compiler.conditions import compile_condition
from mappings.compiler.moments import compile_instant, compile_moment
from mappings.outcome import Cover, RowLocation
from mappings.positions import ValuePosition
from mappings.refusals import Reason, ReasonCode, Refusal, did_you_mean
from mappings.spec.values import (
    At,
    ChannelValue,
    Choose,
    Fields,
    FirstOf,
    ForEach,
    From,
    ImageValue,
    InZoneValue,
    Items,
    JoinedText,
    ListEntry,
    Meta,
    TableValue,
    Value,
)
from mappings.steps.lookups import part_missed, split_columns, table_finder
from mappings.steps.step import Kind
from mappings.steps.urls import clean_url

_CELL = re.compile(r"(?:(?P<file>.*?)[#:/])?(?P<tab>[^#:/!]*)![A-Z]*\d+")
_QUOTED = re.compile(r"'(?P<tab>(?:[^']|'')+)'![A-Z]*\d+")
"""A tab whose title a spreadsheet puts in quotes: it may hold any sign."""
_LINE = re.compile(r"(?P<file>.+):\d+(?: \(record \d+\))?")
_TEXT, _NUMBER = Flow(Kind.TEXT), Flow(Kind.NUMBER)


def compile_value(compiler: Compiler, value: Value, spot: ValuePosition) -> CompiledValue:  # noqa: C901, PLR0911, PLR0912 - one arm per kind of value
    """Compile a value that gives one thing: objects and images have their place in the payload only."""
    match value:
        case str():
            return compiler.operand(value, spot)
        case From(source=name):
            is_named = is_reference(name)
            source = compiler.operand(name, spot.inner("from")) if is_named else compiler.column(name.removeprefix("$"))
            return compiler.finish(value, source, spot)
        case FirstOf():
            return _first_of(compiler, value, spot)
        case Choose():
            return _choose(compiler, value, spot)
        case At():
            return compile_moment(compiler, value, spot)
        case InZoneValue():
            return compile_instant(compiler, value, spot)
        case TableValue():
            return _table_value(compiler, value, spot)
        case JoinedText():
            return _joined(compiler, value, spot)
        case ChannelValue():
            return _channel(compiler, value, spot)
        case Items():
            parts = _parts(compiler, value.root, spot)
            items = _of_parts(lambda row: present([part.get(row) for part in parts]), parts)
            return replace(items, flow=Flow(items.flow.kind, is_list=True), refuses=True)
        case Meta():
            return _meta(compiler, value, spot)
        case ForEach():
            hint = "for_each gives a list, and has its place in the payload only"
            return compiler.misfit(spot, "one value is needed here", hint)
        case ListEntry():
            hint = "an item of offers, or what for_each gives"
            return compiler.misfit(spot, "`when` and `require` belong to an object in a list", hint)
        case Fields() | ImageValue():
            return compiler.misfit(spot, "one value is needed here", "an object or an image has its place in the payload only")
        case _:
            assert_never(value)


def _parts(compiler: Compiler, values: Sequence[Value], spot: ValuePosition) -> list[CompiledValue]:
    return [compiler.value(value, spot.inner(place)) for place, value in enumerate(values)]


def _of_parts(get: Getter, parts: Sequence[CompiledValue], flow: Flow | None = None) -> CompiledValue:
    """Return the value that a function makes of others."""
    flows = {part.flow for part in parts}
    common = flows.pop() if len(flows) == 1 else ANYTHING
    return CompiledValue(get, flow or common, _first_column(parts), refuses=any(part.refuses for part in parts))


def _first_column(parts: Iterable[CompiledValue]) -> str:
    return next((part.column for part in parts if part.column), "")


def _meta(compiler: Compiler, value: Meta, spot: ValuePosition) -> CompiledValue:
    """Compile what is known of a row; a number and a day keep their kinds, the others are texts."""
    compiler.look_further()
    match value.meta:
        case "row":
            compiler.reads_row_number = True
            source = CompiledValue(lambda row: row.location.number or None, _NUMBER)
        case "file":
            source = CompiledValue(lambda row: file_of(row.location), _TEXT)
        case "tab":
            source = CompiledValue(lambda row: tab_of(row.location), _TEXT)
        case "run_date":
            day = compiler.as_of and compiler.as_of.astimezone(ZoneInfo(value.zone or "UTC")).date()
            compiler.run_dates.add(day.isoformat() if day else "")
            source = CompiledValue(lambda _row: day, Flow(Kind.DATE))
        case _:
            assert_never(value.meta)
    return compiler.finish(value, source, spot)


def file_of(location: RowLocation) -> str:
    """Return the file that a row stands in, as its place names it, "" where it names none."""
    if _QUOTED.fullmatch(location.place):
        return ""
    found = _LINE.fullmatch(location.place) or _CELL.fullmatch(location.place)
    return (found["file"] or "") if found else ""


def tab_of(location: RowLocation) -> str:
    """Return the sheet that a row stands in, "" where its source has none."""
    if quoted := _QUOTED.fullmatch(location.place):
        return quoted["tab"].replace("''", "'")
    found = _CELL.fullmatch(location.place)
    return found["tab"] if found else ""


def _first_of(compiler: Compiler, value: FirstOf, spot: ValuePosition) -> CompiledValue:
    parts = _parts(compiler, value.first_of, spot.inner("first_of", may_be_empty=True))
    getters = [lenient(part.get) for part in parts]

    def first(row: RowState) -> Any:
        for get in getters:
            found = get(row)
            if found is not None:
                return found
        return None

    if value.on_empty is not None and any(part.constant is not None for part in parts):
        message = "on_empty never applies: one of these values is the same in every row"
        compiler.misfit(spot.inner("on_empty"), message, "leave it out")
    return compiler.finish(value, _of_parts(first, parts), spot)


def _choose(compiler: Compiler, value: Choose, spot: ValuePosition) -> CompiledValue:
    conditions = [
        compile_condition(compiler, choice.when, (*spot.loc, "choose", place, "when"))
        for place, choice in enumerate(value.choose)
    ]
    parts = [compiler.value(choice.then, spot.inner("choose", place, "then")) for place, choice in enumerate(value.choose)]
    branches = [(holds, part.get) for holds, part in zip(conditions, parts, strict=True)]
    otherwise: Getter = nothing
    if value.otherwise is not None:
        parts.append(compiler.value(value.otherwise, spot.inner("otherwise")))
        otherwise = parts[-1].get
    chosen = _of_parts(nothing, parts)
    policies = compiler.policies(value, spot, chosen.column)
    may_end_empty = value.on_empty is None

    def choose(row: RowState) -> Any:
        try:
            found = next((get for holds, get in branches if holds(row)), otherwise)(row)
        except Refusal as refusal:
            return policies.apply(row, refusal) if refusal.is_final or not may_end_empty else policies.on_error(row, refusal)
        return found if may_end_empty or not is_empty(found) else policies.on_empty(row, required(chosen.column))

    return replace(chosen, get=choose, refuses=True)


def _table_value(compiler: Compiler, value: TableValue, spot: ValuePosition) -> CompiledValue:
    parts = _parts(compiler, value.by, spot.inner("by"))
    column = _first_column(parts)
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


def _joined(compiler: Compiler, value: JoinedText, spot: ValuePosition) -> CompiledValue:
    parts = _parts(compiler, value.join, spot.inner("join", may_be_empty=True))
    getters = [lenient(part.get) for part in parts]
    varying = [place for place, part in enumerate(parts) if not part.is_constant]

    def join(row: RowState) -> Any:
        pieces = [get(row) for get in getters]
        if varying and all(pieces[place] is None for place in varying):
            return ""
        return value.separator.join(str(found) for found in pieces if found is not None)

    return compiler.finish(value, _of_parts(join, parts, _TEXT), spot)


def _channel(compiler: Compiler, value: ChannelValue, spot: ValuePosition) -> CompiledValue:
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
    """Return a channel's id; while the service has not been asked one that stands for it, 1 to 999,999, by its slug."""
    if channels is None:
        return 1 + zlib.crc32(slug.encode("utf-8", "replace")) % 999_999
    if slug in channels:
        return channels[slug]
    hint = did_you_mean(slug, channels) or "the key's channels are " + ", ".join(sorted(channels)[:10])
    raise Refusal(ReasonCode.NOT_ACCEPTED, hint, found=slug)


def compile_loop(
    compiler: Compiler, value: ForEach, spot: ValuePosition, compile_give: Callable[[Value, ValuePosition], Getter]
) -> CompiledValue:
    """Compile one list of the payload; `compile_give` compiles what is made of an item, where it stands in the payload."""
    parts = value.for_each.root if isinstance(value.for_each, Items) and len(value.names) > 1 else (value.for_each,)
    taken = [name for name in value.names if name in compiler.let or name in compiler.loops or name in compiler.given]
    if taken:
        return compiler.misfit(spot.inner("as"), f'"${taken[0]}" is the name of another value', "call the item something else")
    lists = [_list(compiler, part, spot.inner("for_each", may_be_empty=True)) for part in parts]
    items = [compiler.item(Flow(one.flow.kind), one.column) for one in lists]
    column, path = _first_column(lists), f"{spot.path}[]"
    outer = compiler.loops
    compiler.loops = outer | {name: item for name, (_, item) in zip(value.names, items, strict=True)}
    give = compile_give(value.give, ValuePosition((*spot.loc, "give"), path))
    compiler.loops = outer
    varying = [n for n, one in enumerate(lists) if not one.is_constant] or range(len(lists))

    def read(row: RowState) -> Any:
        found = [_as_list(one.get(row)) for one in lists]
        lengths = sorted(set(map(len, found)))
        if len(lengths) > 1:
            hint = f"lists of one length would be accepted, and these have {' and '.join(map(str, lengths))} entries"
            raise Refusal(ReasonCode.UNEVEN, hint, column=column)
        entries = (entry for entry in zip(*found, strict=True) if not all(is_empty(entry[n]) for n in varying))
        built = []
        for number, entry in enumerate(entries):
            for (place, _), item in zip(items, entry, strict=True):
                row.named[place] = item
            reasons, warnings = len(row.reasons), len(row.warnings)
            built.append(give(row))
            _number(row.reasons, reasons, path, number)
            _number(row.warnings, warnings, path, number)
        return [one for one in built if one is not None]

    return compiler.finish(value, CompiledValue(read, Flow(ANYTHING.kind, is_list=True), column), spot, "for_each")


def _list(compiler: Compiler, part: Value, spot: ValuePosition) -> CompiledValue:
    """Compile one list; of a list of values the empty ones keep their places, so that lists stay side by side."""
    if not isinstance(part, Items):
        compiled = compiler.value(part, spot)
        return replace(compiled, get=lenient(compiled.get))
    values = _parts(compiler, part.root, spot)
    getters = [lenient(one.get) for one in values]
    reads = frozenset[str]() if all(one.is_constant for one in values) else None
    return replace(_of_parts(lambda row: [get(row) for get in getters], values), reads=reads)


def _as_list(found: Any) -> list[Any]:
    return found if type(found) is list else [] if found is None else [found]


def _number(reasons: list[Reason], start: int, path: str, number: int) -> None:
    """Put the item's number into the fields of its reasons: `offers[].url` becomes `offers[1].url`."""
    for place in range(start, len(reasons)):
        if reasons[place].field.startswith(path):
            reasons[place] = replace(reasons[place], field=f"{path[:-2]}[{number}]{reasons[place].field[len(path) :]}")


def compile_cover(compiler: Compiler, value: ImageValue, spot: ValuePosition) -> Getter:
    """Compile the image of an event: what gives its Cover by the first usable address, or None, and notes what was wrong."""
    several = value.image.root if isinstance(value.image, Items) else (value.image,)
    parts = [compiler.value(one, spot.inner("image", may_be_empty=True)) for one in several]
    default = "" if value.default is None else clean_url(value.default)
    policy = f"{value.on_error} {default}" if default else value.on_error

    def cover(row: RowState) -> Any:
        found = _first_address(parts, row)
        if not isinstance(found, Refusal):
            return None if found is None else Cover(found, policy)
        reason = found.reason("coverImage")
        if value.on_error == "reject":
            row.reasons.append(reason)
            return None
        row.warnings.append(reason)
        row.is_draft = row.is_draft or value.on_error == "draft"
        return Cover(default, "omit") if default else None

    return cover


def _first_address(parts: Sequence[CompiledValue], row: RowState) -> str | Refusal | None:
    """Return the first address that can be used; where none can, the first refusal, or nothing."""
    refused: Refusal | None = None
    for part in parts:
        try:
            found = _as_list(part.get(row))
        except Refusal as refusal:
            if not refusal.is_empty or len(parts) == 1:
                refused = refused or refusal.about(part.column, "", "image")
            continue
        for text in (str(one) for one in found if not is_empty(one)):
            try:
                return clean_url(text)
            except Refusal as refusal:
                refused = refused or refusal.about(part.column, text, "image")
    return refused
