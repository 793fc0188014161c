"""The state DB, SQLite or PostgreSQL: its address, its connections, and transactions for writing and reading.

The lengths of lists in statements are rounded up (`rounded`), to keep the memory budget of a read of a million rows.
"""

from __future__ import annotations

import os
import select
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import islice
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidatePoolError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry

from mappings.errors import ConfigError
from state import errors
from state.errors import Failure
from state.private_files import make_private_file, narrow

if TYPE_CHECKING:
    import psycopg

StateDb = sa.Engine
"""The open state DB, for callers that only pass it on."""
T = TypeVar("T")
LOCK_WAIT_S = 30.0
"""How long a statement waits for another process's lock, in seconds, unless the URL gives a timeout."""
_TRY_S = 0.25
"""The longest wait for SQLite's lock in C, in seconds: Python handles signals between two tries."""
_EXAMPLES = "for example sqlite:///.eventsync/state.db or postgresql://user@host/name"
_POSTGRES = {"postgres", "postgresql", "postgresql+psycopg"}
_SQLITE_POOL = {"pool_size": 1}
"""Idle connections to keep: each holds up to 16 MB of SQLite's page cache."""
_WAL_PAGES = 10_000
"""Pages of 4 KiB in SQLite's write-ahead log before a checkpoint. A first read changes most pages of an index repeatedly; this
copies them into the file once for all of its last chunks instead of once for each.
"""
_POSTGRES_SETTINGS = (
    ("synchronous_commit", "on"),  # a role or a database may be set to lose the last moments in a power cut
    ("lock_timeout", f"{LOCK_WAIT_S:.0f}s"),
    ("idle_in_transaction_session_timeout", "60s"),  # a process that was stopped in mid-transaction blocks no other
    ("plan_cache_mode", "force_custom_plan"),  # a plan that is kept is one for the tables of a moment, which may be empty
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
_IS_WRITER, _FILE, _USED_AT = "eventsync_writer", "eventsync_file", "eventsync_used_at"
_LONG_IDLE_S = 10.0


class _CompiledStatements(dict[Any, Any]):
    """The compiled statements of all engines of this process, so that a new engine compiles none of them again.

    SQLAlchemy's keys hold the engine's own dialect object; these hold what it compiles for.
    """

    _MOST = 2_000

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._for_any_engine(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        if len(self) >= self._MOST:
            self.clear()
        super().__setitem__(self._for_any_engine(key), compiled)

    def _for_any_engine(self, key: Any) -> Any:
        return tuple((type(part), part.server_version_info) if isinstance(part, sa.Dialect) else part for part in key)


_COMPILED = _CompiledStatements()


def parse(url: str) -> sa.URL:
    """Parse a SQLAlchemy URL of SQLite or PostgreSQL, also in the spelling of PostgreSQL's own tools.

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
        raise ConfigError(f"EVENTSYNC_STATE_URL names the database {address.drivername}, which is not supported", hint=_EXAMPLES)
    return address


def shown_url(url: str | sa.URL) -> str:
    """Return a database's name for display: the path of a file, else the URL without its password.

    Raises `ConfigError` as `parse`.
    """
    address = parse(url) if isinstance(url, str) else url
    return address.database or ":memory:" if _is_sqlite(address) else address.render_as_string(hide_password=True)


@contextmanager
def writing(engine: sa.Engine, *, autocommit: bool = False) -> Iterator[sa.Connection]:
    """Run one write transaction: all of it is durable when the block ends, or none of it.

    On SQLite it takes the write lock at once, so that it never fails half-way because of another writer. `autocommit`: each
    statement is a transaction of its own on PostgreSQL, and takes one round trip. Raises `StateUnavailableError`, also if the
    opened file was replaced, or `StateBusyError`.
    """
    with _explained(engine.url), engine.connect().execution_options(**{_IS_WRITER: True}) as connection:
        _isolate(connection, "AUTOCOMMIT" if autocommit else None)
        with connection.begin():
            yield connection
        _check_file(connection)


@contextmanager
def reading(engine: sa.Engine, *, autocommit: bool = False) -> Iterator[sa.Connection]:
    """Run one read transaction on a snapshot; it neither waits for others nor blocks them. `autocommit` as for `writing`.

    Raises `StateUnavailableError` or `StateBusyError`.
    """
    with _explained(engine.url), engine.connect() as connection:
        _isolate(connection, "AUTOCOMMIT" if autocommit else "REPEATABLE READ")
        with connection.begin():
            yield connection


def _isolate(connection: sa.Connection, level: IsolationLevel | None) -> None:
    if level is not None and connection.dialect.name == "postgresql":
        connection.execution_options(isolation_level=level)


def free_pages(connection: sa.Connection) -> None:
    """Release SQLite's cache of this connection: two connections with full caches would exceed the memory budget."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA shrink_memory")


def rounded(names: Collection[T]) -> Sequence[T]:
    """Return the names, with the last one repeated until their number is a power of two or a multiple of 256.

    Drivers and SQLite cache the last hundred or more statements, and a list of another length makes another statement as large
    as the list: 50 MB for a read whose chunks all differ in length.
    """
    listed = list(names)
    count = len(listed)
    wanted = 1 << (count - 1).bit_length() if count <= 256 else -(-count // 256) * 256
    return listed + listed[-1:] * (wanted - count)


def insert_if_new(connection: sa.Connection, table: sa.Table) -> sa.Insert:
    """Return an insert that ignores rows whose key exists; on PostgreSQL it waits for a concurrent insert of the same key."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def put_all(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], *key: str, keeps: str | None = None
) -> None:
    """Insert whole rows, or replace those with the same key (of itself the primary one). `keeps`: a column not to replace."""
    run_prepared(connection, _putting(table, connection.dialect.name, key, keeps), rows)


@lru_cache
def _putting(table: sa.Table, dialect: str, key: Sequence[str], keeps: str | None) -> Any:
    new = (postgresql if dialect == "postgresql" else sqlite).insert(table)
    columns = [column.name for column in table.c if column.autoincrement is not True]
    unique = key or [column.name for column in table.primary_key]
    changed = {name: new.excluded[name] for name in columns if name not in unique and name != keeps}
    new = new.values({name: sa.bindparam(name) for name in columns})
    return new.on_conflict_do_update(index_elements=unique, set_=changed)


def put(connection: sa.Connection, table: sa.Table, key: Mapping[str, object], rest: Mapping[str, object]) -> None:
    """Insert a row, or replace the one with the same key; of several concurrent writers the last one wins."""
    connection.execute(insert_if_new(connection, table), {**key, **rest})
    connection.execute(sa.update(table).where(*(table.c[name] == value for name, value in key.items())).values(**rest))


def run_prepared(connection: sa.Connection, statement: sa.UpdateBase, rows: Sequence[Mapping[str, Any]]) -> int:
    """Run a statement for each row of parameters, and return how many rows it found.

    It is compiled once, and the parameters are converted here: SQLAlchemy takes twice as long for that (budget 5).
    """
    text, names, given, converters = _prepared(statement, connection.dialect)
    values: list[Any] = [{**given, **row} for row in rows]
    for row in values:
        for name, convert in converters:
            row[name] = convert(row[name])
    if names is not None:
        values = [tuple([row[name] for name in names]) for row in values]
    return connection.exec_driver_sql(text, values if len(values) > 1 else values[0]).rowcount


@lru_cache(maxsize=64)
def _prepared(
    statement: sa.UpdateBase, dialect: sa.Dialect
) -> tuple[str, Sequence[str] | None, Mapping[str, Any], Sequence[tuple[str, Callable[[Any], Any]]]]:
    """Return a statement's text, the names of its parameters in the driver's order, their values, and the types' converters."""
    compiled = statement.compile(dialect=dialect)
    given = {name: bind.value for name, bind in compiled.binds.items()}
    found = ((name, bind.type.dialect_impl(dialect).bind_processor(dialect)) for name, bind in compiled.binds.items())
    return str(compiled), compiled.positiontup, given, [(name, convert) for name, convert in found if convert is not None]


def _is_sqlite(address: sa.URL) -> bool:
    return address.get_backend_name() == "sqlite"


def is_sqlite_file(address: sa.URL) -> bool:
    """Return whether the address is a plain SQLite file: neither in memory nor a `file:` URI with options."""
    name = address.database or ""
    return _is_sqlite(address) and bool(name) and not name.startswith((":memory:", "file:"))


def _missing_driver(error: ImportError) -> ConfigError:
    return ConfigError(
        f"PostgreSQL's driver is not installed: {error}",
        hint='run `pip install "eventsync[postgres]"`, or use SQLite: EVENTSYNC_STATE_URL=sqlite:///.eventsync/state.db',
    )


def create_engine(address: sa.URL, *, keeps_log: bool = False) -> sa.Engine:
    engine = _create_sqlite(address, keeps_log=keeps_log) if _is_sqlite(address) else _create_postgres(address)
    engine.update_execution_options(compiled_cache=_COMPILED)
    return engine


def _create_postgres(address: sa.URL) -> sa.Engine:
    try:
        engine = sa.create_engine(
            address,
            hide_parameters=True,  # they are the partner's, and belong in no message
            isolation_level="READ COMMITTED",
            pool_size=3,  # the drain's thread, the one that waits for it, and the rate limiter's
            max_overflow=3,
            pool_timeout=LOCK_WAIT_S,
            connect_args={name: value for name, value in _POSTGRES_CONNECTION.items() if name not in address.query},
        )
    except ImportError as error:
        raise _missing_driver(error) from error
    sa.event.listen(engine, "checkin", _note_use)
    sa.event.listen(engine, "checkout", _check_connection)
    return engine


def _note_use(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info[_USED_AT] = monotonic()


def _check_connection(connection: psycopg.Connection, record: ConnectionPoolEntry, _proxy: object) -> None:
    """Have the pool renewed if the server has closed a connection, without `pool_pre_ping`'s round trip in each transaction.

    A server that closes a connection sends something. A firewall that cuts it sends nothing, but cuts only what is idle for
    long.
    """
    try:
        arrived = select.poll()
        arrived.register(connection, select.POLLIN)
        if arrived.poll(0) or monotonic() - record.info.get(_USED_AT, inf) > _LONG_IDLE_S:
            connection.execute("SELECT 1")
            connection.rollback()
    except connection.OperationalError as error:
        raise InvalidatePoolError from error


def log_of(address: sa.URL) -> Path | None:
    """Return the write-ahead log that lies beside a SQLite file, None if there is none with changes."""
    log = Path(f"{address.database}-wal")
    return log if is_sqlite_file(address) and log.exists() and log.stat().st_size else None


def _create_sqlite(address: sa.URL, *, keeps_log: bool) -> sa.Engine:
    """Create the engine for SQLite; `?timeout=5` in the URL is the number of seconds to wait for another process.

    `keeps_log`: as for `open_database`; without a log the file is opened as usual, which leaves nothing beside it.
    """
    keeps_log = keeps_log and log_of(address) is not None
    try:
        wait_s = float(str(address.query.get("timeout") or LOCK_WAIT_S))
    except ValueError as error:
        raise ConfigError("EVENTSYNC_STATE_URL: timeout is not a number of seconds", hint="for example ?timeout=30") from error
    engine = sa.create_engine(address, hide_parameters=True, **(_SQLITE_POOL if is_sqlite_file(address) else {}))
    opened: dict[str, tuple[int, int]] = {}

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        """Set the pragmas of a new connection; `isolation_level = None` leaves BEGIN to `_begin`."""
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {wait_s * 1000:.0f}").fetchall()
        is_read_only = is_sqlite_file(address) and (keeps_log or _is_read_only(str(address.database)))
        if not is_read_only:
            _use_write_ahead_log(connection, wait_s)
        for_writing = ("synchronous = FULL", f"wal_autocheckpoint = {_WAL_PAGES}", "foreign_keys = ON")
        short_wait = f"busy_timeout = {min(wait_s, _TRY_S) * 1000:.0f}"
        for pragma in (*(() if is_read_only else for_writing), "cache_size = -16000", short_wait):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        if path := str(connection.execute("PRAGMA database_list").fetchone()[2] or ""):
            record.info[_FILE] = path, opened.setdefault(path, _identity(path))  # the file that the first connection opened

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get(_IS_WRITER, False):
            _begin_writing(connection, wait_s)
        else:
            connection.exec_driver_sql("BEGIN")
        _check_file(connection)

    if is_sqlite_file(address):
        sa.event.listen(engine, "do_connect", partial(_open_as_allowed, keeps_log=keeps_log))
    return engine


def _begin_writing(connection: sa.Connection, wait_s: float) -> None:
    """Begin a transaction with the write lock; wait for another process's in short tries."""
    until = monotonic() + wait_s
    while True:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        except DBAPIError as error:
            if getattr(error.orig, "sqlite_errorname", "") != "SQLITE_BUSY" or monotonic() >= until:
                raise
        else:
            return


def _use_write_ahead_log(connection: sqlite3.Connection, wait_s: float) -> None:
    """Switch a new file to its write-ahead log; SQLite itself does not wait if another process does the same at this moment."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random  # noqa: PLC0415 # for new files alone

    is_locked = retry_if_exception(lambda error: getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY")
    switch = Retrying(retry=is_locked, stop=stop_after_delay(wait_s), wait=wait_random(0.01, 0.05), reraise=True)
    switch(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchall())


def _open_as_allowed(_dialect: object, _record: object, words: list[Any], options: dict[str, Any], *, keeps_log: bool) -> None:
    """Open a file without write permission, or whose log is kept, read-only: SQLite would create its journal, or copy the log.

    Other files are made private with those beside them; SQLite copies the file's permissions to new ones.
    """
    file = str(words[0])
    if keeps_log or _is_read_only(file):
        words[0] = _read_only_uri(file)
        options["uri"] = True
        return
    make_private_file(Path(file))
    for beside in (f"{file}-wal", f"{file}-shm"):
        narrow(Path(beside))


def _is_read_only(file: str) -> bool:
    """Return whether a SQLite file exists and we may not write to it, or not create the files beside it that writing needs."""
    beside = [f"{file}-wal", f"{file}-shm"]
    may_write = os.access(Path(file).parent, os.W_OK) or all(os.access(each, os.W_OK) for each in beside)
    return Path(file).exists() and not (os.access(file, os.W_OK) and may_write)


def _read_only_uri(file: str) -> str:
    """Return the URI that opens a SQLite file read-only.

    If no process has it open and its write-ahead log is empty, `immutable` is added: SQLite cannot create the shared memory by
    which it would detect that. A log without shared memory stays unreadable, since its changes would be missed.
    """
    log, shared = Path(f"{file}-wal"), Path(f"{file}-shm")
    is_at_rest = not shared.exists() and not (log.exists() and log.stat().st_size)
    return f"{Path(file).absolute().as_uri()}?mode=ro{'&immutable=1' * is_at_rest}"


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)  # noqa: PTH116 # twice in every transaction: a Path costs more than the question
    return found.st_dev, found.st_ino


def _check_file(connection: sa.Connection) -> None:
    """Fail if the opened SQLite file was deleted or replaced: SQLite would continue to write to a file that no other process
    reads.
    """
    path, identity = connection.info.get(_FILE, ("", None))
    if not path:
        return
    try:
        change = "" if _identity(path) == identity else "another file lies there now"
    except OSError as error:
        change = str(error.strerror)
    if change:
        raise Failure.MOVED.error(path, change)


@contextmanager
def _explained(url: sa.URL) -> Iterator[None]:
    """Convert the drivers' exceptions in the block to errors with a hint."""
    try:
        yield
    except DBAPIError as error:
        if interruption := _interruption(error):
            raise interruption from None
        if isinstance(error.orig, sqlite3.Error):
            what, reply = errors.of_sqlite(error.orig, url.database if is_sqlite_file(url) else None)
        else:
            what, reply = errors.of_postgres(error), " ".join(str(error.orig).split())
        masked = reply.replace(str(url.password), "***") if url.password else reply
        raise what.error(shown_url(url), masked) from error
    except PoolTimeoutError as error:
        raise Failure.AWAY.error(shown_url(url), "all connections of this process are at work") from error
    except (OverflowError, UnicodeEncodeError) as error:  # the driver's, of what cannot even be sent
        raise Failure.OTHER.error(shown_url(url), str(error)) from error


def _interruption(error: DBAPIError) -> BaseException | None:
    """Return the interruption (Ctrl-C) that a driver's clean-up has replaced by an exception of its own, None if there was
    none.
    """
    cause: BaseException | None = error.orig
    while isinstance(cause, Exception):
        cause = cause.__context__
    return cause


def in_pages(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in pages that fit into one statement."""
    rest = iter(items)
    while page := list(islice(rest, 500)):
        yield page
