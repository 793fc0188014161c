"""All that a state DB holds, table by table: read in a fixed form, summed, and written into an empty state DB."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import orjson
from sqlalchemy import Connection, Row, Table, func, insert, literal, select, text

from mappings.errors import ConfigError
from state.tables import DUPLICATE_MARK, ENTRY, LEASE, METADATA, ROUTE_WORKER, SCOPE
from state.trouble import StateUnavailableError

TABLES: tuple[Table, ...] = tuple(table for table in METADATA.sorted_tables if table not in (DUPLICATE_MARK, ROUTE_WORKER))
"""The tables that are copied, each after those that it refers to. Left out: who sends now, and an index that is made anew."""
PAGE = 1_000
LONGEST_KEY = 2_000
"""Bytes of the longest row key that is taken in; ledgers of version 0.1 may hold longer ones."""
Advance = Callable[[int], None]
"""Called with the number of rows that were read or written since the last call."""

_BLANK: Mapping[str, Mapping[str, object]] = {LEASE.name: {"holder": ""}, SCOPE.name: {"marked_id": 0}}
"""Columns that mean nothing in a copy: its feeds are free, and its index of duplicates is empty. Fencing tokens only grow."""


class UnlikeError(StateUnavailableError):
    """What was written is not what was to be written."""


@dataclass(slots=True)
class Sum:
    """How many lines there were, and the sum of their digests: the same in whatever order they came."""

    rows: int = 0
    digest: int = 0

    def add(self, line: bytes) -> None:
        """Count a line."""
        self.rows += 1
        self.digest = (self.digest + int.from_bytes(hashlib.blake2b(line, digest_size=16).digest())) % (1 << 128)

    def __str__(self) -> str:
        """Return the digest as text."""
        return f"{self.digest:032x}"


@dataclass(frozen=True, slots=True)
class Part:
    """One table to copy. `highest_id`: the highest that was ever given there, as none is used twice; 0 without ids."""

    table: Table
    highest_id: int
    rows: Iterator[Row[*tuple[Any, ...]]]


def parts_of(connection: Connection) -> Iterator[Part]:
    """Yield all tables as they are at one moment; each has to be read to its end before the next."""
    for table in TABLES:
        yield Part(table, _highest_id(connection, table), rows_of(connection, table))


def rows_of(connection: Connection, table: Table) -> Iterator[Row[*tuple[Any, ...]]]:
    """Yield the rows of a table as a copy has them, by its primary key."""
    blank = _BLANK.get(table.name, {})
    columns = [literal(blank[each.name], each.type).label(each.name) if each.name in blank else each for each in table.columns]
    query = select(*columns).order_by(*table.primary_key.columns)
    yield from connection.execution_options(yield_per=PAGE).execute(query)


def line_of(row: Sequence[object]) -> bytes:
    """Return a row as a JSON array: times in UTC with microseconds, bytes in base64."""
    return orjson.dumps(tuple(row), default=_as_json, option=orjson.OPT_PASSTHROUGH_DATETIME)


def _as_json(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"a {type(value).__name__} has no form in an export")


def count_rows(connection: Connection) -> int:
    """Count all rows that a copy has."""
    return sum(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in TABLES)


def sums_of(connection: Connection, tables: Iterable[Table], advance: Advance) -> dict[str, Sum]:
    """Return the sum of each table's lines."""
    sums = {table.name: Sum() for table in tables}
    for table in tables:
        for page in _pages(rows_of(connection, table)):
            for row in page:
                sums[table.name].add(line_of(row))
            advance(len(page))
    return sums


def put(connection: Connection, parts: Iterable[Part], advance: Advance) -> dict[str, Sum]:
    """Write all parts into an empty state DB, in the caller's transaction, read them back, and return their sums.

    Raises:
        ConfigError: there is something in it already.
        UnlikeError: what can be read there is not what was written; the transaction must not commit.
    """
    _refuse_unless_empty(connection)
    sums = {part.table.name: _put_part(connection, part, advance) for part in parts}
    compare(sums, sums_of(connection, TABLES, advance))
    return sums


