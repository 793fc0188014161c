"""Columns that the source does not have, where a mapping file names them; and fields that the event does not have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mappings.event import ApproxLocation, City, Event, Offer
from mappings.outgoing import Outgoing, outgoing_of
from mappings.positions import Loc, MappingProblem, walk
from mappings.refusals import did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.spec.values import Fields, ForEach, Items, ListEntry, Value

_NAMING = ("from", "column", "by_column")


def find_missing_columns(
    document: Mapping[str, Any], missing: Collection[str], nearest: Mapping[str, str], source: str
) -> Iterator[MappingProblem]:
    """Yield each place that names a missing column; `nearest` are columns of the source that are spelt alike."""
    for name in missing:
        near = nearest.get(name)
        hint = f'did you mean "{near}"?' if near else "add it to `optional` in the source, if the partner leaves it out at times"
        for loc in _places(document, name):
            yield MappingProblem(loc, f'{source} has no column "{name}"', hint)


def _places(document: Mapping[str, Any], name: str) -> Iterator[Loc]:
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
