"""Opening the state DB, that its schema is ours, and its two kinds of transaction. What is in it is `tables`'.

Where it lies is read by `addresses`; its failures are put in words by `trouble`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Insert,
    Table,
    and_,
    create_engine,
    event,
    func,
    inspect,
    literal,
    make_url,
    null,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry

from mappings.errors import ConfigError, SyncError
from state import postgres_codes, sqlite_codes
from state.holders import held_by, host_pulse, is_free
from state.migrations.upgrade import HEAD, is_known, upgrade
from state.private_files import make_private_file, make_private_folder, narrow
from state.tables import LEASE, SCOPE
from state.trouble import StateUnavailableError, Trouble, told

LOCK_WAIT_S = 30.0
"""How long a statement waits for another process's lock, unless the URL says otherwise."""
_CONNECT_WAIT_S = 10
_ONE_AT_REST = {"pool_size": 1}
"""So many connections wait for their next transaction: handed out in turns, each would come to hold 32 MB of SQLite's pages."""
_EXAMPLES = "for example sqlite:///.eventsync/state.db or postgresql://user@host/name"
_POSTGRES = {"postgres", "postgresql", "postgresql+psycopg"}
_SETTINGS = (
    ("synchronous_commit", "on"),  # a role or a database may be set to lose the last moments in a power cut
    ("lock_timeout", f"{LOCK_WAIT_S:.0f}s"),
    ("idle_in_transaction_session_timeout", "60s"),  # a process that was stopped in mid-transaction holds up nobody
)


def parse(url: str) -> URL:
    """Read a SQLAlchemy URL of one of the databases that we know; PostgreSQL may be spelt as its own tools spell it.

    Raises `ConfigError` for any other, without repeating it: it may hold a password.
    """
    try:
        address = make_url(url)
        if address.drivername in _POSTGRES:
            address = address.set(drivername="postgresql+psycopg")
        address.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError("EVENTSYNC_STATE_URL is not an address of a database that we know", hint=_EXAMPLES) from error
    except ImportError as error:
        raise missing_driver(error) from error
    if "@" in (address.host or ""):
        raise ConfigError(
            "EVENTSYNC_STATE_URL holds more than one @, so that a part of its password would be taken for the host",
            hint="write each @, : and / of a user name or password as %40, %3A and %2F",
        )
    if address.drivername not in {"sqlite", "sqlite+pysqlite", "postgresql+psycopg"}:
        raise ConfigError(f"EVENTSYNC_STATE_URL asks for {address.drivername}, which we do not know", hint=_EXAMPLES)
    return address


def missing_driver(error: ImportError) -> ConfigError:
    """Say how to get PostgreSQL's driver; SQLite's is Python's own."""
    return ConfigError(
        f"PostgreSQL's driver is not installed: {error}",
        hint='run `pip install "eventsync[postgres]"`, or use SQLite: EVENTSYNC_STATE_URL=sqlite:///.eventsync/state.db',
    )


def shown(url: URL) -> str:
    """Name a database for people: the path of a file, else its URL without the password."""
    return url.database or ":memory:" if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)


def shown_url(url: str) -> str:
    """Name the database of a URL for people. Raises `ConfigError` as `parse`."""
    return shown(parse(url))


def without_secret(text: str, url: URL) -> str:
    """Return a driver's words on one line, with the password of the URL masked wherever they repeat it."""
    words = " ".join(text.split())
    return words.replace(str(url.password), "***") if url.password else words


def is_file(url: URL) -> bool:
    """Whether it is a plain SQLite file: neither in memory nor a `file:` URI with a mind of its own."""
    return bool(url.get_backend_name() == "sqlite" and url.database) and not str(url.database).startswith((":memory:", "file:"))


def is_read_only(file: str) -> bool:
    """Whether a SQLite file is there and we may not write to it, or not make the files beside it that writing takes."""
    beside = [f"{file}-wal", f"{file}-shm"]
    may_write = os.access(Path(file).parent, os.W_OK) or all(os.access(each, os.W_OK) for each in beside)
    return Path(file).exists() and not (os.access(file, os.W_OK) and may_write)


def read_only_address(file: str) -> str:
    """Return the URI that opens a SQLite file for reading only.

    Where nobody has it open and no change waits in its write-ahead log, SQLite has to be told so: it cannot make the shared
    memory in which it would see that for itself. A log without shared memory stays unreadable: what it holds would be missed.
    """
    log, shared = Path(f"{file}-wal"), Path(f"{file}-shm")
    is_at_rest = not shared.exists() and not (log.exists() and log.stat().st_size)
    return f"{Path(file).absolute().as_uri()}?mode=ro{'&immutable=1' * is_at_rest}"


