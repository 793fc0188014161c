"""Each kind of value compiled to a function of one row: columns, choices, joins, lookups, channels, lists, images, facts."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, assert_never
from zoneinfo import ZoneInfo

from mappings.compiler.base import (
    ANYTHING,
    CompiledValue,
    Compiler,
    constant,
    is_reference,
    lenient,
    nothing,
    refused_empty,
    unescape_dollar,
)
from mappings.compiler.evaluation import Flow, Getter, RowState, compile_policy, is_empty, required
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


def compile_fact(compiler: Compiler, value: Meta, spot: ValuePosition) -> CompiledValue:
    """Compile what is known of a row; a number and a day keep their kinds, the others are texts."""
    compiler.look_further()
    source = _source(compiler, value)
    return compiler.through(source, value.do, compiler.ends(value, spot, ""), spot)


def _source(compiler: Compiler, value: Meta) -> CompiledValue:
    match value.meta:
        case "row":
            compiler.asks_the_line = True
            return CompiledValue(lambda row: row.location.number or None, Flow(Kind.NUMBER))
        case "file":
            return CompiledValue(_of_origin(file_of), Flow(Kind.TEXT))
        case "tab":
            return CompiledValue(_of_origin(tab_of), Flow(Kind.TEXT))
        case "run_date":
            day = compiler.as_of and compiler.as_of.astimezone(ZoneInfo(value.zone or "UTC")).date()
            compiler.days_asked.add(day.isoformat() if day else "")
            return CompiledValue(lambda _row: day, Flow(Kind.DATE))
        case _:
            assert_never(value.meta)


def _of_origin(read: Callable[[RowLocation], str]) -> Callable[[RowState], Any]:
    return lambda row: read(row.location)


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


def compile_value(compiler: Compiler, value: Value, spot: ValuePosition) -> CompiledValue:  # noqa: C901, PLR0911, PLR0912 - one arm per kind of value
    """Compile a value that gives one thing: objects and images have their place in the payload only."""
    match value:
        case str():
            return compiler.reference(value[1:], spot) if is_reference(value) else constant(unescape_dollar(value))
        case From():
            return _from(compiler, value, spot)
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
            return _items(compiler, value, spot)
        case Meta():
            return compile_fact(compiler, value, spot)
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


def _from(compiler: Compiler, value: From, spot: ValuePosition) -> CompiledValue:
    source = compiler.source(value.source, spot.inner("from"))
    ends = compiler.ends(value, spot, source.column)
    return compiler.through(source, value.do, ends, spot)


def _first_of(compiler: Compiler, value: FirstOf, spot: ValuePosition) -> CompiledValue:
    parts = [
        compiler.value(part, spot.inner("first_of", position, may_be_empty=True)) for position, part in enumerate(value.first_of)
    ]
    getters = tuple(lenient(part.get) for part in parts)
    column = _first_column(parts)

    def first(row: RowState) -> Any:
        for get in getters:
            found = get(row)
            if found is not None:
                return found
        return None

    if value.on_empty is not None and any(part.constant is not None for part in parts):
        compiler.misfit(
            spot.inner("on_empty"), "on_empty never applies: one of these values is the same in every row", "leave it out"
        )
    source = CompiledValue(first, _common_flow(parts), column, refuses=any(part.refuses for part in parts))
    return compiler.through(source, value.do, compiler.ends(value, spot, column), spot)


def _choose(compiler: Compiler, value: Choose, spot: ValuePosition) -> CompiledValue:
    locs = [(*spot.loc, "choose", position) for position in range(len(value.choose))]
    conditions = [compiler.condition(choice.when, (*loc, "when")) for choice, loc in zip(value.choose, locs, strict=True)]
    parts = [compiler.value(choice.then, spot.inner("choose", n, "then")) for n, choice in enumerate(value.choose)]
    branches = tuple(zip(conditions, (part.get for part in parts), strict=True))
    if value.otherwise is not None:
        parts.append(compiler.value(value.otherwise, spot.inner("otherwise")))
    otherwise = nothing if value.otherwise is None else parts[-1].get
    column = _first_column(parts)
    ends = compiler.ends(value, spot, column)
    may_end_empty = value.on_empty is None

    def chosen(row: RowState) -> Any:
        try:
            found = next((get for holds, get in branches if holds(row)), otherwise)(row)
        except Refusal as refusal:
            return ends.apply(row, refusal) if refusal.is_final or not may_end_empty else ends.on_error(row, refusal)
        return found if may_end_empty or not is_empty(found) else refused_empty(ends, row)

    return CompiledValue(chosen, _common_flow(parts), column)


def _table_value(compiler: Compiler, value: TableValue, spot: ValuePosition) -> CompiledValue:
    parts = [compiler.value(part, spot.inner("by", position)) for position, part in enumerate(value.by)]
    column = _first_column(parts)
    ends = compiler.ends(value, spot, column)
    on_miss = compile_policy(value.on_miss if value.on_miss is not None else value.on_error, spot.path)
    table = compiler.tables[value.lookup]
    find, explain = table_finder(table, value.search), part_missed(table, value.search)
    getters = tuple(part.get for part in parts)

    def looked_up(row: RowState) -> Any:
        try:
            keys = [get(row) for get in getters]
        except Refusal as unusable:
            return ends.apply(row, unusable)
        if any(map(is_empty, keys)):
            missing = next(part.column for key, part in zip(keys, parts, strict=True) if is_empty(key))
            return ends.on_empty(row, required(missing or column))
        try:
            return find("\x1f".join(map(str, keys)))
        except Refusal:
            place, refusal = explain(tuple(map(str, keys)))
            return on_miss(row, refusal.about(parts[place].column or column, "", "lookup"))

    results = split_columns(table, len(parts), value.take)[1]
    kind = Kind.TEXT if len(results) == 1 else Kind.OBJECT
    return CompiledValue(looked_up, Flow(kind, value.many), column)


def _joined(compiler: Compiler, value: JoinedText, spot: ValuePosition) -> CompiledValue:
    parts = [compiler.value(part, spot.inner("join", position, may_be_empty=True)) for position, part in enumerate(value.join)]
    getters = tuple(lenient(part.get) for part in parts)
    column = _first_column(parts)
    separator = value.separator
    varying = tuple(place for place, part in enumerate(parts) if not part.is_constant)

    def joined(row: RowState) -> Any:
        pieces = [get(row) for get in getters]
        if varying and all(pieces[place] is None for place in varying):
            return ""
        return separator.join(str(found) for found in pieces if found is not None)

    source = CompiledValue(joined, Flow(Kind.TEXT), column, refuses=any(part.refuses for part in parts))
    return compiler.through(source, value.do, compiler.ends(value, spot, column), spot)


def _items(compiler: Compiler, value: Items, spot: ValuePosition) -> CompiledValue:
    parts = [compiler.value(part, spot.inner(position)) for position, part in enumerate(value.root)]
    getters = tuple(part.get for part in parts)
    column = _first_column(parts)

    def items(row: RowState) -> Any:
        found = (get(row) for get in getters)
        return [item for item in found if not is_empty(item)]

    return CompiledValue(items, Flow(_common_flow(parts).kind, is_list=True), column)


def _channel(compiler: Compiler, value: ChannelValue, spot: ValuePosition) -> CompiledValue:
    inner = compiler.value(value.channel, spot.inner("channel"))
    if inner.constant is not None and compiler.channels is not None and inner.constant not in compiler.channels:
        hint = did_you_mean(inner.constant, compiler.channels) or _channel_list(compiler)
        return compiler.misfit(spot.inner("channel"), f'the key has no channel "{inner.constant}"', hint)
    find = _channel_finder(compiler)
    if inner.constant is not None:
        for key in (key for key in ("on_empty", "on_error") if getattr(value, key) is not None):
            compiler.misfit(spot.inner(key), f"{key} never applies: the channel is the same in every row", "leave it out")
        channel_id = find(inner.constant)
        return CompiledValue(lambda _row: channel_id, Flow(Kind.NUMBER))
    ends = compiler.ends(value, spot, inner.column)

    def channel(row: RowState) -> Any:
        slug = ""
        try:
            slug = inner.get(row)
            return refused_empty(ends, row) if is_empty(slug) else find(str(slug))
        except Refusal as refusal:
            return ends.apply(row, refusal.about(inner.column, "" if is_empty(slug) else str(slug), "channel"))

    return CompiledValue(channel, Flow(Kind.NUMBER), inner.column)


def _channel_finder(compiler: Compiler) -> Callable[[str], int]:
    channels = compiler.channels
    if channels is None:
        return stand_in_channel

    def find(slug: str) -> int:
        if slug in channels:
            return channels[slug]
        raise Refusal(ReasonCode.NOT_ACCEPTED, did_you_mean(slug, channels) or _channel_list(compiler), found=slug)

    return find


def stand_in_channel(slug: str) -> int:
    """Return the id that stands for a channel while the service has not been asked: 1 to 999,999, by its slug."""
    return 1 + zlib.crc32(slug.encode("utf-8", "replace")) % 999_999


def _channel_list(compiler: Compiler) -> str:
    return "the key's channels are " + ", ".join(sorted(compiler.channels or ())[:10])


def _common_flow(parts: Sequence[CompiledValue]) -> Flow:
    flows = {part.flow for part in parts}
    return flows.pop() if len(flows) == 1 else ANYTHING


def _first_column(parts: Sequence[CompiledValue]) -> str:
    return next((part.column for part in parts if part.column), "")


Give = Callable[[Value, ValuePosition], Getter]
"""Compiles what is made of an item, where it stands in the payload."""
_Entry = tuple[Any, ...]
"""What stands side by side in the lists."""


def compile_loop(compiler: Compiler, value: ForEach, spot: ValuePosition, compile_give: Give) -> CompiledValue:
    """Compile one list of the payload."""
    parts = value.for_each.root if isinstance(value.for_each, Items) and len(value.names) > 1 else (value.for_each,)
    taken = [name for name in value.names if name in compiler.let or name in compiler.loops or name in compiler.given]
    if taken:
        return compiler.misfit(spot.inner("as"), f'"${taken[0]}" is the name of another value', "call the item something else")
    lists = [_list(compiler, part, spot.inner("for_each", may_be_empty=True)) for part in parts]
    column = _first_column(lists)
    path = f"{spot.path}[]"
    each = _gone_through(
        *_inside(compiler, value, lists, lambda: compile_give(value.give, ValuePosition((*spot.loc, "give"), path))), path
    )
    read = _side_by_side(lists, column)
    ends = compiler.ends(value, spot, column)

    def loop(row: RowState) -> Any:
        try:
            built = each(row, read(row))
        except Refusal as refusal:
            return ends.apply(row, refusal.about(column, "", "for_each"))
        return built or refused_empty(ends, row)

    return CompiledValue(loop, Flow(ANYTHING.kind, is_list=True), column)


def _inside(
    compiler: Compiler, value: ForEach, lists: list[CompiledValue], compile_give: Callable[[], Getter]
) -> tuple[tuple[int, ...], Getter]:
    """Compile what is made of an item while its names are known; return the items' places in a row with it."""
    items = [compiler.item(Flow(one.flow.kind), one.column) for one in lists]
    outer = compiler.loops
    compiler.loops = outer | {name: item for name, (_, item) in zip(value.names, items, strict=True)}
    give = compile_give()
    compiler.loops = outer
    return tuple(place for place, _ in items), give


