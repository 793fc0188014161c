"""Rows that are not quite what the header announced: filled up, cut, or told what is wrong with them.

A row that is as it should be never comes here; what is wrong with a cell's text is `cell_faults`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors.sources.cell_faults import CellFaults, short
from mappings.outcome import RowLocation, SourceRow
from mappings.refusals import Reason, ReasonCode
from mappings.spec.source import GridSource

BESIDE = " | "
"""What people are shown between the cells of a source that has no delimiter."""


@dataclass(frozen=True, slots=True)
class OddRows:
    """Makes rows of one source's odd records. `columns` are the source's; `delimiter` parts the cells where people see them."""

    spec: GridSource
    columns: tuple[str, ...]
    faults: CellFaults
    delimiter: str = BESIDE
    rejects_short: bool = False

    def row(self, origin: RowLocation, cells: Sequence[str], problems: tuple[Reason, ...] = ()) -> SourceRow:
        """Return a row of exactly the header's columns, with problems for its width and for the text of its cells.

        Short records are filled with "", and are a problem if `rejects_short`, unless they are blank. A surplus
        that is blank (trailing delimiters) is no problem, nor is any other where `long_rows` says to cut it.
        """
        filled = [*cells, *[""] * (len(self.columns) - len(cells))]
        named = dict(zip(self.columns, filled, strict=False))
        return self.faults.row(origin, named, (*problems, *self._width(cells)))

    def misquoted(self, origin: RowLocation, cells: Sequence[str], text: str, quote: str | None) -> SourceRow:
        """Return the row of a record with broken quotes: its cells as far as they can be told, and why it cannot be used."""
        hint = f"inside a quoted cell write each {quote} twice"
        problem = Reason(ReasonCode.BAD_TEXT, "", "", short(text.rstrip("\r\n")), hint)
        return self.row(origin, cells[: len(self.columns)], (problem,))

    def _width(self, cells: Sequence[str]) -> Iterator[Reason]:
        counts = f"the header has {len(self.columns)} columns, this row has {len(cells)} cells"
        surplus = cells[len(self.columns) :]
        if self.spec.long_rows == "reject" and any(map(str.strip, surplus)):
            hint = f"{counts}; {self._remedy()}"
            yield Reason(ReasonCode.RAGGED, "", "", short(self.delimiter.join(surplus)), hint)
        if self.rejects_short and len(cells) < self._named() and any(map(str.strip, cells)):
            yield Reason(ReasonCode.RAGGED, "", "", short(self.delimiter.join(cells)), f"{counts}; is a line break in a cell?")

    def _remedy(self) -> str:
        if self.delimiter == BESIDE:
            return "name their columns in the header, leave them out by `source.range`, or say `long_rows: cut`"
        return f"a cell that contains {self.delimiter!r} must stand in quotes"

    def _named(self) -> int:
        """Return how many columns there are up to the last one with a name: delimiters after it are decoration."""
        places = enumerate(self.columns, start=1)
        return max((place for place, column in places if column != f"#{place}"), default=0)
