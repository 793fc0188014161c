"""All that a state DB holds, table by table: told line by line, and put into another that is empty.

How a line is written is `portable`'s; what lies in a file, or moves from one database to another, is the caller's.
"""

from __future__ import annotations

import base64
import hashlib
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import orjson
from sqlalchemy import Boolean, Column, Connection, Float, Integer, LargeBinary, String, Table, func, insert, select, text

from mappings.errors import ConfigError
from state.tables import DUPLICATE_MARK, ENTRY, LEASE, METADATA, ROUTE_WORKER, SCOPE, PlainText, UtcTime
from state.trouble import StateUnavailableError

BLANK: Mapping[str, Mapping[str, object]] = {LEASE.name: {"holder": ""}, SCOPE.name: {"marked_id": 0}}
"""Columns that say nothing elsewhere: whoever holds a feed holds it where he is. The token goes along, so that it only grows.
Marks of twins are not carried."""
_MODULUS = 1 << 128


class StrangeLineError(ValueError):
    """A line is no row of its table: cut, damaged, or somebody else's."""


@dataclass(slots=True)
class Sum:
    """How many lines there were, and the sum of their digests: the same in whatever order they came."""

    rows: int = 0
    digest: int = 0

    def add(self, line: bytes) -> None:
        """Count a line."""
        self.rows += 1
        self.digest = (self.digest + int.from_bytes(hashlib.blake2b(line, digest_size=16).digest())) % _MODULUS

    def __str__(self) -> str:
        """The digest as text."""
        return f"{self.digest:032x}"


@dataclass(frozen=True, slots=True)
class Form:
    """How the rows of one table are written: as arrays, their columns in the order of the table."""

    table: Table
    columns: tuple[str, ...]
    _write: tuple[Callable[[Any], object] | None, ...]
    _read: tuple[Callable[[Any], object], ...]
    _blank: tuple[tuple[int, object], ...]

    def line(self, row: Sequence[object]) -> bytes:
        """Return a row as it is written, without a line's end."""
        values = [
            value if write is None or value is None else write(value) for write, value in zip(self._write, row, strict=True)
        ]
        for index, blank in self._blank:
            values[index] = blank
        return orjson.dumps(values)

    def row(self, line: bytes) -> dict[str, object]:
        """Return the row of a line, by column.

        Raises:
            StrangeLineError: it is none of this table.
        """
        try:
            values = orjson.loads(line)
            if not isinstance(values, list):
                raise StrangeLineError("it is no array")
            return {name: read(value) for name, read, value in zip(self.columns, self._read, values, strict=True)}
        except (ValueError, TypeError, NotBase64) as error:
            raise StrangeLineError(str(error)) from error


def form_of(table: Table) -> Form:
    """Return the form of a table's rows."""
    columns = tuple(table.columns)
    blank = BLANK.get(table.name, {})
    return Form(
        table,
        tuple(column.name for column in columns),
        tuple(_writer(column) for column in columns),
        tuple(_reader(column) for column in columns),
        tuple((index, blank[column.name]) for index, column in enumerate(columns) if column.name in blank),
    )


def _writer(column: Column[Any]) -> Callable[[Any], object] | None:
    match column.type:
        case UtcTime():
            return _as_text
        case LargeBinary():
            return _as_base64
        case _:
            return None


def _reader(column: Column[Any]) -> Callable[[Any], object]:
    match column.type:
        case UtcTime():
            return _checked(column, str, _instant)
        case LargeBinary():
            return _checked(column, str, _from_base64)
        case PlainText() | String():
            return _checked(column, str, None)
        case Boolean():
            return _checked(column, bool, None)
        case Float():
            return _checked(column, float, None)
        case Integer():
            return _checked(column, int, None)
        case _:
            raise TypeError(f"{column}: a {column.type} has no form of its own")


def _checked(column: Column[Any], kind: type, read: Callable[[Any], object] | None) -> Callable[[Any], object]:
    is_nullable = bool(column.nullable)

    def checked(value: Any) -> object:
        if value is None and is_nullable:
            return None
        if type(value) is not kind:
            raise StrangeLineError(f"{column.name} is a {type(value).__name__}, not a {kind.__name__}")
        return value if read is None else read(value)

    return checked


def _as_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds")


