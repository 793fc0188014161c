"""A second file or tab as a table in memory: its rows found by their key, their cells put beside a row's own.

How the second file is read is its kind's matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from connectors.sources.contract import Source
from connectors.sources.errors import BadSourceError, SourceUnavailableError
from mappings.outcome import SourceRow
from mappings.refusals import Reason, ReasonCode
from mappings.spec.source import Join

MOST_ROWS = 500_000
"""Rows of a second table."""

MOST_TEXT = 256 * 1024 * 1024
"""Characters of a second table."""

_TOO_LARGE = f"a joined table is kept in memory: at most {MOST_ROWS} rows and {MOST_TEXT // 2**20} million characters"
_SHOWN = 5
_Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SecondTable:
    """A joined table, read: `columns` as rows know them, the cells of each key."""

    join: Join
    columns: tuple[str, ...]
    stamp: str
    _rows: Mapping[_Key, Mapping[str, str]]

    def joined(self, rows: Iterator[SourceRow]) -> Iterator[SourceRow]:
        """Put the table's cells beside each row's: those of its key, empty ones where there are none."""
        own = tuple(self.join.by)
        blank = dict.fromkeys(self.columns, "")
        for row in rows:
            key = tuple(row.cells.get(column, "").strip() for column in own)
            found = self._rows.get(key)
            problems = row.problems
            if found is None and self.join.on_miss == "reject" and any(row.cells.values()):
                problems = (*problems, self._miss(key))
            yield replace(row, cells={**row.cells, **(found or blank)}, problems=problems)

    def _miss(self, key: _Key) -> Reason:
        known = [" ".join(known) for known, _ in zip(self._rows, range(_SHOWN), strict=False)]
        hint = f"{self.join.source.place} has no row with this key; it knows {', '.join(known)}, ..."
        return Reason(ReasonCode.NOT_IN_LOOKUP, "", ", ".join(self.join.by), " ".join(key), hint)


def read_table(join: Join, source: Source) -> SecondTable:
    """Read a second table whole.

    Raises:
        SyncError: it cannot be read.
        BadSourceError: two of its rows have one key, a row is faulty, or it is too large for memory.
    """
    found: dict[_Key, Mapping[str, str]] = {}
    places: dict[_Key, str] = {}
    size = 0
    with source.read() as reading:
        for row in reading.rows:
            key = tuple(row.cells.get(column, "").strip() for column in join.by.values())
            if not any(key):
                continue
            _check(join, row, key, places)
            places[key] = row.origin.place
            found[key] = {f"{join.prefix}{column}": cell for column, cell in row.cells.items()}
            size += sum(map(len, row.cells.values()))
            if len(found) > MOST_ROWS or size > MOST_TEXT:
                raise BadSourceError(join.source.place, _TOO_LARGE, hint="join a smaller file: only the rows and columns needed")
        if reading.ending().is_short:
            raise SourceUnavailableError(f"{join.source.place} could not be read to its end, and a joined table must be whole")
    return SecondTable(join, tuple(f"{join.prefix}{column}" for column in reading.columns), reading.stamp, found)


def _check(join: Join, row: SourceRow, key: _Key, places: Mapping[_Key, str]) -> None:
    if key in places:
        message = f'"{" ".join(key)}" stands at {places[key]} and again at {row.origin.place}'
        hint = f"each key ({', '.join(join.by.values())}) may stand once in a joined table: take one of the rows out"
        raise BadSourceError(join.source.place, message, hint=hint)
    if row.problems:
        told = row.problems[0]
        raise BadSourceError(str(row.origin), f"a row of a joined table cannot be used: {told.found}", hint=told.hint)
