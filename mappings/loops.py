"""The value `for_each`, compiled: a list in the payload with one thing for each item of the row's own lists.

What is made of an item is compiled by whoever compiles the payload, `settling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from mappings.compiling import ANYTHING, Compiled, Compiler, lenient, refused_empty
from mappings.evaluation import Getter, RowState, is_empty
from mappings.positions import Spot
from mappings.refusals import Refusal
from mappings.spec.values import ForEach, Items, Value
from mappings.stepping import Flow
from mappings.vocabulary import Reason, ReasonCode

Give = Callable[[Value, Spot], Getter]
"""Compiles what is made of an item, where it stands in the payload."""
_Entry = tuple[Any, ...]
"""What stands side by side in the lists."""


def compile_loop(compiler: Compiler, value: ForEach, spot: Spot, compile_give: Give) -> Compiled:
    """Compile one list of the payload."""
    parts = value.for_each.root if isinstance(value.for_each, Items) and len(value.names) > 1 else (value.for_each,)
    taken = [name for name in value.names if name in compiler.let or name in compiler.loops or name in compiler.given]
    if taken:
        return compiler.misfit(spot.inner("as"), f'"${taken[0]}" is the name of another value', "call the item something else")
    lists = [_list(compiler, part, spot.inner("for_each", may_be_empty=True)) for part in parts]
    column = next((one.column for one in lists if one.column), "")
    path = f"{spot.path}[]"
    each = _gone_through(
        *_inside(compiler, value, lists, lambda: compile_give(value.give, Spot((*spot.loc, "give"), path))), path
    )
    read = _side_by_side(lists, column)
    ends = compiler.ends(value, spot, column)

    def loop(row: RowState) -> Any:
        try:
            built = each(row, read(row))
        except Refusal as refusal:
            return ends.hear(row, refusal.about(column, "", "for_each"))
        return built or refused_empty(ends, row)

    return Compiled(loop, Flow(ANYTHING.kind, is_list=True), column)


def _inside(
    compiler: Compiler, value: ForEach, lists: list[Compiled], compile_give: Callable[[], Getter]
) -> tuple[tuple[int, ...], Getter]:
    """Compile what is made of an item while its names are known; return the items' places in a row with it."""
    items = [compiler.item(Flow(one.flow.kind), one.column) for one in lists]
    outer = compiler.loops
    compiler.loops = outer | {name: item for name, (_, item) in zip(value.names, items, strict=True)}
    give = compile_give()
    compiler.loops = outer
    return tuple(place for place, _ in items), give


def _list(compiler: Compiler, part: Value, spot: Spot) -> Compiled:
    """Compile one list; of a list of values the empty ones keep their places, so that lists stay side by side."""
    if not isinstance(part, Items):
        compiled = compiler.value(part, spot)
        return replace(compiled, get=lenient(compiled.get))
    values = [compiler.value(one, spot.inner(position, may_be_empty=True)) for position, one in enumerate(part.root)]
    getters = tuple(lenient(one.get) for one in values)
    flows = {one.flow for one in values}
    flow = flows.pop() if len(flows) == 1 else ANYTHING
    reads = frozenset[str]() if all(one.is_constant for one in values) else None
    column = next((one.column for one in values if one.column), "")
    return Compiled(lambda row: [get(row) for get in getters], flow, column, reads=reads)


def _side_by_side(parts: list[Compiled], column: str) -> Callable[[RowState], list[_Entry]]:
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
            told, warned = len(row.reasons), len(row.warnings)
            one = give(row)
            _number(row.reasons, told, path, number)
            _number(row.warnings, warned, path, number)
            if one is not None:
                built.append(one)
        return built

    return each


def _number(reasons: list[Reason], start: int, path: str, number: int) -> None:
    """Name the item in what was told of it: `offers[].url` becomes `offers[1].url`."""
    for place in range(start, len(reasons)):
        if reasons[place].field.startswith(path):
            reasons[place] = replace(reasons[place], field=f"{path[:-2]}[{number}]{reasons[place].field[len(path) :]}")
