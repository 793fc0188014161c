"""Warnings about mapping files that load: values without effect, rules never reached, keys that may change.

Most checks use the plain document, so that they work even if some part of it is malformed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, get_args

from mappings.positions import Loc, MappingProblem, walk
from mappings.reasons import did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.spec.values import MARKERS, Test, TestName

FILL_IN = "fill-in"
"""The placeholder in drafts for a text that only the author knows: a channel, a classification, a place."""
FILL_IN_NAME = "fill_in_"
"""The prefix of a named value in drafts whose value is only a guess."""
OPEN_ZONE = f"{FILL_IN_NAME}zone"
"""The named value in drafts for the time zone; UTC is its placeholder."""
NO_PLACES = "the service's API has no list of places: ask its owner"
"""Where the identifier of a place comes from."""
_SECRET = re.compile(
    r"(?P<before>://)[^/@\s:]+:[^/@\s]+(?P<after>@)"
    r"|(?P<name>[?&](?:[\w-]*(?:token|secret|signature|password|passwd|api[_-]?key)|key|sig|pwd|auth)=)[^&\s\"'#]+",
    re.IGNORECASE,
)
_SAME_TWICE = frozenset({"trim", "collapse", "lower", "upper", "html_unescape", "html_to_text", "unique", "strip_control", "url"})
_CASES = {"lower": str.lower, "upper": str.upper}
_PATTERNS = frozenset({"matches", "until", "regex_extract", "regex_all", "regex_split", "regex_replace"})
_FILL_IN_HINTS = {
    "channel": "write the slug of one of your channels: `eventsync check --live` lists them",
    "placeId": f"write the place's identifier; {NO_PLACES}",
    "classifications": "write a slug of the service's list: `eventsync check --live` shows it",
}


def find_unwise(document: Mapping[str, Any]) -> Iterator[MappingProblem]:
    """Yield warnings about a document, well-formed or not: rules, values and names without the apparent effect."""
    rules = document.get("rows")
    yield from _unreachable_rules(rules if isinstance(rules, list) else [])
    for place, rule in enumerate(rules if isinstance(rules, list) else []):
        if rule == {"window": {}}:
            hint = "write `past: skip` to say so, or `past: keep` to send them"
            yield MappingProblem(("rows", place, "window"), "an empty `window` leaves out past events", hint)
    for loc, node in walk(document.get("source"), ("source",)):
        if isinstance(node, str) and _SECRET.search(node):
            hint = "anyone who reads this file can use it: ask for an address without one, or fetch the file beforehand"
            yield MappingProblem(loc, "this address contains a secret", hint)
    for loc, node in walk(document, ()):
        if isinstance(node, str) and loc[-1] in _PATTERNS and r"\W" in node:
            yield MappingProblem(loc, r"\W also matches letters and digits beyond ASCII, such as é", r"write [^\pL\pN_]")
    yield from _unused_names(document)
    yield from _weak_series(document)
    for part in ("let", "event"):
        for loc, node in walk(document.get(part), (part,)):
            yield from _fill_ins(node, loc)
            if isinstance(node, dict):
                yield from _weak_block(node, loc)


_OF_SERIES = frozenset({"RRULE", "RDATE", "EXDATE", "EXRULE"})
_OCCURRENCE = "key: [UID, {column: RECURRENCE-ID, optional: true}]"


def _weak_series(document: Mapping[str, Any]) -> Iterator[MappingProblem]:
    """Yield a warning for each place that expands a calendar's series again, or gives its occurrences one key."""
    source, key = document.get("source"), document.get("key")
    if not isinstance(source, dict) or source.get("kind") != "ics":
        return
    if isinstance(key, list) and "UID" in key and not any("RECURRENCE-ID" in map(str, _words(part)) for part in key):
        yield MappingProblem(("key",), "all occurrences of a series have this key", f"write {_OCCURRENCE}")
    rules = document.get("rows")
    for place, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, dict) and "recur" in rule and _OF_SERIES & {str(word) for word in _words(rule)}:
            message = "each occurrence of a series is a row of its own: RRULE, RDATE and EXDATE are always empty"
            day = "startAt: {at: {day: {from: DTSTART, do: [{iso: wall}]}, zone: $zone}}"
            hint = f"leave this rule out: source: {{series: {{from: -30d, to: 365d}}}}, {_OCCURRENCE}, {day}"
            yield MappingProblem(("rows", place), message, hint)


def _words(node: object) -> Iterator[object]:
    """Yield the texts in a part of a document."""
    yield from (inner for _, inner in walk(node, ()) if not isinstance(inner, dict | list))


