"""Lines become records of cells: the dialect, the header's rows, and what to make of broken quoting.

Which column a cell belongs to is `csv_file`'s.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Any

from connectors.sources.errors import BadSourceError, CutOffError
from connectors.sources.row_limits import LARGEST_CELL
from connectors.sources.text_file import Lines, replaced_bytes
from mappings.spec.source import DelimitedSource


class CsvRecords:
    """The records of one file, once: `reader` gives them, `lines` holds the lines of the one it has just given.

    Quoting is taken strictly: read leniently, a quote in the wrong place glues rows together without a word.
    """

    def __init__(self, lines: Lines, name: str, spec: DelimitedSource) -> None:
        # The csv module knows one limit for the whole process; its own default refuses long descriptions.
        csv.field_size_limit(LARGEST_CELL)
        self.name = name
        self.quote = spec.quote
        self.lines = lines
        self._dialect = _dialect(spec)
        self.reader = csv.reader(self.lines, strict=True, **self._dialect)

    @property
    def next_line(self) -> int:
        """The line of the file on which the next record begins."""
        return self.lines.before + self.reader.line_num + 1

    def next_row(self) -> list[str] | None:
        """Return the cells of the next record of the header, None at the end.

        Raises:
            BadSourceError: its quoting is broken.
        """
        start = self.next_line
        self.lines.clear()
        try:
            return list(map(replaced_bytes, next(self.reader)))
        except StopIteration:
            return None
        except csv.Error as error:
            raise self._unreadable(start, self._leniently(self.lines.held)) from error
        finally:
            self.lines.clear()

    def misquoted(self, start: int, width: int) -> list[str]:
        """Return the cells, as far as they can be told, of the record on line `start` that the reader gave up on.

        The reader goes on with the next line. That is safe if the record ends on its own line and has at least `width`
        cells even so; if not, nobody can tell where the next row begins.

        Raises:
            BadSourceError: it is not safe, or a quote is never closed, or a cell is endless.
        """
        cells = self._leniently(self.lines.held)
        if self.lines.is_exhausted or len(self.lines.held) > 1 or len(cells) < width or _largest(cells) > LARGEST_CELL:
            raise self._unreadable(start, cells)
        return cells

    def _unreadable(self, start: int, cells: Sequence[str]) -> BadSourceError:
        column = len(cells)
        doubled = "a quote inside a quoted cell must be written twice"
        if _largest(cells) > LARGEST_CELL:
            column = next(place for place, cell in enumerate(cells, start=1) if len(cell) > LARGEST_CELL)
            message = f"the cell in column {column} is larger than {LARGEST_CELL // 2**20} million characters"
            return self._bad(start, message, hint="a quote that opens this cell is probably never closed")
        if self.lines.is_exhausted:
            message = f"the quote that opens the cell in column {column} is never closed"
            return CutOffError(f"{self.name}:{start}", message, hint=doubled)
        end = self.next_line - 1
        message = f"the quoting of the row that begins here breaks on line {end}, so we cannot tell where the next row begins"
        return self._bad(start, message, hint=doubled)

    def _leniently(self, lines: Sequence[str]) -> list[str]:
        csv.field_size_limit(sys.maxsize)
        try:
            return next(csv.reader(lines, strict=False, **self._dialect), [])
        finally:
            csv.field_size_limit(LARGEST_CELL)

    def _bad(self, line: int, message: str, *, hint: str = "") -> BadSourceError:
        return BadSourceError(f"{self.name}:{line}", message, hint=hint)


def _largest(cells: Sequence[str]) -> int:
    return max(map(len, cells), default=0)


def _dialect(spec: DelimitedSource) -> dict[str, Any]:
    return {
        "delimiter": spec.delimiter,
        "quotechar": spec.quote,
        "quoting": csv.QUOTE_NONE if spec.quote is None else csv.QUOTE_MINIMAL,
        "escapechar": spec.escape,
        "doublequote": spec.escape is None,
    }
