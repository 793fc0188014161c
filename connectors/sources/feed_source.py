"""The source of a feed: reads its rows, empties nulls, expands JSON cells, joins other tables, and masks secrets in errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import chain

from connectors.masking import Mask
from connectors.sources.contract import (
    BadSourceError,
    Ending,
    OpenReading,
    Reading,
    RepeatedColumnsError,
    SourceUnavailableError,
    stamp_of_all,
)
from mappings.columns import ColumnRequest, folded
from mappings.errors import SyncError
from mappings.outcome import SourceRow
from mappings.reasons import Reason, ReasonCode
from mappings.spec.source_base import AnySource, Join

_MOST_ROWS = 500_000
"""The most rows of a joined table."""
_MOST_TEXT = 256 * 1024 * 1024
"""The most characters of a joined table."""
_TOO_LARGE = f"a joined table is kept in memory: at most {_MOST_ROWS} rows and {_MOST_TEXT // 2**20} million characters"
_KEYS_SHOWN = 5

Key = tuple[str, ...]
Table = Mapping[Key, Mapping[str, str]]
"""A joined table: the cells of each key, by their names in the mapping."""
OpenRows = Callable[[ColumnRequest], AbstractContextManager[Reading]]
OpenTable = Callable[[Join, frozenset[str]], AbstractContextManager[Reading]]


@contextmanager
def read_feed_source(spec: AnySource, asked: ColumnRequest, open_rows: OpenRows, open_table: OpenTable) -> Iterator[Reading]:
    """Read the rows of a feed: from `open_rows`, with the columns of each join from `open_table` added.

    It follows the contract of `Source.read`; joined tables are read completely before the first row.
    """
    tables = [_read_table(join, asked, open_table) for join in spec.join]
    inside = _inside_json(spec, asked.columns)
    with open_rows(own_columns(spec, asked)) as reading:
        headers = dict(reading.headers)
        for joined, _, _ in tables:
            headers.update(joined)
        _check_places(spec, asked, [reading.headers, *(joined for joined, _, _ in tables)], inside)
        rows = _without_nulls(reading.rows, spec, reading.columns)
        if inside:
            from connectors.sources.formats.records import with_json_cells  # noqa: PLC0415  # few feeds need it

            rows = with_json_cells(rows, spec.json_columns, inside)
        for join, (joined, _, table) in zip(spec.join, tables, strict=True):
            rows = _joined(rows, join, tuple(joined), table)
        columns = tuple(dict.fromkeys((*reading.columns, *inside, *chain.from_iterable(joined for joined, _, _ in tables))))
        stamp = stamp_of_all([reading.stamp, *(stamp for _, stamp, _ in tables)])
        yield replace(reading, columns=columns, rows=rows, stamp=stamp, headers=headers)


def _check_places(spec: AnySource, asked: ColumnRequest, headers: Sequence[Iterable[str]], inside: Collection[str]) -> None:
    """Check that each requested name has one place: the source itself, the JSON in one of its columns, or a joined table.

    Raises:
        RepeatedColumnsError: a name has several.
    """
    places = {name: [f'"{name}" in the JSON of a column'] for name in inside}
    for place, columns in zip((spec.place, *(join.source.place for join in spec.join)), headers, strict=True):
        known = set(map(folded, columns))
        for name in asked.columns:
            if folded(name) in known:
                places.setdefault(name, []).append(f'"{name}" of {place}')
    if repeated := {name: found for name, found in sorted(places.items()) if len(found) > 1}:
        raise RepeatedColumnsError(spec.place, repeated, advice="choose another `prefix`, or rename the column")


def _read_table(join: Join, asked: ColumnRequest, open_table: OpenTable) -> tuple[Mapping[str, str], str, Table]:
    """Read a joined table; return its columns by their names in the mapping with those in the table, its stamp and its rows.

    Raises:
        SyncError: it cannot be read.
        BadSourceError: two of its rows have the same key, a row is faulty, or it is too large for memory.
    """
    wanted = {name.removeprefix(join.prefix) for name in asked.columns if name.startswith(join.prefix)}
    found: dict[Key, Mapping[str, str]] = {}
    places: dict[Key, str] = {}
    size, place = 0, join.source.place
    with open_table(join, frozenset(wanted.union(join.by.values()))) as reading:
        for row in reading.rows:
            key = tuple(row.cells.get(column, "").strip() for column in join.by.values())
            if row.is_gone or not any(key):
                continue
            if key in places:
                message = f'"{" ".join(key)}" occurs at {places[key]} and again at {row.location}'
                hint = f"each key ({', '.join(join.by.values())}) may occur once in a joined table: remove one of the rows"
                raise BadSourceError(join.source.place, message, hint=hint)
            if row.problems:
                first = row.problems[0]
                raise BadSourceError(str(row.location), f"a row of a joined table cannot be used: {first.found}", hint=first.hint)
            places[key] = str(row.location)
            found[key] = {f"{join.prefix}{column}": cell for column, cell in row.cells.items()}
            size += sum(map(len, row.cells.values()))
            if len(found) > _MOST_ROWS or size > _MOST_TEXT:
                raise BadSourceError(place, _TOO_LARGE, hint="join a smaller file: only the rows and columns needed")
        if (ended := reading.ending()).is_short:
            message = f"{place} could not be read to its end, and a joined table must be whole"
            raise SourceUnavailableError(message, hint="; ".join(ended.notices))
    headers = {f"{join.prefix}{column}": reading.headers.get(column, "") for column in reading.columns}
    return headers, reading.stamp, found


def _joined(rows: Iterator[SourceRow], join: Join, columns: Sequence[str], table: Table) -> Iterator[SourceRow]:
    """Add to each row the cells of the joined table for its key, or empty ones."""
    blank = dict.fromkeys(columns, "")
    known = ", ".join(" ".join(key) for key, _ in zip(table, range(_KEYS_SHOWN), strict=False))
    for row in rows:
        key = tuple(row.cells.get(column, "").strip() for column in join.by)
        found, problems = table.get(key), row.problems
        if found is None and join.on_miss == "reject" and any(row.cells.values()):
            hint = f"{join.source.place} has no row with this key; it knows {known}, ..."
            problems = (*problems, Reason(ReasonCode.NOT_IN_LOOKUP, "", ", ".join(join.by), " ".join(key), hint))
        yield replace(row, cells={**row.cells, **(found or blank)}, problems=problems)


def own_columns(spec: AnySource, asked: ColumnRequest) -> ColumnRequest:
    """Return the request for the source's own columns, without those of joined tables and of JSON cells."""
    prefixes = tuple(join.prefix for join in spec.join)
    elsewhere = {*_inside_json(spec, asked.columns), *(name for name in asked.columns if name.startswith(prefixes))}
    here = [column for join in spec.join for column in join.by]
    return asked.without(elsewhere, also=[*here, *spec.json_columns])


