"""Opens the state DB: creates it if missing, and upgrades its schema while no run works on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from mappings.errors import ConfigError, SyncError
from state.database import create_engine, is_sqlite_file, parse, reading, shown_url, writing
from state.errors import Failure, StateDamagedError, StateUnavailableError
from state.ledger.lease import held_by, is_free, server_now
from state.migrations.upgrade import HEAD, is_known, upgrade
from state.private_files import make_private_folder
from state.tables import LEASE, SCOPE

_UPGRADE_LOCK = 0x6576_7379  # any number of our own: PostgreSQL's advisory locks are named by numbers


def open_database(url: str, *, upgrades: bool = True, keeps_log: bool = False) -> sa.Engine:
    """Open the state DB at a SQLAlchemy URL, create it if missing, and upgrade its schema.

    A settled answer survives a power loss once its transaction returns. Processes that start at the same time wait for one
    another. With `upgrades` False nothing is changed, and the connection is made on first use; with `keeps_log` a write-ahead
    log that lies beside a SQLite file is read, and not copied into the file. Raises `ConfigError` for a URL
    that names no database or a schema newer than ours, `HeldByAnotherError` while a run of an earlier version works with older
    tables, `StateUnavailableError` if a person must correct something (permissions, damage, a wrong password), `StateBusyError`
    if it is locked or cannot be reached at the moment.
    """
    address = parse(url)
    folder = Path(str(address.database)).parent
    try:
        if is_sqlite_file(address):
            make_private_folder(folder.absolute())  # for its owner alone: bodies and raw cells are the partner's
    except OSError as error:
        raise StateUnavailableError(
            f"the folder of the state DB cannot be made: {folder}: {error.strerror}",
            hint="make the folder, or set EVENTSYNC_STATE_URL to a place where you may write",
        ) from error
    engine = create_engine(address, keeps_log=keeps_log)
    try:
        if upgrades:
            _bring_to_head(engine)
    except SyncError:
        engine.dispose()
        raise
    return engine


@contextmanager
def opened_database(url: str, *, upgrades: bool = True, keeps_log: bool = False) -> Iterator[sa.Engine]:
    """Open the state DB during the block, creating it if missing. Raises as `open_database`."""
    engine = open_database(url, upgrades=upgrades, keeps_log=keeps_log)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def existing_database(url: str, *, upgrades: bool = True, keeps_log: bool = False) -> Iterator[sa.Engine | None]:
    """Open the state DB during the block; yield None if it does not exist. Raises as `open_database`."""
    address = parse(url)
    if is_sqlite_file(address) and not Path(str(address.database)).exists():
        yield None
        return
    with opened_database(url, upgrades=upgrades, keeps_log=keeps_log) as engine:
        yield engine


def schema_revision(engine: sa.Engine) -> str | None:
    """Return the schema's revision, None where there is no schema."""
    with reading(engine) as connection:
        return _revision(connection)


def _bring_to_head(engine: sa.Engine) -> None:
    revision = schema_revision(engine)
    if revision == HEAD:
        return
    check_revision(revision, f"the state DB {shown_url(engine.url)}")
    try:
        with writing(engine) as connection:
            if connection.dialect.name == "postgresql":
                # Let one process upgrade at a time. Only the encoding UTF8 holds every text of ours.
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _UPGRADE_LOCK})
                encoding = connection.execute(sa.text("SHOW server_encoding")).scalar_one()
                if encoding != "UTF8":
                    raise Failure.OTHER.error(shown_url(connection.engine.url), f"its encoding is {encoding}")
            present = _revision(connection)  # another process may have upgraded it meanwhile
            check_revision(present, f"the state DB {shown_url(engine.url)}")
            if present is not None and present != HEAD:
                _refuse_while_held(connection, present)
            if present != HEAD:
                upgrade(connection)
                # A run that was suspended for longer than its lease must not go on with what it knew before.
                connection.execute(sa.update(LEASE).values(token=LEASE.c.token + 1, holder=""))
    except StateUnavailableError as error:
        if revision is None or isinstance(error, StateDamagedError):
            raise
        raise StateUnavailableError(
            f"the state DB {shown_url(engine.url)} has the tables of an earlier version (schema {revision}, ours is {HEAD}),"
            f" and they cannot be upgraded: {error}",
            hint=f"{error.hint}; any command of a user who may write to it upgrades it, `eventsync status` for example",
        ) from error


def check_revision(revision: str | None, what: str) -> None:
    """Check that a schema can be read or upgraded. Raises `ConfigError`; `what` names the file or database in it."""
    if revision is None or is_known(revision):
        return
    if revision < HEAD:
        raise ConfigError(
            f"{what} has the tables of a version before 0.2 (schema {revision}, ours is {HEAD})",
            hint="open it once with version 0.2 (`eventsync status`), which upgrades it, then with this one",
        )
    raise ConfigError(
        f"{what} was written by a newer version (schema {revision}, ours is {HEAD})",
        hint="use that version again or a later one, or point EVENTSYNC_STATE_URL at another state DB",
    )


def _refuse_while_held(connection: sa.Connection, revision: str) -> None:
    """Raise an error if a run is working: changing its tables would make it fail."""
    is_server = connection.dialect.name == "postgresql"
    now = server_now() if is_server else sa.null()
    leases = sa.select(LEASE, SCOPE.c.feed, now.label("server_now")).join(SCOPE, SCOPE.c.id == LEASE.c.scope_id)
    for lease in connection.execute(leases):
        if not is_free(lease, partial(_sqlite_now, connection)):
            raise held_by(
                lease,
                what=f"the state DB {shown_url(connection.engine.url)} has the tables of an earlier version (schema {revision}, "
                f"ours is {HEAD}), and they cannot be upgraded while a run is at work: {lease.feed} is held by",
                hint="wait for that run to end, or stop it, then start again; a killed run frees the feed within a minute",
            )


def _sqlite_now(connection: sa.Connection) -> datetime:
    return datetime.fromisoformat(connection.exec_driver_sql("SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')").scalar_one())


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
