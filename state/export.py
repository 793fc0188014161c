"""Export and import of a state DB, table by table: to a file that any SQLite or PostgreSQL can import, or directly into another
state DB.

The file is gzip with a line of JSON for each row: first a line about the file; for each table a line with its name and columns,
its rows, and a line with their number and the sum of their digests; at last an end line.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import orjson
from sqlalchemy import Connection, Engine, LargeBinary, MetaData, Row, Table, func, insert, inspect, literal, select, text
from sqlalchemy.exc import IntegrityError

from mappings.errors import ConfigError
from state.database import in_pages, reading, writing
from state.errors import StateUnavailableError
from state.migrations.upgrade import HEAD, allow_long_keys, upgrade
from state.opening import check_revision, opened_database
from state.tables import DUPLICATE_MARK, ENTRY, LEASE, METADATA, SCOPE

TABLES: tuple[Table, ...] = tuple(table for table in METADATA.sorted_tables if table is not DUPLICATE_MARK)
"""The tables to copy, each after those that it refers to; without an index that is rebuilt."""
Advance = Callable[[int], None]
"""Called with the number of rows read or written since the last call."""
_Rows = Iterator[Row[*tuple[Any, ...]]]
TableContent = tuple[Table, int, _Rows]
"""A table; the highest id ever given in it, as ids are never reused (0 without ids); its rows."""
_BLANK: Mapping[str, Mapping[str, object]] = {LEASE.name: {"holder": ""}, SCOPE.name: {"marked_id": 0}}
"""Columns to reset in a copy: its leases are free, and its index of duplicates is empty. Fencing tokens are kept, as they must
only grow.
"""
_PAGE = 1_000
_LONGEST_KEY = 2_000
"""The longest row key, in bytes, that is imported; ledgers of version 0.1 may have longer ones."""
_KIND = "eventsync state"
_VERSION = 1
_LEVEL = 4  # a third more time than the quickest for a fifth less room
_NOT_EXPORTED = {"alembic_version", "duplicate_mark"}
_NEVER_REUSED = {ENTRY.name, "ledger_entry"}
"""The table whose ids are never given again, and its name in version 0.2."""


class CopyDiffersError(StateUnavailableError):
    """A copy differs from its original."""


@dataclass(slots=True)
class Sum:
    """The number of lines, and the sum of their digests, which does not depend on their order."""

    rows: int = 0
    digest: int = 0

    def add(self, line: bytes) -> None:
        """Add a line."""
        self.rows += 1
        self.digest = (self.digest + int.from_bytes(hashlib.blake2b(line, digest_size=16).digest())) % (1 << 128)

    def __str__(self) -> str:
        """Return the digest as text."""
        return f"{self.digest:032x}"


def contents_of(connection: Connection) -> Iterator[TableContent]:
    """Yield all tables as of one moment; each must be read to its end before the next."""
    for table in TABLES:
        yield table, _highest_id(connection, table), rows_of(connection, table)


def rows_of(connection: Connection, table: Table) -> _Rows:
    """Yield the rows of a table in the form of a copy, by primary key."""
    blank = _BLANK.get(table.name, {})
    columns = [literal(blank[each.name], each.type).label(each.name) if each.name in blank else each for each in table.columns]
    query = select(*columns).order_by(*table.primary_key.columns)
    with connection.execute(query, execution_options={"yield_per": _PAGE}) as rows:
        yield from rows


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
    """Count all rows to copy."""
    return sum(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in TABLES)


def sums_of(connection: Connection, tables: Iterable[Table], advance: Advance) -> dict[str, Sum]:
    """Return the sum of each table's rows."""
    sums = {table.name: Sum() for table in tables}
    for table in tables:
        for page in in_pages(rows_of(connection, table)):
            for row in page:
                sums[table.name].add(line_of(row))
            advance(len(page))
    return sums


def fill(connection: Connection, contents: Iterable[TableContent], advance: Advance) -> dict[str, Sum]:
    """Write all tables into an empty state DB in the caller's transaction, read them back, and return their sums.

    Raises:
        ConfigError: it is not empty.
        CopyDiffersError: the rows read back differ from those written; the transaction must not be committed.
    """
    _refuse_unless_empty(connection)
    sums: dict[str, Sum] = {}
    for table, highest_id, rows in contents:
        found = sums[table.name] = Sum()
        for page in in_pages(rows):
            for row in page:
                found.add(line_of(row))
            if table is ENTRY and any(len(row.row_key.encode()) > _LONGEST_KEY for row in page):
                allow_long_keys(connection)
            connection.execute(insert(table), [row._asdict() for row in page])
            advance(len(page))
        _set_highest_id(connection, table, highest_id)
    compare(sums, sums_of(connection, TABLES, advance))
    return sums


