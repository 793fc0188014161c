"""Opening the state DB (SQLite or PostgreSQL), upgrading its schema, and its two kinds of transaction.

Lists of names in statements are rounded up (see `rounded`) for the memory budget of a read of a million rows.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry

from mappings.errors import ConfigError, SyncError
from state import errors
from state.errors import Failure, StateUnavailableError
from state.holders import boot_clock, held_by, is_free
from state.migrations.upgrade import HEAD, OLDEST, is_known, upgrade
from state.private_files import make_private_file, make_private_folder, narrow
from state.tables import LEASE, SCOPE

StateDb = sa.Engine
"""The open state DB, for callers that only pass it on."""

T = TypeVar("T")

LOCK_WAIT_S = 30.0
"""How long a statement waits for another process's lock, unless the URL says otherwise."""
_EXAMPLES = "for example sqlite:///.eventsync/state.db or postgresql://user@host/name"
_POSTGRES = {"postgres", "postgresql", "postgresql+psycopg"}
_SQLITE_POOL = {"pool_size": 1}
"""Connections that wait for their next transaction: each keeps up to 32 MB of SQLite's pages."""
_WAL_PAGES = 10_000
"""Pages of 4 KiB that wait in SQLite's log. A first read writes to most pages of an index again and again: they are
copied into the file once for all of its last chunks, and not, as by default, for each of them."""
_POSTGRES_SETTINGS = (
    ("synchronous_commit", "on"),  # a role or a database may be set to lose the last moments in a power cut
    ("lock_timeout", f"{LOCK_WAIT_S:.0f}s"),
    ("idle_in_transaction_session_timeout", "60s"),  # a process that was stopped in mid-transaction blocks no other
)
_POSTGRES_CONNECTION = {
    "application_name": "eventsync",
    "client_encoding": "UTF8",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "options": " ".join(f"-c {name}={value}" for name, value in _POSTGRES_SETTINGS),
}
_UPGRADE_LOCK = 0x6576_7379  # any number of our own: PostgreSQL's advisory locks are named by numbers
_IS_WRITER, _FILE = "eventsync_writer", "eventsync_file"


def parse(url: str) -> sa.URL:
    """Read a SQLAlchemy URL of SQLite or PostgreSQL, which may be spelt as PostgreSQL's own tools spell it.

    Raises `ConfigError` for any other, without repeating it: it may hold a password.
    """
    try:
        address = sa.make_url(url)
        if address.drivername in _POSTGRES:
            address = address.set(drivername="postgresql+psycopg")
        address.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError("EVENTSYNC_STATE_URL is not an address of a database that we know", hint=_EXAMPLES) from error
    except ImportError as error:
        raise _missing_driver(error) from error
    if "@" in (address.host or ""):
        raise ConfigError(
            "EVENTSYNC_STATE_URL holds more than one @, so that a part of its password would be taken for the host",
            hint="write each @, : and / of a user name or password as %40, %3A and %2F",
        )
    if address.drivername not in {"sqlite", "sqlite+pysqlite", "postgresql+psycopg"}:
        raise ConfigError(f"EVENTSYNC_STATE_URL asks for {address.drivername}, which we do not know", hint=_EXAMPLES)
    return address


def shown_url(url: str | sa.URL) -> str:
    """Return a database's name for people: the path of a file, else the URL without its password.

    Raises `ConfigError` as `parse`.
    """
    address = parse(url) if isinstance(url, str) else url
    return address.database or ":memory:" if _is_sqlite(address) else address.render_as_string(hide_password=True)


