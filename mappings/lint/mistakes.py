"""What a whole mapping must have beyond well-formed parts: the required fields, constants that the service would accept.

Most is found in the plain document, so that it is found even where some part is not well-formed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from mappings.event import REQUIRED_FIELDS, ApproxLocation, City, Event, Offer, judge
from mappings.lookup_table import Table
from mappings.outcome import ReasonCode, did_you_mean
from mappings.outgoing import JsonKind, Outgoing, outgoing_of
from mappings.positions import Loc, MappingProblem, walk
from mappings.spec.feed import FeedMapping
from mappings.spec.values import COMPANIONS, MARKERS, Fields, ForEach, Items, ListEntry, Value

_CHECKED = re.compile(r"(?:^|\.)(?:timezone|status|countryCode|url|channelId|coverImage)$")
_SINGLE = re.compile(
    r"channelId|title|startAt|endAt|timezone|status|classifications(?:\[\d+\])?|locationName|coverImage"
    r"|offers\[\d+\]\.(?:name|url|availability)|approxLocation\.city\.(?:placeId|name|countryCode)"
)
"""The fields that the service spells out and that are no objects."""
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_MOST_VALUES = 10_000
_MOST_LEVELS = 120
"""So much may stand in a named value, with what it uses: a chain of names is as deep as a value that is written out."""


def find_problems(document: Mapping[str, Any], tables: Mapping[str, Table]) -> Iterator[MappingProblem]:
    """Yield what the service would refuse in every row."""
    event = document.get("event")
    if isinstance(event, dict):
        yield from _missing(event, tables)
        yield from _bad_constants(event, "", ("event",))


def find_circles(let: object) -> Iterator[MappingProblem]:
    """Yield the named values that need themselves, each circle once."""
    for circle in _circles(_extents(let)):
        shown = " -> ".join("$" + each for each in (*circle, circle[0]))
        yield MappingProblem(("let", circle[0]), f"the named values go in a circle: {shown}")


def find_overgrown(let: object) -> Iterator[MappingProblem]:
    """Yield the named values that grow too large once the values that they use are put in their places."""
    extents = _extents(let)
    circular = {name for circle in _circles(extents) for name in circle}
    needs = {name: one.used - circular for name, one in extents.items() if name not in circular}
    sizes: dict[str, int] = {}
    depths: dict[str, int] = {}
    for name in TopologicalSorter(needs).static_order():
        if not needs[name] <= sizes.keys():
            continue  # what it uses is reported
        uses = [(other, at) for other, at in extents[name].uses if other in sizes]
        size = extents[name].size + sum(sizes[other] for other, _ in uses)
        depth = max([extents[name].depth, *(at + depths[other] for other, at in uses)])
        if size > _MOST_VALUES or depth > _MOST_LEVELS:
            message = f"the named values used here repeat each other more than {_MOST_VALUES:,} times, or nest too deeply"
            yield MappingProblem(("let", name), message, "name fewer values one by means of the other")
        else:
            sizes[name], depths[name] = size, depth


def item_names(document: object) -> frozenset[str]:
    """Return what the items of all lists are called that a document goes through with `for_each`."""
    called = [node.get("as") for _, node in walk(document) if isinstance(node, dict) and "for_each" in node]
    names = [name for one in called for name in (one if isinstance(one, list) else [one])]
    return frozenset(name for name in names if isinstance(name, str))


def _missing(event: Mapping[str, Any], tables: Mapping[str, Table]) -> Iterator[MappingProblem]:
    for path in REQUIRED_FIELDS:
        if not any(_gives(name, value, path, tables) for name, value in event.items()):
            spare = [name for name in event if name not in REQUIRED_FIELDS]
            hint = did_you_mean(path, spare).replace("did you mean", "is it written as")
            yield MappingProblem(("event",), f'the event lacks the required field "{path}"', hint)


def _gives(name: str, value: object, path: str, tables: Mapping[str, Table]) -> bool:
    """Return whether the field `name` with this value may fill `path`, as far as the file shows."""
    if name == path:
        return True
    if not path.startswith(name + "."):
        return False
    rest = path.removeprefix(name + ".")
    if not isinstance(value, dict):
        return isinstance(value, str) and value.startswith("$")
    if "lookup" in value:
        return _table_gives(value, rest, tables)
    if any(marker in value for marker in MARKERS):
        return True
    return any(_gives(inner, one, rest, tables) for inner, one in value.items())


def _table_gives(value: Mapping[str, Any], column: str, tables: Mapping[str, Table]) -> bool:
    table = tables.get(str(value["lookup"]))
    if table is None:
        return True
    take, by = value.get("take"), value.get("by")
    results = [take] if isinstance(take, str) else take or table.columns[len(by) if isinstance(by, list) else 1 :]
    return column in results or len(results) == 1  # a text in an object's place is reported where it stands


def _bad_constants(value: object, path: str, loc: Loc) -> Iterator[MappingProblem]:
    if isinstance(value, str):
        yield from _refused(value, path, loc)
    elif isinstance(value, dict) and not any(marker in value for marker in MARKERS):
        if _SINGLE.fullmatch(path):
            yield from _no_object(value, path, loc)
            return
        for name, inner in value.items():
            yield from _bad_constants(inner, f"{path}.{name}" if path else name, (*loc, name))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _bad_constants(inner, f"{path}[{position}]", (*loc, position))


def _no_object(block: Mapping[str, Any], path: str, loc: Loc) -> Iterator[MappingProblem]:
    """Yield that a block without a kind of value would be sent as an object, unless it is reported already."""
    if not any(word in block for word in COMPANIONS):
        for name in [*block][:1]:
            hint = did_you_mean(name, MARKERS) or f"{path} is no object: write one of {', '.join(MARKERS)}"
            yield MappingProblem((*loc, name), f'unknown value "{name}"', hint)


def _refused(text: str, path: str, loc: Loc) -> Iterator[MappingProblem]:
    if text.startswith("$") or not _CHECKED.search(path):
        return
    constant = int(text) if text.isdigit() and path in {"channelId", "coverImage"} else text
    for told, refusal in judge(_nested(path, constant)):
        if told == path and refusal.code is not ReasonCode.REQUIRED:
            yield MappingProblem(loc, f'"{text}" is not accepted as {path}', refusal.hint)


def _nested(path: str, value: Any) -> Any:
    for name, position in reversed(_PART.findall(path)):
        value = [{}] * int(position) + [value] if position else {name: value}
    return value


@dataclass(frozen=True, slots=True)
class _Extent:
    """How many parts a named value has, how deep they lie, and which other names it uses, each with how deep it stands."""

    size: int
    depth: int
    uses: list[tuple[str, int]]

    @property
    def used(self) -> set[str]:
        """The names that it uses."""
        return {name for name, _ in self.uses}


def _extents(let: object) -> dict[str, _Extent]:
    extents: dict[str, _Extent] = {}
    if not isinstance(let, dict):
        return extents
    for name, value in let.items():
        parts = [(len(loc) + 1, node) for loc, node in walk(value)]
        uses = [(node[1:], depth) for depth, node in parts if isinstance(node, str) and node[:1] == "$" and node[1:] in let]
        extents[name] = _Extent(len(parts), max(depth for depth, _ in parts), uses)
    return extents


def _circles(extents: Mapping[str, _Extent]) -> Iterator[list[str]]:
    """Yield the names of each circle in the order of their need, the one written first at the beginning."""
    needs = {name: sorted(one.used) for name, one in extents.items()}
    while True:
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1][:0:-1]
        else:
            return
        first = circle.index(next(name for name in needs if name in circle))
        yield [*circle[first:], *circle[:first]]
        needs = {name: [other for other in others if other not in circle] for name, others in needs.items() if name not in circle}


_OBJECT_FIELDS: Mapping[str, str] = {
    "approxLocation": "approxLocation.city.placeId",
    "approxLocation.city": "approxLocation.city.placeId",
}
"""The objects of an event (spec: Event), each with the field inside that a text alone is likeliest meant for."""
_LISTS: Mapping[str, str] = {
    "offers": "write each offer as an object: [{name: ..., url: ...}]; of a list in a cell, for_each gives one for each item"
}
"""The lists of objects of an event (spec: Event), each with how its objects are written."""
_SHOWN: Mapping[JsonKind, str] = {"array": "a list", "string": "a text", "boolean": "yes or no", "object": "one object"}
_SEVERAL: Mapping[JsonKind | None, str] = {"array": "lists", "string": "texts", "boolean": "yes and no"}


def find_no_objects(mapping: FeedMapping) -> Iterator[MappingProblem]:
    """Yield each object of the event in whose place another thing would be sent in every row."""
    sent = outgoing_of(mapping)
    for path, loc in _places(mapping.event, "", ("event",)):
        kind = _reached(sent, path).kind
        if path in _OBJECT_FIELDS and kind not in {None, "object"}:
            told = _told(kind)
            hint = f"one text belongs into {_OBJECT_FIELDS[path]}; a lookup with several result columns gives an object"
            yield MappingProblem(loc, f"{path} is an object, and this gives {told}", hint)
        if path in _LISTS:
            yield from _of_list(path, _reached(sent, path), loc)


def _of_list(path: str, given: Outgoing, loc: Loc) -> Iterator[MappingProblem]:
    """Yield what is wrong with the value of a field that is a list of objects."""
    hint = _LISTS[path]
    if given.kind not in {None, "array"}:
        yield MappingProblem(loc, f"{path} is a list of objects, and this gives {_told(given.kind)}", hint)
    elif given.kind == "array" and _item(given) not in {None, "object"}:
        yield MappingProblem(
            loc, f"{path} is a list of objects, and this is a list of {_SEVERAL.get(_item(given), 'numbers')}", hint
        )


def _item(listed: Outgoing) -> JsonKind | None:
    """Return what a list holds: texts, where nothing but steps made it."""
    return "string" if listed.item is None else listed.item.kind


def _told(kind: JsonKind | None) -> str:
    return _SHOWN.get(kind, "a number") if kind is not None else ""


def _places(fields: Fields, outer: str, loc: Loc) -> Iterator[tuple[str, Loc]]:
    for name, value in fields.root.items():
        path, place = f"{outer}.{name}" if outer else name, (*loc, name)
        if isinstance(value, Fields) and path not in _LISTS:
            yield from _places(value, path, place)
        else:
            yield path, place


def _reached(sent: Outgoing, path: str) -> Outgoing:
    for name in path.split("."):
        sent = sent.fields.get(name, Outgoing())
    return sent


_NAMING = ("from", "column", "by_column")


def find_missing_columns(
    document: Mapping[str, Any], missing: Collection[str], nearest: Mapping[str, str], source: str
) -> Iterator[MappingProblem]:
    """Yield each place that names a missing column; `nearest` are columns of the source that are spelt alike."""
    for name in missing:
        near = nearest.get(name)
        hint = f'did you mean "{near}"?' if near else "add it to `optional` in the source, if the partner leaves it out at times"
        for loc in _places_of_columns(document, name):
            yield MappingProblem(loc, f'{source} has no column "{name}"', hint)


def _places_of_columns(document: Mapping[str, Any], name: str) -> Iterator[Loc]:
    source = document.get("source")
    lists: dict[Loc, object] = {
        ("key",): document.get("key"),
        ("source", "required"): source.get("required") if isinstance(source, dict) else None,
    }
    for loc, listed in lists.items():
        if listed == name:
            yield loc
        for position, inner in enumerate(listed if isinstance(listed, list) else ()):
            if inner == name or (isinstance(inner, dict) and inner.get("column") == name):
                yield (*loc, position)
    for part in ("let", "rows", "event"):
        for loc, node in walk(document.get(part), (part,)):
            if isinstance(node, dict):
                yield from ((*loc, key) for key in _NAMING if node.get(key) == name)


_KNOWN: Mapping[str, tuple[str, ...]] = {
    "": tuple(Event.__annotations__),
    "approxLocation": tuple(ApproxLocation.__annotations__),
    "approxLocation.city": tuple(City.__annotations__),
    "offers": tuple(Offer.__annotations__),
}
"""The names that the spec spells out, by the object, or the list of objects, that they stand in."""
_WORDS = {"offers": ("when", "require")}
"""The keys of an object in a list that are no fields of it."""


def find_unknown_names(mapping: FeedMapping) -> Iterator[MappingProblem]:
    """Yield each field of the event that is neither spelt out nor declared, and each declared one that no event has."""
    sent = outgoing_of(mapping)
    yield from _inside(mapping.event, sent, "", ("event",), mapping.extra)
    for position, path in enumerate(mapping.extra):
        is_there, names = _reach(sent, path)
        if not is_there:
            told = f'the event has no field "{path}"'
            yield MappingProblem(
                ("extra", position), told, did_you_mean(path.rpartition(".")[2], names) or "drop it here, or fill it there"
            )


def _inside(value: Value, sent: Outgoing, path: str, loc: Loc, extra: tuple[str, ...]) -> Iterator[MappingProblem]:
    """Look through what a value gives: objects, lists of them, and what a lookup puts in an object's place."""
    match value:
        case Fields():
            for name, inner in value.root.items():
                yield from _named(name.split("."), inner, sent, path, (*loc, name), extra)
        case ListEntry():
            yield from _inside(value.fields, sent, path, loc, extra)
        case Items():
            for place, item in enumerate(value.root):
                yield from _inside(item, sent.item or Outgoing(), path, (*loc, place), extra)
        case ForEach():
            yield from _inside(value.give, sent.item or Outgoing(), path, (*loc, "give"), extra)
        case _:
            for name in (sent.item or sent).fields if path in _KNOWN else ():
                yield from _unknown(name, path, loc, extra)