def compare(wanted: Mapping[str, Sum], found: Mapping[str, Sum]) -> None:
    """Compare the sums of tables.

    Raises:
        CopyDiffersError: they differ; it names the tables and their numbers of rows.
    """
    unlike = [name for name, one in wanted.items() if name in found and found[name] != one]
    if unlike:
        differences = ", ".join(f"{name} ({wanted[name].rows:,} rows, then {found[name].rows:,})" for name in unlike)
        hint = "nothing was copied; stop all other processes that use either state DB, and start again"
        raise CopyDiffersError(f"the copy is not like its original: {differences}", hint=hint)


def _refuse_unless_empty(connection: Connection) -> None:
    """Refuse a state DB with rows, and prevent other processes from filling it meanwhile."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE scope IN EXCLUSIVE MODE"))
    filled = [table.name for table in TABLES if connection.execute(select(table).limit(1)).first() is not None]
    if filled:
        raise ConfigError(
            f"that state DB is not empty: there are rows in {', '.join(filled)}",
            hint="name a SQLite file that is not there yet, or a database with nothing in it: two ledgers are never mixed",
        )


def _highest_id(connection: Connection, table: Table) -> int:
    """Return the highest id ever given, including ids of deleted rows."""
    ids = table.autoincrement_column
    if ids is None:
        return 0
    if connection.dialect.name == "postgresql":
        sequence = _sequence(connection, table.name, ids.name)
        last, is_called = connection.execute(text(f"SELECT last_value, is_called FROM {sequence}")).one()  # noqa: S608  # a name of ours
        return int(last) if is_called else 0
    given = connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": table.name}).scalar()
    return max(given or 0, connection.execute(select(func.max(ids))).scalar() or 0)


def _set_highest_id(connection: Connection, table: Table, highest: int) -> None:
    """Make the next id higher than all ids given in the original."""
    ids = table.autoincrement_column
    if highest <= 0 or ids is None:
        return
    if connection.dialect.name == "postgresql":
        values = {"name": _sequence(connection, table.name, ids.name), "highest": highest}
        connection.execute(text("SELECT setval(CAST(:name AS regclass), :highest)"), values)
    elif table.name in _NEVER_REUSED:
        values = {"name": table.name, "highest": highest}
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
        connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :highest)"), values)


def _sequence(connection: Connection, table: str, column: str) -> Any:
    sequence = text("SELECT pg_get_serial_sequence(:table, :column)")
    return connection.execute(sequence, {"table": table, "column": column}).scalar_one()


def export_to(engine: Engine, file: Path, at: datetime, expect: Advance, advance: Advance) -> dict[str, int]:
    """Export a state DB as of one moment to a private file; return the number of rows by table.

    Runs may work meanwhile. The file is complete or absent. `expect` is called with the total number of rows.

    Raises:
        ConfigError: the file exists, or cannot be written.
        SyncError: the state DB cannot be read.
    """
    counts: dict[str, int] = {}
    with _whole_file(file) as stream, reading(engine) as connection:
        expect(count_rows(connection))
        header = {"file": _KIND, "version": _VERSION, "schema": HEAD, "from": engine.dialect.name, "at": at.isoformat()}
        _write(stream, header)
        for table, highest_id, rows in contents_of(connection):
            _write(stream, {"table": table.name, "mark": highest_id, "columns": table.columns.keys()})
            found = Sum()
            for page in in_pages(rows):
                for row in page:
                    line = line_of(row)
                    found.add(line)
                    stream.write(line + b"\n")
                advance(len(page))
            _write(stream, {"end": table.name, "rows": found.rows, "sum": str(found)})
            counts[table.name] = found.rows
        _write(stream, {"end": _KIND, "rows": sum(counts.values())})
    return counts


def _write(stream: IO[bytes], line: Mapping[str, object]) -> None:
    stream.write(orjson.dumps(line) + b"\n")


@contextmanager
def _whole_file(file: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that is renamed to `file` once it is complete and on the disk."""
    if file.exists():
        raise ConfigError(f"{file} is there already", hint="choose another name: an older export is never written over")
    beside = file.with_name(f"{file.name}.part")
    try:
        beside.unlink(missing_ok=True)  # of an export that was killed
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # bodies and raw cells are the partner's
        with os.fdopen(descriptor, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=_LEVEL, mtime=0) as stream:
            yield stream  # type: ignore[misc]  # GzipFile is such a stream in all that is used here
            stream.close()
            raw.flush()
            os.fsync(raw.fileno())
        beside.rename(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}", hint="choose another place for it") from error
    finally:
        beside.unlink(missing_ok=True)


