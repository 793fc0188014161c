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
from sqlalchemy import Connection, Engine, LargeBinary, MetaData, Row, Select, Table, func, insert, literal, select, text
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
_BLANK: Mapping[Table, Mapping[str, object]] = {LEASE: {"holder": ""}, SCOPE: {"marked_id": 0}}
"""Columns to reset in a copy: its leases are free, and its index of duplicates is empty. Fencing tokens are kept, as they must
only grow.
"""
_PAGE = 1_000
_LONG_KEY = 500
"""The longest row key, in characters, that fits into any index; ledgers of version 0.1 may have longer ones."""
_KIND = "eventsync state"
_VERSION = 1
_LEVEL = 4  # a third more time than the quickest for a fifth less room
_SEQUENCE = "CAST(pg_get_serial_sequence(:name, :ids) AS regclass)"


def _silent(_rows: int) -> None:
    pass


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


def rows_of(table: Table) -> Select[Any]:
    """Return the query of a table's rows in the form of a copy, by primary key."""
    blank = _BLANK.get(table, {})
    columns = [literal(blank[each.name], each.type).label(each.name) if each.name in blank else each for each in table.columns]
    return select(*columns).order_by(*table.primary_key.columns)


def pages_of(connection: Connection, rows: Select[Any], advance: Advance = _silent) -> Iterator[Sequence[Row[Any]]]:
    """Yield rows in pages that are read when they are needed."""
    with connection.execute(rows, execution_options={"yield_per": _PAGE}) as found:
        for page in found.partitions():
            yield page
            advance(len(page))


def line_of(row: Sequence[object]) -> bytes:
    """Return a row as a JSON array: times in UTC with microseconds, bytes in base64."""
    return orjson.dumps(tuple(row), default=_as_json, option=orjson.OPT_PASSTHROUGH_DATETIME)


def _as_json(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"a {type(value).__name__} has no form in an export")


def count_rows(connection: Connection, tables: Iterable[Table] = TABLES) -> int:
    """Count the rows of some tables, by default all to copy."""
    return sum(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables)


def copy_rows(source: Connection, target: Connection, table: Table, rows: Select[Any], advance: Advance = _silent) -> int:
    """Copy some rows of a table; return their number."""
    count = 0
    for page in pages_of(source, rows, advance):
        target.execute(insert(table), [row._asdict() for row in page])
        count += len(page)
    return count


def copy_tables(source: Connection, target: Connection, advance: Advance) -> dict[str, int]:
    """Copy all tables into an empty state DB in the caller's transaction; return the number of rows by table.

    Raises `ConfigError` if it is not empty.
    """
    if target.dialect.name == "postgresql":  # so that no other process fills it meanwhile
        target.execute(text("LOCK TABLE scope IN EXCLUSIVE MODE"))
    if filled := [table.name for table in TABLES if target.execute(select(table).limit(1)).first() is not None]:
        raise ConfigError(
            f"that state DB is not empty: there are rows in {', '.join(filled)}",
            hint="name a SQLite file that is not there yet, or a database with nothing in it: two ledgers are never mixed",
        )
    if (source.execute(select(func.max(func.length(ENTRY.c.row_key)))).scalar() or 0) > _LONG_KEY:
        allow_long_keys(target)
    counts: dict[str, int] = {}
    for table in TABLES:
        counts[table.name] = copy_rows(source, target, table, rows_of(table), advance)
        _set_highest_id(target, table, _highest_id(source, table))
    return counts


def sums_of(connection: Connection, advance: Advance) -> dict[str, Sum]:
    """Return the sum of each table's rows but the leases, which a move itself renews."""
    sums = {table.name: Sum() for table in TABLES if table is not LEASE}
    for name, found in sums.items():
        for page in pages_of(connection, rows_of(METADATA.tables[name]), advance):
            for row in page:
                found.add(line_of(row))
    return sums


