"""Rules and branches of a mapping file that can never be reached, because an earlier one has taken every row they mean.

It looks at the plain document, so that it can speak even where some part is not well-formed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mappings.positions import Loc, MappingProblem, walk

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