def import_from(engine: Engine, file: Path, advance: Advance) -> dict[str, int]:
    """Import an exported file into an empty state DB in one transaction, compare the result, and return the number of rows by
    table.

    The file is first read into a temporary SQLite database of its own schema, which is upgraded and copied.

    Raises:
        ConfigError: it is not an export, is damaged or of another version, or the state DB is not empty.
        SyncError: the state DB cannot be written.
    """
    with _opened(file) as lines, TemporaryDirectory(prefix="eventsync-") as folder:
        header = _object(next(lines, b""))
        if (header.get("file"), header.get("version")) != (_KIND, _VERSION):
            raise ValueError(f"its header names {header.get('file')!r}, version {header.get('version')}")
        check_revision(f"{header.get('schema')}", "that export")
        with opened_database(f"sqlite:///{Path(folder) / 'state.db'}", upgrades=False) as copy:
            with writing(copy) as connection:
                upgrade(connection, f"{header['schema']}")
                _read_tables(connection, lines, advance)
                upgrade(connection)
            with reading(copy) as source, writing(engine) as target:
                sums = fill(target, contents_of(source), advance)
    return {name: one.rows for name, one in sums.items()}


def _read_tables(connection: Connection, lines: Iterator[bytes], advance: Advance) -> None:
    """Insert the rows of a file into the tables of its schema on SQLite, where times are text as in the file."""
    total = 0
    missing = set(inspect(connection).get_table_names()) - _NOT_EXPORTED
    while "table" in (header := _object(next(lines, b""))):
        if header["table"] not in missing:
            raise ValueError(f"there is no table {header['table']}, or it is there twice")
        missing.remove(header["table"])
        total += _read_table(connection, header, lines, advance)
    if missing or (header.get("end"), header.get("rows")) != (_KIND, total):
        raise ValueError("its tables or rows are not as many as it says")
    if next(lines, None) is not None:  # gzip's own sum is compared once nothing more is found
        raise ValueError("there is something after its end")


def _read_table(connection: Connection, header: Mapping[str, Any], lines: Iterator[bytes], advance: Advance) -> int:
    name, columns, highest_id = header["table"], header.get("columns"), header.get("mark")
    table = Table(name, MetaData(), autoload_with=connection, resolve_fks=False)
    if not isinstance(columns, list) or sorted(map(str, columns)) != sorted(table.c.keys()) or type(highest_id) is not int:
        raise ValueError(f"{name} has other columns")
    found = Sum()
    is_binary = [isinstance(table.c[column].type, LargeBinary) for column in columns]
    every_row = (zip(orjson.loads(line), is_binary, strict=True) for line in _lines_of(name, lines, found))
    rows = (tuple(_cell(*each) for each in row) for row in every_row)
    statement = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 # checked
    try:
        for page in in_pages(rows):
            connection.exec_driver_sql(statement, page)
            advance(len(page))
    except IntegrityError as error:
        raise ValueError(f"rows of {name} contradict each other: {error.orig}") from error
    _set_highest_id(connection, table, highest_id)
    return found.rows


def _cell(value: Any, is_binary: bool) -> Any:  # of a pair
    return base64.b64decode(value, validate=True) if is_binary and value is not None else value


def _lines_of(table: str, lines: Iterator[bytes], found: Sum) -> Iterator[bytes]:
    """Yield the lines of a table and add each to `found`. Raises ValueError if the table's end states another number or sum."""
    for line in lines:
        if line.startswith(b"{"):
            end = _object(line)
            if (end.get("end"), end.get("rows"), end.get("sum")) != (table, found.rows, str(found)):
                raise ValueError(f"the rows of {table} are not those that were written")
            return
        found.add(line)
        yield line
    raise ValueError(f"it ends within {table}")


def _object(line: bytes) -> Mapping[str, Any]:
    found = orjson.loads(line)
    if not isinstance(found, dict):
        raise TypeError("expected the beginning or end of a table, and found a row")
    return found


@contextmanager
def _opened(file: Path) -> Iterator[Iterator[bytes]]:
    """Yield the lines of an exported file. Raises `ConfigError` for all problems of the file."""
    try:
        with gzip.open(file) as stream:
            yield _lines_in(stream)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {file}", hint="`eventsync state export FILE` writes one") from error
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError, TypeError) as error:
        raise ConfigError(
            f"that is no export of a state DB, or it is damaged: {file}: {error}",
            hint="take another copy of it; nothing was imported",
        ) from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}", hint="choose another file") from error


def _lines_in(stream: Iterable[bytes]) -> Iterator[bytes]:
    for line in stream:
        if not line.endswith(b"\n"):
            raise ValueError("a line has no end")
        yield line[:-1]