def without_secrets(text: str) -> str:
    """Return a line for display, with passwords and tokens in addresses replaced by `***`."""
    return _SECRET.sub(lambda found: f"{found['before'] or found['name']}***{found['after'] or ''}", text)


def _unused_names(document: Mapping[str, Any]) -> Iterator[MappingProblem]:
    let = document.get("let")
    if not isinstance(let, dict):
        return
    nodes = [node for part in ("key", "let", "rows", "event") for _, node in walk(document.get(part))]
    used = dict.fromkeys(node[1:] for node in nodes if isinstance(node, str) and node.startswith("$"))
    for name in let:
        if name not in used:
            near = did_you_mean(name, [other for other in used if other not in let])
            meant = near.replace("did you mean", "is it meant by").replace('"', '"$', 1)
            hint = meant or f"write ${name} where it belongs, or remove it"
            yield MappingProblem(("let", name), f'nothing uses the named value "{name}"', hint)


def count_fill_ins(document: Mapping[str, Any]) -> int:
    """Return how many values of a document are still to be filled in, an open zone among them."""
    named = document.get("let")
    is_zone_open = isinstance(named, dict) and has_open_zone(named)
    return sum([is_zone_open, *(node == FILL_IN for part in ("let", "event") for _, node in walk(document.get(part)))])


def has_open_zone(named: Mapping[str, object]) -> bool:
    """Return whether the named values of a draft still hold the placeholder of its time zone."""
    return named.get(OPEN_ZONE) == "UTC"


def _fill_ins(node: object, loc: Loc) -> Iterator[MappingProblem]:
    entries = node if isinstance(node, dict) else dict(enumerate(node)) if isinstance(node, list) else {}
    places = [(*loc, key) for key, inner in entries.items() if inner == FILL_IN]
    if places:
        count = f"{len(places)} values are" if len(places) > 1 else "a value is"
        hints = (_FILL_IN_HINTS[str(part)] for part in reversed(places[0]) if part in _FILL_IN_HINTS)
        hint = next(hints, "write what belongs there: the source does not say it")
        yield MappingProblem(places[0], f'{count} still to be filled in ("{FILL_IN}")', hint)
    for name in entries if loc == ("let",) else ():
        if str(name).startswith(FILL_IN_NAME):
            what = str(name).removeprefix(FILL_IN_NAME)
            hint = f"replace {entries[name]} if it is wrong, and rename the key to {what}, also where ${name} is used"
            yield MappingProblem((*loc, name), f"the {what} is a guess", hint)


def _weak_block(block: Mapping[str, Any], loc: Loc) -> Iterator[MappingProblem]:
    choices, steps = block.get("choose"), block.get("do")
    if isinstance(choices, list):
        conditions = [one.get("when") if isinstance(one, dict) else None for one in choices]
        for later, earlier in _covered(conditions, lambda first, second: implies(second, first)):
            message = f"this branch is never taken: branch {earlier + 1} takes all its rows"
            yield MappingProblem((*loc, "choose", later), message, "put the narrower condition first, or drop this branch")
    if isinstance(steps, list):
        yield from _weak_steps(steps, (*loc, "do"))
    for name in ("date", "datetime", "dates"):
        if isinstance(block.get(name), list) and not any(marker in block for marker in MARKERS):
            yield from _weak_formats(block[name], (*loc, name))


def _weak_formats(formats: Sequence[Any], loc: Loc) -> Iterator[MappingProblem]:
    for position, spelling in enumerate(formats):
        if not isinstance(spelling, str):
            continue
        if spelling in formats[:position]:
            yield MappingProblem((*loc, position), f'the format "{spelling}" occurs twice', "the second is never tried")
        elif order_of(spelling) and (first := swapped(spelling)) in formats[:position]:
            both = f'"{first}" and "{spelling}" both fit 03/04: the first wins, so day and month of some rows are swapped'
            yield MappingProblem((*loc, position), both, "keep the one that the partner writes")


def _weak_steps(steps: Sequence[Any], loc: Loc) -> Iterator[MappingProblem]:
    before, case = "", ""
    for position, step in enumerate(steps):
        name = step if isinstance(step, str) else next(iter(step), "") if isinstance(step, dict) else ""
        place = (*loc, position)
        if name in _SAME_TWICE and position and step == steps[position - 1]:
            yield MappingProblem(place, f'the step "{name}" does nothing a second time', "drop it")
        if name == "trim" and before == "collapse":
            yield MappingProblem(place, 'the step "trim" does nothing after "collapse"', "drop it: collapse trims, too")
        if name == "map" and case and isinstance(step, dict) and isinstance(step["map"], dict):
            for key in step["map"] if "case" not in step.get("ignore", ()) else ():
                if (met := _CASES[case](key)) != key:
                    message = f'"{key}" never matches: the step "{case}" comes before'
                    yield MappingProblem((*place, "map", key), message, f'write "{met}"')
        before, case = name, name if name in _CASES else case