def _instant(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise StrangeLineError(f"{text} is a time without a zone")
    return value


def _as_base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


TABLES: tuple[Table, ...] = tuple(table for table in METADATA.sorted_tables if table not in (DUPLICATE_MARK, ROUTE_WORKER))
"""Those that are told, each after the ones that it refers to; who sends at this moment is nothing to keep, and
marks of twins are made anew."""
PAGE = 1_000
LONGEST_KEY = 2_000
"""Bytes of the longest row key that is taken in; ledgers of version 0.1 may hold longer ones."""
Tell = Callable[[int], None]


class UnlikeError(StateUnavailableError):
    """What was written is not what was to be written."""


@dataclass(frozen=True, slots=True)
class Part:
    """One table on its way. `mark`: the highest id that was ever given there, 0 where ids are not counted: none is used twice."""

    form: Form
    mark: int
    lines: Iterator[bytes]


def parts_of(connection: Connection) -> Iterator[Part]:
    """Tell all of it, as it is at one moment; each part has to be taken whole before the next."""
    for table in TABLES:
        form = form_of(table)
        yield Part(form, _mark(connection, table), told_lines(connection, form))


def told_lines(connection: Connection, form: Form) -> Iterator[bytes]:
    """Yield the lines of one table, by its primary key."""
    query = select(form.table).order_by(*form.table.primary_key.columns)
    rows = connection.execution_options(yield_per=PAGE).execute(query)
    return (form.line(row) for row in rows)


def count_rows(connection: Connection) -> int:
    """Count all rows there are to tell."""
    return sum(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in TABLES)


def sums_of(connection: Connection, tables: Iterable[Table], tell: Tell) -> dict[str, Sum]:
    """Return what the lines of each table come to. `tell` hears how many rows were read."""
    sums = {}
    for table in tables:
        sums[table.name] = Sum()
        for page in _pages(told_lines(connection, form_of(table))):
            for line in page:
                sums[table.name].add(line)
            tell(len(page))
    return sums


def put(connection: Connection, parts: Iterable[Part], tell: Tell) -> dict[str, Sum]:
    """Put all parts into an empty state DB, in the caller's transaction, read them back, and return what they came to.

    Raises:
        ConfigError: there is something in it already.
        UnlikeError: what can be read there is not what was put there; the transaction must not commit.
    """
    _begin_alone(connection)
    sums = {part.form.table.name: _put_part(connection, part, tell) for part in parts}
    compare(sums, sums_of(connection, TABLES, tell))
    return sums


def compare(wanted: Mapping[str, Sum], found: Mapping[str, Sum]) -> None:
    """Compare two of them.

    Raises:
        UnlikeError: they differ; it names the tables, and by how much.
    """
    unlike = [name for name, one in wanted.items() if name in found and found[name] != one]
    if unlike:
        told = ", ".join(f"{name} ({wanted[name].rows:,} rows, then {found[name].rows:,})" for name in unlike)
        raise UnlikeError(
            f"the copy is not like its original: {told}",
            hint="nothing was kept of it; end whatever else works on either state DB, and start again",
        )


def _begin_alone(connection: Connection) -> None:
    """Let nobody else begin to fill it, and see that nobody has."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE scope IN EXCLUSIVE MODE"))
    filled = [table.name for table in TABLES if connection.execute(select(table).limit(1)).first() is not None]
    if filled:
        raise ConfigError(
            f"that state DB is not empty: there are rows in {', '.join(filled)}",
            hint="name a SQLite file that is not there yet, or a database with nothing in it: two ledgers are never mixed",
        )


def _put_part(connection: Connection, part: Part, tell: Tell) -> Sum:
    found = Sum()
    for page in _pages(part.lines):
        for line in page:
            found.add(line)
        rows = [part.form.row(line) for line in page]
        if part.form.table is ENTRY and any(len(str(row["row_key"]).encode()) > LONGEST_KEY for row in rows):
            _allow_long_keys(connection)
        connection.execute(insert(part.form.table), rows)
        tell(len(page))
    set_mark(connection, part.form.table, part.mark)
    return found


def _allow_long_keys(connection: Connection) -> None:
    """Let PostgreSQL hold row keys that its B-trees cannot (2,704 bytes): only ledgers that have them pay for two indexes."""
    if connection.dialect.name != "postgresql":
        return
    connection.execute(text("ALTER TABLE ledger_entry DROP CONSTRAINT IF EXISTS uq_ledger_entry_scope_id_row_key"))
    unique = "CREATE UNIQUE INDEX IF NOT EXISTS uq_ledger_entry_scope_id_md5 ON ledger_entry (scope_id, md5(row_key))"
    connection.execute(text(unique))
    connection.execute(text("CREATE INDEX IF NOT EXISTS ix_ledger_entry_row_key ON ledger_entry USING hash (row_key)"))


def _pages(lines: Iterator[bytes]) -> Iterator[Sequence[bytes]]:
    while page := list(islice(lines, PAGE)):
        yield page


def _mark(connection: Connection, table: Table) -> int:
    """Return the highest id that was ever given; rows that are gone had ids, too."""
    if not _is_counted(table):
        return 0
    if connection.dialect.name == "postgresql":
        last, is_called = connection.execute(text(f"SELECT last_value, is_called FROM {_sequence(connection, table)}")).one()  # noqa: S608  # a name of ours
        return int(last) if is_called else 0
    marked: int | None = None
    if table.dialect_options["sqlite"]["autoincrement"]:
        marked = connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": table.name}).scalar()
    return max(marked or 0, connection.execute(select(func.max(table.c.id))).scalar() or 0)


def set_mark(connection: Connection, table: Table, mark: int) -> None:
    """Let the next id be higher than every one that was given at the original."""
    if mark <= 0 or not _is_counted(table):
        return
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("SELECT setval(CAST(:name AS regclass), :mark)"), {"name": _sequence(connection, table), "mark": mark}
        )
    elif table.dialect_options["sqlite"]["autoincrement"]:
        values = {"name": table.name, "mark": mark}
        if connection.execute(text("UPDATE sqlite_sequence SET seq = :mark WHERE name = :name"), values).rowcount == 0:
            connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :mark)"), values)


def _is_counted(table: Table) -> bool:
    return table.autoincrement_column is not None


def _sequence(connection: Connection, table: Table) -> Any:
    asked = {"table": table.name, "column": "id"}
    return connection.execute(text("SELECT pg_get_serial_sequence(:table, :column)"), asked).scalar_one()
