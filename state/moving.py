"""Moves a state DB to another database, SQLite or PostgreSQL, or renames a service, while no run can work on it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, Engine, Table, delete, func, insert, literal, or_, select, update

from mappings.delivery import service_of, split_destination
from mappings.errors import ConfigError
from mappings.row_key import FeedName
from state.database import reading, writing
from state.export import Advance, compare, copy_rows, copy_tables, count_rows
from state.ledger.accounts import READS_COMPARED
from state.ledger.copies import DuplicateIndex
from state.ledger.lease import LEASE_TTL_S, Lease, acquire, own_clock, this_process
from state.opening import opened_database
from state.tables import (
    ATTEMPT,
    BACKFILL,
    BODY,
    DECISION,
    ENTRY,
    METADATA,
    OBSERVATION,
    RUN,
    SCOPE,
    SIDE_BY_SIDE,
)

MOVER = "eventsync state migrate"
"""The holder's name that other runs see while a move holds their feeds."""
_ENTRIES = select(
    *(column for column in ENTRY.c if column.name not in ("staged_run", "sent_run")), literal(0).label("staged_run")
)
"""Entries without the numbers of their runs, which the runs of a rehearsal may have."""
_RENEWED_EVERY = timedelta(seconds=LEASE_TTL_S / 6)


def migrate(source: Engine, target: Engine, now: Callable[[], datetime], expect: Advance, advance: Advance) -> dict[str, int]:
    """Copy a state DB to an empty one in one transaction, and compare the two. The original is unchanged.

    Every feed is locked meanwhile. The copy is read back, and the original is read again: if it was changed meanwhile, nothing
    is kept. `expect` is called with the number of rows to read and write.

    Raises:
        HeldByAnotherError: a run is working.
        ConfigError: the target is not empty.
        CopyDiffersError: the original was changed meanwhile, or the copy differs.
        SyncError: one of them cannot be read or written.
    """
    last = now()
    with _held(source, now) as leases, writing(target) as connection:

        def renew(rows: int) -> None:
            nonlocal last
            advance(rows)
            if abs(now() - last) >= _RENEWED_EVERY:
                last = now()
                connection.execute(select(literal(1)))  # the server ends transactions that are idle for long
                for lease in leases:
                    lease.renew()

        with reading(source) as origin:
            expect(count_rows(origin) * 3)  # copied, and read on both sides
            counts = copy_tables(origin, connection, renew)
        with reading(source) as origin:
            compare(origin, connection, renew)
    return counts


@dataclass(frozen=True, slots=True)
class Renamed:
    """A renamed service: both normalised addresses, its feeds, and the number of changed rows by table."""

    old: str
    new: str
    feeds: tuple[str, ...]
    rows: dict[str, int]


def rename_service(engine: Engine, old_address: str, new_address: str, now: Callable[[], datetime]) -> Renamed:
    """Record that a service has moved to another address: all records of the old address are changed to the new one.

    It is one transaction, in which every feed of both addresses is locked. Row keys do not change.

    Raises:
        HeldByAnotherError: a run is working.
        ConfigError: the old address is unknown, or the new one has rows already.
    """
    old, new = service_of(old_address), service_of(new_address)
    if old == new:
        raise ConfigError(f"{old_address} and {new_address} are the same service", hint="name the old address, then the new one")
    with _held(engine, now, (old, new)), writing(engine) as connection:
        feeds = connection.execute(select(SCOPE.c.feed).where(SCOPE.c.service == old).distinct().order_by(SCOPE.c.feed)).scalars()
        moved = tuple(feeds)
        if not moved:
            known = connection.execute(select(SCOPE.c.service).distinct().order_by(SCOPE.c.service)).scalars()
            raise ConfigError(f"the state DB knows no feed at {old}", hint=f"it knows {', '.join(known) or 'none anywhere'}")
        at_new = select(SCOPE.c.id).where(SCOPE.c.service == new)
        if connection.execute(select(ENTRY.c.id).where(ENTRY.c.scope_id.in_(at_new)).limit(1)).first() is not None:
            problem = f"the state DB knows rows at {new} already: two ledgers cannot become one"
            raise ConfigError(problem, hint="go on with the new address, or restore a backup from before its first run")
        for table in METADATA.sorted_tables:  # of feeds there of which no run has come as far as a row
            if "scope_id" in table.c:
                connection.execute(delete(table).where(table.c.scope_id.in_(at_new)))
        rows = {table.name: _rename(connection, table, old, new) for table in METADATA.sorted_tables if "destination" in table.c}
        connection.execute(update(SCOPE).where(SCOPE.c.service == old).values(service=new))
    return Renamed(old, new, moved, {name: count for name, count in rows.items() if count})


