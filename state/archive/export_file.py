"""A whole state DB in one file that any SQLite or PostgreSQL can be filled from: gzip, a line of JSON for each row.

First a line about the file, then for each table a line that names it and its columns, its rows, and a line with their number and
the sum of their digests; last a line that ends it. What the lines of a table are is `contents`'.
"""

from __future__ import annotations

import base64
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import orjson
from sqlalchemy import Connection, Engine, LargeBinary, MetaData, Table, inspect

from mappings.errors import ConfigError
from state.archive.contents import PAGE, TABLES, Part, StrangeLineError, Sum, Tell, count_rows, form_of, parts_of, put, set_mark
from state.database import open_database, reading, writing
from state.migrations.upgrade import HEAD, is_known, upgrade
from state.tables import METADATA

_KIND = "eventsync state"
_VERSION = 1
_LEVEL = 4  # a third more time than the quickest for a fifth less room
_DERIVED_EARLIER = ("twin_mark", "route_worker")
"""Tables of earlier schemas that no export has."""
_LONGEST = 64 << 20
"""Bytes of the longest line that is read: a body may be long, a file of somebody else's may be one line without end."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What was carried: rows by table."""

    rows: Mapping[str, int]

    @property
    def total(self) -> int:
        """How many rows in all."""
        return sum(self.rows.values())


def export_to(engine: Engine, file: Path, at: datetime, expect: Tell, tell: Tell) -> Carried:
    """Write all that a state DB holds at one moment to a file that only its owner can read; runs may be at work meanwhile.

    There is the whole file or none. `expect` hears how many rows there are, `tell` how many more are written.

    Raises:
        ConfigError: there is such a file already, or it cannot be written.
        SyncError: the state DB cannot be read.
    """
    with _whole_file(file) as stream, reading(engine) as connection:
        expect(count_rows(connection))
        header = {"file": _KIND, "version": _VERSION, "schema": HEAD, "from": engine.dialect.name, "at": at.isoformat()}
        _write(stream, header)
        rows = {part.form.table.name: _write_part(stream, part, tell) for part in parts_of(connection)}
        _write(stream, {"end": _KIND, "rows": sum(rows.values())})
    return Carried(rows)


def import_from(engine: Engine, file: Path, tell: Tell) -> Carried:
    """Fill an empty state DB from such a file, in one transaction; what was written is read back and compared.

    An export of an earlier schema first fills a temporary SQLite file of that schema, which is upgraded and carried over.

    Raises:
        ConfigError: it is no such file, it is damaged or of another version, or the state DB is not empty.
        SyncError: the state DB cannot be written.
    """
    with _opened(file) as lines:
        schema = _schema_in(_told(lines, "file"))
        if schema == HEAD:
            return _put(engine, _parts_in(lines), tell)
        with TemporaryDirectory(prefix="eventsync-") as folder, _connected(f"sqlite:///{Path(folder) / 'state.db'}") as earlier:
            with writing(earlier) as connection:
                upgrade(connection, schema)
                _fill(connection, lines, tell)
                upgrade(connection)
            with reading(earlier) as connection:
                return _put(engine, parts_of(connection), tell)


def _put(engine: Engine, parts: Iterable[Part], tell: Tell) -> Carried:
    with writing(engine) as connection:
        sums = put(connection, parts, tell)
    return Carried({name: one.rows for name, one in sums.items()})


@contextmanager
def _connected(url: str) -> Iterator[Engine]:
    engine = open_database(url, upgrades=False)
    try:
        yield engine
    finally:
        engine.dispose()


def _fill(connection: Connection, lines: Iterator[tuple[int, bytes]], tell: Tell) -> None:
    """Put the rows of an earlier schema into its tables on SQLite, where times are the text that the file has."""
    rows = 0
    missing = set(inspect(connection).get_table_names()) - {"alembic_version", *_DERIVED_EARLIER}
    while "table" in (told := _object(*next(lines, (0, b"")))):
        name = told["table"]
        if name not in missing:
            raise StrangeLineError(f"there is no table {name}, or it is there twice")
        missing.remove(name)
        rows += _fill_table(connection, name, told, lines, tell)
    if missing or told.get("end") != _KIND or _whole_number(told, "rows") != rows:
        raise StrangeLineError("its tables or rows are not as many as it says")
    if next(lines, None) is not None:
        raise StrangeLineError("something stands behind its end")


def _fill_table(
    connection: Connection, name: str, told: Mapping[str, Any], lines: Iterator[tuple[int, bytes]], tell: Tell
) -> int:  # fmt: skip
    table = Table(name, MetaData(), autoload_with=connection, resolve_fks=False)
    if sorted(told.get("columns", ())) != sorted(table.columns.keys()):
        raise StrangeLineError(f"{name} has other columns")
    found = Sum()
    is_binary = [isinstance(table.c[column].type, LargeBinary) for column in told["columns"]]
    rows = (_earlier_row(line, is_binary) for line in _rows_of(name, lines, found))
    statement = f"INSERT INTO {name} ({', '.join(told['columns'])}) VALUES ({', '.join('?' * len(is_binary))})"  # noqa: S608 # checked
    while page := list(islice(rows, PAGE)):
        connection.exec_driver_sql(statement, page)
        tell(len(page))
    if name in METADATA.tables:
        set_mark(connection, METADATA.tables[name], _whole_number(told, "mark"))
    return found.rows


