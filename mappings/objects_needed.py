"""Fields that the service wants as an object, and that a feed would fill with a text or a list, as far as its file tells.

What a field can be at all is `outgoing`'s; required fields and constants are `soundness`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mappings.outgoing import JsonKind, Outgoing, outgoing_of
from mappings.schema import FeedMapping
from mappings.spots import Loc, Problem
from mappings.values import Fields

_NEEDED: Mapping[str, str] = {
    "approxLocation": "approxLocation.city.placeId",
    "approxLocation.city": "approxLocation.city.placeId",
}
"""The objects of an event (spec: Event), each with the field inside that a text alone is likeliest meant for."""
_SHOWN: Mapping[JsonKind, str] = {"array": "a list", "string": "a text", "boolean": "yes or no"}


def find_no_objects(mapping: FeedMapping) -> Iterator[Problem]:
    """Yield each object of the event in whose place another thing would be sent in every row."""
    sent = outgoing_of(mapping)
    for path, loc in _places(mapping.event, "", ("event",)):
        kind = _reached(sent, path).kind
        if path in _NEEDED and kind not in {None, "object"}:
            told = _SHOWN.get(kind, "a number")
            hint = f"one text belongs into {_NEEDED[path]}; a lookup with several result columns gives an object"
            yield Problem(loc, f"{path} is an object, and this gives {told}", hint)


def _places(fields: Fields, outer: str, loc: Loc) -> Iterator[tuple[str, Loc]]:
    for name, value in fields.root.items():
        path, place = f"{outer}.{name}" if outer else name, (*loc, name)
        if isinstance(value, Fields):
            yield from _places(value, path, place)
        else:
            yield path, place


def _reached(sent: Outgoing, path: str) -> Outgoing:
    for name in path.split("."):
        sent = sent.fields.get(name, Outgoing())
    return sent
