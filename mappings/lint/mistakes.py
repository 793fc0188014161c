"""Mistakes that the types of a mapping file do not show: missing required fields, unknown columns and fields, refused
constants.

Most checks use the plain document, so that they work even if some part of it is malformed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

from mappings.columns import LINK, NO_LINKS
from mappings.event import REQUIRED_FIELDS, ApproxLocation, City, Event, Offer, event_fields, judge
from mappings.lint.warnings import FILL_IN
from mappings.lookup_table import Table
from mappings.outgoing import Outgoing
from mappings.positions import Loc, MappingProblem, walk
from mappings.reasons import Detail, ReasonCode, did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_base import FileSource, GridSource
from mappings.spec.values import COMPANIONS, MARKERS, Fields, ForEach, Items, ListEntry, Value

_PLACE = re.compile(r"\[\d+\]")
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_MOST_VALUES = 10_000
_MOST_LEVELS = 120
"""How deep a named value may nest, counting the named values that it uses."""


def find_problems(document: Mapping[str, Any], tables: Mapping[str, Table]) -> Iterator[MappingProblem]:
    """Yield the required fields that are missing, and the constants that the service would refuse in every row."""
    event = document.get("event")
    if not isinstance(event, dict):
        return
    for path in REQUIRED_FIELDS:
        if not any(_gives(name, value, path, tables) for name, value in event.items()):
            others = [name for name in event if name not in REQUIRED_FIELDS]
            hint = did_you_mean(path, others).replace("did you mean", "is it written as")
            yield MappingProblem(("event",), f'the event lacks the required field "{path}"', hint)
    yield from _bad_constants(event, "", ("event",))


def find_endless_names(let: object) -> Iterator[MappingProblem]:
    """Yield the named values that use themselves, or grow too large once their references are replaced."""
    values = let if isinstance(let, dict) else {}
    parts = {name: [(len(loc) + 1, node) for loc, node in walk(value)] for name, value in values.items()}
    uses = {
        name: [(at, node[1:]) for at, node in nodes if isinstance(node, str) and node.startswith("$") and node[1:] in values]
        for name, nodes in parts.items()
    }
    names: list[str] = []
    while len(names) < len(values):
        try:
            names = list(TopologicalSorter({name: [used for _, used in places] for name, places in uses.items()}).static_order())
        except CycleError as error:
            circle = error.args[1][::-1]
            shown = " -> ".join(f"${name}" for name in circle)
            yield MappingProblem(("let", circle[0]), f"the named values refer to each other in a circle: {shown}")
            uses[circle[0]] = []
    sizes: dict[str, tuple[int, int]] = {}
    for name in names:
        size = len(parts[name]) + sum(sizes[used][0] for _, used in uses[name])
        depth = max([at for at, _ in parts[name]] + [at + sizes[used][1] for at, used in uses[name]])
        sizes[name] = size, depth
        is_reported = any(sizes[used][0] > _MOST_VALUES or sizes[used][1] > _MOST_LEVELS for _, used in uses[name])
        if (size > _MOST_VALUES or depth > _MOST_LEVELS) and not is_reported:
            message = f"the named values used here repeat each other more than {_MOST_VALUES:,} times, or nest too deeply"
            yield MappingProblem(("let", name), message, "let fewer named values refer to each other")


def item_names(document: object) -> frozenset[str]:
    """Return the item names of all `for_each` lists in a document."""
    called = [node.get("as") for _, node in walk(document) if isinstance(node, dict) and "for_each" in node]
    names = [name for one in called for name in (one if isinstance(one, list) else [one])]
    return frozenset(name for name in names if isinstance(name, str))


def _gives(name: str, value: object, path: str, tables: Mapping[str, Table]) -> bool:
    """Return whether the field `name` with this value may fill `path`."""
    if name == path:
        return True
    if not path.startswith(f"{name}."):
        return False
    rest = path.removeprefix(f"{name}.")
    if not isinstance(value, dict):
        return isinstance(value, str) and value.startswith("$")
    if "lookup" in value and str(value["lookup"]) in tables:
        take, by = value.get("take"), value.get("by")
        columns = tables[str(value["lookup"])].columns[len(by) if isinstance(by, list) else 1 :]
        results = [take] if isinstance(take, str) else take or columns
        return rest in results or len(results) == 1  # a text in an object's place is reported where it stands
    return any(marker in value for marker in MARKERS) or any(_gives(inner, one, rest, tables) for inner, one in value.items())


def _bad_constants(value: object, path: str, loc: Loc) -> Iterator[MappingProblem]:
    field = event_fields().get(_PLACE.sub("", path))
    if isinstance(value, str):
        if field and field.kind in {"text", "number"} and not value.startswith("$"):
            hints = _refusals(str(value), path, field.kind)
            yield from (MappingProblem(loc, f'"{value}" is not accepted as {path}', hint) for hint in hints)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _bad_constants(inner, f"{path}[{position}]", (*loc, position))
    elif isinstance(value, dict) and not any(marker in value for marker in MARKERS):
        if field is None or field.kind == "object":
            for name, inner in value.items():
                yield from _bad_constants(inner, f"{path}.{name}" if path else name, (*loc, name))
        elif value and not any(word in value for word in COMPANIONS):
            name = next(iter(value))
            hint = did_you_mean(name, MARKERS) or f"{path} is not an object: write one of {', '.join(MARKERS)}"
            yield MappingProblem((*loc, name), f'unknown value "{name}"', hint)


@lru_cache(1_000)  # thousands of feeds have the same constants
def _refusals(text: str, path: str, kind: str) -> tuple[str, ...]:
    """Return what the service would accept in place of a constant; empty if it accepts the constant, or none is sent."""
    event: Any = int(text) if text.isdigit() and kind == "number" else text
    for name, position in reversed(_PART.findall(path)):
        event = [{}] * int(position) + [event] if position else {name: event}
    found = [refusal for field, refusal in judge(event) if field == path]
    return tuple(
        one.hint for one in found if one.code is not ReasonCode.REQUIRED and (text or one.detail is not Detail.TOO_SHORT)
    )


_KNOWN: Mapping[str, tuple[str, ...]] = {
    "": tuple(Event.__annotations__),
    "approxLocation": tuple(ApproxLocation.__annotations__),
    "approxLocation.city": tuple(City.__annotations__),
    "offers": tuple(Offer.__annotations__),
}
"""The field names of the spec, by the path of their object or list of objects."""
_ENTRY_WORDS = {"offers": ("when", "require")}
"""Keys of a list entry that are not fields of the event."""
_IN_AN_OBJECT = "a text alone belongs in approxLocation.city.placeId; a lookup with several result columns gives an object"
_IN_OFFERS = "write each offer as an object: [{name: ..., url: ...}]; of a list in a cell, for_each gives one for each item"
_TAKEN = {
    "approxLocation": ("an object", _IN_AN_OBJECT),
    "approxLocation.city": ("an object", _IN_AN_OBJECT),
    "offers": ("a list of objects", _IN_OFFERS),
}
"""The kind of value that the service takes in a field, and the hint for other kinds."""
_ONE = {"string": "a text", "boolean": "yes or no", "object": "an object", "array": "a list"}
_SEVERAL = {"string": "texts", "boolean": "yes and no", "object": "objects", "array": "lists"}


def find_misfit_fields(mapping: FeedMapping, sent: Outgoing) -> Iterator[MappingProblem]:
    """Yield each field of the event that is neither in the spec nor in `extra`, or gives the wrong kind of value; and each
    entry of `extra` that no event has.
    """
    yield from _inside(mapping.event, sent, "", ("event",), mapping.extra)
    for position, path in enumerate(mapping.extra):
        reached = sent
        for name in path.split("."):
            if name not in reached.fields:
                hint = did_you_mean(name, reached.fields) or "drop it here, or fill it there"
                yield MappingProblem(("extra", position), f'the event has no field "{path}"', hint)
                break
            reached = reached.fields[name].item or reached.fields[name]


def _inside(value: Value, sent: Outgoing, path: str, loc: Loc, extra: tuple[str, ...]) -> Iterator[MappingProblem]:
    """Check the value at a path: an object, a list of objects, or what a lookup returns in their place."""
    match value:
        case Fields():
            for dotted, inner in value.root.items():
                yield from _field(dotted, inner, sent, path, (*loc, dotted), extra)
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


def _field(dotted: str, value: Value, sent: Outgoing, path: str, loc: Loc, extra: tuple[str, ...]) -> Iterator[MappingProblem]:
    """Check a field, whose name may be dotted, in the object at `path`."""
    for name in dotted.split("."):
        problems = list(_unknown(name, path, loc, extra))
        if problems:
            yield from problems
            return
        path = f"{path}.{name}" if path else name
        sent = sent.fields.get(name, Outgoing())
    yield from _other_kind(sent, path, loc)
    yield from _inside(value, sent, path, loc, extra)


def _unknown(name: str, path: str, loc: Loc, extra: tuple[str, ...]) -> Iterator[MappingProblem]:
    inner = f"{path}.{name}" if path else name
    known = _KNOWN.get(path, ())
    if name in known or any(inner == one or inner.startswith(f"{one}.") or one.startswith(f"{inner}.") for one in extra):
        return
    near = did_you_mean(name, (*known, *_ENTRY_WORDS.get(path, ())))
    declare = f"if the service takes it, declare it with extra: [{inner}]"
    yield MappingProblem(loc, f'unknown field "{name}" in {path or "the event"}', " ".join(filter(None, (near, declare))))


def _other_kind(sent: Outgoing, path: str, loc: Loc) -> Iterator[MappingProblem]:
    """Yield a problem if a mapping gives another kind of value where the service takes an object or a list of objects."""
    if path not in _TAKEN or sent.kind is None:
        return
    taken, hint = _TAKEN[path]
    given = _ONE.get(sent.kind, "a number")
    if sent.kind == "array":
        item = "string" if sent.item is None else sent.item.kind  # only steps produce texts
        given = f"a list of {_SEVERAL.get(item, 'numbers')}" if item else taken
    if given != taken:
        yield MappingProblem(loc, f"{path} is {taken}, and this gives {given}", hint)


_STATUS, _AVAILABILITY = ("draft", "published"), ("available",)
"""The values that the service takes as `status`, and those that its specification names for `availability`."""


def find_unknown_states(sent: Outgoing, document: Mapping[str, Any]) -> Iterator[MappingProblem]:
    """Yield each text that the mapping may give as `status` and the service refuses.

    A text directly in that field is left to the check of constants.
    """
    for text in _unknown_texts(sent.fields.get("status", Outgoing()), _STATUS):
        if text != document["event"].get("status"):
            hint = did_you_mean(text, _STATUS) or f"expected {' or '.join(_STATUS)}"
            yield MappingProblem(_place_of(text, "status", document), f'"{text}" is not accepted as status', hint)


def find_unusual_availability(sent: Outgoing, document: Mapping[str, Any]) -> Iterator[MappingProblem]:
    """Yield each text that the mapping may give as the availability of an offer, and the specification does not name."""
    offers = sent.fields.get("offers", Outgoing())
    for text in _unknown_texts((offers.item or offers).fields.get("availability", Outgoing()), _AVAILABILITY):
        path, known = "offers[].availability", ", ".join(_AVAILABILITY)
        near = did_you_mean(text, _AVAILABILITY)
        hint = "; ".join(filter(None, (near, "see with one event whether the service takes another value")))
        message = f'"{text}" is not a value that the service is known to take as {path}: {known}'
        yield MappingProblem(_place_of(text, "offers", document), message, hint)


def _unknown_texts(sent: Outgoing, known: Collection[str]) -> list[str]:
    return sorted(str(value) for value in sent.values if value not in known and value != FILL_IN)


def _place_of(text: str, field: str, document: Mapping[str, Any]) -> Loc:
    """Return where a text of a field stands: in the field, in a named value, or in a lookup file that the field uses."""
    parts = (("event", field), document["event"].get(field)), (("let",), document.get("let"))
    return next((loc for outer, part in parts for loc, node in walk(part, outer) if node == text), ("event", field))


def find_misfit_settings(mapping: FeedMapping, columns: Collection[str]) -> Iterator[MappingProblem]:
    """Yield settings that the kind of source does not support, read columns that `write_back` overwrites, and an `on_update`
    without an asset.
    """
    source, schedule = mapping.source, mapping.schedule
    if schedule is not None and schedule.on_update and not mapping.after:
        hint = "name the assets from which the source is made: after: [warehouse/events]"
        yield MappingProblem(("schedule", "on_update"), "on_update needs after", hint)
    is_probed = schedule is not None and schedule.look_every_s is not None
    if is_probed and not isinstance(source, FileSource | GoogleSheetsSource):
        message = f"a source of kind {source.kind} cannot be checked for changes without reading it"
        yield MappingProblem(("schedule", "look_every"), message, "write cron instead")
    if isinstance(source, GridSource):
        yield from _find_misshapen(source, columns)
    if isinstance(source, GoogleSheetsSource) and source.write_back:
        for name in source.write_back.names:
            if name in columns or name in source.shaped_columns:
                hint = "give a column that the mapping does not read"
                yield MappingProblem(("source", "write_back"), f'the mapping reads "{name}", and writes into it', hint)


def _find_misshapen(source: GridSource, columns: Collection[str]) -> Iterator[MappingProblem]:
    """Yield names that the row shapes of a source use twice, and what cannot stand beside `unpivot`."""
    own = {*source.fill_down, *(source.unpivot.columns if source.unpivot else ())}
    for name, count in Counter(source.made_columns).items():
        if count > 1 or name in own or name in source.columns:
            loc = ("headings", name) if name in source.headings else ("unpivot",)
            hint = "choose another name: it is a new column, filled in every row"
            yield MappingProblem(("source", *loc), f'"{name}" is used twice', hint)
    if source.unpivot is None:
        return
    for name in set(columns).intersection(source.unpivot.columns):
        hint = f'read "{source.unpivot.cell}": unpivot makes a row of each cell of "{name}"'
        yield MappingProblem(("source", "unpivot", "columns"), f'the mapping reads "{name}" too', hint)
    if isinstance(source, GoogleSheetsSource) and source.write_back:
        hint = "remove one of them: several events stand in one row, which has one cell for an outcome"
        yield MappingProblem(("source", "write_back"), "write_back cannot be used beside unpivot", hint)


def find_missing_columns(
    document: Mapping[str, Any], missing: Collection[str], nearest: Mapping[str, str], source: str
) -> Iterator[MappingProblem]:
    """Yield a problem for each use of a missing column. `nearest`: the source's most similar column names."""
    for name in missing:
        near = nearest.get(name)
        renamed = "write its new name, if the partner renamed it; add it to `optional` in the source, if it is sometimes missing"
        hint = f'did you mean "{near}"?' if near else renamed
        hint = NO_LINKS if near and name == f"{near}{LINK}" else hint
        for loc in places_of_column(document, name):
            yield MappingProblem(loc, f'{source} has no column "{name}"', hint)


def places_of_column(document: Mapping[str, Any], name: str) -> Iterator[Loc]:
    """Yield the positions where a mapping file uses a column, or makes one of the name."""
    source = document["source"] if isinstance(document.get("source"), dict) else {}
    parts = {("source", part): source.get(part) for part in ("required", "fill_down", "headings", "unpivot")}
    for outer, listed in ((("key",), document.get("key")), *parts.items()):
        yield from (loc for loc, node in walk(listed, outer) if node == name and loc[-1] != "matches")
    if isinstance(headings := source.get("headings"), dict) and name in headings:
        yield ("source", "headings", name)
    for part in ("let", "rows", "event"):
        for loc, node in walk(document.get(part), (part,)):
            if isinstance(node, dict):
                yield from ((*loc, key) for key in ("from", "column", "by_column") if node.get(key) == name)
