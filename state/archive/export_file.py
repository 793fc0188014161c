"""A whole state DB in one file that any SQLite or PostgreSQL can be filled from: gzip, a line of JSON for each row.

First a line about the file, then for each table a line with its name and columns, its rows, and a line with their number and
the sum of their digests; last a line that ends it.
"""

from __future__ import annotations

import base64
import gzip
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import orjson
from sqlalchemy import Connection, Engine, LargeBinary, MetaData, Table, inspect
from sqlalchemy.exc import IntegrityError

from mappings.errors import ConfigError
from state.archive.copying import PAGE, Advance, Part, Sum, count_rows, line_of, parts_of, put, set_highest_id
from state.database import open_database, reading, writing
from state.migrations.upgrade import HEAD, is_known, upgrade
from state.tables import METADATA

_KIND = "eventsync state"
_VERSION = 1
_LEVEL = 4  # a third more time than the quickest for a fifth less room
_NOT_EXPORTED = {"alembic_version", "twin_mark", "duplicate_mark", "route_worker"}
_LONGEST = 64 << 20
"""Bytes of the longest line that is read: a body may be long, a file of another kind may be one line without end."""


class StrangeLineError(ValueError):
    """A line is not what an export has there: cut, damaged, or of another file."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What was copied: rows by table."""

    rows: Mapping[str, int]

    @property
    def total(self) -> int:
        """How many rows in all."""
        return sum(self.rows.values())


def export_to(engine: Engine, file: Path, at: datetime, expect: Advance, advance: Advance) -> Carried:
    """Write all that a state DB holds at one moment to a file that only its owner can read; runs may be at work meanwhile.

    There is the whole file or none. `expect` is called with the number of rows.

    Raises:
        ConfigError: there is such a file already, or it cannot be written.
        SyncError: the state DB cannot be read.
    """
    with _whole_file(file) as stream, reading(engine) as connection:
        expect(count_rows(connection))
        header = {"file": _KIND, "version": _VERSION, "schema": HEAD, "from": engine.dialect.name, "at": at.isoformat()}
        _write(stream, header)
        rows = {part.table.name: _write_part(stream, part, advance) for part in parts_of(connection)}
        _write(stream, {"end": _KIND, "rows": sum(rows.values())})
    return Carried(rows)


def import_from(engine: Engine, file: Path, advance: Advance) -> Carried:
    """Fill an empty state DB from such a file, in one transaction; what was written is read back and compared.

    The file first fills a temporary SQLite file of the schema that it was written at, which is upgraded and copied.

    Raises:
        ConfigError: it is no such file, it is damaged or of another version, or the state DB is not empty.
        SyncError: the state DB cannot be written.
    """
    with _opened(file) as lines, TemporaryDirectory(prefix="eventsync-") as folder:
        schema = _schema_in(_header(lines, "file"))
        copy = open_database(f"sqlite:///{Path(folder) / 'state.db'}", upgrades=False)
        try:
            with writing(copy) as connection:
                upgrade(connection, schema)
                _fill(connection, lines, advance)
                upgrade(connection)
            with reading(copy) as source, writing(engine) as target:
                sums = put(target, parts_of(source), advance)
        finally:
            copy.dispose()
    return Carried({name: one.rows for name, one in sums.items()})


def _fill(connection: Connection, lines: Iterator[tuple[int, bytes]], advance: Advance) -> None:
    """Insert the rows of a file into the tables of its schema on SQLite, where times are the text that the file has."""
    rows = 0
    missing = set(inspect(connection).get_table_names()) - _NOT_EXPORTED
    while "table" in (header := _object(*next(lines, (0, b"")))):
        name = header["table"]
        if name not in missing:
            raise StrangeLineError(f"there is no table {name}, or it is there twice")
        missing.remove(name)
        rows += _fill_table(connection, name, header, lines, advance)
    if missing or header.get("end") != _KIND or _whole_number(header, "rows") != rows:
        raise StrangeLineError("its tables or rows are not as many as it says")
    if next(lines, None) is not None:  # gzip's own sum is compared once nothing more is found
        raise StrangeLineError("there is something after its end")


def _fill_table(
    connection: Connection, name: str, header: Mapping[str, Any], lines: Iterator[tuple[int, bytes]], advance: Advance
) -> int:
    table = Table(name, MetaData(), autoload_with=connection, resolve_fks=False)
    columns = header.get("columns")
    if not isinstance(columns, list) or set(columns) != set(table.c.keys()) or len(columns) != len(table.c):
        raise StrangeLineError(f"{name} has other columns")
    found = Sum()
    is_binary = [isinstance(table.c[column].type, LargeBinary) for column in columns]
    rows = (_values(line, is_binary) for line in _lines_of(name, lines, found))
    statement = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 # checked
    try:
        while page := list(islice(rows, PAGE)):
            connection.exec_driver_sql(statement, page)
            advance(len(page))
    except IntegrityError as error:
        raise StrangeLineError(f"rows of {name} contradict each other: {error.orig}") from error
    if name in METADATA.tables:
        set_highest_id(connection, METADATA.tables[name], _whole_number(header, "mark"))
    return found.rows


