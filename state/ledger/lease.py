"""The right to stage and publish a feed: a lease with a heartbeat and a fencing token, which every transaction checks first.

On PostgreSQL silence is measured by the database's own clock, in the statement: hosts need not agree on the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from sqlalchemy import Connection, Engine, Interval, func, literal, null, select, update

from mappings.row_key import FeedName, IdempotencyKey, RowKey, idempotency_key
from state.database import free_pages, insert_if_new, writing
from state.enums import Phase
from state.holders import BootClock, Holder, LeaseLostError, held_by, is_free, seconds_since_boot
from state.tables import LEASE, RUN

LEASE_TTL_S = 60.0
_SERVER_NOW = func.clock_timestamp(type_=LEASE.c.heartbeat_at.type)
_LONG = 0.25
"""A transaction that takes so much of the lease's time is a long one."""


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
    clock: LeaseClock

    def renew(self) -> None:
        """Say that we are alive. Raises `LeaseLostError` if another run has taken over."""
        with writing(self.engine) as connection:
            show_token(connection, self.scope_id, self.token, self.clock)
            free_pages(connection)

    def release(self) -> None:
        """Let the next run in at once. A lease that was lost is left alone."""
        held = (LEASE.c.scope_id == self.scope_id, LEASE.c.token == self.token)
        with writing(self.engine) as connection:
            connection.execute(update(LEASE).where(*held).values(holder=""))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def show_token(connection: Connection, scope_id: int, token: int, clock: LeaseClock) -> None:
    """Renew the lease inside the caller's transaction, which so commits only while the lease is held.

    Raises `LeaseLostError` if it is not: the transaction must not commit.
    """
    held = (LEASE.c.scope_id == scope_id, LEASE.c.token == token, LEASE.c.holder != "")
    if connection.execute(update(LEASE).where(*held).values(**_heartbeat(clock))).rowcount != 1:
        raise LeaseLostError(
            "another run has taken this feed over; this one stops",
            hint="nothing is lost: the other run continues where this one stopped; `eventsync status` shows who it is",
        )


def acquire(engine: Engine, scope_id: int, holder: Holder, clock: LeaseClock) -> Lease:
    """Take a feed that is free, or whose holder fell silent or died on this host.

    Raises `HeldByAnotherError` while another run holds it.
    """
    server_now = null() if clock.pulse else _SERVER_NOW
    read = select(LEASE, server_now.label("server_now")).where(LEASE.c.scope_id == scope_id)
    with writing(engine) as connection:
        if connection.execute(read).one_or_none() is None:  # read without a lock: an insert would wait for the holder
            times = dict.fromkeys(("acquired_at", "heartbeat_at", "expires_at"), clock.now())
            free = {"scope_id": scope_id, "token": 0, "holder": "", "host": "", "pid": 0, "process_started": 0.0, **times}
            connection.execute(insert_if_new(connection, LEASE), free)
        for _ in range(5):  # its holder may have renewed it meanwhile, or another run may have been faster
            seen = connection.execute(read).one()
            if not is_free(seen, clock.pulse, clock.now):
                raise held_by(seen)
            beat = _heartbeat(clock)
            taken = {"token": seen.token + 1, "holder": holder.name, "host": holder.host, "pid": holder.pid, "boot": holder.boot}
            taken |= {**beat, "process_started": holder.started, "acquired_at": beat["heartbeat_at"]}
            is_as_seen = (LEASE.c.token == seen.token, LEASE.c.heartbeat_at == seen.heartbeat_at)
            if connection.execute(update(LEASE).where(LEASE.c.scope_id == scope_id, *is_as_seen).values(**taken)).rowcount == 1:
                return Lease(engine, scope_id, seen.token + 1, clock)
        raise held_by(seen)


def _heartbeat(clock: LeaseClock) -> dict[str, Any]:
    """Return the columns of a heartbeat: on a server by its own clock, in the statement."""
    beat_s, ttl = clock.seconds(), timedelta(seconds=clock.ttl_s)
    if clock.pulse is None:
        return {"heartbeat_at": _SERVER_NOW, "expires_at": func.clock_timestamp() + literal(ttl, Interval()), "beat_s": beat_s}
    now = clock.now()
    return {"heartbeat_at": now, "expires_at": now + ttl, "beat_s": beat_s}


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
    lease_clock: LeaseClock

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One durable transaction that also renews the lease. Raises `LeaseLostError` if another run has the feed.

        A long one renews it once more at its end: it was silent meanwhile, and a waiting run would take over.
        """
        clock = self.lease_clock
        with writing(self.engine) as connection:
            began_s = clock.seconds()
            show_token(connection, self.scope_id, self.token, clock)
            yield connection
            if clock.seconds() - began_s > clock.ttl_s * _LONG:
                show_token(connection, self.scope_id, self.token, clock)

    def key(self, row_key: RowKey, revision: int = 0) -> IdempotencyKey:
        """Return the row's idempotency key: a pure function, so that a lost ledger leads to the same keys again."""
        return idempotency_key(self.namespace, self.feed, row_key, revision=revision)

    def take_over(self, connection: Connection) -> None:
        """Close the records of runs that ended without a word: a record is open only under the lease, which this run holds."""
        columns = {"finished_at": self.now(), "phase": Phase.FINISHED.value, "outcome": "lost"}
        message = f"the process ended without a word; run {self.run_id} carries on"
        others = (RUN.c.scope_id == self.scope_id, RUN.c.id != self.run_id, RUN.c.finished_at.is_(None))
        connection.execute(update(RUN).where(*others).values(**columns, message=message))

    def note(self, connection: Connection, **columns: object) -> None:
        """Write how far the run has come."""
        connection.execute(update(RUN).where(RUN.c.scope_id == self.scope_id, RUN.c.id == self.run_id).values(**columns))