def _inside_json(spec: AnySource, columns: frozenset[str]) -> list[str]:
    """Return the requested columns that are inside the JSON of another column."""
    holders = tuple(f"{holder}{mark}" for holder in spec.json_columns for mark in ".[")
    return sorted(name for name in columns if name.startswith(holders))


def _without_nulls(rows: Iterator[SourceRow], spec: AnySource, columns: Sequence[str]) -> Iterator[SourceRow]:
    """Empty the cells whose trimmed text means an empty cell, and drop what the reader found wrong in them."""
    if not spec.empty_if and not spec.empty_in:
        return rows
    everywhere = frozenset(text.strip() for text in spec.empty_if)
    known = {folded(column): column for column in columns}
    nulls: defaultdict[str, frozenset[str]] = defaultdict(lambda: everywhere)
    for column, texts in spec.empty_in.items():
        nulls[known.get(folded(column), column)] = everywhere.union(text.strip() for text in texts)

    def emptied(row: SourceRow) -> SourceRow:
        cells = {column: "" if cell.strip() in nulls[column] else cell for column, cell in row.cells.items()}
        kept = (problem for problem in row.problems if cells.get(problem.column) or not row.cells.get(problem.column))
        return replace(row, cells=cells, problems=tuple(kept) if row.problems else ())

    return map(emptied, rows)


@dataclass(frozen=True, slots=True)
class MaskedSource:
    """A source whose errors and notices contain none of the secrets that `mask` knows."""

    open_reading: OpenReading
    mask: Mask

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Read under the contract of `Source.read`."""
        with masked_errors(self.mask), self.open_reading() as reading:

            def ending() -> Ending:
                with masked_errors(self.mask):
                    ended = reading.ending()
                return replace(ended, notices=tuple(map(self.mask.hide, ended.notices)))

            yield replace(reading, ending=ending)


@contextmanager
def masked_errors(mask: Mask) -> Iterator[None]:
    """Mask the secrets in every error that leaves the block, and remove causes that repeat them."""
    try:
        yield
    except BaseException as error:
        hidden: BaseException | None = error
        while hidden is not None:
            hidden.args = tuple(mask.hide(part) if isinstance(part, str) else part for part in hidden.args)
            if isinstance(hidden, SyncError):
                hidden.hint = mask.hide(hidden.hint)
            cause = hidden.__cause__ or hidden.__context__
            text = f"{cause} {cause!r}"
            if mask.hide(text) != text:
                hidden.__cause__ = hidden.__context__ = cause = None
            hidden = cause
        raise
