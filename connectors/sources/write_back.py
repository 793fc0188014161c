"""Rows and cells of a sheet into which the outcome of each row is written, and the protocol of such a sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StatusRow:
    """A row as it is now: its number in the sheet, and the cells of the key's and the status columns."""

    number: int
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StatusCell:
    """The text for one cell: its row by number, its column by name; "" empties the cell."""

    number: int
    column: str
    text: str


class StatusSheet(Protocol):
    """A sheet whose owner lets us write into some columns. No other column is ever written."""

    def read(self) -> Sequence[StatusRow]:
        """Return all rows as they are now.

        Raises:
            MissingColumnsError: one of the columns to write into, or of the key, is not there.
            SyncError: the sheet cannot be read.
        """
        ...

    def write(self, cells: Sequence[StatusCell]) -> bool:
        """Write these cells as plain text and return True, if the rows are still where the last `read` found them.

        Raises:
            SyncError: the sheet cannot be written; some of the cells may have been.
        """
        ...
