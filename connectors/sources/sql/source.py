"""A table or query of any database with a SQLAlchemy dialect as a source.

Rows stream: the protocol of a database says where a result ends.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from connectors.sources.contract import Access, BadSourceError, Bookmark, Clock, Ending, Reading, SourceRefusedError
from connectors.sources.rows import change_columns, checked_row, is_marked, is_within, short, table_columns
from connectors.sources.sql.drivers import CELLS, DAY, ServerMoment, address_of, cell, connected, explained
from mappings.columns import ColumnRequest, header_texts
from mappings.outcome import RowLocation, SourceRow
from mappings.reasons import Reason, ReasonCode, did_you_mean
from mappings.spec.source import SqlSource
from mappings.spec.source_words import ChangedSpan
from mappings.spec.sql import table_parts

_MOST_TABLES_SHOWN = 20
_CHUNK_ROWS = 1_000
_STREAMED = {"stream_results": True, "yield_per": _CHUNK_ROWS}
"""The options of a statement whose rows are not kept."""


@contextmanager
def read_sql(spec: SqlSource, asked: ColumnRequest, access: Access, cursor: str, clock: Clock) -> Iterator[Reading]:
    """Read under the contract of `Source.read`; `cursor` is that of an earlier reading, "" for none."""
    with ExitStack() as opened:
        with explained(spec):  # and no error of the caller, who may use a database too
            connection, key = opened.enter_context(connected(address_of(spec, access), spec, clock))
            result = _Result(spec, asked, (connection, key, opened), cursor, datetime.fromtimestamp(clock.now(), UTC))
        rows = opened.enter_context(closing(result.rows()))
        yield Reading(result.names, rows, "", not result.since, result.ending, headers=result.headers).with_empty(result.absent)


def _start(reached: str, overlap: timedelta) -> object:
    """Return the value to read from: `overlap` before a moment, also one in a text; any other as it is."""
    form, text = reached[:1], reached[1:]
    if form == "n":
        return json.loads(text, parse_float=Decimal)
    if form == "m":
        return datetime.fromisoformat(text) - overlap
    with suppress(ValueError, OverflowError):
        if overlap and len(text) > DAY:
            earlier = (datetime.fromisoformat(text) - overlap).isoformat(text[DAY])
            return earlier.replace("+00:00", "Z") if text.endswith("Z") else earlier
    return text


_Session = tuple[sa.Connection, Sequence[str], ExitStack]
"""A connection, the columns of the table's primary key, and what closes the results."""