def _rename(connection: Connection, table: Table, old: str, new: str) -> int:
    """Rename the destinations in a table, instead of what is known of the new address."""
    at = table.c.destination + "#"  # a service, or a service and a namespace
    is_old, is_new = (at.startswith(f"{service}#", autoescape=True) for service in (old, new))
    if table is not BACKFILL:
        connection.execute(delete(table).where(is_new))
    renamed = literal(new) + func.substr(table.c.destination, len(old) + 1)
    return connection.execute(update(table).where(is_old).values(destination=renamed)).rowcount


@contextmanager
def _held(engine: Engine, now: Callable[[], datetime], services: tuple[str, ...] = ()) -> Iterator[list[Lease]]:
    """Hold the leases of every feed, or of those of some services, during the block."""
    wanted = select(SCOPE.c.id).order_by(SCOPE.c.id)
    with reading(engine) as connection:
        scopes = connection.execute(wanted.where(SCOPE.c.service.in_(services)) if services else wanted).scalars().all()
    mover, clock = this_process(MOVER), own_clock(engine, now)
    with ExitStack() as stack:
        yield [stack.enter_context(acquire(engine, scope_id, mover, clock)) for scope_id in scopes]


@contextmanager
def rehearsal_copy(engine: Engine | None, destination: str, feed: FeedName) -> Iterator[Engine]:
    """Yield a temporary state DB with one feed's gate, entries and decisions as of now, the runs of its latest full reads
    (which the brakes compare with), and the entries of the service's other feeds, to find duplicates.

    It is a SQLite file in a private folder, deleted when the block ends. `engine` is only read; None stands for a state DB that
    does not exist. The lease is not copied, so that a dry run and real runs do not affect each other.
    """
    with (
        tempfile.TemporaryDirectory(prefix="eventsync-rehearsal-") as folder,
        opened_database(f"sqlite:///{Path(folder) / 'state.db'}") as copy,
    ):
        if engine is not None:
            _copy(engine, copy, destination, feed)
        yield copy


def _copy(engine: Engine, copy: Engine, destination: str, feed: FeedName) -> None:
    of_service = select(SCOPE).where(SCOPE.c.service == split_destination(destination)[0]).order_by(SCOPE.c.id)
    with reading(engine) as source, writing(copy) as target:
        # Without the evidence of the last read: a rehearsal shows rows, and looks at all of them. It makes marks of its own.
        scopes = [row._asdict() | {"stamp": "", "marked_id": 0} for row in source.execute(of_service)]
        if not scopes:
            return
        target.execute(insert(SCOPE), scopes)
        is_copied = ENTRY.c.scope_id.in_([scope["id"] for scope in scopes])
        copy_rows(source, target, ENTRY, _ENTRIES.where(is_copied).order_by(ENTRY.c.id))
        for part in (BODY, ATTEMPT, OBSERVATION, DECISION):
            copy_rows(source, target, part, select(part).where(part.c.entry_id.in_(select(ENTRY.c.id).where(is_copied))))
        for scope in scopes:
            if (scope["destination"], scope["feed"]) != (destination, feed):
                DuplicateIndex(target, scope["id"])
                continue
            pairs = or_(SIDE_BY_SIDE.c.scope_id == scope["id"], SIDE_BY_SIDE.c.other_id == scope["id"])
            copy_rows(source, target, SIDE_BY_SIDE, select(SIDE_BY_SIDE).where(pairs))
            reads = select(RUN).where(RUN.c.scope_id == scope["id"], RUN.c.is_whole, RUN.c.stage_report.is_not(None))
            copy_rows(source, target, RUN, reads.order_by(RUN.c.started_at.desc()).limit(READS_COMPARED))