def order_of(spelling: str) -> str:
    """Return which comes first in a format with ambiguous numbers, `day` or `month`; "" for unambiguous formats."""
    day, month, year = (spelling.find(part) for part in ("%d", "%m", "%Y"))
    if day < 0 or month < 0 or -1 < year < min(day, month):
        return ""
    return "day" if day < month else "month"


def swapped(spelling: str) -> str:
    """Return a format with day and month swapped."""
    return spelling.replace("%d", "\0").replace("%m", "%d").replace("\0", "%m")


_SUBJECTS = ("column", "value")
_IMPLY_PRESENT = frozenset(Test.model_fields[name].alias or name for name in get_args(TestName)) - {"is"}


def _unreachable_rules(rules: Sequence[Any]) -> Iterator[MappingProblem]:
    windows = [position for position, rule in enumerate(rules) if isinstance(rule, dict) and "window" in rule]
    for position in windows[1:]:
        yield MappingProblem(("rows", position), "there is a window already", "only the first window is used: combine them")
    for later, earlier in _covered(rules, _takes_all):
        message = f"this rule is never reached: rule {earlier + 1} leaves out every row that it matches"
        yield MappingProblem(("rows", later), message, "put the narrower rule first, or drop this one")


def _covered(items: Sequence[Any], covers: Callable[[object, object], bool]) -> Iterator[tuple[int, int]]:
    """Yield the index of each item that an earlier item covers, and the index of that earlier item."""
    for later, item in enumerate(items):
        earlier = next((place for place in range(later) if covers(items[place], item)), None)
        if earlier is not None:
            yield later, earlier


def _takes_all(earlier: object, later: object) -> bool:
    match earlier, later:
        case {"skip": first}, {"skip": second}:
            return implies(second, first)
        case {"keep": first}, {"keep": second}:
            return implies(first, second)
        case _:
            return False


def implies(narrow: object, wide: object) -> bool:
    """Return whether `wide` certainly holds whenever `narrow` does: both are equal, or test the same column or value."""
    if not isinstance(narrow, dict) or not isinstance(wide, dict) or _subject(narrow) != _subject(wide):
        return False
    if narrow == wide:
        return bool(narrow)
    if wide.keys() - {*_SUBJECTS, "ignore"} == {"is"} and wide["is"] == "present":
        return bool(_IMPLY_PRESENT & narrow.keys())
    texts = _texts(narrow)
    return bool(texts) and texts <= _texts(wide) and narrow.get("ignore") == wide.get("ignore")


def _subject(condition: Mapping[str, Any]) -> tuple[str, str] | None:
    return next(((key, str(condition[key])) for key in _SUBJECTS if key in condition), None)


def _texts(condition: Mapping[str, Any]) -> frozenset[str]:
    """Return the texts that `equals` or `in` compares with; empty if the condition has a reference or another test."""
    if condition.keys() - {*_SUBJECTS, "equals", "in", "ignore"} or {"equals", "in"} <= condition.keys():
        return frozenset()
    named = condition.get("equals", condition.get("in"))
    texts = named if isinstance(named, list) else [named]
    if any(not isinstance(text, str) or text.startswith("$") for text in texts):
        return frozenset()
    return frozenset(text.strip() for text in texts)


_EDITED = ("title", "startAt", "endAt", "locationName")


def find_warnings(mapping: FeedMapping, columns: Collection[str], field_columns: Mapping[str, str]) -> Iterator[MappingProblem]:
    """Yield warnings about a mapping that may run: keys that partners edit, missing kinds of examples.

    `columns`: all that the mapping reads; `field_columns`: the only column of each event field, if it has a single one.
    """
    for part in mapping.key_alternatives[0]:
        filled = [field for field in _EDITED if field_columns.get(field) == part.column]
        if filled:
            message = f'the key uses "{part.column}", which partners edit (it fills {filled[0]})'
            yield MappingProblem(part.loc, message, "an edit makes the row look new: prefer an identifier that never changes")
    if not mapping.examples:
        yield MappingProblem(("feed",), "the feed has no examples", "add a row with its event, and one that must be rejected")
    elif all(example.rejected is None for example in mapping.examples):
        yield MappingProblem(("examples",), "no example is a rejection", "add a row that must be rejected, and why")
    for position, example in enumerate(mapping.examples):
        absent = sorted(set(columns) - example.row.keys())
        for name in example.row.keys() - set(columns):
            if near := did_you_mean(name, absent):
                yield MappingProblem(("examples", position, "row", name), f'the mapping reads no column "{name}"', near)