def _list(compiler: Compiler, part: Value, spot: ValuePosition) -> CompiledValue:
    """Compile one list; of a list of values the empty ones keep their places, so that lists stay side by side."""
    if not isinstance(part, Items):
        compiled = compiler.value(part, spot)
        return replace(compiled, get=lenient(compiled.get))
    values = [compiler.value(one, spot.inner(position, may_be_empty=True)) for position, one in enumerate(part.root)]
    getters = tuple(lenient(one.get) for one in values)
    reads = frozenset[str]() if all(one.is_constant for one in values) else None
    return CompiledValue(lambda row: [get(row) for get in getters], _common_flow(values), _first_column(values), reads=reads)


def _side_by_side(parts: list[CompiledValue], column: str) -> Callable[[RowState], list[_Entry]]:
    """Return what reads the entries of lists side by side, without those that have constants only."""
    getters = tuple(part.get for part in parts)
    varying = [place for place, part in enumerate(parts) if not part.is_constant] or list(range(len(parts)))

    def read(row: RowState) -> list[_Entry]:
        lists = [_as_list(get(row)) for get in getters]
        lengths = sorted({len(one) for one in lists})
        if len(lengths) > 1:
            hint = f"lists of one length would be accepted, and these have {' and '.join(map(str, lengths))} entries"
            raise Refusal(ReasonCode.UNEVEN, hint, column=column)
        return [entry for entry in zip(*lists, strict=True) if not all(is_empty(entry[place]) for place in varying)]

    return read