def _values(line: bytes, is_binary: Sequence[bool]) -> tuple[Any, ...]:
    try:
        return tuple(
            base64.b64decode(value, validate=True) if binary and value is not None else value
            for binary, value in zip(is_binary, orjson.loads(line), strict=True)
        )
    except (ValueError, TypeError) as error:
        raise StrangeLineError(str(error)) from error


def _lines_of(table: str, lines: Iterator[tuple[int, bytes]], found: Sum) -> Iterator[bytes]:
    """Yield the lines of a table, and compare their number and sum at its end."""
    for number, line in lines:
        if line.startswith(b"{"):
            end = _object(number, line)
            if (end.get("end"), end.get("rows"), end.get("sum")) != (table, found.rows, str(found)):
                raise StrangeLineError(f"line {number}: the rows of {table} are not those that were written")
            return
        found.add(line)
        yield line
    raise StrangeLineError(f"it ends within {table}")


def _write_part(stream: IO[bytes], part: Part, advance: Advance) -> int:
    _write(stream, {"table": part.table.name, "mark": part.highest_id, "columns": part.table.columns.keys()})
    found = Sum()
    for row in part.rows:
        line = line_of(row)
        found.add(line)
        stream.write(line + b"\n")
        if found.rows % PAGE == 0:
            advance(PAGE)
    advance(found.rows % PAGE)
    _write(stream, {"end": part.table.name, "rows": found.rows, "sum": str(found)})
    return found.rows


def _write(stream: IO[bytes], line: Mapping[str, object]) -> None:
    stream.write(orjson.dumps(line) + b"\n")


@contextmanager
def _whole_file(file: Path) -> Iterator[IO[bytes]]:
    """Open a file beside `file` that takes its name once all is written and on the disk."""
    if file.exists():
        raise ConfigError(f"{file} is there already", hint="choose another name: an older export is never written over")
    beside = file.with_name(f"{file.name}.part")
    try:
        beside.unlink(missing_ok=True)  # of an export that was killed
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # bodies and raw cells are the partner's
        with (
            os.fdopen(descriptor, "wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=_LEVEL, mtime=0) as stream,
        ):
            yield stream  # type: ignore[misc]  # GzipFile is such a stream in all that is used here
            stream.close()
            raw.flush()
            os.fsync(raw.fileno())
        beside.rename(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}", hint="choose another place for it") from error
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _opened(file: Path) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Open a file for reading: its lines with their numbers. Raises `ConfigError` for all that is wrong with it."""
    try:
        with gzip.open(file) as stream:
            yield _numbered(stream)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {file}", hint="`eventsync state export FILE` writes one") from error
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError) as error:
        raise ConfigError(
            f"that is no export of a state DB, or it is damaged: {file}: {error}",
            hint="take another copy of it; nothing was imported",
        ) from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}", hint="choose another file") from error


def _numbered(stream: Any) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(_LONGEST):
        number += 1
        if not line.endswith(b"\n"):
            raise StrangeLineError(f"line {number} has no end")
        yield number, line[:-1]


def _schema_in(header: Mapping[str, Any]) -> str:
    """Return the schema that a file was written at."""
    if (header["file"], header.get("version")) != (_KIND, _VERSION):
        raise StrangeLineError(f"it says to be {header['file']!r}, version {header.get('version')}")
    schema = f"{header.get('schema')}"
    if not is_known(schema):
        raise ConfigError(
            f"that export was written by a newer version (schema {schema}, ours is {HEAD})",
            hint="import it with the version that wrote it, or with a later one",
        )
    return schema


def _header(lines: Iterator[tuple[int, bytes]], name: str) -> Mapping[str, Any]:
    number, line = next(lines, (0, b""))
    header = _object(number, line)
    if name not in header:
        raise StrangeLineError(f"line {number} names no {name}")
    return header


def _object(number: int, line: bytes) -> Mapping[str, Any]:
    try:
        found = orjson.loads(line)
    except ValueError as error:
        raise StrangeLineError(f"line {number} is no JSON") from error
    if not isinstance(found, dict):
        raise StrangeLineError(f"line {number} is a row, where there should be none")
    return found


def _whole_number(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if type(value) is not int or value < 0:
        raise StrangeLineError(f"{name} is {value!r}")
    return value
