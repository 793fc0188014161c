"""What a whole mapping must have beyond well-formed parts: the required fields, constants that the service would accept.

It looks at the plain document, so that it can speak even where some part is not well-formed. What is merely unwise is `lint`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mappings.event import REQUIRED_FIELDS, judge
from mappings.refusals import did_you_mean
from mappings.spots import Loc, Problem
from mappings.tables import Table
from mappings.values import COMPANIONS, MARKERS
from mappings.vocabulary import ReasonCode

_CHECKED = re.compile(r"(?:^|\.)(?:timezone|status|countryCode|url|channelId|coverImage)$")
_SINGLE = re.compile(
    r"channelId|title|startAt|endAt|timezone|status|classifications(?:\[\d+\])?|locationName|coverImage"
    r"|offers\[\d+\]\.(?:name|url|availability)|approxLocation\.city\.(?:placeId|name|countryCode)"
)
"""The fields that the service spells out and that are no objects."""
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def find_problems(document: Mapping[str, Any], tables: Mapping[str, Table]) -> Iterator[Problem]:
    """Yield what the service would refuse in every row."""
    event = document.get("event")
    if isinstance(event, dict):
        yield from _missing(event, tables)
        yield from _bad_constants(event, "", ("event",))


def find_circles(let: object) -> Iterator[Problem]:
    """Yield the named values that need themselves, each circle once."""
    needs = {name: set(_names_in(value)) for name, value in let.items()} if isinstance(let, dict) else {}
    told: set[str] = set()
    for name in needs:
        circle = _circle(name, needs)
        if circle and not told & set(circle):
            told |= set(circle)
            shown = " -> ".join("$" + each for each in (*circle, circle[0]))
            yield Problem(("let", name), f"the named values go in a circle: {shown}")


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


def _names_in(value: object) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("$"):
        yield value[1:]
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names_in(inner)


def _circle(start: str, needs: Mapping[str, set[str]]) -> Sequence[str]:
    """Return a way from a name back to itself, or nothing."""
    ways = [[start]]
    seen = {start}
    while ways:
        way = ways.pop()
        for name in sorted(needs.get(way[-1], ())):
            if name == start:
                return way
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return ()
