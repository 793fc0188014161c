"""Opening the state DB, that its schema is ours, and its two kinds of transaction. What is in it is `tables`'.

Where it lies is read by `addresses`; its failures are put in words by `trouble`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, inspect, literal, null, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry

from mappings.errors import ConfigError, SyncError
from state import postgres_codes, sqlite_codes
from state.addresses import (
    engine_options,
    is_file,
    is_read_only,
    lock_wait_s,
    missing_driver,
    parse,
    read_only_address,
    shown,
    without_secret,
)
from state.holders import held_by, is_free
from state.migrations.upgrade import HEAD, is_known, upgrade
from state.places import Place, place_of
from state.private_files import make_private_file, make_private_folder, narrow
from state.pulse import host_pulse
from state.tables import LEASE, SCOPE
from state.trouble import StateUnavailableError, Trouble, told

StateDb = Engine
"""The open state DB, as those call it who only hand it on."""

_WRITER = "eventsync_writer"
_PLACE = "eventsync_place"
_ALONE = "eventsync_alone"
_UPGRADE_LOCK = 0x6576_7379  # any number of our own: PostgreSQL's advisory locks are named by numbers
_ONE_MOMENT = "REPEATABLE READ"
_WAL_PAGES = 10_000
"""Pages of 4 KiB that wait beside SQLite's file. A first read writes to most pages of an index again and again: they are
copied into the file once for all of its last chunks, and not, as by default, for each of them."""


def open_database(url: str, *, upgrades: bool = True) -> Engine:
    """Open the state DB at a SQLAlchemy URL, create it where it is missing, and bring its schema up to ours.

    A settled answer survives power loss from the moment its transaction returns. Processes that start at once wait for
    one another. `upgrades` False leaves all as it is, and connects only when the state DB is first used.

    Raises `ConfigError` for a URL that names no database or a schema newer than ours, `HeldByAnotherError` where a run of an
    earlier version is at work with older tables, `StateUnavailableError` where
    somebody must mend something (a file or a role without rights, damage, a wrong password), `StateBusyError` where it
    is locked or cannot be reached just now.
    """
    address = parse(url)
    if is_file(address):
        _make_folder(address)
    engine = _connectable(address)
    try:
        if upgrades:
            _bring_to_head(engine)
    except SyncError:
        engine.dispose()
        raise
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One transaction that writes: all of it is durable when the block ends, or none of it.

    On SQLite it takes the write lock at once, so that it never fails half-way for another writer, and it fails where the
    file is not the one any more that was opened. Raises `StateUnavailableError` or `StateBusyError`.
    """
    with _explained(engine.url), engine.connect().execution_options(**{_WRITER: True}) as connection:
        with connection.begin():
            yield connection
        _stay_in_place(connection)


def let_go_of_pages(connection: Connection) -> None:
    """Let go of what SQLite has read for this connection: asked for by whoever has it beside a thread that works with another.

    It may be the one that held them before, while the other thread is at work with a new one.
    """
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA shrink_memory")


@contextmanager
def reading(engine: Engine, *, is_one_statement: bool = False) -> Iterator[Connection]:
    """One transaction that reads one moment's state; it waits for nobody and holds nobody up.

    `is_one_statement`: a server is spared the round trips that begin and end a transaction.

    Raises `StateUnavailableError` or `StateBusyError`.
    """
    with _explained(engine.url), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execution_options(isolation_level="AUTOCOMMIT" if is_one_statement else _ONE_MOMENT)
        with connection.begin():
            yield connection


def schema_revision(engine: Engine) -> str | None:
    """Return the schema's revision, None where there is no schema."""
    with reading(engine) as connection:
        return _revision(connection)


def size_of(engine: Engine) -> int:
    """Return how many bytes the whole of it takes."""
    with reading(engine) as connection:
        if engine.dialect.name == "postgresql":
            return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        return int(pages) * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())


def shrink(engine: Engine) -> None:
    """Let SQLite write its file anew, without room that is free; it needs as much again meanwhile, and nobody else can write.

    A server uses such room again by itself. Raises `StateUnavailableError` or `StateBusyError`.
    """
    if engine.dialect.name == "postgresql":
        return
    with _explained(engine.url), engine.connect().execution_options(**{_ALONE: True}) as connection:
        connection.exec_driver_sql("VACUUM")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def _make_folder(address: URL) -> None:
    """Make the file's folder, for its owner alone: bodies and raw cells are the partner's."""
    folder = Path(str(address.database)).parent
    try:
        make_private_folder(folder.absolute())
    except OSError as error:
        raise StateUnavailableError(
            f"the folder of the state DB cannot be made: {folder}: {error.strerror}",
            hint="make the folder, or set EVENTSYNC_STATE_URL to a place where you may write",
        ) from error