def _earlier_row(line: bytes, is_binary: Sequence[bool]) -> tuple[Any, ...]:
    try:
        return tuple(
            base64.b64decode(value, validate=True) if binary and value is not None else value
            for binary, value in zip(is_binary, orjson.loads(line), strict=True)
        )
    except (ValueError, TypeError) as error:
        raise StrangeLineError(str(error)) from error


def _write_part(stream: IO[bytes], part: Part, tell: Tell) -> int:
    _write(stream, {"table": part.form.table.name, "mark": part.mark, "columns": part.form.columns})
    found = Sum()
    for line in part.lines:
        found.add(line)
        stream.write(line + b"\n")
        if found.rows % 1_000 == 0:
            tell(1_000)
    tell(found.rows % 1_000)
    _write(stream, {"end": part.form.table.name, "rows": found.rows, "sum": str(found)})
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
        with _made(beside) as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=_LEVEL, mtime=0) as stream:
            yield stream  # type: ignore[misc]  # GzipFile is such a stream in all that is used here
            stream.close()
            raw.flush()
            os.fsync(raw.fileno())
        beside.rename(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}", hint="choose another place for it") from error
    finally:
        beside.unlink(missing_ok=True)


def _made(file: Path) -> IO[bytes]:
    """Make a file for its owner alone: bodies and raw cells are the partner's."""
    file.unlink(missing_ok=True)  # of an export that was killed
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextmanager
def _opened(file: Path) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Open a file for reading: its lines with their numbers. What is wrong with it becomes an error that says so."""
    try:
        with gzip.open(file) as stream:
            yield _numbered(stream)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {file}", hint="`eventsync state export FILE` writes one") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(f"{file}: {error}") from error
    except StrangeLineError as error:
        raise _damaged(f"{file}: {error}") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}", hint="choose another file") from error


def _numbered(stream: Any) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(_LONGEST):
        number += 1
        if not line.endswith(b"\n"):
            raise StrangeLineError(f"line {number} has no end")
        yield number, line[:-1]


def _damaged(told: str) -> ConfigError:
    return ConfigError(
        f"that is no export of a state DB, or it is damaged: {told}", hint="take another copy of it; nothing was imported"
    )


def _parts_in(lines: Iterator[tuple[int, bytes]]) -> Iterator[Part]:
    """Yield the parts of a file, in the order in which all of them have to be there."""
    rows = 0
    for table in TABLES:
        form = form_of(table)
        told = _told(lines, "table")
        if (told["table"], told.get("columns")) != (table.name, list(form.columns)):
            raise StrangeLineError(f"{told['table']} stands where {table.name} is expected, or has other columns")
        found = Sum()
        yield Part(form, _whole_number(told, "mark"), _rows_of(table.name, lines, found))
        rows += found.rows
    if _whole_number(_told(lines, "end"), "rows") != rows:
        raise StrangeLineError("its rows are not as many as it says")
    if next(lines, None) is not None:  # gzip's own sum is looked at once nothing more is found
        raise StrangeLineError("something stands behind its end")


def _rows_of(table: str, lines: Iterator[tuple[int, bytes]], found: Sum) -> Iterator[bytes]:
    for number, line in lines:
        if line.startswith(b"{"):
            told = _object(number, line)
            if (told.get("end"), told.get("rows"), told.get("sum")) != (table, found.rows, str(found)):
                raise StrangeLineError(f"line {number}: the rows of {table} are not those that were written")
            return
        found.add(line)
        yield line
    raise StrangeLineError(f"it ends within {table}")


def _schema_in(told: Mapping[str, Any]) -> str:
    """Return the schema that a file was written at."""
    if (told["file"], told.get("version")) != (_KIND, _VERSION):
        raise StrangeLineError(f"it says to be {told['file']!r}, version {told.get('version')}")
    schema = f"{told.get('schema')}"
    if not is_known(schema):
        raise ConfigError(
            f"that export was written by a newer version (schema {schema}, ours is {HEAD})",
            hint="import it with the version that wrote it, or with a later one",
        )
    return schema


def _told(lines: Iterator[tuple[int, bytes]], name: str) -> Mapping[str, Any]:
    number, line = next(lines, (0, b""))
    told = _object(number, line)
    if name not in told:
        raise StrangeLineError(f"line {number} tells of no {name}")
    return told


def _object(number: int, line: bytes) -> Mapping[str, Any]:
    try:
        told = orjson.loads(line)
    except ValueError as error:
        raise StrangeLineError(f"line {number} is no JSON") from error
    if not isinstance(told, dict):
        raise StrangeLineError(f"line {number} is a row, where there should be none")
    return told


def _whole_number(told: Mapping[str, Any], name: str) -> int:
    value = told.get(name)
    if type(value) is not int or value < 0:
        raise StrangeLineError(f"{name} is {value!r}")
    return value
