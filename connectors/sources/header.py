"""Finding the header among a source's first rows, and making names of it.

How those rows are read is the source's own matter, which columns the mapping wants `names`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from connectors.sources.errors import BadSourceError, EmptySourceError, MissingColumnsError
from connectors.sources.names import Asked, Matched, column_names, matched
from connectors.sources.row_limits import MOST_COLUMNS
from mappings.patterns import compile_pattern
from mappings.spec.source_words import Header

FARTHEST = 1000
"""Rows among which a header is looked for."""

_LIKE_CONTENT = re.compile(r"https?://|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|(?<!\S)(?:\S++\s){5}")
_WHOLE_FILE = "ask the partner for the whole file"

NextRow = Callable[[], Sequence[str] | None]
"""Gives the next row's cells, None at the end."""


def read_header(header: Header, name: str, next_row: NextRow, *, hint: str = "") -> tuple[str, ...]:
    """Read rows up to and with the header and return the columns' names; row 0 reads nothing.

    `name` is what people call the source; `hint` what may help if there are far too many columns.

    Raises:
        EmptySourceError: there are no rows at all.
        BadSourceError: the source ends before the header, or nothing or far too much stands in it.
    """
    in_file = _found(header, name, next_row) if header.row else []
    if len(in_file) > MOST_COLUMNS:
        raise BadSourceError(name, f"the header has {len(in_file)} columns; more than {MOST_COLUMNS} are never meant", hint=hint)
    return column_names(header.names or in_file)


def wanted_columns(present: Sequence[str], asked: Asked, name: str, advice: str = "") -> Matched:
    """Match a source's columns with those asked for.

    Raises:
        MissingColumnsError: columns are missing that may not be.
    """
    found = matched(present, asked)
    if found.missing:
        taken = [name for name, spelt in zip(present, found.names, strict=True) if spelt in asked.columns]
        raise MissingColumnsError(name, found.missing, present, taken=taken, advice=advice or _overwritten(present, taken))
    return found


def _found(header: Header, name: str, next_row: NextRow) -> list[str]:
    passed, finds = 0, compile_pattern(header.matches).finds if header.matches is not None else None
    for cells in _rows(header, name, next_row):
        passed += 1
        is_it = passed == header.row if finds is None else any(map(finds, cells))
        if is_it:
            return _joined([cells, *(_next(next_row, name, passed) for _ in range(header.rows - 1))], name, passed)
    message = f'no cell of the first {passed} rows matches "{header.matches}", so there is no header'
    raise BadSourceError(name, message, hint="correct `source.header.matches`, or ask the partner for the former layout")


def _rows(header: Header, name: str, next_row: NextRow) -> Iterator[Sequence[str]]:
    for passed in range(FARTHEST if header.matches is not None else header.row):
        cells = next_row()
        if cells is None and not passed:
            raise EmptySourceError(name, "the file is empty", hint=_WHOLE_FILE)
        if cells is None and header.matches is not None:
            return
        if cells is None:
            raise BadSourceError(name, f"the file ends before row {header.row}, where its header should be", hint=_WHOLE_FILE)
        yield cells


def _next(next_row: NextRow, name: str, passed: int) -> Sequence[str]:
    cells = next_row()
    if cells is None:
        raise BadSourceError(name, f"the file ends within its header, after row {passed}", hint=_WHOLE_FILE)
    return cells


def _joined(rows: Sequence[Sequence[str]], name: str, row: int) -> list[str]:
    width = max(map(len, rows))
    columns = zip(*([*cells, *[""] * (width - len(cells))] for cells in rows), strict=True)
    names = [" ".join(filter(None, map(str.strip, parts))) for parts in columns]
    if not any(names):
        raise BadSourceError(name, f"row {row} should hold the names of the columns and is blank")
    return names


def _overwritten(present: Sequence[str], taken: Sequence[str]) -> str:
    """Say so if a name looks like something that belongs into a row: somebody has written over the header."""
    for position, name in enumerate(present, start=1):
        if name not in taken and _LIKE_CONTENT.search(name):
            shown = name if len(name) <= 40 else f"{name[:39]}…"
            asked = f'if it stays so, ask for it as "#{position}"'
            return f'the header\'s column {position} reads "{shown}": has somebody written over its name? {asked}'
    return ""
