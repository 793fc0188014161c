"""What the drivers of databases differ in: sessions that only read, errors with a hint, and the values, as cells.

Values become cells by their Python types; what Python cannot hold comes as the text of the server.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, NotSupportedError, ProgrammingError, SQLAlchemyError

from connectors.masking import passwords_in
from connectors.sources.contract import Access, BadSourceError, Clock, SourceRefusedError, SourceUnavailableError
from connectors.sources.formats.records import text_of
from connectors.sources.rows import NumberText
from mappings.errors import ConfigError, SyncError
from mappings.spec.source import SqlSource
from mappings.spec.sql import table_parts

_POSTGRES = frozenset({"postgres", "postgresql", "postgresql+psycopg"})
_POSTGRES_CONNECTION = {"connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
_SESSIONS: Mapping[str, Sequence[str]] = {
    "postgresql": (
        *("SET LOCAL TimeZone = 'UTC'", "SET LOCAL DateStyle = 'ISO'", "SET LOCAL IntervalStyle = 'postgres'"),
        "SET LOCAL statement_timeout = {s}000",
    ),
    "mysql": ("SET SESSION TRANSACTION READ ONLY", "SET time_zone = '+00:00'", "SET max_execution_time = {s}000"),
    "mariadb": ("SET SESSION TRANSACTION READ ONLY", "SET time_zone = '+00:00'", "SET max_statement_time = {s}"),
    "oracle": ("ALTER SESSION SET TIME_ZONE = 'UTC'", "SET TRANSACTION READ ONLY"),
    "duckdb": ("SET TimeZone = 'UTC'",),
}
"""The statements with which a session begins, by dialect; `s`: the seconds that a statement may take."""
_DRIVERS = {"psycopg": "'eventsync[postgres]'", "duckdb": "duckdb-engine", "MySQLdb": "mysqlclient"}
"""The packages of drivers and dialects that have another name."""
_REFUSALS = re.compile("password|authentication|denied|pg_hba|not exist|certificate", re.IGNORECASE)
"""Texts of what stays wrong until a person corrects it, in connecting to a server: they have no SQLSTATE."""
_REFUSED = re.compile("0A|22|25|28|2B|34|3D|3F|42|SQLITE_(?:ERR|CANT|READ|AUTH)")
"""The beginnings of such codes: classes of SQLSTATE, and SQLite's."""
_READING_ACTIONS = frozenset(
    getattr(sqlite3, f"SQLITE_{one}") for one in ("SELECT", "READ", "FUNCTION", "RECURSIVE", "PRAGMA", "TRANSACTION")
)


def address_of(spec: SqlSource, access: Access) -> sa.URL:
    """Return the address of a source's database; SQLite's opens the file for reading.

    Raises:
        ConfigError: the variable is not set, or holds no address.
    """
    variable = f"SQL_{spec.connection}"
    text = access.secret(variable, spec.place)
    access.mask.learn(*passwords_in(text))
    try:
        address = sa.make_url(text)
    except (ArgumentError, ValueError):
        hint = "write it like postgresql://user:password@host/name, with @, : and / in a password as %40, %3A and %2F"
        raise ConfigError(f"{variable} is not an address of a database", hint=hint) from None
    if address.get_backend_name() == "sqlite":
        path = (address.database or "").removeprefix("file:")
        return address.set(database=Path(path).absolute().as_uri(), query={**address.query, "mode": "ro", "uri": "true"})
    if address.drivername in _POSTGRES:
        query = {"application_name": "eventsync", **_POSTGRES_CONNECTION, **address.query, "client_encoding": "UTF8"}
        return address.set(drivername="postgresql+psycopg", query=query)
    return address


@contextmanager
def connected(address: sa.URL, spec: SqlSource, clock: Clock) -> Iterator[tuple[sa.Connection, Sequence[str]]]:
    """Connect for the block, in UTC, in a transaction that only reads; also yield the columns of the table's primary key.

    Raises:
        ConfigError: the driver is not installed.
    """
    is_duckdb = address.get_backend_name() == "duckdb"
    options = {"read_only": True} if is_duckdb and address.database not in {None, "", ":memory:"} else {}
    texts = {"json_deserializer": ServerJson} if is_duckdb else {}
    try:
        engine = sa.create_engine(address, poolclass=sa.NullPool, hide_parameters=True, connect_args=options, **texts)
    except (NoSuchModuleError, ImportError) as error:
        name = getattr(error, "name", None) or address.get_backend_name()
        hint = f"pip install {_DRIVERS[name]}" if name in _DRIVERS else "install its SQLAlchemy dialect and driver"
        raise ConfigError(f"to read {spec.place}, the driver {name} is missing", hint=hint) from None
    with engine.connect() as connection:
        connection.execution_options(postgresql_readonly=engine.dialect.name == "postgresql")
        driver: Any = connection.connection.driver_connection
        key = _key(connection, spec)
        if engine.dialect.driver == "psycopg":
            leave_texts(connection, driver)
        elif isinstance(driver, sqlite3.Connection):
            _only_read(driver, spec.timeout, clock)
        connection.rollback()  # what the key was looked up in: it is ended where the database refused that
        name = "mariadb" if getattr(engine.dialect, "is_mariadb", False) else engine.dialect.name
        for statement in _SESSIONS.get(name, ()):
            connection.exec_driver_sql(statement.format(s=int(spec.timeout.total_seconds())))
        yield connection, key