def compare(wanted: Mapping[str, Sum], found: Mapping[str, Sum]) -> None:
    """Compare the sums of tables.

    Raises:
        UnlikeError: they differ; it names the tables, and by how much.
    """
    unlike = [name for name, one in wanted.items() if name in found and found[name] != one]
    if unlike:
        differences = ", ".join(f"{name} ({wanted[name].rows:,} rows, then {found[name].rows:,})" for name in unlike)
        raise UnlikeError(
            f"the copy is not like its original: {differences}",
            hint="nothing was kept of it; end whatever else works on either state DB, and start again",
        )


def _refuse_unless_empty(connection: Connection) -> None:
    """Refuse a state DB with rows in it, and let no other process begin to fill it meanwhile."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE scope IN EXCLUSIVE MODE"))
    filled = [table.name for table in TABLES if connection.execute(select(table).limit(1)).first() is not None]
    if filled:
        raise ConfigError(
            f"that state DB is not empty: there are rows in {', '.join(filled)}",
            hint="name a SQLite file that is not there yet, or a database with nothing in it: two ledgers are never mixed",
        )


def _put_part(connection: Connection, part: Part, advance: Advance) -> Sum:
    found = Sum()
    for page in _pages(part.rows):
        for row in page:
            found.add(line_of(row))
        if part.table is ENTRY and any(len(row.row_key.encode()) > LONGEST_KEY for row in page):
            _allow_long_keys(connection)
        connection.execute(insert(part.table), [row._asdict() for row in page])
        advance(len(page))
    set_highest_id(connection, part.table, part.highest_id)
    return found


def _pages(rows: Iterator[Row[*tuple[Any, ...]]]) -> Iterator[Sequence[Row[*tuple[Any, ...]]]]:
    while page := list(islice(rows, PAGE)):
        yield page


def _allow_long_keys(connection: Connection) -> None:
    """Let PostgreSQL hold row keys that its B-trees cannot (2,704 bytes): only ledgers that have them pay for two indexes."""
    if connection.dialect.name != "postgresql":
        return
    connection.execute(text("ALTER TABLE ledger_entry DROP CONSTRAINT IF EXISTS uq_ledger_entry_scope_id_row_key"))
    unique = "CREATE UNIQUE INDEX IF NOT EXISTS uq_ledger_entry_scope_id_md5 ON ledger_entry (scope_id, md5(row_key))"
    connection.execute(text(unique))
    connection.execute(text("CREATE INDEX IF NOT EXISTS ix_ledger_entry_row_key ON ledger_entry USING hash (row_key)"))


def _highest_id(connection: Connection, table: Table) -> int:
    """Return the highest id that was ever given; rows that are gone had ids, too."""
    if table.autoincrement_column is None:
        return 0
    if connection.dialect.name == "postgresql":
        last, is_called = connection.execute(text(f"SELECT last_value, is_called FROM {_sequence(connection, table)}")).one()  # noqa: S608  # a name of ours
        return int(last) if is_called else 0
    given: int | None = None
    if table.dialect_options["sqlite"]["autoincrement"]:
        given = connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": table.name}).scalar()
    return max(given or 0, connection.execute(select(func.max(table.c.id))).scalar() or 0)


def set_highest_id(connection: Connection, table: Table, highest: int) -> None:
    """Let the next id be higher than every one that was given at the original."""
    if highest <= 0 or table.autoincrement_column is None:
        return
    values = {"name": table.name, "highest": highest}
    if connection.dialect.name == "postgresql":
        values["name"] = _sequence(connection, table)
        connection.execute(text("SELECT setval(CAST(:name AS regclass), :highest)"), values)
    elif table.dialect_options["sqlite"]["autoincrement"]:
        changed = connection.execute(text("UPDATE sqlite_sequence SET seq = :highest WHERE name = :name"), values).rowcount
        if not changed:
            connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :highest)"), values)


def _sequence(connection: Connection, table: Table) -> Any:
    asked = {"table": table.name, "column": "id"}
    return connection.execute(text("SELECT pg_get_serial_sequence(:table, :column)"), asked).scalar_one()
