"""Expanded rows, the events that one row stands for, each with a key of its own; and `explode`, one for each item of a list."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from mappings.compiler.base import CompiledValue, Compiler
from mappings.compiler.evaluation import Flow, RowState, nfc, read_cell, required
from mappings.outcome import Silence
from mappings.refusals import Reason, ReasonCode, Refusal
from mappings.row_key import RowKey, event_key, row_key
from mappings.spec.feed import KeyColumn
from mappings.spec.rules import Explosion
from mappings.steps.step import Kind

_ROUNDED = re.compile(r"[+-]?\d(?:[.,]\d+)?E[+-]\d+", re.IGNORECASE)
_SHEET_ERROR = re.compile(r"#(?:REF!|N/A|VALUE!|NAME\?|NULL!|DIV/0!|NUM!|#+)")
_PLAIN = re.compile(rf"(?!(?i:{_ROUNDED.pattern})\Z)[0-9A-Za-z][0-9A-Za-z_:/.-]*")
"""A key that is itself, as most are: nothing to trim, to escape or to doubt."""
_HINT = "a spreadsheet program has changed it: format the column as text, and put the original identifiers back"
"""A PostgreSQL index entry holds 2,704 bytes; the rest is room for the scope and for escapes."""
ReadKey = Callable[[Mapping[str, str]], "RowKey | tuple[Reason, ...]"]


def compile_key(columns: tuple[KeyColumn, ...]) -> ReadKey:
    """Return the function that gives a row's key, or every reason why it has none."""
    if len(columns) == 1:
        return _one_column(columns[0])

    def read(cells: Mapping[str, str]) -> RowKey | tuple[Reason, ...]:
        parts, reasons = [], []
        for column in columns:
            part = read_cell(cells, column.column)
            parts.append(part)
            refusal = key_refusal(part.strip(), column)
            if refusal is not None:
                reasons.append(refusal.reason(""))
        return tuple(reasons) or row_key(parts)

    return read


def _one_column(column: KeyColumn) -> ReadKey:
    name, is_plain = column.column, _PLAIN.fullmatch

    def read(cells: Mapping[str, str]) -> RowKey | tuple[Reason, ...]:
        part = cells.get(name, "")
        if is_plain(part):
            return RowKey(part)
        part = nfc(part)
        refusal = key_refusal(part.strip(), column)
        return row_key((part,)) if refusal is None else (refusal.reason(""),)

    return read


def key_refusal(part: str, column: KeyColumn) -> Refusal | None:
    """Return why a trimmed text cannot be a part of a key, None if it can."""
    if not part:
        hint = f'every row needs its identifier in "{column.column}"'
        return None if column.optional else required(column.column, hint)
    if part[0] == "#" and _SHEET_ERROR.fullmatch(part):
        return Refusal(ReasonCode.BAD_KEY, _HINT, column=column.column, found=part)
    if "E" in part.upper() and _ROUNDED.fullmatch(part):
        return Refusal(ReasonCode.BAD_KEY, _HINT, column=column.column, found=part)
    if not part.isascii() and any("\ud800" <= char <= "\udfff" for char in part):
        return Refusal(ReasonCode.BAD_TEXT, "the identifier holds bytes that are not text", column=column.column)
    return None


_STEP = "explode"


@dataclass(slots=True)
class ExpandedRow:
    """One event that a row may become: its key, what is known of it, and why and by which rule it is left out, if it is.

    `silence`: what the row says nothing of besides. `is_refused`: its events cannot be read; it goes on only so that all
    problems of the row are reported at once, but for those of the columns that are `muted`, which are reported already.
    """

    key: RowKey
    state: RowState
    label: str = ""
    silence: Silence | None = None
    is_refused: bool = False
    muted: tuple[str, ...] = ()
    rule: int = 0


Expand = Callable[[ExpandedRow], list[ExpandedRow]]
"""Returns the events that one stands for, itself if it is one only or if it is refused."""
Item = Mapping[str, str]
"""The cells in which an event differs from its row."""
ReadItems = Callable[[Mapping[str, str]], list[Item]]


