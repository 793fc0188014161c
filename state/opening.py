"""Opens the state DB: creates it if missing, and upgrades its schema while no run works on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from mappings.errors import ConfigError, SyncError
from state.database import create_engine, is_sqlite_file, parse, reading, shown_url, writing
from state.errors import Failure, of_system
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
        raise of_system(error).error(shown_url(address), f"{folder}: {error.strerror}") from error
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
    name, revision = f"the state DB {shown_url(engine.url)}", schema_revision(engine)
    check_revision(revision, name)
    if revision == HEAD:
        return
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            # Let one process upgrade at a time. Only the encoding UTF8 holds every text of ours.
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _UPGRADE_LOCK})
            encoding = connection.execute(sa.text("SHOW server_encoding")).scalar_one()
            if encoding != "UTF8":
                raise Failure.OTHER.error(shown_url(engine.url), f"its encoding is {encoding}")
        revision = _revision(connection)  # another process may have upgraded it meanwhile
        check_revision(revision, name)
        if revision == HEAD:
            return
        if revision is not None:
            _refuse_while_held(connection, name)
        upgrade(connection)
        # A run that was suspended for longer than its lease must not go on with what it knew before.
        connection.execute(sa.update(LEASE).values(token=LEASE.c.token + 1, holder=""))


def check_revision(revision: str | None, what: str) -> None:
    """Check that a schema can be read or upgraded. Raises `ConfigError`; `what` names the file or database in it."""
    if revision is None or is_known(revision):
        return
    problem = "was written by a newer version"
    hint = "use that version again or a later one, or point EVENTSYNC_STATE_URL at another state DB"
    if revision < HEAD:
        problem = "has the tables of a version before 0.2"
        hint = "open it once with version 0.2 (`eventsync status`), which upgrades it, then with this one"
    raise ConfigError(f"{what} {problem} (schema {revision}, ours is {HEAD})", hint=hint)


def _refuse_while_held(connection: sa.Connection, name: str) -> None:
    """Raise an error if a run is working: changing its tables would make it fail."""
    now = server_now()
    if connection.dialect.name == "sqlite":
        now = sa.func.strftime("%Y-%m-%dT%H:%M:%f+00:00", "now", type_=LEASE.c.heartbeat_at.type)
    leases = sa.select(LEASE, SCOPE.c.feed, now.label("server_now")).join(SCOPE, SCOPE.c.id == LEASE.c.scope_id)
    for lease in connection.execute(leases):
        if not is_free(lease, lambda: lease.server_now):  # noqa: B023 # called at once
            raise held_by(lease, f"{name} has older tables, which are not upgraded while a run works: {lease.feed} is held by")


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
