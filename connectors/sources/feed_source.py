"""A source as its feed wants it: the file's rows with its nulls emptied, its JSON opened and its second tables joined.

How the file itself is read is its kind's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from connectors.sources.cell_rules import JsonCells, without_nulls
from connectors.sources.contract import Reading, Source
from connectors.sources.names import Asked
from connectors.sources.second_table import SecondTable, read_table
from mappings.source_bases import AnySource, Join

OpenFile = Callable[[Asked], Source]
OpenTable = Callable[[Join, frozenset[str]], Source]


@dataclass(frozen=True, slots=True)
class FeedSource:
    """The source of one feed: `open_file` gives its file for the columns asked of it, `open_table` that of a join."""

    spec: AnySource
    asked: Asked
    open_file: OpenFile
    open_table: OpenTable

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`; second tables are read whole before the first row."""
        tables = [self._table(join) for join in self.spec.join]
        json_cells = JsonCells.of(self.spec, self.asked.columns)
        with self.open_file(asked_of_itself(self.spec, self.asked)).read() as reading:
            rows = json_cells.opened(without_nulls(reading.rows, self.spec, reading.columns))
            for table in tables:
                rows = table.joined(rows)
            beside = (column for table in tables for column in table.columns)
            columns = tuple(dict.fromkeys((*reading.columns, *json_cells.wanted, *beside)))
            stamp = stamp_of_all([reading.stamp, *(table.stamp for table in tables)])
            yield replace(reading, columns=columns, rows=rows, stamp=stamp)

    def _table(self, join: Join) -> SecondTable:
        wanted = {name.removeprefix(join.prefix) for name in self.asked.columns if name.startswith(join.prefix)}
        return read_table(join, self.open_table(join, frozenset(wanted.union(join.by.values()))))


def asked_of_itself(spec: AnySource, asked: Asked) -> Asked:
    """Return what is asked of the source's own rows: neither what its second tables have nor what stands inside a JSON cell."""
    json_cells = JsonCells.of(spec, asked.columns)
    elsewhere = {*json_cells.wanted, *(name for name in asked.columns if _is_of(name, spec.join))}
    here = [column for join in spec.join for column in join.by]
    return asked.without(elsewhere, also=[*here, *json_cells.holders])


def _is_of(name: str, joins: Sequence[Join]) -> bool:
    return any(name.startswith(join.prefix) for join in joins)


def stamp_of_all(stamps: Sequence[str]) -> str:
    """Return the stamp of a source whose own rows and second tables have these; "" where one gives no evidence."""
    return " ".join(stamps) if all(stamps) else ""
