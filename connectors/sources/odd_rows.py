"""Rows that are not quite what the header announced: filled up, cut, or told what is wrong with them.

A row that is as it should be never comes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors.sources.text_file import has_undecodable, replaced_bytes, shown_bytes
from mappings.source_specs import CsvSource
from mappings.vocabulary import Origin, Reason, ReasonCode, SourceRow

_MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class OddRows:
    """Makes rows of one file's odd records. `columns` are the file's, `wanted` those that the mapping uses."""

    name: str
    spec: CsvSource
    columns: tuple[str, ...]
    wanted: frozenset[str]

    def row(self, number: int, cells: Sequence[str]) -> SourceRow:
        """Return a row of exactly the header's columns, with problems for a surplus and for undecodable bytes.

        Short records are filled with "". A surplus that is blank (trailing delimiters) is no problem, nor is any other
        where `long_rows` says to cut it. Undecodable bytes are a problem in wanted columns only; in every cell U+FFFD
        stands for each of them.
        """
        filled = [*cells, *[""] * (len(self.columns) - len(cells))]
        named = dict(zip(self.columns, map(replaced_bytes, filled), strict=False))
        return SourceRow(self._origin(number), named, (*self._surplus(filled), *self._undecodable(filled)))

    def misquoted(self, number: int, cells: Sequence[str], text: str) -> SourceRow:
        """Return the row of a record with broken quotes: its cells as far as they can be told, and why it cannot be used."""
        hint = f"inside a quoted cell write each {self.spec.quote} twice"
        problem = Reason(ReasonCode.BAD_TEXT, "", "", _short(text.rstrip("\r\n")), hint)
        row = self.row(number, cells[: len(self.columns)])
        return SourceRow(row.origin, row.cells, (problem, *row.problems))

    def _origin(self, number: int) -> Origin:
        return Origin(f"{self.name}:{number}", number)

    def _surplus(self, cells: Sequence[str]) -> Iterator[Reason]:
        surplus = cells[len(self.columns) :]
        if self.spec.long_rows == "reject" and any(map(str.strip, surplus)):
            counts = f"the header has {len(self.columns)} columns, this row has {len(cells)} cells"
            hint = f"{counts}; a cell that contains {self.spec.delimiter!r} must stand in quotes"
            yield Reason(ReasonCode.RAGGED, "", "", _short(self.spec.delimiter.join(surplus)), hint)

    def _undecodable(self, cells: Sequence[str]) -> Iterator[Reason]:
        encodings = " or ".join(self.spec.encoding)
        for column, cell in zip(self.columns, cells, strict=False):
            if column in self.wanted and has_undecodable(cell):
                yield Reason(ReasonCode.UNDECODABLE, "", column, _short(cell), f"save the file as {encodings}")


def _short(text: str) -> str:
    shown = shown_bytes(text)
    return shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 1] + "…"