def _as_list(found: Any) -> list[Any]:
    return found if type(found) is list else [] if found is None else [found]


def _gone_through(places: tuple[int, ...], give: Getter, path: str) -> Callable[[RowState, Iterable[_Entry]], list[Any]]:
    def each(row: RowState, entries: Iterable[_Entry]) -> list[Any]:
        built: list[Any] = []
        for number, entry in enumerate(entries):
            for place, item in zip(places, entry, strict=True):
                row.named[place] = item
            reasons, warnings = len(row.reasons), len(row.warnings)
            one = give(row)
            _number(row.reasons, reasons, path, number)
            _number(row.warnings, warnings, path, number)
            if one is not None:
                built.append(one)
        return built

    return each


def _number(reasons: list[Reason], start: int, path: str, number: int) -> None:
    """Put the item's number into the fields of its reasons: `offers[].url` becomes `offers[1].url`."""
    for place in range(start, len(reasons)):
        if reasons[place].field.startswith(path):
            reasons[place] = replace(reasons[place], field=f"{path[:-2]}[{number}]{reasons[place].field[len(path) :]}")


def compile_cover(compiler: Compiler, value: ImageValue, spot: ValuePosition) -> Getter:
    """Compile the image of an event: what gives its Cover, or None, and notes what was wrong with the address."""
    several = value.image.root if isinstance(value.image, Items) else (value.image,)
    parts = [compiler.value(one, spot.inner("image", may_be_empty=True)) for one in several]
    inner = parts[0] if len(parts) == 1 and not parts[0].flow.is_list else _first_usable(parts)
    return _cover(inner, value.on_error, "" if value.default is None else clean_url(value.default))


