"""Which regular expressions can take forever: those that repeat what already repeats, so that one text fits in countless ways.

Python's matcher tries them all and cannot be stopped; the length of a cell does not bound it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# The parser has no public name; a pattern's structure cannot be had otherwise.
from re import _constants as constants  # type: ignore[attr-defined] # not in the stubs
from re import _parser as parser  # type: ignore[attr-defined] # not in the stubs
from typing import Any

_MANY = 10
_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT)
_EMPTY = (constants.AT, constants.ASSERT, constants.ASSERT_NOT)


def may_never_end(pattern: str) -> bool:
    r"""Whether a valid pattern repeats a part that consists of a repetition only: `(a+)+`, `(\w+\s?)*`.

    A repetition that something else ends each time, `(\d+,)*`, is no danger, nor is a possessive one, `(a++)+`.
    """
    bodies = _repetitions(parser.parse(pattern))
    return any(_repeats_freely(sequence) for body in bodies for sequence in _alternatives(body))


def _repetitions(items: Iterable[Any]) -> Iterator[Any]:
    """Yield the bodies of all repetitions that have no small bound."""
    for operator, argument in items:
        if operator in _REPEATS and argument[1] > _MANY:
            yield argument[2]
        for inner in _inside(argument):
            yield from _repetitions(inner)


def _inside(argument: Any) -> Iterator[Any]:
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from _inside(part)


def _alternatives(body: Any) -> Iterator[Any]:
    """Yield the sequences that a body may be, with the groups around it taken off."""
    items = list(body)
    if len(items) == 1 and items[0][0] is constants.SUBPATTERN:
        yield from _alternatives(items[0][1][-1])
    elif len(items) == 1 and items[0][0] is constants.BRANCH:
        for branch in items[0][1][1]:
            yield from _alternatives(branch)
    else:
        yield items


def _repeats_freely(items: list[Any]) -> bool:
    """Whether one item repeats without bound while all others may be empty."""
    return any(
        operator in _REPEATS and argument[1] > _MANY and all(_may_be_empty(other) for other in items if other is not item)
        for item in items
        for operator, argument in [item]
    )


def _may_be_empty(item: Any) -> bool:
    operator, argument = item
    if operator in (*_REPEATS, constants.POSSESSIVE_REPEAT):
        return bool(argument[0] == 0) or all(map(_may_be_empty, argument[2]))
    if operator is constants.SUBPATTERN:
        return all(map(_may_be_empty, argument[-1]))
    if operator is constants.BRANCH:
        return any(all(map(_may_be_empty, branch)) for branch in argument[1])
    return operator in _EMPTY
