"""JSON text as values: numbers as the text that stands there, and names that stand twice in one object remembered.

How values become cells is `nested`'s; where the text comes from is its reader's matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from connectors.sources.row_limits import MOST_VALUES

_DEEPEST = 50


class Number(str):
    """A number, as the text that stands in the file."""

    __slots__ = ()


class TooDeepError(ValueError):
    """The value nests deeper than any list of events does."""


class _Repeating(dict[str, Any]):
    """An object with the last value of each name; `earlier` has those that an earlier one contradicts, with that value."""

    earlier: dict[str, Any]


class TooManyValuesError(ValueError):
    """The text holds more values than any record does."""

    def __init__(self) -> None:
        super().__init__(f"it holds more than {MOST_VALUES} values")


def refuse_many_values(text: str, start: int = 0) -> None:
    """Refuse a text that may hold too many values, before any is built; marks inside of strings count too.

    Raises:
        TooManyValuesError: it does.
    """
    if len(text) - start > MOST_VALUES and sum(text.count(mark, start) for mark in ",[{") > MOST_VALUES:
        raise TooManyValuesError


@dataclass(frozen=True, slots=True)
class Repeat:
    """A name that stands twice in one object and says different things: the way to it, and what is said first and last."""

    path: str
    first: Any
    last: Any

    def is_in(self, column: str) -> bool:
        """Whether a column's cell was made of what the name says: it is that value, holds it, or stands inside it."""
        # What stands there once is reached as the first of a list too.
        ways = {column, column.replace("[0]", "")}
        is_around = self.path.startswith(f"{column}[") or ("[" in column and self.path.startswith(f"{column}."))
        return is_around or any(way == self.path or way.startswith((f"{self.path}.", f"{self.path}[")) for way in ways)


class JsonTexts:
    """Decodes JSON texts. `has_repeats`: in one of them, since this was last set to False, a name stands twice."""

    def __init__(self) -> None:
        self.has_repeats = False
        self._decoder = json.JSONDecoder(
            parse_float=Number, parse_int=Number, parse_constant=Number, strict=False, object_pairs_hook=self._object
        )

    def decode_at(self, text: str, place: int) -> tuple[Any, int]:
        """Return the value that begins at a place of a text, and where it ends.

        Raises:
            json.JSONDecodeError: there is none, or it goes on behind the text's end.
            RecursionError: it nests too deeply.
        """
        return self._decoder.raw_decode(text, place)

    def parse(self, text: str) -> Any:
        """Return the value of a whole text.

        Raises:
            ValueError: it is no JSON, nests too deeply, or holds too many values.
        """
        refuse_many_values(text)
        try:
            return self._decoder.decode(text)
        except RecursionError as error:
            raise TooDeepError("it nests too deeply") from error
        except json.JSONDecodeError as error:
            raise ValueError(f"{error.msg}, at character {error.pos + 1}") from error

    def repeats_in(self, value: Any, path: str = "") -> tuple[Repeat, ...]:
        """Return the names that stand twice in the value last decoded, and forget them."""
        if not self.has_repeats:
            return ()
        self.has_repeats = False
        return tuple(_repeats(value, path, 0))

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        earlier = dict(_contradicted(pairs, found))
        if not earlier:
            return found
        repeating = _Repeating(found)
        repeating.earlier = earlier
        self.has_repeats = True
        return repeating


def _contradicted(pairs: Iterable[tuple[str, Any]], last: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values that the last one of their name contradicts; to say the same twice does no harm."""
    for name, value in pairs:
        if type(value) is not type(last[name]) or value != last[name]:
            yield name, value


def _repeats(value: Any, path: str, depth: int) -> Iterator[Repeat]:
    if depth > _DEEPEST:
        return
    if isinstance(value, _Repeating):
        for name, first in value.earlier.items():
            yield Repeat(_inner(path, name), first, value[name])
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _repeats(inner, _inner(path, name), depth + 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _repeats(inner, f"{path}[{place}]", depth + 1)


def _inner(path: str, name: str) -> str:
    """Return the way to a value inside an object, as columns are named."""
    return (f"{path}.{name}" if path else name) if name else path or "#text"