def _connectable(address: URL) -> Engine:
    wait_ms = int(lock_wait_s(address) * 1000)
    try:
        engine = create_engine(address, **engine_options(address))
    except ImportError as error:
        raise missing_driver(error) from error
    if is_file(address):
        event.listen(engine, "do_connect", _open_as_allowed)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def _on_connect(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
            _prepare_sqlite(connection, wait_ms, is_read_only=is_file(address) and is_read_only(str(address.database)))
            record.info[_PLACE] = place_of(connection)

        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _open_as_allowed(_dialect: object, _record: object, words: list[Any], options: dict[str, Any]) -> None:
    """Open a file that we may not write to for reading only: SQLite itself would try to make its journal beside it.

    Any other one is made private with those beside it; SQLite gives new ones beside it the rights of the file.
    """
    file = str(words[0])
    if is_read_only(file):
        words[0] = read_only_address(file)
        options["uri"] = True
        return
    make_private_file(Path(file))
    for beside in (f"{file}-wal", f"{file}-shm"):
        narrow(Path(beside))


def _prepare_sqlite(connection: sqlite3.Connection, wait_ms: int, *, is_read_only: bool) -> None:
    """Set what SQLite forgets between connections; `isolation_level = None` leaves BEGIN to `_begin_sqlite`."""
    connection.isolation_level = None
    for_writing = ("journal_mode = WAL", "synchronous = FULL", f"wal_autocheckpoint = {_WAL_PAGES}", "foreign_keys = ON")
    for pragma in (f"busy_timeout = {wait_ms}", *(() if is_read_only else for_writing), "cache_size = -32000"):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get(_ALONE, False):
        return  # what rewrites the whole file takes no part in a transaction
    is_writer = options.get(_WRITER, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")
    if is_writer:
        _stay_in_place(connection)


def _stay_in_place(connection: Connection) -> None:
    """SQLite goes on writing to a file that has no name any more, and nobody would ever read it."""
    place: Place | None = connection.info.get(_PLACE)
    if place is not None and (change := place.change()):
        raise told(Trouble.MOVED, place.path, change)


def _bring_to_head(engine: Engine) -> None:
    revision = schema_revision(engine)
    if revision == HEAD:
        return
    _refuse_newer(engine, revision)
    try:
        _upgrade(engine)
    except StateUnavailableError as error:
        if revision is None:
            raise
        raise StateUnavailableError(
            f"the state DB {shown(engine.url)} has the tables of an earlier version (schema {revision}, ours is {HEAD}), and they"
            f" cannot be upgraded: {error}",
            hint=f"{error.hint}; any command of a user who may write to it upgrades it, `eventsync status` for example",
        ) from error


def _refuse_newer(engine: Engine, revision: str | None) -> None:
    if revision is not None and not is_known(revision):
        raise ConfigError(
            f"the state DB {shown(engine.url)} was written by a newer version (schema {revision}, ours is {HEAD})",
            hint="install that version again, or point EVENTSYNC_STATE_URL at another state DB",
        )


def _upgrade(engine: Engine) -> None:
    with writing(engine) as connection:
        _take_turn(connection)
        revision = _revision(connection)
        _refuse_newer(engine, revision)
        if revision != HEAD:
            if revision is not None:
                _refuse_while_held(connection, revision)
            upgrade(connection)


def _refuse_while_held(connection: Connection, revision: str) -> None:
    """Do not change the tables of a run at work: it would fail in the middle. Leases of schema 0001 have no `boot`."""
    there = {column["name"] for column in inspect(connection).get_columns("lease")}
    columns = (column if column.name in there else literal("").label(column.name) for column in LEASE.c)
    is_server = connection.dialect.name == "postgresql"
    server_now = func.clock_timestamp(type_=LEASE.c.heartbeat_at.type) if is_server else null()
    leases = select(*columns, SCOPE.c.feed, server_now.label("server_now")).join(SCOPE, SCOPE.c.id == LEASE.c.scope_id)
    for seen in connection.execute(leases):
        if not is_free(seen, None if is_server else host_pulse(), partial(_sqlite_now, connection)):
            raise held_by(
                seen,
                what=f"the state DB {shown(connection.engine.url)} has the tables of an earlier version (schema {revision}, "
                f"ours is {HEAD}), and they cannot be upgraded while a run is at work: {seen.feed} is held by",
                hint="wait for that run to end, or stop it, then start again; a dead one lets go within a minute",
            )


def _sqlite_now(connection: Connection) -> datetime:
    return datetime.fromisoformat(connection.exec_driver_sql("SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')").scalar_one())


def _take_turn(connection: Connection) -> None:
    """Let one process upgrade at a time; SQLite's writers already take turns. Only UTF8 holds every text of ours."""
    if connection.dialect.name != "postgresql":
        return
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _UPGRADE_LOCK})
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise told(Trouble.STRANGE_VALUE, shown(connection.engine.url), f"its encoding is {encoding}")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


@contextmanager
def _explained(url: URL) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if interruption := _interruption(error):
            raise interruption from None
        raise _explain(url, error) from error
    except PoolTimeoutError as error:
        raise told(Trouble.SLOW_POOL, shown(url), "all connections of this process are at work") from error
    except (OverflowError, UnicodeEncodeError) as error:  # the driver's, of what cannot even be sent
        raise told(Trouble.STRANGE_VALUE, shown(url), str(error)) from error


def _interruption(error: DBAPIError) -> BaseException | None:
    """Return the interruption (Ctrl-C) in whose place a driver's clean-up has put a complaint of its own, if there was one."""
    met: BaseException | None = error.orig
    while isinstance(met, Exception):
        met = met.__context__
    return met


def _explain(url: URL, error: DBAPIError) -> SyncError:
    if isinstance(error.orig, sqlite3.Error):
        trouble, reply = sqlite_codes.recognise(error.orig, url.database if is_file(url) else None)
        return told(trouble, shown(url), reply)
    return told(postgres_codes.recognise(error), shown(url), without_secret(str(error.orig), url))
