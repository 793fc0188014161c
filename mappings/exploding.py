"""The items of a list in one row, compiled: each becomes an event that sees its own item in the list's place.

The days of a recurrence are `recurring`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mappings.compiling import Compiler
from mappings.evaluation import nfc, read_cell, required
from mappings.identity import event_key
from mappings.keys import key_refusal
from mappings.refusals import Refusal
from mappings.spec.feed import KeyColumn
from mappings.spec.rules import Explosion
from mappings.strands import Strand, Unfold, refused
from mappings.vocabulary import ReasonCode, RowKey

Item = Mapping[str, str]
"""The cells in which an event differs from its row."""
_STEP = "explode"


@dataclass(frozen=True, slots=True)
class _Exploding:
    """A compiled explosion."""

    asked: Explosion
    items: Callable[[Mapping[str, str]], list[Item]]

    def __call__(self, strand: Strand) -> list[Strand]:
        try:
            return [self._event(strand, item) for item in self._few(strand)] or [strand]
        except Refusal as refusal:
            return refused(strand, refusal, self.asked.columns)

    def _few(self, strand: Strand) -> list[Item]:
        items = self.items(strand.state.cells)
        if len(items) > self.asked.at_most:
            hint = f"at most {self.asked.at_most} items would be accepted"
            raise Refusal(ReasonCode.TOO_MANY, hint, column=self.asked.columns[0], found=str(len(items)), step=_STEP)
        return items

    def _event(self, strand: Strand, item: Item) -> Strand:
        state = strand.state.branch({**strand.state.cells, **item})
        state.item = item[self.asked.columns[0]]
        return Strand(self._key(strand.key, item), state)

    def _key(self, stem: RowKey, item: Item) -> RowKey:
        """Extend the row's key by what tells the item apart; never by its place in the list, which moves."""
        columns = self.asked.key or self.asked.columns
        parts = [item.get(column, "").strip() for column in columns]
        if not any(parts):
            raise required(columns[0], "every item needs what tells it apart").about("", "", _STEP)
        for column, part in zip(columns, parts, strict=True):
            refusal = key_refusal(part, KeyColumn(column=column, optional=True))
            if refusal is not None:
                raise refusal.about(column, part, _STEP)
            stem = event_key(stem, part)
        return stem


def compile_explosion(compiler: Compiler, asked: Explosion) -> Unfold:
    """Compile an explosion; its columns are the row's own."""
    compiler.columns.update(asked.columns)
    if asked.json_list:
        return _Exploding(asked, _json_items(asked))
    separators = re.compile("|".join(map(re.escape, asked.by or ())))
    return _Exploding(asked, _parallel_items(asked.columns, separators))


def is_of_item(asked: Explosion | None, column: str) -> bool:
    """Whether a column is made of a JSON list's objects rather than read from the source."""
    return asked is not None and asked.json_list and column.startswith(f"{asked.columns[0]}.")


def _parallel_items(columns: tuple[str, ...], separators: re.Pattern[str]) -> Callable[[Mapping[str, str]], list[Item]]:
    def items(cells: Mapping[str, str]) -> list[Item]:
        lists = [_split(separators, read_cell(cells, column)) for column in columns]
        longest = max(map(len, lists))
        for column, found in zip(columns, lists, strict=True):
            if len(found) not in {1, longest}:
                hint = f'{longest} items, as in "{columns[0]}", or one for all would be accepted'
                raise Refusal(ReasonCode.UNEVEN, hint, column=column, found=f"{len(found)} items", step=_STEP)
        even = [found * longest if len(found) == 1 else found for found in lists]
        rows = (dict(zip(columns, each, strict=True)) for each in zip(*even, strict=True))
        return [row for row in rows if any(row.values())]

    return items


def _split(separators: re.Pattern[str], text: str) -> list[str]:
    """Split a cell; separators at its end stand for nothing."""
    found = [part.strip() for part in separators.split(text)]
    while len(found) > 1 and not found[-1]:
        found.pop()
    return found


def _json_items(asked: Explosion) -> Callable[[Mapping[str, str]], list[Item]]:
    column = asked.columns[0]

    def items(cells: Mapping[str, str]) -> list[Item]:
        text = read_cell(cells, column).strip()
        if not text:
            return []
        found: list[Item] = [dict(_item(part, column)) for part in _parsed(text, column) if part is not None]
        if asked.key is None and any(len(item) > 1 for item in found):
            hint = "the items are objects: name under `key` what tells them apart, in the mapping"
            raise Refusal(ReasonCode.BAD_KEY, hint, column=column, found=text, step=_STEP)
        return found

    return items


def _parsed(text: str, column: str) -> list[Any]:
    try:
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_named_once)
    except _TwiceError as twice:
        hint = f'the name "{twice}" stands twice in one object and says different things: each name may stand there once'
        raise Refusal(ReasonCode.BAD_TEXT, hint, column=column, found=text, step=_STEP) from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        hint = 'a JSON array is needed, such as ["2026-05-03", "2026-05-04"]'
        raise Refusal(ReasonCode.BAD_TEXT, hint, column=column, found=text, step=_STEP)
    return found


class _TwiceError(ValueError):
    """A name stands twice in one object, with different values."""


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        for name, value in pairs:
            if value != found[name]:
                raise _TwiceError(name)
    return found


def _item(part: Any, column: str) -> Iterator[tuple[str, str]]:
    """Yield an item as cells: its own text, and the fields of an object, however deep, under dotted names."""
    yield column, _text(part)
    if isinstance(part, dict):
        for name, inner in part.items():
            yield from _item(inner, f"{column}.{name}")


def _text(part: Any) -> str:
    match part:
        case None:
            return ""
        case str():
            return nfc(part)
        case _:
            return json.dumps(part, ensure_ascii=False, sort_keys=True)
