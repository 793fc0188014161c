"""The key of a row: the cells that identify it for life, checked for what spreadsheets do to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from mappings.compiler.evaluation import nfc, read_cell, required
from mappings.outcome import MappedRow, Rejection
from mappings.refusals import Reason, ReasonCode, Refusal
from mappings.row_key import RowKey, row_key
from mappings.spec.feed import KeyColumn

_ROUNDED = re.compile(r"[+-]?\d(?:[.,]\d+)?E[+-]\d+", re.IGNORECASE)
_SHEET_ERROR = re.compile(r"#(?:REF!|N/A|VALUE!|NAME\?|NULL!|DIV/0!|NUM!|#+)")
_PLAIN = re.compile(rf"(?!(?i:{_ROUNDED.pattern})\Z)[0-9A-Za-z][0-9A-Za-z_:/.-]*")
"""A key that is itself, as most are: nothing to trim, to escape or to doubt."""
_HINT = "a spreadsheet program has changed it: format the column as text, and put the original identifiers back"
_MOST_BYTES = 2_000
"""A PostgreSQL index entry holds 2,704 bytes; the rest is room for the scope and for escapes."""
_SHOWN = 80
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


def too_long_key(row: MappedRow) -> Rejection | None:
    """Return the rejection of a row that no ledger knows, where its key has more bytes than one may hold; None if it fits."""
    if len(row.row_key) * 4 <= _MOST_BYTES:
        return None
    length = len(row.row_key.encode("utf-8", "backslashreplace"))
    if length <= _MOST_BYTES:
        return None
    hint = f"an identifier of at most {_MOST_BYTES:,} bytes would be accepted, and this one has {length:,}: shorten it"
    reason = Reason(ReasonCode.BAD_KEY, "", "", f"{row.row_key[:_SHOWN]}…", hint)
    return Rejection(row.origin, row.row_key, (reason,), row.cells, row.part)


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
