"""The limits of one row or record, and which rows of a file are none: comments, and what stands below the last true row.

The limits are far beyond real files, and keep a small hostile file from taking the memory or the time of a run. Blank rows are
rows, and left to the mapping.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from mappings.outcome import SourceRow
from mappings.patterns import CompiledPattern, compile_pattern
from mappings.spec.source import GridSource

LARGEST_RECORD = 64 * 1024 * 1024
"""Characters of one record, one line, or anything that stands beside the records."""

LARGEST_CELL = 10 * 1024 * 1024
"""Characters. A larger cell is a quote that nobody closed, far more often than it is text."""

MOST_VALUES = 200_000
"""Values of one record, however nested; cells or lines of one row; properties of one event; elements of one kind in a sheet."""

MOST_COLUMNS = 16_384
"""Columns of a source; as many as a sheet may have."""

LONGEST_NAME = 1_000
"""Characters of a column's name, made of the names that lead to it."""

LONGEST_MARKUP = 1024 * 1024
"""Bytes of one tag, comment or document type of XML."""


def within_limits(rows: Iterator[SourceRow], spec: GridSource) -> Iterator[SourceRow]:
    """Leave out comment rows, what follows the row that `until` describes, and the `footer`; numbers stay as they are.

    Memory grows with `footer` and the blank rows within it, not with the file.
    """
    if spec.comment:
        rows = _without_comments(rows, spec.comment)
    if spec.until is not None:
        rows = _until(rows, compile_pattern(spec.until))
    if spec.footer:
        rows = _without_footer(rows, spec.footer)
    return rows


def _without_comments(rows: Iterator[SourceRow], mark: str) -> Iterator[SourceRow]:
    return (row for row in rows if not next(iter(row.cells.values()), "").lstrip().startswith(mark))


def _until(rows: Iterator[SourceRow], pattern: CompiledPattern) -> Iterator[SourceRow]:
    for row in rows:
        if any(map(pattern.finds, row.cells.values())):
            # The rest is read all the same: a file that ends early or changes meanwhile must be noticed.
            deque(rows, maxlen=0)
            return
        yield row


def _without_footer(rows: Iterator[SourceRow], length: int) -> Iterator[SourceRow]:
    held: deque[SourceRow] = deque()
    filled = 0
    for row in rows:
        held.append(row)
        filled += not _is_blank(row)
        while filled > length or (filled == length and _is_blank(held[0])):
            first = held.popleft()
            filled -= not _is_blank(first)
            yield first


def _is_blank(row: SourceRow) -> bool:
    return not any(map(str.strip, row.cells.values()))