def open_database(url: str, *, upgrades: bool = True) -> sa.Engine:
    """Open the state DB at a SQLAlchemy URL, create it where it is missing, and upgrade its schema to ours.

    A settled answer survives power loss from the moment its transaction returns. Processes that start at once wait for
    one another. `upgrades` False changes nothing, and connects only when the state DB is first used.

    Raises `ConfigError` for a URL that names no database or a schema newer than ours, `HeldByAnotherError` while a run of an
    earlier version works with older tables, `StateUnavailableError` where a person must mend something (a file or a role
    without rights, damage, a wrong password), `StateBusyError` where it is locked or cannot be reached just now.
    """
    address = parse(url)
    folder = Path(str(address.database)).parent
    try:
        if _is_file(address):
            make_private_folder(folder.absolute())  # for its owner alone: bodies and raw cells are the partner's
    except OSError as error:
        raise StateUnavailableError(
            f"the folder of the state DB cannot be made: {folder}: {error.strerror}",
            hint="make the folder, or set EVENTSYNC_STATE_URL to a place where you may write",
        ) from error
    engine = _create_engine(address)
    try:
        if upgrades:
            _bring_to_head(engine)
    except SyncError:
        engine.dispose()
        raise
    return engine


@contextmanager
def existing_database(url: str, *, upgrades: bool = True) -> Iterator[sa.Engine | None]:
    """Open the state DB for the length of the block; None where none was made yet. Raises what `open_database` raises."""
    is_missing = False
    with suppress(ArgumentError):  # opening says what is wrong with the URL
        address = sa.make_url(url)
        is_missing = _is_file(address) and not Path(str(address.database)).exists()
    if is_missing:
        yield None
        return
    engine = open_database(url, upgrades=upgrades)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction that writes: all of it is durable when the block ends, or none of it.

    On SQLite it takes the write lock at once, so that it never fails half-way for another writer, and it fails where
    another file has taken the place of the one that was opened. Raises `StateUnavailableError` or `StateBusyError`.
    """
    with _explained(engine.url), engine.connect().execution_options(**{_IS_WRITER: True}) as connection:
        with connection.begin():
            yield connection
        _check_file(connection)


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction that reads a snapshot; it waits for no other and blocks none.

    Raises `StateUnavailableError` or `StateBusyError`.
    """
    with _explained(engine.url), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


def free_pages(connection: sa.Connection) -> None:
    """Free what SQLite has cached for this connection: two connections with full caches would break the memory budget."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA shrink_memory")


def schema_revision(engine: sa.Engine) -> str | None:
    """Return the schema's revision, None where there is no schema."""
    with reading(engine) as connection:
        return _revision(connection)


