"""Opening the state DB: where it lies, how it keeps its word through a power cut, that its schema is ours, and its
failures in words that help. What is in it is `tables`'.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from mappings.errors import ConfigError, PermanentError, SyncError, TransientError
from state.migrations.upgrade import HEAD, is_known, upgrade

StateDb = Engine
"""The open state DB, as those call it who only hand it on."""

_BUSY_TIMEOUT_MS = 30_000
_WRITER = "eventsync_writer"
_UPGRADE_LOCK = 0x6576_7379  # any number of our own: PostgreSQL's advisory locks are named by numbers


class StateUnavailableError(PermanentError):
    """The state DB cannot be opened, read or written; nothing was sent."""


class StateBusyError(TransientError):
    """Another process holds the state DB for longer than we wait."""


def open_database(url: str) -> Engine:
    """Open the state DB at a SQLAlchemy URL, create it where it is missing, and bring its schema up to ours.

    A settled answer survives power loss from the moment its transaction returns. Processes that start at once wait for
    one another. Raises `ConfigError` for a URL that names no database or a schema newer than ours,
    `StateUnavailableError` for a file that cannot be opened, is read-only or damaged, `StateBusyError` for a locked one.
    """
    address = _parse(url)
    if address.get_backend_name() == "sqlite":
        _make_folder(address)
    engine = _connectable(address)
    try:
        _bring_to_head(engine)
    except SyncError:
        engine.dispose()
        raise
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One transaction that writes: all of it is durable when the block ends, or none of it.

    On SQLite it takes the write lock at once, so that it never fails half-way for another writer.
    """
    with _explained(engine.url), engine.connect().execution_options(**{_WRITER: True}) as connection, connection.begin():
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One transaction that reads one moment's state; on SQLite it waits for nobody and holds nobody up."""
    with _explained(engine.url), engine.connect() as connection, connection.begin():
        yield connection


def _parse(url: str) -> URL:
    try:
        address = make_url(url)
        address.get_dialect()
    except (ArgumentError, NoSuchModuleError) as error:
        raise ConfigError(
            "EVENTSYNC_STATE_URL is not an address of a database that we know",
            hint="for example sqlite:///.eventsync/state.db or postgresql+psycopg://user@host/name",
        ) from error
    return address


def _make_folder(address: URL) -> None:
    """Make the file's folder, for its owner alone: bodies and raw cells are the partner's."""
    if not address.database or address.database.startswith((":memory:", "file:")):
        return
    folder = Path(address.database).parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateUnavailableError(
            f"the folder of the state DB cannot be made: {folder}: {error.strerror}",
            hint="make the folder, or set EVENTSYNC_STATE_URL to a place where you may write",
        ) from error


def _connectable(address: URL) -> Engine:
    try:
        engine = create_engine(address)
    except ImportError as error:
        raise ConfigError(
            f"the driver for {address.drivername} is not installed: {error}",
            hint="install it, for example `pip install psycopg[binary]`",
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """Set what SQLite forgets between connections; `isolation_level = None` leaves BEGIN to `_begin_sqlite`."""
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {_BUSY_TIMEOUT_MS}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "cache_size = -32000",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _begin_sqlite(connection: Connection) -> None:
    is_writer = connection.get_execution_options().get(_WRITER, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


def _bring_to_head(engine: Engine) -> None:
    with reading(engine) as connection:
        revision = _revision(connection)
    if revision == HEAD:
        return
    with writing(engine) as connection:
        _take_turn(connection)
        revision = _revision(connection)
        if revision is not None and not is_known(revision):
            raise ConfigError(
                f"the state DB {shown(engine.url)} was written by a newer version (schema {revision}, ours is {HEAD})",
                hint="install that version again, or point EVENTSYNC_STATE_URL at another state DB",
            )
        if revision != HEAD:
            upgrade(connection)


def _take_turn(connection: Connection) -> None:
    """Let one process upgrade at a time. SQLite's writers already take turns."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _UPGRADE_LOCK})


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


@contextmanager
def _explained(url: URL) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise _explain(url, str(error.orig)) from error


def _explain(url: URL, reply: str) -> SyncError:
    """Turn a driver's words into ours; what is not recognised is still told with the database's name."""
    place = f"the state DB {shown(url)}"
    lowered = reply.lower()
    if "locked" in lowered:
        return StateBusyError(f"{place} is held by another process: {reply}", hint="try again when the other run is over")
    if "readonly" in lowered or "read-only" in lowered:
        hint = "give the file and its folder to the user who runs this, or set EVENTSYNC_STATE_URL to another place"
        return StateUnavailableError(f"{place} is read-only: {reply}", hint=hint)
    if "not a database" in lowered or "malformed" in lowered:
        hint = "restore it from a backup, or move it away: a run from an empty state DB sends the same keys again"
        return StateUnavailableError(f"{place} is damaged: {reply}", hint=hint)
    if "full" in lowered or "disk i/o" in lowered:
        return StateUnavailableError(f"{place} cannot be written: {reply}", hint="make room on its disk, then run again")
    return StateUnavailableError(
        f"{place} cannot be used: {reply}", hint="check that it is reachable and that you may write to it"
    )


def shown(url: URL) -> str:
    """Name a database for people: the path of a file, else its URL without the password."""
    return url.database or ":memory:" if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)
