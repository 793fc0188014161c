"""Names in an event that the service's page does not know, and that look like one it does: they are sent as they stand.

The page names some optional fields without their spelling (spec: Event), so an unknown name alone is no mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mappings.event import ApproxLocation, City, Event, Offer
from mappings.refusals import did_you_mean
from mappings.schema import FeedMapping
from mappings.spots import Loc, Problem
from mappings.values import Fields, ForEach, Items, Value

_KNOWN: Mapping[str, tuple[str, ...]] = {
    "": tuple(Event.model_fields),
    "approxLocation": tuple(ApproxLocation.model_fields),
    "approxLocation.city": tuple(City.model_fields),
    "offers[]": tuple(Offer.model_fields),
}
"""The names that the spec spells out, by the object that they stand in."""


def find_odd_names(mapping: FeedMapping) -> Iterator[Problem]:
    """Yield each name of the event that is nearly one that the service knows."""
    yield from _inside(mapping.event, "", ("event",))


def _inside(value: Value, path: str, loc: Loc) -> Iterator[Problem]:
    """Look through the objects that a value gives; objects stand in the payload only, in a list of it, or behind `give`."""
    match value:
        case Fields():
            for name, inner in value.root.items():
                yield from _named(name.split("."), inner, path, (*loc, name))
        case Items():
            for place, item in enumerate(value.root):
                yield from _inside(item, f"{path}[]", (*loc, place))
        case ForEach():
            yield from _inside(value.give, f"{path}[]", (*loc, "give"))
        case _:
            return


def _named(names: list[str], value: Value, path: str, loc: Loc) -> Iterator[Problem]:
    """Look at a name, dotted or not, in the object at `path`."""
    for name in names:
        known = _KNOWN.get(path, ())
        near = did_you_mean(name, known) if name not in known else ""
        if near:
            where = "the event" if not path else f"{path.removesuffix('[]')} of the event"
            yield Problem(loc, f'the service\'s page knows no "{name}" in {where}; it is sent as it stands', near)
            return
        path = f"{path}.{name}" if path else name
    yield from _inside(value, path, loc)
