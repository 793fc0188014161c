"""Telling a partner in their own sheet what became of each row: what is written into it, and what a place for it promises.

What each row is told is `pipelines`' matter; how a kind of sheet is read for it, and written, that kind's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MarkedRow:
    """A row as it stands now: its true number, and its cells by column, those of the marks among them."""

    number: int
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Mark:
    """What one cell is to say: the row by its number, the column by its name. "" empties it."""

    number: int
    column: str
    text: str


class MarkBoard(Protocol):
    """A sheet whose owner has given us columns to write into. No other column is ever written."""

    def look(self) -> Sequence[MarkedRow]:
        """Return all rows as they stand now.

        Raises:
            MissingColumnsError: one of the columns to write into, or of the key, is not there.
            SyncError: it cannot be read.
        """
        ...

    def write(self, marks: Sequence[Mark]) -> bool:
        """Write these cells as plain text, if the rows are still where the last look has found them; False if not.

        Raises:
            SyncError: it cannot be written; some of the cells may have been.
        """
        ...
