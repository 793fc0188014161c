"""Fields that the service wants as objects, and that a feed would fill with a text or a list, as far as its file tells.

What a field can be at all is `outgoing`'s; required fields and constants are `soundness`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mappings.field_forms import JsonKind, Outgoing
from mappings.outgoing import outgoing_of
from mappings.schema import FeedMapping
from mappings.spots import Loc, Problem
from mappings.values import Fields

_NEEDED: Mapping[str, str] = {
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
        if path in _NEEDED and kind not in {None, "object"}:
            told = _told(kind)
            hint = f"one text belongs into {_NEEDED[path]}; a lookup with several result columns gives an object"
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