def rounded(names: Collection[T]) -> Sequence[T]:
    """Return the names, the last one repeated until their number is a power of two, or a multiple of 256.

    A statement with a list of another length is another statement, and both the driver and SQLite keep the last hundred and
    more of them, each as large as its list is long: 50 MB of a read whose chunks all ask for another number of rows.
    """
    listed = list(names)
    count = len(listed)
    wanted = 1 << (count - 1).bit_length() if count <= 256 else -(-count // 256) * 256
    return listed + listed[-1:] * (wanted - count)


def insert_if_new(connection: sa.Connection, table: sa.Table) -> sa.Insert:
    """Return an insert that leaves a row with the same key as it is; on PostgreSQL it waits for one that is being made."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def put(connection: sa.Connection, table: sa.Table, key: Mapping[str, object], rest: Mapping[str, object]) -> None:
    """Write a row in place of the one with the same key; of several writers at once, the last one stands."""
    connection.execute(insert_if_new(connection, table), {**key, **rest})
    connection.execute(sa.update(table).where(*(table.c[name] == value for name, value in key.items())).values(**rest))


def _is_sqlite(address: sa.URL) -> bool:
    return address.get_backend_name() == "sqlite"


def _is_file(address: sa.URL) -> bool:
    """Whether it is a plain SQLite file: neither in memory nor a `file:` URI with options of its own."""
    name = address.database or ""
    return _is_sqlite(address) and bool(name) and not name.startswith((":memory:", "file:"))


def _missing_driver(error: ImportError) -> ConfigError:
    return ConfigError(
        f"PostgreSQL's driver is not installed: {error}",
        hint='run `pip install "eventsync[postgres]"`, or use SQLite: EVENTSYNC_STATE_URL=sqlite:///.eventsync/state.db',
    )


def _create_engine(address: sa.URL) -> sa.Engine:
    if _is_sqlite(address):
        return _create_sqlite(address)
    try:
        return sa.create_engine(
            address,
            hide_parameters=True,  # they are the partner's, and belong in no message
            isolation_level="READ COMMITTED",
            pool_size=2,  # the drain's thread and the one that waits for it
            max_overflow=3,
            pool_timeout=LOCK_WAIT_S,
            pool_pre_ping=True,
            connect_args={name: value for name, value in _POSTGRES_CONNECTION.items() if name not in address.query},
        )
    except ImportError as error:
        raise _missing_driver(error) from error


def _create_sqlite(address: sa.URL) -> sa.Engine:
    """`?timeout=5` in the URL says in seconds how long SQLite waits for another process."""
    try:
        wait_s = float(str(address.query.get("timeout") or LOCK_WAIT_S))
    except ValueError as error:
        raise ConfigError("EVENTSYNC_STATE_URL: timeout is not a number of seconds", hint="for example ?timeout=30") from error
    engine = sa.create_engine(address, hide_parameters=True, **(_SQLITE_POOL if _is_file(address) else {}))

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        """Set what SQLite forgets between connections; `isolation_level = None` leaves BEGIN to `_begin`."""
        connection.isolation_level = None
        for_writing = ("journal_mode = WAL", "synchronous = FULL", f"wal_autocheckpoint = {_WAL_PAGES}", "foreign_keys = ON")
        is_read_only = _is_file(address) and _is_read_only(str(address.database))
        for pragma in (f"busy_timeout = {wait_s * 1000:.0f}", *(() if is_read_only else for_writing), "cache_size = -32000"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        if path := str(connection.execute("PRAGMA database_list").fetchone()[2] or ""):
            record.info[_FILE] = path, _identity(path)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        is_writer = connection.get_execution_options().get(_IS_WRITER, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")
        if is_writer:
            _check_file(connection)

    if _is_file(address):
        sa.event.listen(engine, "do_connect", _open_as_allowed)
    return engine


def _open_as_allowed(_dialect: object, _record: object, words: list[Any], options: dict[str, Any]) -> None:
    """Open a file that we may not write to for reading only: SQLite itself would try to make its journal beside it.

    Any other one is made private with those beside it; SQLite gives new ones beside it the rights of the file.
    """
    file = str(words[0])
    if _is_read_only(file):
        words[0] = _read_only_uri(file)
        options["uri"] = True
        return
    make_private_file(Path(file))
    for beside in (f"{file}-wal", f"{file}-shm"):
        narrow(Path(beside))


def _is_read_only(file: str) -> bool:
    """Whether a SQLite file is there and we may not write to it, or not make the files beside it that writing takes."""
    beside = [f"{file}-wal", f"{file}-shm"]
    may_write = os.access(Path(file).parent, os.W_OK) or all(os.access(each, os.W_OK) for each in beside)
    return Path(file).exists() and not (os.access(file, os.W_OK) and may_write)


def _read_only_uri(file: str) -> str:
    """Return the URI that opens a SQLite file for reading only.

    Where no process has it open and no change waits in its write-ahead log, `immutable` says so: SQLite cannot make the shared
    memory in which it would see that for itself. A log without shared memory stays unreadable: what it holds would be missed.
    """
    log, shared = Path(f"{file}-wal"), Path(f"{file}-shm")
    is_at_rest = not shared.exists() and not (log.exists() and log.stat().st_size)
    return f"{Path(file).absolute().as_uri()}?mode=ro{'&immutable=1' * is_at_rest}"


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)  # noqa: PTH116 # twice in every transaction: a Path costs more than the question
    return found.st_dev, found.st_ino


def _check_file(connection: sa.Connection) -> None:
    """SQLite goes on writing to a file that was deleted or replaced, which no process would ever read."""
    path, identity = connection.info.get(_FILE, ("", None))
    if not path:
        return
    try:
        change = "" if _identity(path) == identity else "another file lies there now"
    except OSError as error:
        change = str(error.strerror)
    if change:
        raise Failure.MOVED.error(path, change)


def _bring_to_head(engine: sa.Engine) -> None:
    revision = schema_revision(engine)
    if revision == HEAD:
        return
    check_revision(revision, f"the state DB {shown_url(engine.url)}")
    try:
        with writing(engine) as connection:
            if connection.dialect.name == "postgresql":
                _lock_postgres(connection)
            present = _revision(connection)  # another process may have upgraded it meanwhile
            check_revision(present, f"the state DB {shown_url(engine.url)}")
            if present is not None and present != HEAD:
                _refuse_while_held(connection, present)
            if present != HEAD:
                upgrade(connection)
    except StateUnavailableError as error:
        if revision is None:
            raise
        raise StateUnavailableError(
            f"the state DB {shown_url(engine.url)} has the tables of an earlier version (schema {revision}, ours is {HEAD}),"
            f" and they cannot be upgraded: {error}",
            hint=f"{error.hint}; any command of a user who may write to it upgrades it, `eventsync status` for example",
        ) from error


def check_revision(revision: str | None, what: str) -> None:
    """Check that a schema can be read or upgraded. Raises `ConfigError`, which names `what` has it."""
    if revision is None or is_known(revision):
        return
    if revision < OLDEST:
        raise ConfigError(
            f"{what} has the tables of a version before 0.1 (schema {revision}, ours is {HEAD})",
            hint="open it once with version 0.1 (`eventsync status`), which upgrades it, then with this one",
        )
    raise ConfigError(
        f"{what} was written by a newer version (schema {revision}, ours is {HEAD})",
        hint="use that version again or a later one, or point EVENTSYNC_STATE_URL at another state DB",
    )


def _lock_postgres(connection: sa.Connection) -> None:
    """Let one process upgrade at a time. Only the encoding UTF8 holds every text of ours."""
    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _UPGRADE_LOCK})
    encoding = connection.execute(sa.text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise Failure.STRANGE_VALUE.error(shown_url(connection.engine.url), f"its encoding is {encoding}")


def _refuse_while_held(connection: sa.Connection, revision: str) -> None:
    """Do not change the tables of a run at work: it would fail in the middle."""
    is_server = connection.dialect.name == "postgresql"
    server_now = sa.func.clock_timestamp(type_=LEASE.c.heartbeat_at.type) if is_server else sa.null()
    leases = sa.select(LEASE, SCOPE.c.feed, server_now.label("server_now")).join(SCOPE, SCOPE.c.id == LEASE.c.scope_id)
    for lease in connection.execute(leases):
        if not is_free(lease, None if is_server else boot_clock(), partial(_sqlite_now, connection)):
            raise held_by(
                lease,
                what=f"the state DB {shown_url(connection.engine.url)} has the tables of an earlier version (schema {revision}, "
                f"ours is {HEAD}), and they cannot be upgraded while a run is at work: {lease.feed} is held by",
                hint="wait for that run to end, or stop it, then start again; a dead one lets go within a minute",
            )


def _sqlite_now(connection: sa.Connection) -> datetime:
    return datetime.fromisoformat(connection.exec_driver_sql("SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')").scalar_one())


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


@contextmanager
def _explained(url: sa.URL) -> Iterator[None]:
    """Raise the errors of drivers as ours, for people."""
    try:
        yield
    except DBAPIError as error:
        if interruption := _interruption(error):
            raise interruption from None
        if isinstance(error.orig, sqlite3.Error):
            what, reply = errors.of_sqlite(error.orig, url.database if _is_file(url) else None)
        else:
            what, reply = errors.of_postgres(error), " ".join(str(error.orig).split())
        masked = reply.replace(str(url.password), "***") if url.password else reply
        raise what.error(shown_url(url), masked) from error
    except PoolTimeoutError as error:
        raise Failure.SLOW_POOL.error(shown_url(url), "all connections of this process are at work") from error
    except (OverflowError, UnicodeEncodeError) as error:  # the driver's, of what cannot even be sent
        raise Failure.STRANGE_VALUE.error(shown_url(url), str(error)) from error


def _interruption(error: DBAPIError) -> BaseException | None:
    """Return the interruption (Ctrl-C) in whose place a driver's clean-up has put a complaint of its own, if there was one."""
    cause: BaseException | None = error.orig
    while isinstance(cause, Exception):
        cause = cause.__context__
    return cause
