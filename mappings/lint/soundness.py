"""What a whole mapping must have beyond well-formed parts: the required fields, constants that the service would accept.

It looks at the plain document, so that it can speak even where some part is not well-formed. What is merely unwise is `lint`'s.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Any

from mappings.event import REQUIRED_FIELDS, judge
from mappings.lookup_table import Table
from mappings.positions import Loc, Problem
from mappings.refusals import ReasonCode, did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.spec.values import (
    COMPANIONS,
    MARKERS,
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
    JsonKind,
    Meta,
    Outgoing,
    Seen,
    TableValue,
    Value,
    after,
    either,
    joined_objects,
    one_of,
    with_promise,
)
from mappings.steps.lookups import LastIn, Lookup, Map, split_columns
from mappings.steps.step import Kind, Step
from mappings.steps.text import Truncate

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


def find_problems(document: Mapping[str, Any], tables: Mapping[str, Table]) -> Iterator[Problem]:
    """Yield what the service would refuse in every row."""
    event = document.get("event")
    if isinstance(event, dict):
        yield from _missing(event, tables)
        yield from _bad_constants(event, "", ("event",))


def find_circles(let: object) -> Iterator[Problem]:
    """Yield the named values that need themselves, each circle once."""
    for circle in _circles(_extents(let)):
        shown = " -> ".join("$" + each for each in (*circle, circle[0]))
        yield Problem(("let", circle[0]), f"the named values go in a circle: {shown}")


def find_overgrown(let: object) -> Iterator[Problem]:
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
            yield Problem(("let", name), message, "name fewer values one by means of the other")
        else:
            sizes[name], depths[name] = size, depth


def item_names(node: object) -> frozenset[str]:
    """Return what the items of all lists are called that a document goes through with `for_each`."""
    if not isinstance(node, dict):
        return frozenset().union(*map(item_names, node)) if isinstance(node, list) else frozenset()
    called = node.get("as") if "for_each" in node else None
    names = [called] if isinstance(called, str) else called if isinstance(called, list) else []
    inside = frozenset().union(*map(item_names, node.values()))
    return inside | {name for name in names if isinstance(name, str)}


def _missing(event: Mapping[str, Any], tables: Mapping[str, Table]) -> Iterator[Problem]:
    for path in REQUIRED_FIELDS:
        if not any(_gives(name, value, path, tables) for name, value in event.items()):
            spare = [name for name in event if name not in REQUIRED_FIELDS]
            hint = did_you_mean(path, spare).replace("did you mean", "is it written as")
            yield Problem(("event",), f'the event lacks the required field "{path}"', hint)


def _gives(name: str, value: object, path: str, tables: Mapping[str, Table]) -> bool:
    """True if the field `name` with this value may fill `path`, as far as the file tells."""
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
    return column in results or len(results) == 1  # a text in an object's place is told where it stands


def _bad_constants(value: object, path: str, loc: Loc) -> Iterator[Problem]:
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


def _no_object(block: Mapping[str, Any], path: str, loc: Loc) -> Iterator[Problem]:
    """Yield that a block without a kind of value would be sent as an object; with other keys of a value it is told already."""
    if not any(word in block for word in COMPANIONS):
        for name in [*block][:1]:
            hint = did_you_mean(name, MARKERS) or f"{path} is no object: write one of {', '.join(MARKERS)}"
            yield Problem((*loc, name), f'unknown value "{name}"', hint)


def _refused(text: str, path: str, loc: Loc) -> Iterator[Problem]:
    if text.startswith("$") or not _CHECKED.search(path):
        return
    constant = int(text) if text.isdigit() and path in {"channelId", "coverImage"} else text
    for told, refusal in judge(_nested(path, constant)):
        if told == path and refusal.code is not ReasonCode.REQUIRED:
            yield Problem(loc, f'"{text}" is not accepted as {path}', refusal.hint)


def _nested(path: str, value: Any) -> Any:
    for name, position in reversed(_PART.findall(path)):
        value = [{}] * int(position) + [value] if position else {name: value}
    return value


@dataclass(slots=True)
class _Extent:
    """How many parts a named value has, how deep they lie, and which other names it uses, each with how deep it stands."""

    size: int = 0
    depth: int = 0
    uses: list[tuple[str, int]] = field(default_factory=list)

    @property
    def used(self) -> set[str]:
        """The names that it uses."""
        return {name for name, _ in self.uses}


def _extents(let: object) -> dict[str, _Extent]:
    if not isinstance(let, dict):
        return {}
    extents = {name: _Extent() for name in let}
    for name, extent in extents.items():
        _measure(let[name], 1, extent, extents)
    return extents


def _measure(value: object, depth: int, extent: _Extent, known: Collection[str]) -> None:
    extent.size += 1
    extent.depth = max(extent.depth, depth)
    if isinstance(value, str) and value[:1] == "$" and value[1:] in known:
        extent.uses.append((value[1:], depth))
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _measure(inner, depth + 1, extent, known)


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


_MOMENT = Outgoing("string", sample="2030-05-01T19:30:00+02:00", longest=32)
_LISTED = frozenset({"classifications"})
_NEEDED = frozenset(REQUIRED_FIELDS)
"""A row without one of these is rejected before it is sent."""
_KNOWN: Mapping[str, Outgoing] = {
    "channelId": Outgoing("integer"),
    "coverImage": Outgoing("integer"),
    "startAt": _MOMENT,
    "endAt": _MOMENT,
    "status": Outgoing("string", values=frozenset({"draft", "published"})),
    "timezone": Outgoing("string", sample="Europe/Lisbon"),
    "approxLocation.city.countryCode": Outgoing("string", sample="PT", longest=2),
    "offers[].url": Outgoing("string", sample="https://example.org/tickets?from=1"),
}
"""What our own payload model (`event`) promises of a field, whatever the file says."""


def outgoing_of(mapping: FeedMapping) -> Outgoing:
    """Return what the payloads of a feed can be, as one object."""
    return _Reading(mapping).object(mapping.event.root, "")


class _Reading:
    """Reads the values of one mapping."""

    def __init__(self, mapping: FeedMapping) -> None:
        self._mapping = mapping

    def object(self, fields: Mapping[str, Value], path: str) -> Outgoing:
        """Read an object; dotted names reach into objects inside."""
        found: dict[str, Outgoing] = {}
        for dotted, value in fields.items():
            name, _, rest = dotted.partition(".")
            inner = f"{path}.{name}" if path else name
            read = self.object({rest: value}, inner) if rest else self.field(value, inner)
            found[name] = joined_objects(found[name], read) if name in found else read
        return Outgoing("object", any(one.is_always for one in found.values()), fields=found)

    def field(self, value: Value, path: str) -> Outgoing:
        """Read the value of one field, and add what our payload model promises of it."""
        found = self.value(value, path)
        if path in _LISTED:
            texts = found.item or found
            item = replace(texts, kind="string", is_always=True, item=None, fields={})
            return Outgoing("array", item=item)
        found = replace(found, is_always=found.is_always or path in _NEEDED)
        return with_promise(found, _KNOWN[path]) if path in _KNOWN else found

    def value(self, value: Value, path: str) -> Outgoing:  # noqa: C901, PLR0911, PLR0912  # one arm per kind of value
        match value:
            case str():
                return self._text(value, path)
            case Fields():
                return self.object(value.root, path)
            case Entry():
                return replace(self.object(value.fields.root, path), is_always=False)
            case Items():
                return self._items(value, path)
            case From():
                found = self._steps(self._text(value.source, path) if value.source[0] == "$" else Outgoing("string"), value.do)
            case FirstOf():
                found = self._steps(either(self.value(part, path) for part in value.first_of), value.do)
            case Joined():
                found = self._steps(Outgoing("string"), value.do)
            case Choose():
                branches = [choice.then for choice in value.choose]
                branches += [] if value.otherwise is None else [value.otherwise]
                found = either(self.value(part, path) for part in branches)
                found = replace(found, is_always=found.is_always and value.otherwise is not None)
            case TableValue():
                found = after((value.on_miss,), self._table(value.lookup, len(value.by), value.take, is_many=value.many))
            case ForEach():
                return after((value.on_empty, value.on_error), self._for_each(value, path))
            case Meta():
                found = self._steps(Outgoing("number" if value.meta == "row" else "string"), value.do)
            case ChannelValue():
                found = Outgoing("integer")
            case At() | Seen():
                found = _MOMENT
            case Image():
                return Outgoing("integer", is_always=False)
        return after((value.on_empty, value.on_error), found)

    def _text(self, text: str, path: str) -> Outgoing:
        if not text.startswith("$"):
            return one_of([text])
        if text.startswith("$$"):
            return one_of([text[1:]])
        named = self._mapping.let.get(text[1:])
        return Outgoing() if named is None else self.value(named, path)

    def _items(self, value: Items, path: str) -> Outgoing:
        parts = [self.field(part, f"{path}[]") if isinstance(part, str) else self._item(part, path) for part in value.root]
        return Outgoing("array", any(part.is_always for part in parts), item=replace(either(parts), is_always=True))

    def _for_each(self, value: ForEach, path: str) -> Outgoing:
        item = self._item(value.give, path) if isinstance(value.give, Fields | Entry) else self.field(value.give, f"{path}[]")
        return Outgoing("array", item=replace(item, is_always=True))

    def _item(self, part: Value, path: str) -> Outgoing:
        return self.value(part, f"{path}[]")

    def _steps(self, source: Outgoing, steps: Iterable[Step]) -> Outgoing:
        return reduce(self._step, steps, source)

    def _step(self, before: Outgoing, step: Step) -> Outgoing:
        """Read what a step makes of what it is given; a text step works on each item of a list."""
        found = self._made(before, step)
        if before.kind == "array" and step.takes is not Kind.LIST and found.kind != "array":
            found = Outgoing("array", before.is_always and found.is_always, item=found)
        return after((step.policy if isinstance(step, Map | Lookup | LastIn) else step.on_error,), found)

    def _made(self, before: Outgoing, step: Step) -> Outgoing:
        always = before.is_always
        match step:
            case Map() | Lookup() if step.keeps:
                return Outgoing(None if isinstance(step, Lookup) and step.many else "string", always)
            case Map():
                item = one_of(chain.from_iterable(step.table.values()))
                return Outgoing("array", always, item=item) if step.gives_several else replace(item, is_always=always)
            case Lookup() | LastIn():
                return replace(self._table(step.file, 1, step.take, is_many=step.many), is_always=always)
            case Truncate():
                return Outgoing("string", always, longest=step.length)
            case _:
                return Outgoing(_KINDS.get(step.result), always, sample=before.sample if step.gives is step.takes else "")

    def _table(self, file: str, keys: int, take: tuple[str, ...] | None, *, is_many: bool) -> Outgoing:
        table = self._mapping.tables[file]
        results = split_columns(table, keys, take)[1]
        columns = {name: [row[table.columns.index(name)] for row in table.rows] for name in results}
        found = {name: replace(one_of(filter(None, cells)), is_always=all(cells)) for name, cells in columns.items()}
        one = found[results[0]] if len(results) == 1 else Outgoing("object", fields=found)
        return Outgoing("array", item=replace(one, is_always=True)) if is_many else one


_KINDS: Mapping[Kind, JsonKind] = {
    Kind.TEXT: "string",
    Kind.DATE: "string",
    Kind.CLOCK: "string",
    Kind.WALL: "string",
    Kind.MOMENT: "string",
    Kind.NUMBER: "number",
    Kind.BOOLEAN: "boolean",
    Kind.LIST: "array",
}
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


def find_no_objects(mapping: FeedMapping) -> Iterator[Problem]:
    """Yield each object of the event in whose place another thing would be sent in every row."""
    sent = outgoing_of(mapping)
    for path, loc in _places(mapping.event, "", ("event",)):
        kind = _reached(sent, path).kind
        if path in _OBJECT_FIELDS and kind not in {None, "object"}:
            told = _told(kind)
            hint = f"one text belongs into {_OBJECT_FIELDS[path]}; a lookup with several result columns gives an object"
            yield Problem(loc, f"{path} is an object, and this gives {told}", hint)
        if path in _LISTS:
            yield from _of_list(path, _reached(sent, path), loc)


def _of_list(path: str, given: Outgoing, loc: Loc) -> Iterator[Problem]:
    """Yield what is wrong with the value of a field that is a list of objects."""
    hint = _LISTS[path]
    if given.kind not in {None, "array"}:
        yield Problem(loc, f"{path} is a list of objects, and this gives {_told(given.kind)}", hint)
    elif given.kind == "array" and _item(given) not in {None, "object"}:
        yield Problem(loc, f"{path} is a list of objects, and this is a list of {_SEVERAL.get(_item(given), 'numbers')}", hint)


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