class _Result:
    """The rows of one reading, and how far it has come.

    `names`: the columns that are read: those that the mapping uses, and those of the key and of `incremental`. `since`: the stamp
    of the cursor from which it goes on, "" for a whole reading. `largest`: the largest value met in the column with the time of
    change, and its cell. `latest`: the time of the reading.
    """

    def __init__(self, spec: SqlSource, asked: ColumnRequest, session: _Session, cursor: str, latest: datetime) -> None:
        self.spec, self.asked, self.changes, self.latest = spec, asked, spec.incremental, latest
        self.connection, key, self.opened = session
        self.largest: tuple[Any, str] | None = None
        name, schema = table_parts(spec.table or spec.place)
        self.table = sa.table(name, schema=schema)
        if spec.table:
            result = self._execute(sa.select(sa.literal_column("*")).select_from(self.table).where(sa.false()))
        else:
            options = {**_STREAMED, "no_parameters": True}
            result = self.connection.exec_driver_sql(spec.query or "", execution_options=options)
            self.opened.callback(result.close)
        raw = tuple(result.keys())
        texts = header_texts(raw)
        if not texts:
            raise BadSourceError(spec.place, "it has no columns", hint="name another table, or write a query")
        by, deleted = change_columns(self.changes, asked)
        marks = {by, deleted} - {""}
        wanted = replace(asked, columns=asked.columns | marks, optional=asked.optional - marks)
        found = table_columns(texts, wanted, spec.place)
        is_all = not spec.table or wanted.columns.isdisjoint(found.names)
        places = [place for place, name in enumerate(found.names) if is_all or name in wanted.columns or raw[place] in key]
        self.raw, self.names = [raw[place] for place in places], tuple(found.names[place] for place in places)
        self.headers, self.absent = {name: found.headers[name] for name in self.names}, found.absent
        self.by, self.deleted = (self.names.index(name) if name in self.names else None for name in (by, deleted))
        self.keys = [(name, self.raw.index(name)) for name in key]
        url = self.connection.engine.url
        question = [url.host, url.port, url.database, spec.place, spec.where, by, deleted, sorted(self.names)]
        self.bookmark = Bookmark(cursor if by else "", question)
        self.since = self.bookmark.before
        if spec.table:
            result.close()
            result = self._execute(self._statement())
        self.result = result

    def _execute(self, statement: sa.Select[Any]) -> sa.CursorResult[Any]:
        """Run a statement on the table.

        Raises:
            SourceRefusedError: the table is not there; the nearest name is given.
        """
        try:
            return self.opened.enter_context(closing(self.connection.execute(statement, execution_options=_STREAMED)))
        except DBAPIError as error:
            if not error.connection_invalidated and (hint := self._other_tables()):
                raise SourceRefusedError(f"{self.spec.place}: there is no table {self.spec.table}", hint=hint) from error
            raise

    def _other_tables(self) -> str:
        """Return the nearest table or all of them if ours is not there, "" if it is."""
        with suppress(SQLAlchemyError, NotImplementedError):
            self.connection.rollback()  # the statement that was refused has ended the transaction
            inspector, name, schema = sa.inspect(self.connection), self.table.name, self.table.schema
            if not inspector.has_table(name, schema):
                known = sorted({*inspector.get_table_names(schema), *inspector.get_view_names(schema)})
                return did_you_mean(name, known) or f"we may see {', '.join(known[:_MOST_TABLES_SHOWN]) or 'no table at all'}"
        return ""

    def _statement(self) -> sa.Select[Any]:
        columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in self.raw]
        statement = sa.select(*columns).select_from(self.table)
        if self.spec.where:
            statement = statement.where(sa.literal_column(f"({self.spec.where}\n)"))
        if self.changes is None or self.by is None:
            return statement
        by = columns[self.by]
        if self.since:
            return statement.where(sa.or_(by >= _start(self.since, self.changes.overlap), by.is_(None)))
        # SQLite compares stamps as texts, whose form is unknown: it gives all rows, of which `is_within` drops some.
        if isinstance(self.changes, ChangedSpan) and self.connection.dialect.name != "sqlite":
            return statement.where(by >= self.changes.begin, by < self.changes.end)
        return statement

    def rows(self) -> Generator[SourceRow]:
        """Yield the rows; without a key, the place of one is its number in this reading."""
        by, deleted, place, keys = self.by, self.deleted, self.spec.place, self.keys
        span = self.changes if isinstance(self.changes, ChangedSpan) else None
        is_plain, convert = self.connection.dialect.name == "postgresql", CELLS.get  # PostgreSQL has no undecodable texts
        with explained(self.spec):
            for count, values in enumerate(chain.from_iterable(self.result.partitions(_CHUNK_ROWS)), start=1):
                faults: Sequence[Reason] = ()
                try:
                    texts = [value if (kind := type(value)) is str else convert(kind, str)(value) for value in values]
                except ValueError:
                    texts, faults = self._faulty(values)
                is_gone = deleted is not None and is_marked(texts[deleted])
                if by is not None and not faults and (stamp := values[by]) is not None:
                    self.largest = max(self.largest or (stamp, ""), (stamp, texts[by]))
                if (is_gone and not self.since) or (span and by is not None and not is_within(span, texts[by], place)):
                    continue
                where = ", ".join([f"{name}={texts[at]}" for name, at in keys])
                location = RowLocation(f"{place} {where}") if where else RowLocation(f"{place} (row {count})", count)
                row = SourceRow(location, dict(zip(self.names, texts, strict=True)))
                if faults or not is_plain:
                    row = checked_row(location, row.cells, self.asked.columns, ("UTF-8",), faults)
                row.is_gone = is_gone
                yield row

    def _faulty(self, values: Sequence[Any]) -> tuple[list[str], Sequence[Reason]]:
        """Return the cells of a row, and a reason for each value that a cell cannot hold."""
        texts, faults = list[str](), list[Reason]()
        for name, value in zip(self.names, values, strict=True):
            try:
                texts.append(cell(value))
            except ValueError as error:
                texts.append(short(str(value)) if isinstance(value, str | float | Decimal) else f"({type(value).__name__})")
                faults.append(Reason(ReasonCode.BAD_TEXT, "", name, texts[-1], str(error)))
        return texts, faults

    def ending(self) -> Ending:
        """Return how the reading ended: its cursor is the largest stamp met, or the earlier one if nothing is new.

        Its first letter is the form of the stamp: `m` a day or moment, `n` a number, `t` a text. A moment with a zone is at most
        `latest`: one far ahead would hide later changes.
        """
        reached = self.since
        if self.largest:
            value, text = self.largest
            is_moment = isinstance(value, ServerMoment | date)
            form = "m" if is_moment else "n" if isinstance(value, int | float | Decimal) else "t"
            text = min(datetime.fromisoformat(text), self.latest).isoformat() if is_moment and text.endswith("Z") else text
            reached = f"{form}{text}"
        return Ending("" if isinstance(self.changes, ChangedSpan) else self.bookmark.cursor_at(reached))
