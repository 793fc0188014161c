"""Nested values as cells: objects become columns named by their path, lists a text.

Where the values come from (JSON, XML, a cell) is their reader's matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.sources.json_values import Number, TooDeepError
from connectors.sources.row_limits import LONGEST_NAME, MOST_COLUMNS

_DEEPEST = 50
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,6})\]")

OWN_TEXT = ""
"""The key under which an object holds a text of its own, beside what stands inside it."""


class TooWideError(ValueError):
    """The record has more columns than any list of events, or a longer name for one."""


@dataclass(frozen=True, slots=True)
class Flattening:
    """How one source's nested values become cells.

    `picks` are the wanted columns that reach into lists (`images[0].url`), with their steps; `separators` say of lists of
    plain values how they become one text.
    """

    picks: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict)
    separators: Mapping[str, str] = field(default_factory=dict)

    def cells(self, value: Mapping[str, Any], path: str = "") -> dict[str, str]:
        """Return the cells of an object whose own path is `path`.

        Raises:
            TooDeepError: it nests too deeply.
            TooWideError: it has too many names, or too long ones.
        """
        found: dict[str, str] = {}
        self._put(found, path, value, 0)
        for column, steps in self.picks.items():
            picked = _picked(value, steps)
            if picked is not None:
                found[column] = picked if isinstance(picked, str) else text_of(picked)
        return found

    def _put(self, found: dict[str, str], path: str, value: Any, depth: int) -> None:
        if len(path) > LONGEST_NAME:
            raise TooWideError(f'the name "{path[:100]}…" is longer than {LONGEST_NAME} characters')
        if len(found) > MOST_COLUMNS:
            raise TooWideError(f"it has more than {MOST_COLUMNS} different names; so many columns are never meant")
        if isinstance(value, dict):
            if depth > _DEEPEST:
                raise TooDeepError("it nests too deeply")
            for key, inner in value.items():
                self._put(found, (f"{path}.{key}" if path else key) if key else path or "#text", inner, depth + 1)
        elif isinstance(value, list) and path in self.separators and all(map(_is_plain, value)):
            found[path] = self.separators[path].join(filter(None, map(text_of, value)))
        else:
            found[path] = value if type(value) is str else text_of(value)


def picks_among(columns: Iterable[str], holder: str = "") -> dict[str, tuple[str | int, ...]]:
    """Return the columns that reach into a list, each with its steps; `holder` is the first step of all of them."""
    first = (holder,) if holder else ()
    return {
        column: (*first, *steps) for column in sorted(columns) if "[" in column and (steps := _steps(column.removeprefix(holder)))
    }


def _steps(path: str) -> tuple[str | int, ...]:
    steps = tuple(int(match[2]) if match[2] else match[1] for match in _STEP.finditer(path))
    return steps if "".join(match[0] for match in _STEP.finditer(path)) == path else ()


def _picked(value: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if isinstance(step, int):
            # What stands there once is a list of one, as far as its author is concerned.
            items = value if isinstance(value, list) else [value]
            value = items[step] if step < len(items) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value.get(OWN_TEXT, value) if isinstance(value, dict) else value


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list)


def text_of(value: Any) -> str:
    """Return a value as the text of a cell: lists and objects as JSON, `null` as "".

    Raises:
        TooDeepError: it nests too deeply.
    """
    match value:
        case str():
            return str(value)
        case None:
            return ""
        case _:
            return _json(value, 0)


def _json(value: Any, depth: int) -> str:
    if depth > _DEEPEST:
        raise TooDeepError("it nests too deeply")
    match value:
        case Number():
            return str(value)
        case dict():
            named = (
                f"{json.dumps(key or '#text', ensure_ascii=False)}: {_json(inner, depth + 1)}" for key, inner in value.items()
            )
            return "{" + ", ".join(named) + "}"
        case list():
            return "[" + ", ".join(_json(inner, depth + 1) for inner in value) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)
