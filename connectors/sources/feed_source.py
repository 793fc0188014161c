"""A source as its feed wants it: the file's rows with its nulls emptied, its JSON opened and its second tables joined.

How the file itself is read is its kind's matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType

from connectors.masking import Mask
from connectors.sources.contract import Ending, Reading, Source, stamp_of_all
from connectors.sources.errors import BadSourceError, SourceUnavailableError
from connectors.sources.formats.nested import Flattening, JsonParser, Repeat, TooDeepError, picks_among
from connectors.sources.header import Asked, folded
from connectors.sources.row_checks import short
from mappings.errors import SyncError
from mappings.outcome import SourceRow
from mappings.refusals import Reason, ReasonCode
from mappings.spec.source import AnySource, Join


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
                    (problems if used else warnings).extend(repeat.reason(name) for name in used or [holder])
        return replace(row, cells=cells, problems=tuple(problems), warnings=tuple(warnings))


def _is_inside(name: str, holder: str) -> bool:
    return name.startswith((f"{holder}.", f"{holder}["))


class _Way:
    """The way from one column's JSON to the cells that are wanted of it."""

    def __init__(self, holder: str, names: Sequence[str]) -> None:
        self._holder = holder
        self.names = tuple(names)
        self._texts = JsonParser()
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


@dataclass(frozen=True, slots=True)
class MaskedSource:
    """The same source; its errors and notices hold none of the secrets that `mask` knows by then."""

    source: Source
    mask: Mask

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`."""
        with masked_errors(self.mask), self.source.read() as reading:
            yield replace(reading, ending=self._told(reading.ending))

    def _told(self, ending: Callable[[], Ending]) -> Callable[[], Ending]:
        def told() -> Ending:
            with masked_errors(self.mask):
                said = ending()
            return replace(said, notices=tuple(map(self.mask.hide, said.notices)))

        return told


@dataclass(frozen=True, slots=True)
class masked_errors(AbstractContextManager[None]):
    """Takes the secrets out of every error that leaves the block, and cuts off causes that repeat them."""

    mask: Mask

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        """Let the error go on, without the secrets."""
        if error is not None:
            self._hush(error)

    def _hush(self, error: BaseException) -> None:
        error.args = tuple(self.mask.hide(part) if isinstance(part, str) else part for part in error.args)
        if isinstance(error, SyncError):
            error.hint = self.mask.hide(error.hint)
        cause = error.__cause__ or error.__context__
        if cause is None:
            return
        said = f"{cause} {cause!r}"
        if self.mask.hide(said) == said:
            self._hush(cause)
        else:
            error.__cause__ = error.__context__ = None
