"""Names in an event that the service's page does not spell out and that the feed does not declare with `extra`.

The page names some optional fields without their spelling (spec: Event): those are declared, all others are mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mappings.event import ApproxLocation, City, Event, Offer
from mappings.field_forms import Outgoing
from mappings.outgoing import outgoing_of
from mappings.refusals import did_you_mean
from mappings.schema import FeedMapping
from mappings.spots import Loc, Problem
from mappings.values import Entry, Fields, ForEach, Items, Value

_KNOWN: Mapping[str, tuple[str, ...]] = {
    "": tuple(Event.__annotations__),
    "approxLocation": tuple(ApproxLocation.__annotations__),
    "approxLocation.city": tuple(City.__annotations__),
    "offers": tuple(Offer.__annotations__),
}
"""The names that the spec spells out, by the object, or the list of objects, that they stand in."""
_WORDS = {"offers": ("when", "require")}
"""The keys of an object in a list that are no fields of it."""


def find_unknown_names(mapping: FeedMapping) -> Iterator[Problem]:
    """Yield each field of the event that is neither spelt out nor declared, and each declared one that no event has."""
    sent = outgoing_of(mapping)
    yield from _inside(mapping.event, sent, "", ("event",), mapping.extra)
    for position, path in enumerate(mapping.extra):
        is_there, names = _reach(sent, path)
        if not is_there:
            told = f'the event has no field "{path}"'
            yield Problem(
                ("extra", position), told, did_you_mean(path.rpartition(".")[2], names) or "drop it here, or fill it there"
            )


def _inside(value: Value, sent: Outgoing, path: str, loc: Loc, extra: tuple[str, ...]) -> Iterator[Problem]:
    """Look through what a value gives: objects, lists of them, and what a lookup puts in an object's place."""
    match value:
        case Fields():
            for name, inner in value.root.items():
                yield from _named(name.split("."), inner, sent, path, (*loc, name), extra)
        case Entry():
            yield from _inside(value.fields, sent, path, loc, extra)
        case Items():
            for place, item in enumerate(value.root):
                yield from _inside(item, sent.item or Outgoing(), path, (*loc, place), extra)
        case ForEach():
            yield from _inside(value.give, sent.item or Outgoing(), path, (*loc, "give"), extra)
        case _:
            for name in (sent.item or sent).fields if path in _KNOWN else ():
                yield from _unknown(name, path, loc, extra)


def _named(names: list[str], value: Value, sent: Outgoing, path: str, loc: Loc, extra: tuple[str, ...]) -> Iterator[Problem]:
    """Look at a name, dotted or not, in the object at `path`."""
    for name in names:
        problems = list(_unknown(name, path, loc, extra))
        if problems:
            yield from problems
            return
        path = f"{path}.{name}" if path else name
        sent = sent.fields.get(name, Outgoing())
    yield from _inside(value, sent, path, loc, extra)


def _unknown(name: str, path: str, loc: Loc, extra: tuple[str, ...]) -> Iterator[Problem]:
    inner = f"{path}.{name}" if path else name
    known = _KNOWN.get(path, ())
    if name in known or any(inner == one or inner.startswith(f"{one}.") or one.startswith(f"{inner}.") for one in extra):
        return
    near = did_you_mean(name, (*known, *_WORDS.get(path, ())))
    declare = f"if the service takes it, declare it with extra: [{inner}]"
    yield Problem(loc, f'unknown field "{name}" in {path or "the event"}', " ".join(filter(None, (near, declare))))


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
