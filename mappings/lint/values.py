"""Values of a mapping file that do less than their author thinks: open formats, names without effect, fill-ins.

It looks at the plain document, so that it can speak even where some part is not well-formed. Rules are `lint_rules`'.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mappings.fill_in import FILL_IN, FILL_IN_NAME
from mappings.positions import Loc, Problem
from mappings.refusals import did_you_mean

_SECRET = re.compile(
    r"(?P<before>://)[^/@\s:]+:[^/@\s]+(?P<after>@)"
    r"|(?P<name>[?&](?:[\w-]*(?:token|secret|signature|password|passwd|api[_-]?key)|key|sig|pwd|auth)=)[^&\s\"'#]+",
    re.IGNORECASE,
)
_READERS = ("date", "datetime", "dates")
_SAME_TWICE = frozenset({"trim", "collapse", "lower", "upper", "html_unescape", "html_to_text", "unique", "strip_control", "url"})
_CASES = {"lower": str.lower, "upper": str.upper}
_SOURCES = ("from", "first_of", "join", "choose", "at", "in_zone", "lookup", "channel", "image")


def find_weak_values(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is allowed, and does nothing, or not what it seems to."""
    yield from _secrets(document.get("source"), ("source",))
    yield from _unused_names(document)
    for part in ("let", "event"):
        yield from _fill_ins(document.get(part), (part,))
        yield from _values(document.get(part), (part,))


def without_secrets(text: str) -> str:
    """Return a line as it may be shown: a password or a token in an address is starred out."""
    return _SECRET.sub(lambda found: f"{found['before'] or found['name']}***{found['after'] or ''}", text)


def _secrets(value: object, loc: Loc) -> Iterator[Problem]:
    if isinstance(value, str) and _SECRET.search(value):
        hint = "everybody who reads this file can use it: ask for an address that needs none, or fetch the file beforehand"
        yield Problem(loc, "a secret stands in this address", hint)
    for key, inner in _entries(value):
        yield from _secrets(inner, (*loc, key))


def _unused_names(document: Mapping[str, Any]) -> Iterator[Problem]:
    let = document.get("let")
    if not isinstance(let, dict):
        return
    used = Counter(text[1:] for part in ("let", "rows", "event") for text in _texts(document.get(part)) if text.startswith("$"))
    unknown = [name for name in used if name not in let]
    for name in let:
        if not used[name]:
            near = did_you_mean(name, unknown).replace("did you mean", "is it meant by").replace('"', '"$', 1)
            yield Problem(
                ("let", name), f'nothing uses the named value "{name}"', near or f"write ${name} where it is meant, or drop it"
            )


def _fill_ins(value: object, loc: Loc) -> Iterator[Problem]:
    open_places = [key for key, inner in _entries(value) if inner == FILL_IN]
    if open_places:
        count = f"{len(open_places)} values are" if len(open_places) > 1 else "a value is"
        place = (*loc, open_places[0])
        yield Problem(place, f'{count} still to be filled in ("{FILL_IN}")', _hint(place))
    for key, inner in _entries(value):
        if loc == ("let",) and isinstance(key, str) and key.startswith(FILL_IN_NAME):
            what = key.removeprefix(FILL_IN_NAME)
            yield Problem(
                (*loc, key), f"the {what} is still to be filled in", f'put the right one for "{inner}", and call it {what}'
            )
        yield from _fill_ins(inner, (*loc, key))


_HINTS = {
    "channel": "put the slug of one of your channels: `eventsync check --live` names them",
    "placeId": "put the place's identifier as the service knows it",
    "classifications": "put a slug of the service's list: `eventsync check --live` names them",
}


def _hint(loc: Loc) -> str:
    return next((_HINTS[str(part)] for part in reversed(loc) if part in _HINTS), "only you can know what belongs there")


def _values(value: object, loc: Loc) -> Iterator[Problem]:
    if isinstance(value, dict):
        steps = value.get("do")
        if isinstance(steps, list):
            yield from _steps(steps, (*loc, "do"))
        for name in _READERS:
            if isinstance(value.get(name), list) and not any(marker in value for marker in _SOURCES):
                yield from _formats(value[name], (*loc, name))
    for key, inner in _entries(value):
        yield from _values(inner, (*loc, key))


def _formats(formats: Sequence[Any], loc: Loc) -> Iterator[Problem]:
    for position, spelling in enumerate(formats):
        if not isinstance(spelling, str):
            continue
        if spelling in formats[:position]:
            yield Problem((*loc, position), f'the format "{spelling}" stands twice', "the second is never tried")
        elif order_of(spelling) and swapped(spelling) in formats[:position]:
            first = swapped(spelling)
            message = (
                f'"{first}" and "{spelling}" both fit 03/04: the first wins, so the day and month of some rows change places'
            )
            yield Problem((*loc, position), message, "keep the one that the partner writes")


def _steps(steps: Sequence[Any], loc: Loc) -> Iterator[Problem]:
    names = [step if isinstance(step, str) else next(iter(step), "") if isinstance(step, dict) else "" for step in steps]
    for position, name in enumerate(names):
        if position and name in _SAME_TWICE and names[position - 1] == name and steps[position] == steps[position - 1]:
            yield Problem((*loc, position), f'the step "{name}" does nothing a second time', "drop it")
        if position and name == "trim" and names[position - 1] == "collapse":
            yield Problem((*loc, position), 'the step "trim" does nothing after "collapse"', "drop it: collapse trims, too")
        step = steps[position]
        case = next((names[place] for place in range(position - 1, -1, -1) if names[place] in _CASES), "")
        if name == "map" and case and isinstance(step, dict):
            yield from _unmet_keys(step, case, (*loc, position))


def _unmet_keys(step: Mapping[str, Any], case: str, loc: Loc) -> Iterator[Problem]:
    """A key in capitals is never met by a text that the step before has written small."""
    table, ignored = step.get("map"), step.get("ignore", ())
    if not isinstance(table, dict) or "case" in ignored:
        return
    for key in table:
        if _CASES[case](key) != key:
            yield Problem(
                (*loc, "map", key), f'"{key}" is never met: the step "{case}" comes before', f'write "{_CASES[case](key)}"'
            )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for _, inner in _entries(value):
        yield from _texts(inner)


def _entries(value: object) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def order_of(spelling: str) -> str:
    """Return `day` or `month` for a format of two numbers that could change places, "" for any other."""
    day, month, year = (spelling.find(part) for part in ("%d", "%m", "%Y"))
    if day < 0 or month < 0 or -1 < year < min(day, month):
        return ""
    return "day" if day < month else "month"


def swapped(spelling: str) -> str:
    """Return a format with its day and month exchanged."""
    return spelling.replace("%d", "\0").replace("%m", "%d").replace("\0", "%m")
