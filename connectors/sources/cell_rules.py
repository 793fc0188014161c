"""What a mapping file says of cells before any column is used: texts that mean nothing, and JSON inside a cell.

What is wrong with a cell's text is `cell_faults`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from connectors.sources.cell_faults import repeated, short
from connectors.sources.json_values import JsonTexts, Repeat, TooDeepError
from connectors.sources.names import folded
from connectors.sources.nested import Flattening, picks_among
from mappings.outcome import SourceRow
from mappings.refusals import Reason, ReasonCode
from mappings.spec.source import AnySource


def without_nulls(rows: Iterator[SourceRow], spec: AnySource, columns: Sequence[str]) -> Iterator[SourceRow]:
    """Empty the cells whose whole text, trimmed, means that there is nothing."""
    if not spec.empty_if and not spec.empty_in:
        return rows
    by_column = _nulls(spec, columns)
    return (
        replace(row, cells={column: "" if cell.strip() in by_column[column] else cell for column, cell in row.cells.items()})
        for row in rows
    )


def _nulls(spec: AnySource, columns: Sequence[str]) -> Mapping[str, frozenset[str]]:
    everywhere = frozenset(text.strip() for text in spec.empty_if)
    known = {folded(column): column for column in columns}
    by_column: defaultdict[str, frozenset[str]] = defaultdict(lambda: everywhere)
    for column, texts in spec.empty_in.items():
        by_column[known.get(folded(column), column)] = everywhere.union(text.strip() for text in texts)
    return by_column


@dataclass(frozen=True, slots=True)
class JsonCells:
    """The columns of one source whose cells hold JSON, and the columns that the mapping wants from inside them."""

    holders: tuple[str, ...]
    wanted: tuple[str, ...]

    @classmethod
    def of(cls, spec: AnySource, wanted: frozenset[str]) -> JsonCells:
        """Return what the source says, and which of the mapping's columns stand inside such cells."""
        inside = (name for name in wanted if any(_is_inside(name, holder) for holder in spec.json_columns))
        return cls(spec.json_columns, tuple(sorted(inside)))

    def opened(self, rows: Iterator[SourceRow]) -> Iterator[SourceRow]:
        """Put the wanted values beside the cells that hold them; a cell that is no JSON is a problem of its row."""
        if not self.wanted:
            return rows
        ways = {holder: _Way(holder, [name for name in self.wanted if _is_inside(name, holder)]) for holder in self.holders}
        return (self._opened(row, ways) for row in rows)

    def _opened(self, row: SourceRow, ways: Mapping[str, _Way]) -> SourceRow:
        cells = {**row.cells, **dict.fromkeys(self.wanted, "")}
        problems, warnings = list(row.problems), list(row.warnings)
        for holder, way in ways.items():
            text = row.cells.get(holder, "")
            try:
                found, repeats = way.cells(text) if text.strip() else ({}, ())
            except ValueError as error:
                hint = f"the cell should hold JSON: {error}"
                problems.append(Reason(ReasonCode.BAD_TEXT, "", holder, short(text), hint))
            else:
                cells.update(found)
                for repeat in repeats:
                    used = [name for name in way.names if repeat.is_in(name)]
                    (problems if used else warnings).extend(repeated(repeat, name) for name in used or [holder])
        return replace(row, cells=cells, problems=tuple(problems), warnings=tuple(warnings))


def _is_inside(name: str, holder: str) -> bool:
    return name.startswith((f"{holder}.", f"{holder}["))


class _Way:
    """The way from one column's JSON to the cells that are wanted of it."""

    def __init__(self, holder: str, names: Sequence[str]) -> None:
        self._holder = holder
        self.names = tuple(names)
        self._texts = JsonTexts()
        self._flattening = Flattening(picks_among(names, holder))

    def cells(self, text: str) -> tuple[dict[str, str], tuple[Repeat, ...]]:
        """Return the wanted cells that the JSON has, and the names that stand twice in it.

        Raises:
            ValueError: it is no JSON.
        """
        value = {self._holder: self._texts.parse(text)}
        try:
            found = self._flattening.cells(value)
        except TooDeepError:
            raise ValueError("it nests too deeply") from None
        return {name: found[name] for name in self.names if name in found}, self._texts.repeats_in(value)