def _named(
    names: list[str], value: Value, sent: Outgoing, path: str, loc: Loc, extra: tuple[str, ...]
) -> Iterator[MappingProblem]:
    """Look at a name, dotted or not, in the object at `path`."""
    for name in names:
        problems = list(_unknown(name, path, loc, extra))
        if problems:
            yield from problems
            return
        path = f"{path}.{name}" if path else name
        sent = sent.fields.get(name, Outgoing())
    yield from _inside(value, sent, path, loc, extra)


def _unknown(name: str, path: str, loc: Loc, extra: tuple[str, ...]) -> Iterator[MappingProblem]:
    inner = f"{path}.{name}" if path else name
    known = _KNOWN.get(path, ())
    if name in known or any(inner == one or inner.startswith(f"{one}.") or one.startswith(f"{inner}.") for one in extra):
        return
    near = did_you_mean(name, (*known, *_WORDS.get(path, ())))
    declare = f"if the service takes it, declare it with extra: [{inner}]"
    yield MappingProblem(loc, f'unknown field "{name}" in {path or "the event"}', " ".join(filter(None, (near, declare))))


def _reach(sent: Outgoing, path: str) -> tuple[bool, Mapping[str, Outgoing]]:
    """Return whether the payload can have a field, and the names that stand beside it."""
    fields = sent.fields
    for name in path.split("."):
        beside = fields
        if name not in beside:
            return False, beside
        found = beside[name]
        fields = (found.item or found).fields
    return True, fields
