"""The right to stage and publish a feed: a lease with a heartbeat and a fencing token, which every transaction checks first.

On PostgreSQL silence is measured by the database's own clock, in the statement: hosts need not agree on the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, Interval, Row, func, literal, literal_column, select, update

from mappings.row_key import FeedName, IdempotencyKey, RowKey, idempotency_key
from state.database import free_pages, insert_if_new, writing
from state.enums import Phase
from state.holders import BootClock, Holder, LeaseLostError, held_by, is_free, seconds_since_boot
from state.tables import LEASE, RUN

LEASE_TTL_S = 60.0
_SERVER_NOW = func.clock_timestamp(type_=LEASE.c.heartbeat_at.type)
_TRIES = 5
"""How often the feed is asked for anew when its lease changed hands between the question and the attempt to take it."""


@dataclass(frozen=True, slots=True)
class LeaseClock:
    """How long a silent holder keeps a feed (`ttl_s` seconds), and by which clocks that is measured.

    `pulse` None: by the database's own clock, which only a server has. `now` is the time of day, for people.
    """

    now: Callable[[], datetime]
    pulse: BootClock | None
    ttl_s: float = LEASE_TTL_S

    def seconds(self) -> float:
        """Return the seconds of the host's own clock, also where the lease is measured by the database's."""
        return self.pulse.seconds() if self.pulse else seconds_since_boot()


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to stage and publish one feed, until released, or lost by silence.

    `token` is larger than that of every earlier lease of the feed. Leaving the block releases the lease.
    """

    engine: Engine
    scope_id: int
    token: int
    keeping: LeaseClock

    def renew(self) -> None:
        """Say that we are alive. Raises `LeaseLostError` if another run has taken over."""
        with writing(self.engine) as connection:
            show_token(connection, self.scope_id, self.token, self.keeping)
            free_pages(connection)

    def release(self) -> None:
        """Let the next run in at once. A lease that was lost is left alone."""
        with writing(self.engine) as connection:
            ours = (LEASE.c.scope_id == self.scope_id, LEASE.c.token == self.token)
            connection.execute(update(LEASE).where(*ours).values(holder=""))

    def __enter__(self) -> Self:
        """Hand out the lease itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release it, however the block ended."""
        self.release()


def show_token(connection: Connection, scope_id: int, token: int, keeping: LeaseClock) -> None:
    """Renew the lease inside the caller's transaction, which so commits only while the lease is ours.

    Raises `LeaseLostError` if it is not: the transaction must not commit.
    """
    ours = (LEASE.c.scope_id == scope_id, LEASE.c.token == token, LEASE.c.holder != "")
    if connection.execute(update(LEASE).where(*ours).values(**_heartbeat(keeping))).rowcount != 1:
        raise LeaseLostError(
            "another run has taken this feed over; this one stops",
            hint="nothing is lost: the other run continues where this one stopped; `eventsync status` shows who it is",
        )


def acquire(engine: Engine, scope_id: int, holder: Holder, keeping: LeaseClock) -> Lease:
    """Take a feed that is free, or whose holder fell silent or died on this host.

    Raises `HeldByAnotherError` while another run holds it.
    """
    with writing(engine) as connection:
        for _ in range(_TRIES):
            seen = _look(connection, scope_id, keeping)
            if not is_free(seen, keeping.pulse, keeping.now):
                raise held_by(seen)
            if _take(connection, seen, holder, keeping):
                return Lease(engine, scope_id, seen.token + 1, keeping)
        raise held_by(seen)


def _take(connection: Connection, seen: Row[*tuple[Any, ...]], holder: Holder, keeping: LeaseClock) -> bool:
    """Take the lease if it is still as it was seen: its holder may have beaten again, or another run may have been faster."""
    who = {"token": seen.token + 1, "holder": holder.name, "host": holder.host, "pid": holder.pid, "boot": holder.boot}
    beat = _heartbeat(keeping)
    taken = {**who, **beat, "process_started": holder.started, "acquired_at": beat["heartbeat_at"]}
    is_as_seen = (LEASE.c.token == seen.token, LEASE.c.heartbeat_at == seen.heartbeat_at)
    return connection.execute(update(LEASE).where(LEASE.c.scope_id == seen.scope_id, *is_as_seen).values(**taken)).rowcount == 1


def _look(connection: Connection, scope_id: int, keeping: LeaseClock) -> Row[*tuple[Any, ...]]:
    """Read the lease, without a lock; make its row, that of a free lease, if the feed never had one."""
    server_now = _SERVER_NOW if keeping.pulse is None else literal_column("NULL", LEASE.c.heartbeat_at.type)
    read = select(LEASE, server_now.label("server_now")).where(LEASE.c.scope_id == scope_id)
    found = connection.execute(read).one_or_none()
    if found is None:
        free = {"scope_id": scope_id, "token": 0, "holder": "", "host": "", "pid": 0, "process_started": 0.0}
        times = dict.fromkeys(("acquired_at", "heartbeat_at", "expires_at"), keeping.now())
        connection.execute(insert_if_new(connection, LEASE), {**free, **times})
        found = connection.execute(read).one()
    return found


def _heartbeat(keeping: LeaseClock) -> dict[str, Any]:
    """Return the columns of a heartbeat: on a server by its own clock, in the statement."""
    beat_s = keeping.seconds()
    ttl = timedelta(seconds=keeping.ttl_s)
    if keeping.pulse is None:
        return {"heartbeat_at": _SERVER_NOW, "expires_at": func.clock_timestamp() + literal(ttl, Interval()), "beat_s": beat_s}
    now = keeping.now()
    return {"heartbeat_at": now, "expires_at": now + ttl, "beat_s": beat_s}


_LONG = 0.25
"""A transaction that takes so much of the lease's time is a long one."""


@dataclass(frozen=True, slots=True)
class FencedTransaction:
    """Who acts (`run_id`, `token` of the lease), on what (`scope_id` is `feed` at one destination), and by which clock."""

    engine: Engine
    scope_id: int
    feed: FeedName
    namespace: str
    run_id: str
    token: int
    now: Callable[[], datetime]
    keeping: LeaseClock

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One durable transaction that also renews the lease. Raises `LeaseLostError` if another run has the feed.

        A long one renews it once more at its end: it was silent meanwhile, and a waiting run would take over.
        """
        with writing(self.engine) as connection:
            began_s = self.keeping.seconds()
            show_token(connection, self.scope_id, self.token, self.keeping)
            yield connection
            if self.keeping.seconds() - began_s > self.keeping.ttl_s * _LONG:
                show_token(connection, self.scope_id, self.token, self.keeping)

    def key(self, row_key: RowKey, revision: int = 0) -> IdempotencyKey:
        """Return the row's idempotency key: a pure function, so that a lost ledger leads to the same keys again."""
        return idempotency_key(self.namespace, self.feed, row_key, revision=revision)

    def take_over(self, connection: Connection) -> None:
        """Close the records of runs that ended without a word: a record is open only under the lease, which this run holds."""
        told = {
            "finished_at": self.now(),
            "phase": Phase.FINISHED.value,
            "outcome": "lost",
            "message": f"the process ended without a word; run {self.run_id} carries on",
        }
        others = (RUN.c.scope_id == self.scope_id, RUN.c.id != self.run_id)
        connection.execute(update(RUN).where(*others, RUN.c.finished_at.is_(None)).values(**told))

    def note(self, connection: Connection, **columns: object) -> None:
        """Write how far the run has come."""
        connection.execute(update(RUN).where(RUN.c.scope_id == self.scope_id, RUN.c.id == self.run_id).values(**columns))
