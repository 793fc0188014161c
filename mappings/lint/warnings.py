"""Values of a mapping file that do less than their author thinks: open formats, names without effect, fill-ins.

They are found in the plain document, so that they are found even where some part is not well-formed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from mappings.compiler.mapper import RowMapper
from mappings.outcome import did_you_mean
from mappings.positions import Loc, MappingProblem, walk
from mappings.spec.feed import FeedMapping
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_words import WriteBack
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


_SUBJECTS = ("column", "value")
_IMPLY_PRESENT = frozenset({"equals", "in", "matches", "contains", "before", "after", "less", "greater"})


def find_unreachable(document: Mapping[str, Any]) -> Iterator[MappingProblem]:
    """Yield rules that leave nothing out, and branches of `choose` that are never taken."""
    rules = document.get("rows")
    if isinstance(rules, list):
        yield from _rules(rules)
    for part in ("let", "event"):
        for loc, node in walk(document.get(part), (part,)):
            choices = node.get("choose") if isinstance(node, dict) else None
            if isinstance(choices, list):
                conditions = [one.get("when") if isinstance(one, dict) else None for one in choices]
                yield from _dead_branches(conditions, (*loc, "choose"))


def _rules(rules: Sequence[Any]) -> Iterator[MappingProblem]:
    windows = [position for position, rule in enumerate(rules) if isinstance(rule, dict) and "window" in rule]
    for position in windows[1:]:
        yield MappingProblem(("rows", position), "there is a window already", "only the first is looked at: make them one")
    for later, rule in enumerate(rules):
        earlier = next((place for place in range(later) if _takes_all(rules[place], rule)), None)
        if earlier is not None:
            yield MappingProblem(
                ("rows", later),
                f"this rule is never reached: rule {earlier + 1} has left out every row that it means",
                "put the narrower rule first, or drop this one",
            )


def _takes_all(earlier: object, later: object) -> bool:
    match earlier, later:
        case {"skip": first}, {"skip": second}:
            return implies(second, first)
        case {"keep": first}, {"keep": second}:
            return implies(first, second)
        case {"keep": first}, {"skip": second}:
            return _excludes(first, second)
        case _:
            return False


def _dead_branches(conditions: Sequence[Any], loc: Loc) -> Iterator[MappingProblem]:
    for later, condition in enumerate(conditions):
        earlier = next((place for place in range(later) if implies(condition, conditions[place])), None)
        if earlier is not None:
            message = f"this branch is never taken: whenever it would be, branch {earlier + 1} is"
            yield MappingProblem((*loc, later), message, "put the narrower condition first, or drop this branch")


def implies(narrow: object, wide: object) -> bool:
    """Return whether `wide` surely holds wherever `narrow` does, as far as the file shows."""
    if not isinstance(narrow, dict) or not isinstance(wide, dict) or not narrow or not wide:
        return False
    if narrow == wide:
        return True
    if isinstance(wide.get("any"), list) and any(implies(narrow, part) for part in wide["any"]):
        return True
    if isinstance(narrow.get("all"), list) and any(implies(part, wide) for part in narrow["all"]):
        return True
    return _subject(narrow) is not None and _subject(narrow) == _subject(wide) and _test_implies(narrow, wide)


def _test_implies(narrow: Mapping[str, Any], wide: Mapping[str, Any]) -> bool:
    tests = {key: value for key, value in wide.items() if key not in (*_SUBJECTS, "ignore")}
    if tests == {"is": "present"}:
        return bool(_IMPLY_PRESENT & narrow.keys())
    mine, theirs = _texts(narrow), _texts(wide)
    only_texts = set(tests) <= {"equals", "in"}
    return bool(mine) and only_texts and mine <= theirs and narrow.get("ignore") == wide.get("ignore")


def _excludes(kept: object, condition: object) -> bool:
    """Whether no row that is kept meets the condition: both name texts of one column, and have none in common."""
    if not isinstance(kept, dict) or not isinstance(condition, dict) or "ignore" in kept or "ignore" in condition:
        return False
    mine, theirs = _texts(kept), _texts(condition)
    is_same = _subject(kept) is not None and _subject(kept) == _subject(condition)
    return is_same and bool(mine) and bool(theirs) and not mine & theirs


def _subject(condition: Mapping[str, Any]) -> tuple[str, str] | None:
    return next(((key, str(condition[key])) for key in _SUBJECTS if key in condition), None)


def _texts(condition: Mapping[str, Any]) -> frozenset[str]:
    """Return the texts that `equals` and `in` name; nothing where another text may be meant, or another test is beside."""
    if set(condition) - {*_SUBJECTS, "equals", "in", "ignore"} or {"equals", "in"} <= condition.keys():
        return frozenset()
    named = condition.get("equals", condition.get("in"))
    texts = named if isinstance(named, list) else [named]
    if any(not isinstance(text, str) or text.startswith("$") for text in texts):
        return frozenset()
    return frozenset(text.strip() for text in texts)


_EDITED = ("title", "startAt", "endAt", "locationName")


def find_unwise(document: Mapping[str, Any]) -> tuple[MappingProblem, ...]:
    """Return what is unwise in a file, well-formed or not: rules, values and names that do not do what they seem to."""
    return (*find_unreachable(document), *find_weak_values(document))


def find_warnings(mapping: FeedMapping, mapper: RowMapper) -> tuple[MappingProblem, ...]:
    """Return what is unwise, for the command check to show."""
    return (
        *_edited_keys(mapping, mapper.field_columns),
        *_weak_examples(mapping),
        *_misspelt_columns(mapping, mapper.columns),
    )


def _edited_keys(mapping: FeedMapping, columns: Mapping[str, str]) -> Iterator[MappingProblem]:
    for position, part in enumerate(mapping.key_columns):
        fields = [field for field in _EDITED if columns.get(field) == part.column]
        if fields:
            message = f'the key uses "{part.column}", which partners edit (it fills {fields[0]})'
            yield MappingProblem(("key", position), message, "an edit makes the row look new: prefer an identifier that stays")


def _misspelt_columns(mapping: FeedMapping, columns: Collection[str]) -> Iterator[MappingProblem]:
    for position, example in enumerate(mapping.examples):
        absent = set(columns) - example.row.keys()
        for name in example.row.keys() - set(columns):
            near = did_you_mean(name, sorted(absent))
            if near:
                yield MappingProblem(("examples", position, "row", name), f'the mapping reads no column "{name}"', near)


def _weak_examples(mapping: FeedMapping) -> Iterator[MappingProblem]:
    if not mapping.examples:
        yield MappingProblem(("feed",), "the feed has no examples", "add a row with its event, and one that must be rejected")
    elif not any(example.rejected is not None for example in mapping.examples):
        yield MappingProblem(("examples",), "no example is a rejection", "add a row that must be rejected, and why")


def find_read_and_written(mapping: FeedMapping, columns: frozenset[str]) -> Iterator[MappingProblem]:
    """Yield a problem for each of the `columns` that the mapping reads and `write_back` names."""
    match mapping.source:
        case GoogleSheetsSource(write_back=WriteBack() as written):
            for name in written.names:
                if name in columns:
                    hint = "give a column that the mapping does not read"
                    yield MappingProblem(("source", "write_back"), f'the mapping reads "{name}", and writes into it', hint)
        case _:
            return