def compare(source: Connection, target: Connection, advance: Advance) -> None:
    """Compare a copy with its original by the number and the sum of each table's rows.

    Raises:
        CopyDiffersError: they differ; the transaction of the copy must not be committed.
    """
    wanted, found = sums_of(source, advance), sums_of(target, advance)
    if unlike := [name for name, one in wanted.items() if found[name] != one]:
        differences = ", ".join(f"{name} ({wanted[name].rows:,} rows, then {found[name].rows:,})" for name in unlike)
        hint = "nothing was copied; stop all other processes that use either state DB, and start again"
        raise CopyDiffersError(f"the copy is not like its original: {differences}", hint=hint)


def _highest_id(connection: Connection, table: Table) -> int:
    """Return the highest id ever given, including ids of deleted rows; 0 without ids."""
    if (ids := table.autoincrement_column) is None:
        return 0
    is_server = connection.dialect.name == "postgresql"
    given = f"SELECT pg_sequence_last_value({_SEQUENCE})" if is_server else "SELECT seq FROM sqlite_sequence WHERE name = :name"
    names = {"name": table.name, "ids": ids.name}
    return max(connection.execute(text(given), names).scalar() or 0, connection.execute(select(func.max(ids))).scalar() or 0)


def _set_highest_id(connection: Connection, table: Table, highest: int) -> None:
    """Make the next id higher than all ids given in the original."""
    ids = table.autoincrement_column
    if highest <= 0 or ids is None:
        return
    values = {"name": table.name, "ids": ids.name, "highest": highest}
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT setval({_SEQUENCE}, :highest)"), values)
    else:  # SQLite ignores it for tables whose ids it may give again
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
        connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :highest)"), values)


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
        for table in TABLES:
            found, highest_id = Sum(), _highest_id(connection, table)
            _write(stream, {"table": table.name, "mark": highest_id, "columns": table.columns.keys()})
            for page in pages_of(connection, rows_of(table), advance):
                for line in map(line_of, page):
                    found.add(line)
                    stream.write(line + b"\n")
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
                _load(connection, lines, advance)
                upgrade(connection)
            with reading(copy) as source, writing(engine) as target:
                counts = copy_tables(source, target, advance)
                compare(source, target, advance)
    return counts


def _load(connection: Connection, lines: Iterator[bytes], advance: Advance) -> None:
    """Insert the rows of a file into the tables of its schema on SQLite, where times are text as in the file."""
    there, total = MetaData(), 0
    there.reflect(connection)
    missing = {name: table for name, table in there.tables.items() if name not in ("alembic_version", DUPLICATE_MARK.name)}
    while "table" in (header := _object(next(lines, b""))):
        name, columns = header["table"], [*map(str, header["columns"])]
        table = missing.pop(name, None)
        if table is None or sorted(columns) != sorted(table.c.keys()):
            raise ValueError(f"there is no table {name} with such columns, or it is there twice")
        statement = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 # checked
        rows = _rows_in(lines, name, [isinstance(table.c[column].type, LargeBinary) for column in columns])
        try:
            for page in in_pages(rows):
                connection.exec_driver_sql(statement, page)
                total += len(page)
                advance(len(page))
        except IntegrityError as error:
            raise ValueError(f"rows of {name} contradict each other: {error.orig}") from error
        _set_highest_id(connection, table, int(header["mark"]))
    if missing or header != {"end": _KIND, "rows": total} or any(True for _ in lines):
        raise ValueError("its tables or rows are not as many as it says")


def _rows_in(lines: Iterator[bytes], table: str, is_binary: list[bool]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table. Raises ValueError if the table's end states another number or sum."""
    found = Sum()
    for line in lines:
        if line.startswith(b"{"):
            if _object(line) != {"end": table, "rows": found.rows, "sum": str(found)}:
                raise ValueError(f"the rows of {table} are not those that were written")
            return
        found.add(line)
        cells = zip(orjson.loads(line), is_binary, strict=True)
        yield tuple(base64.b64decode(cell, validate=True) if binary and cell is not None else cell for cell, binary in cells)
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
            yield (line.rstrip(b"\n") for line in stream)
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"that is no export of a state DB, or it is damaged: {file}: {error}",
            hint="take another copy of it; nothing was imported",
        ) from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}", hint="choose another file") from error