def lock_wait_s(url: URL) -> float:
    """Return how long SQLite waits for another process: `?timeout=5` in the URL says it in seconds."""
    asked = url.query.get("timeout", "")
    try:
        return float(str(asked)) if asked else LOCK_WAIT_S
    except ValueError as error:
        raise ConfigError("EVENTSYNC_STATE_URL: timeout is not a number of seconds", hint="for example ?timeout=30") from error


def engine_options(url: URL) -> dict[str, Any]:
    """Return what SQLAlchemy's engine is told beside the URL. Whatever the URL itself says about a connection rules."""
    common: dict[str, Any] = {"hide_parameters": True}  # they are the partner's, and no message's
    if url.get_backend_name() == "sqlite":
        return common | (_ONE_AT_REST if is_file(url) else {})
    ours = {
        "application_name": "eventsync",
        "client_encoding": "UTF8",
        "connect_timeout": _CONNECT_WAIT_S,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        "options": " ".join(f"-c {name}={value}" for name, value in _SETTINGS),
    }
    return common | {
        "isolation_level": "READ COMMITTED",
        "pool_size": 2,  # the drain's thread and the one that waits for it
        "max_overflow": 3,
        "pool_timeout": LOCK_WAIT_S,
        "pool_pre_ping": True,
        "connect_args": {name: value for name, value in ours.items() if name not in url.query},
    }


@dataclass(frozen=True, slots=True)
class Place:
    """A path, and the file that lay there when it was opened, by the system's own numbers."""

    path: str
    device: int
    inode: int

    def change(self) -> str:
        """Return what has become of it, "" while it is the same file."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 # twice in every transaction: a Path costs more than the question
        except OSError as error:
            return str(error.strerror)
        is_same = (found.st_dev, found.st_ino) == (self.device, self.inode)
        return "" if is_same else "another file lies there now"


def place_of(connection: sqlite3.Connection) -> Place | None:
    """Return where a connection's file lies; None for a database in memory."""
    path = str(connection.execute("PRAGMA database_list").fetchone()[2] or "")
    if not path:
        return None
    found = os.stat(path)  # noqa: PTH116 # as above
    return Place(path, found.st_dev, found.st_ino)


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


_STEP = 256
T = TypeVar("T")


def rounded(names: Collection[T]) -> Sequence[T]:
    """Return the names, the last one repeated until there are a round number of them: a power of two, or a multiple of 256.

    A statement with a list of another length is another statement, and both the driver and SQLite keep the last hundred and
    more of them, each as large as its list is long: 50 MB of a read whose chunks all ask for another number of rows.
    """
    listed = list(names)
    count = len(listed)
    wanted = 1 << (count - 1).bit_length() if count <= _STEP else -(-count // _STEP) * _STEP
    return listed + listed[-1:] * (wanted - count)


def insert_if_new(connection: Connection, table: Table) -> Insert:
    """Return an insert that leaves a row with the same key as it is; on PostgreSQL it waits for whoever is making one."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def put(connection: Connection, table: Table, key: Mapping[str, object], rest: Mapping[str, object]) -> None:
    """Write a row in place of the one with the same key; of several who do so at once, the last one stands."""
    connection.execute(insert_if_new(connection, table), {**key, **rest})
    ours = and_(*(table.c[name] == value for name, value in key.items()))
    connection.execute(update(table).where(ours).values(**rest))


@contextmanager
def existing_database(url: str, *, upgrades: bool = True) -> Iterator[Engine | None]:
    """Open the state DB at a SQLAlchemy URL for the length of the block; None where none was made yet.

    `upgrades` False leaves its schema as it is.

    Raises what `open_database` raises.
    """
    if not _is_there(url):
        yield None
        return
    engine = open_database(url, upgrades=upgrades)
    try:
        yield engine
    finally:
        engine.dispose()


def _is_there(url: str) -> bool:
    """Only a SQLite file can be missing; whatever else is wrong with the URL, opening it says so."""
    try:
        address = make_url(url)
    except ArgumentError:
        return True
    file = address.database if address.get_backend_name() == "sqlite" else None
    return not file or file.startswith((":memory:", "file:")) or Path(file).exists()