def given_item(column: str) -> CompiledValue:
    """Return the value `$item` of each event of a row: the item of a column."""
    return CompiledValue(lambda row: row.item, Flow(Kind.TEXT), column)


def given_day(own: Callable[[RowState], date]) -> CompiledValue:
    """Return the value `$day`: that of each event after the recurrence, the row's own before it."""
    return CompiledValue(lambda row: own(row) if row.day is None else row.day, Flow(Kind.DATE))


def refused(row: ExpandedRow, refusal: Refusal, muted: tuple[str, ...] = ()) -> list[ExpandedRow]:
    """Return a row whose events cannot be read."""
    row.state.reasons.append(refusal.reason(""))
    row.is_refused, row.muted = True, muted
    return [row]


def compile_explosion(compiler: Compiler, asked: Explosion) -> Expand:
    """Compile an explosion; its columns are the row's own."""
    compiler.columns.update(asked.columns)
    read_items = _json_items(asked) if asked.json_list else _parallel_items(asked)

    def expand(row: ExpandedRow) -> list[ExpandedRow]:
        try:
            items = read_items(row.state.cells)
            if len(items) <= asked.at_most:
                return [_event(row, item, asked) for item in items] or [row]
        except Refusal as refusal:
            return refused(row, refusal, asked.columns)
        hint, found = f"at most {asked.at_most} items would be accepted", str(len(items))
        too_many = Refusal(ReasonCode.TOO_MANY, hint, column=asked.columns[0], found=found, step=_STEP)
        return refused(row, too_many, asked.columns)

    return expand


def is_of_item(asked: Explosion | None, column: str) -> bool:
    """Whether a column is made of a JSON list's objects rather than read from the source."""
    return asked is not None and asked.json_list and column.startswith(f"{asked.columns[0]}.")


def _event(row: ExpandedRow, item: Item, asked: Explosion) -> ExpandedRow:
    """Return the event of an item, whose key extends the row's by the item; never by its place in the list, which moves."""
    state = row.state.branch({**row.state.cells, **item})
    state.item = item[asked.columns[0]]
    columns = asked.key or asked.columns
    parts = [item.get(column, "").strip() for column in columns]
    if not any(parts):
        raise required(columns[0], "every item needs what tells it apart").about("", "", _STEP)
    key = row.key
    for column, part in zip(columns, parts, strict=True):
        refusal = key_refusal(part, KeyColumn(column=column, optional=True))
        if refusal is not None:
            raise refusal.about(column, part, _STEP)
        key = event_key(key, part)
    return ExpandedRow(key, state)


def _parallel_items(asked: Explosion) -> ReadItems:
    columns, separators = asked.columns, re.compile("|".join(map(re.escape, asked.by or ())))

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


def _json_items(asked: Explosion) -> ReadItems:
    column = asked.columns[0]

    def items(cells: Mapping[str, str]) -> list[Item]:
        text = read_cell(cells, column).strip()
        if not text:
            return []
        found: list[Item] = [dict(_item_cells(part, column)) for part in _parsed(text, column) if part is not None]
        if asked.key is None and any(len(item) > 1 for item in found):
            hint = "the items are objects: name under `key` what tells them apart, in the mapping"
            raise Refusal(ReasonCode.BAD_KEY, hint, column=column, found=text, step=_STEP)
        return found

    return items


def _parsed(text: str, column: str) -> list[Any]:
    try:
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_unique_names)
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


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    for name, value in pairs if len(found) < len(pairs) else ():
        if value != found[name]:
            raise _TwiceError(name)
    return found


def _item_cells(part: Any, column: str) -> Iterator[tuple[str, str]]:
    """Yield an item as cells: its own text, and the fields of an object, however deep, under dotted names."""
    match part:
        case None:
            yield column, ""
        case str():
            yield column, nfc(part)
        case _:
            yield column, json.dumps(part, ensure_ascii=False, sort_keys=True)
    if isinstance(part, dict):
        for name, inner in part.items():
            yield from _item_cells(inner, f"{column}.{name}")


OVER = "already over"
TOO_FAR = "beyond the horizon"
