"""Values of a mapping file that do less than their author thinks: open formats, names without effect, fill-ins.

They are found in the plain document, so that they are found even where some part is not well-formed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mappings.positions import Loc, MappingProblem, walk
from mappings.refusals import did_you_mean
from mappings.spec.values import MARKERS

FILL_IN = "fill-in"
"""Stands for a text that only the author can know: a channel, a classification, a place."""
FILL_IN_NAME = "fill_in_"
"""A named value that begins so stands for something that had to have some value."""
_SECRET = re.compile(
    r"(?P<before>://)[^/@\s:]+:[^/@\s]+(?P<after>@)"
    r"|(?P<name>[?&](?:[\w-]*(?:token|secret|signature|password|passwd|api[_-]?key)|key|sig|pwd|auth)=)[^&\s\"'#]+",
    re.IGNORECASE,
)
_READERS = ("date", "datetime", "dates")
_SAME_TWICE = frozenset({"trim", "collapse", "lower", "upper", "html_unescape", "html_to_text", "unique", "strip_control", "url"})
_CASES = {"lower": str.lower, "upper": str.upper}


def find_weak_values(document: Mapping[str, Any]) -> Iterator[MappingProblem]:
    """Yield what is allowed, and does nothing, or not what it seems to."""
    for loc, node in walk(document.get("source"), ("source",)):
        if isinstance(node, str) and _SECRET.search(node):
            hint = "everybody who reads this file can use it: ask for an address that needs none, or fetch the file beforehand"
            yield MappingProblem(loc, "a secret stands in this address", hint)
    yield from _unused_names(document)
    for part in ("let", "event"):
        for loc, node in walk(document.get(part), (part,)):
            yield from _fill_ins(node, loc)
            if isinstance(node, dict):
                yield from _weak_steps(node, loc)


def without_secrets(text: str) -> str:
    """Return a line as it may be shown: a password or a token in an address is starred out."""
    return _SECRET.sub(lambda found: f"{found['before'] or found['name']}***{found['after'] or ''}", text)


def _unused_names(document: Mapping[str, Any]) -> Iterator[MappingProblem]:
    let = document.get("let")
    if not isinstance(let, dict):
        return
    nodes = (node for part in ("let", "rows", "event") for _, node in walk(document.get(part)))
    used = Counter(node[1:] for node in nodes if isinstance(node, str) and node.startswith("$"))
    unknown = [name for name in used if name not in let]
    for name in let:
        if not used[name]:
            near = did_you_mean(name, unknown).replace("did you mean", "is it meant by").replace('"', '"$', 1)
            yield MappingProblem(
                ("let", name), f'nothing uses the named value "{name}"', near or f"write ${name} where it is meant, or drop it"
            )


def _fill_ins(node: object, loc: Loc) -> Iterator[MappingProblem]:
    entries = dict(node) if isinstance(node, dict) else dict(enumerate(node)) if isinstance(node, list) else {}
    open_places = [key for key, inner in entries.items() if inner == FILL_IN]
    if open_places:
        count = f"{len(open_places)} values are" if len(open_places) > 1 else "a value is"
        place = (*loc, open_places[0])
        yield MappingProblem(place, f'{count} still to be filled in ("{FILL_IN}")', _hint(place))
    for name in entries if loc == ("let",) else ():
        if str(name).startswith(FILL_IN_NAME):
            what = str(name).removeprefix(FILL_IN_NAME)
            hint = f'put the right one for "{entries[name]}", and call it {what}'
            yield MappingProblem((*loc, name), f"the {what} is still to be filled in", hint)


_HINTS = {
    "channel": "put the slug of one of your channels: `eventsync check --live` names them",
    "placeId": "put the place's identifier as the service knows it",
    "classifications": "put a slug of the service's list: `eventsync check --live` names them",
}


def _hint(loc: Loc) -> str:
    return next((_HINTS[str(part)] for part in reversed(loc) if part in _HINTS), "only you can know what belongs there")


def _weak_steps(block: Mapping[str, Any], loc: Loc) -> Iterator[MappingProblem]:
    if isinstance(block.get("do"), list):
        yield from _steps(block["do"], (*loc, "do"))
    for name in _READERS:
        if isinstance(block.get(name), list) and not any(marker in block for marker in MARKERS):
            yield from _formats(block[name], (*loc, name))


def _formats(formats: Sequence[Any], loc: Loc) -> Iterator[MappingProblem]:
    for position, spelling in enumerate(formats):
        if not isinstance(spelling, str):
            continue
        if spelling in formats[:position]:
            yield MappingProblem((*loc, position), f'the format "{spelling}" stands twice', "the second is never tried")
        elif order_of(spelling) and swapped(spelling) in formats[:position]:
            first = swapped(spelling)
            message = (
                f'"{first}" and "{spelling}" both fit 03/04: the first wins, so the day and month of some rows change places'
            )
            yield MappingProblem((*loc, position), message, "keep the one that the partner writes")


def _steps(steps: Sequence[Any], loc: Loc) -> Iterator[MappingProblem]:
    before, case = "", ""
    for position, step in enumerate(steps):
        name = step if isinstance(step, str) else next(iter(step), "") if isinstance(step, dict) else ""
        if name in _SAME_TWICE and position and step == steps[position - 1]:
            yield MappingProblem((*loc, position), f'the step "{name}" does nothing a second time', "drop it")
        if name == "trim" and before == "collapse":
            yield MappingProblem(
                (*loc, position), 'the step "trim" does nothing after "collapse"', "drop it: collapse trims, too"
            )
        if name == "map" and case and isinstance(step, dict):
            yield from _unmet_keys(step, case, (*loc, position))
        before, case = name, name if name in _CASES else case


def _unmet_keys(step: Mapping[str, Any], case: str, loc: Loc) -> Iterator[MappingProblem]:
    """A key in capitals is never met by a text that the step before has written small."""
    table, ignored = step.get("map"), step.get("ignore", ())
    if not isinstance(table, dict) or "case" in ignored:
        return
    for key in table:
        if _CASES[case](key) != key:
            yield MappingProblem(
                (*loc, "map", key), f'"{key}" is never met: the step "{case}" comes before', f'write "{_CASES[case](key)}"'
            )


def order_of(spelling: str) -> str:
    """Return `day` or `month` for a format of two numbers that could change places, "" for any other."""
    day, month, year = (spelling.find(part) for part in ("%d", "%m", "%Y"))
    if day < 0 or month < 0 or -1 < year < min(day, month):
        return ""
    return "day" if day < month else "month"


def swapped(spelling: str) -> str:
    """Return a format with its day and month exchanged."""
    return spelling.replace("%d", "\0").replace("%m", "%d").replace("\0", "%m")
