"""Each kind of value compiled to a function of one row. What they share is `compiling`'s, the payload `settling`'s."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, assert_never

from mappings.compiling import Compiled, Compiler, constant, is_reference, lenient, nothing, refused_empty, unescape_dollar
from mappings.deciding import Holds
from mappings.evaluation import Getter, RowState, is_empty, mending, required
from mappings.moment_values import compile_instant, compile_moment
from mappings.positions import Spot
from mappings.refusals import Refusal, did_you_mean
from mappings.row_facts import compile_fact
from mappings.spec.values import (
    At,
    ChannelValue,
    Choose,
    Entry,
    Fields,
    FirstOf,
    ForEach,
    From,
    Image,
    Items,
    Joined,
    Meta,
    Seen,
    TableValue,
    Value,
)
from mappings.stepping import Flow
from mappings.transforms.finding import part_missed, split_columns, table_finder
from mappings.transforms.step import Kind
from mappings.vocabulary import ReasonCode


def compile_value(compiler: Compiler, value: Value, spot: Spot) -> Compiled:  # noqa: C901, PLR0911, PLR0912 - one arm per kind of value
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
        case Seen():
            return compile_instant(compiler, value, spot)
        case TableValue():
            return _table_value(compiler, value, spot)
        case Joined():
            return _joined(compiler, value, spot)
        case ChannelValue():
            return _channel(compiler, value, spot)
        case Items():
            return _items(compiler, value, spot)
        case Meta():
            return compile_fact(compiler, value, spot)
        case ForEach():
            return compiler.misfit(
                spot, "one value is needed here", "for_each gives a list, and has its place in the payload only"
            )
        case Entry():
            return compiler.misfit(
                spot, "`when` and `require` belong to an object in a list", "an item of offers, or what for_each gives"
            )
        case Fields() | Image():
            return compiler.misfit(spot, "one value is needed here", "an object or an image has its place in the payload only")
        case _:
            assert_never(value)


def _from(compiler: Compiler, value: From, spot: Spot) -> Compiled:
    source = compiler.source(value.source, spot.inner("from"))
    ends = compiler.ends(value, spot, source.column)
    return compiler.through(source, value.do, ends, spot)


def _first_of(compiler: Compiler, value: FirstOf, spot: Spot) -> Compiled:
    parts = [
        compiler.value(part, spot.inner("first_of", position, may_be_empty=True)) for position, part in enumerate(value.first_of)
    ]
    getters = tuple(lenient(part.get) for part in parts)
    column = next((part.column for part in parts if part.column), "")

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
    source = Compiled(first, _common_flow(parts), column, refuses=any(part.refuses for part in parts))
    return compiler.through(source, value.do, compiler.ends(value, spot, column), spot)


def _choose(compiler: Compiler, value: Choose, spot: Spot) -> Compiled:
    conditions = [
        compiler.condition(choice.when, (*spot.loc, "choose", position, "when")) for position, choice in enumerate(value.choose)
    ]
    parts = [compiler.value(choice.then, spot.inner("choose", n, "then")) for n, choice in enumerate(value.choose)]
    other = Compiled(nothing) if value.otherwise is None else compiler.value(value.otherwise, spot.inner("otherwise"))
    branches = (*zip(conditions, (part.get for part in parts), strict=True), (_always, other.get))
    every = parts if value.otherwise is None else [*parts, other]
    column = next((part.column for part in every if part.column), "")
    ends = compiler.ends(value, spot, column)
    may_end_empty = value.on_empty is None

    def chosen(row: RowState) -> Any:
        try:
            found = _branch(branches, row)(row)
        except Refusal as refusal:
            return ends.hear(row, refusal) if refusal.is_final or not may_end_empty else ends.on_error(row, refusal)
        return found if may_end_empty or not is_empty(found) else refused_empty(ends, row)

    return Compiled(chosen, _common_flow(every), column)


def _branch(branches: Sequence[tuple[Holds, Getter]], row: RowState) -> Getter:
    for holds, get in branches:
        if holds(row):
            return get
    return nothing


def _always(_row: RowState) -> bool:
    return True


def _table_value(compiler: Compiler, value: TableValue, spot: Spot) -> Compiled:
    parts = [compiler.value(part, spot.inner("by", position)) for position, part in enumerate(value.by)]
    column = next((part.column for part in parts if part.column), "")
    ends = compiler.ends(value, spot, column)
    on_miss = mending(value.on_miss if value.on_miss is not None else value.on_error, spot.path)
    table = compiler.tables[value.lookup]
    find, told = table_finder(table, value.search), part_missed(table, value.search)
    getters = tuple(part.get for part in parts)

    def looked_up(row: RowState) -> Any:
        try:
            keys = [get(row) for get in getters]
        except Refusal as unusable:
            return ends.hear(row, unusable)
        if any(map(is_empty, keys)):
            missing = next(part.column for key, part in zip(keys, parts, strict=True) if is_empty(key))
            return ends.on_empty(row, required(missing or column))
        try:
            return find("\x1f".join(map(str, keys)))
        except Refusal:
            place, refusal = told(tuple(map(str, keys)))
            return on_miss(row, refusal.about(parts[place].column or column, "", "lookup"))

    results = split_columns(table, len(parts), value.take)[1]
    kind = Kind.TEXT if len(results) == 1 else Kind.OBJECT
    return Compiled(looked_up, Flow(kind, value.many), column)


def _joined(compiler: Compiler, value: Joined, spot: Spot) -> Compiled:
    parts = [compiler.value(part, spot.inner("join", position, may_be_empty=True)) for position, part in enumerate(value.join)]
    getters = tuple(lenient(part.get) for part in parts)
    column = next((part.column for part in parts if part.column), "")
    separator = value.separator
    varying = tuple(place for place, part in enumerate(parts) if not part.is_constant)

    def joined(row: RowState) -> Any:
        pieces = [get(row) for get in getters]
        if varying and all(pieces[place] is None for place in varying):
            return ""
        return separator.join(str(found) for found in pieces if found is not None)

    source = Compiled(joined, Flow(Kind.TEXT), column, refuses=any(part.refuses for part in parts))
    return compiler.through(source, value.do, compiler.ends(value, spot, column), spot)


def _items(compiler: Compiler, value: Items, spot: Spot) -> Compiled:
    parts = [compiler.value(part, spot.inner(position)) for position, part in enumerate(value.root)]
    getters = tuple(part.get for part in parts)
    column = next((part.column for part in parts if part.column), "")

    def items(row: RowState) -> Any:
        found = (get(row) for get in getters)
        return [item for item in found if not is_empty(item)]

    return Compiled(items, Flow(_common_flow(parts).kind, is_list=True), column)


def _channel(compiler: Compiler, value: ChannelValue, spot: Spot) -> Compiled:
    inner = compiler.value(value.channel, spot.inner("channel"))
    if inner.constant is not None and compiler.channels is not None and inner.constant not in compiler.channels:
        hint = did_you_mean(inner.constant, compiler.channels) or _channel_list(compiler)
        return compiler.misfit(spot.inner("channel"), f'the key has no channel "{inner.constant}"', hint)
    find = _channel_finder(compiler)
    if inner.constant is not None:
        for key in (key for key in ("on_empty", "on_error") if getattr(value, key) is not None):
            compiler.misfit(spot.inner(key), f"{key} never applies: the channel is the same in every row", "leave it out")
        channel_id = find(inner.constant)
        return Compiled(lambda _row: channel_id, Flow(Kind.NUMBER))
    ends = compiler.ends(value, spot, inner.column)

    def channel(row: RowState) -> Any:
        slug = ""
        try:
            slug = inner.get(row)
            return refused_empty(ends, row) if is_empty(slug) else find(str(slug))
        except Refusal as refusal:
            return ends.hear(row, refusal.about(inner.column, "" if is_empty(slug) else str(slug), "channel"))

    return Compiled(channel, Flow(Kind.NUMBER), inner.column)


def _channel_finder(compiler: Compiler) -> Any:
    channels = compiler.channels
    if channels is None:
        return stand_in_channel

    def find(slug: str) -> int:
        if slug in channels:
            return channels[slug]
        hint = did_you_mean(slug, channels) or _channel_list(compiler)
        raise Refusal(ReasonCode.NOT_ACCEPTED, hint, found=slug)

    return find


def stand_in_channel(slug: str) -> int:
    """Return the id that stands for a channel while the service has not been asked: 1 to 999,999, by its slug."""
    return 1 + zlib.crc32(slug.encode("utf-8", "replace")) % 999_999


def _channel_list(compiler: Compiler) -> str:
    return "the key's channels are " + ", ".join(sorted(compiler.channels or ())[:10])


def _common_flow(parts: list[Compiled]) -> Flow:
    flows = {part.flow for part in parts}
    return flows.pop() if len(flows) == 1 else Flow(Kind.ANY)