def _key(connection: sa.Connection, spec: SqlSource) -> Sequence[str]:
    """Return the columns of the table's primary key, if it is known to have one."""
    if spec.table:
        with suppress(SQLAlchemyError, NotImplementedError):
            return sa.inspect(connection).get_pk_constraint(*table_parts(spec.table))["constrained_columns"]
    return ()


def _only_read(driver: sqlite3.Connection, timeout: timedelta, clock: Clock) -> None:
    """Refuse what does not read, end a statement after the timeout, and leave undecodable bytes to `checked_row`."""
    until = clock.clock_s() + timeout.total_seconds()
    driver.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    driver.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READING_ACTIONS else sqlite3.SQLITE_DENY)
    driver.set_progress_handler(lambda: clock.clock_s() > until, 100_000)


@contextmanager
def explained(spec: SqlSource) -> Iterator[None]:
    """Convert the drivers' exceptions in the block to errors with a hint."""
    try:
        yield
    except (SQLAlchemyError, TypeError, OverflowError) as error:
        raise _error_of(error, spec) from error


def _error_of(error: Exception, spec: SqlSource) -> SyncError:
    cause = getattr(error, "orig", None) or error
    reply = " ".join(str(cause).split())
    code = str(getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", ""))
    is_refusal = isinstance(error, ProgrammingError | NotSupportedError) or _REFUSALS.search(reply)
    if _REFUSED.match(code) or (not code and is_refusal):
        hint = f"correct `table`, `where`, `by` or `query`, or the address and the rights in SQL_{spec.connection}"
        return SourceRefusedError(f"{spec.place}: the database refuses: {reply}", hint=hint)
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return BadSourceError(spec.place, reply, hint="restore the file from a backup")
    if isinstance(error, TypeError):
        return BadSourceError(spec.place, f"its times of change are of several types: {reply}", hint="correct the values of `by`")
    hint = f"run again later; if that takes longer than `timeout`, raise it; if it never answers, check SQL_{spec.connection}"
    return SourceUnavailableError(f"{spec.place}: the database cannot be read: {reply}", hint=hint)


_NOT_FINITE = "an event needs a finite value after the year 1: leave such rows out, or select NULL instead"
_BINARY = "binary values cannot be read: use another column, or convert it in a query"
DAY = len("2026-05-03")
"""The characters of a day."""


class ServerMoment(str):
    """A day or moment as PostgreSQL writes it in UTC: `2026-05-03 17:30:00+00`, `infinity`, `0044-03-15 BC`."""

    __slots__ = ()


class ServerJson(NumberText):
    """JSON as the database holds it."""

    __slots__ = ()


def cell(value: object) -> str:
    """Return the cell of a value by its type: its own text, unless `CELLS` has another.

    Raises:
        ValueError: a cell cannot hold it.
    """
    return CELLS.get(type(value), str)(value)


def _number(value: Decimal | float) -> str:
    if not isfinite(value):
        raise ValueError(_NOT_FINITE)
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def _moment(value: datetime) -> str:
    if value.replace(tzinfo=None) in {datetime.min, datetime.max}:  # noqa: DTZ901  # what DuckDB makes of infinity
        raise ValueError(_NOT_FINITE)
    return value.isoformat() if value.tzinfo is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _server_moment(text: str) -> str:
    day, _, clock = text.partition(" ")
    if len(day) != DAY or clock[-2:] == "BC":
        raise ValueError(_NOT_FINITE)
    return f"{day}T{clock[:-3]}Z" if clock[-3:] == "+00" else f"{day}T{clock}" if clock else day


def _binary(_value: object) -> str:
    raise ValueError(_BINARY)


def _plain(value: object) -> object:
    """Return a value inside a list or an object with texts for all that JSON does not have."""
    match value:
        case list() | tuple():
            return list(map(_plain, value))
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case int() | float() | Decimal():
            return NumberText(cell(value))
        case None | ServerJson():
            return value
        case _:
            return cell(value)


CELLS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "",
    bool: lambda value: "true" if value else "false",
    datetime: _moment,
    ServerMoment: _server_moment,
    ServerJson: lambda text: "" if text == "null" else text,
    **dict.fromkeys((float, Decimal), _number),
    **dict.fromkeys((list, tuple, dict), lambda value: text_of(_plain(value))),
    **dict.fromkeys((bytes, bytearray, memoryview), _binary),
}
_SERVER_TEXTS: Mapping[str, type[str]] = {
    **dict.fromkeys(("date", "timestamp", "timestamptz"), ServerMoment),
    **dict.fromkeys(("json", "jsonb"), ServerJson),
    **dict.fromkeys(("time", "timetz", "interval"), str),
}
"""The types of PostgreSQL that are read as the server writes them, beside those of ranges."""


def leave_texts(connection: sa.Connection, driver: Any) -> None:
    """Have psycopg return the server's texts of these types, and lists of the arrays of types that users have made."""
    from psycopg.adapt import Loader  # noqa: PLC0415  # an extra
    from psycopg.postgres import types  # noqa: PLC0415
    from psycopg.types import TypeInfo  # noqa: PLC0415

    with suppress(SQLAlchemyError):  # a database that is only like PostgreSQL may lack this
        for made in connection.exec_driver_sql("select typname, oid, typarray from pg_type where oid > 16383 and typtype <> 'c'"):
            TypeInfo(*made).register(driver)
    for one in types:
        if kind := _SERVER_TEXTS.get(one.name, str if "range" in one.name else None):
            loads = {"load": lambda _loader, raw, kind=kind: kind(raw, "utf-8")}
            driver.adapters.register_loader(one.oid, type("ServerText", (Loader,), loads))