def _cover(inner: CompiledValue, on_error: str, default: str) -> Getter:
    policy = f"{on_error} {default}" if default else on_error

    def cover(row: RowState) -> Any:
        try:
            found = inner.get(row)
            return None if is_empty(found) else Cover(clean_url(str(found)), policy)
        except Refusal as refusal:
            reason = refusal.about(inner.column, "", "image").reason("coverImage")
        if on_error == "reject":
            row.reasons.append(reason)
            return None
        row.warnings.append(reason)
        row.is_draft = row.is_draft or on_error == "draft"
        return Cover(default, "omit") if default else None

    return cover


def _first_usable(parts: Sequence[CompiledValue]) -> CompiledValue:
    """Return the first address that is one; where none is, the first refusal, or nothing."""
    column = _first_column(parts)

    def first(row: RowState) -> Any:
        refused: Refusal | None = None
        for found in (one for part in parts for one in _addresses(part, row)):
            if not isinstance(found, Refusal):
                return found
            refused = refused or found
        if refused is not None:
            raise refused
        return None

    return CompiledValue(first, column=column)


def _addresses(part: CompiledValue, row: RowState) -> Iterator[str | Refusal]:
    try:
        found = part.get(row)
    except Refusal as refusal:
        if not refusal.is_empty:
            yield refusal.about(part.column, "", "image")
        return
    for one in found if type(found) is list else [found]:
        if not is_empty(one):
            yield _address(str(one), part.column)


def _address(text: str, column: str) -> str | Refusal:
    try:
        return clean_url(text)
    except Refusal as refusal:
        return refusal.about(column, text, "image")
