"""The lease: the exclusive right to stage and publish a feed, with a heartbeat and a fencing token that every transaction
checks first.

On PostgreSQL the heartbeat's age is measured by the database's clock, so that hosts need not agree on the time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import structlog
from sqlalchemy import ColumnElement, Connection, Engine, Interval, Row, bindparam, func, insert, literal, null, select, update

from mappings.errors import SyncError
from mappings.row_key import FeedName, IdempotencyKey, RowKey, idempotency_key
from state.database import free_pages, run_prepared, writing
from state.enums import Phase
from state.errors import HeldByAnotherError, LeaseLostError
from state.tables import LEASE, RUN

LEASE_TTL_S = 60.0
HEARTBEAT_S = LEASE_TTL_S / 6
"""How often the lease is renewed, so that several attempts may fail before it expires."""
FRESH_S = LEASE_TTL_S / 4
"""How long after a renewal a request may leave without another one. A process that was stopped for longer asks first."""
LOST = "lost"
"""The outcome of a run whose process was killed."""
_LAST_BEAT_S = 0.5
"""How long leaving waits for a heartbeat that has begun."""
_LONG = 0.25
"""The share of the lease's time from which a transaction counts as long."""
_START_TOLERANCE_S = 1.0  # far less than it takes for a process id to come round again
_TAKEOVERS = 0x6C65617365 << 16
"""The first of the keys of our advisory locks: "lease" in ASCII, then the feed's number."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def seconds_since_boot() -> float:
    """Return seconds since boot, including time asleep if the system has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, identified uniquely. `started`: its start in seconds, from any origin.

    `host`: the machine and, if there is one, the container's process namespace, in which the process id is valid. `boot`: the
    id of this start of the machine, "" if the system has none; it distinguishes machines with the same name.
    """

    name: str
    host: str
    pid: int
    started: float
    boot: str


def this_process(name: str) -> Holder:
    """Return the running process as a holder, with a name for people such as `eventsync run`."""
    pid = os.getpid()
    return Holder(name, _host(), pid, _started_s(psutil.Process(pid)), _boot_id())


def is_here(holder: Holder) -> bool:
    """Return whether the process ran on this host since it was started."""
    return (holder.host, holder.boot) == (_host(), _boot_id())


def is_running(holder: Holder) -> bool:
    """Return whether the process is running; True if that cannot be known because it is on another host."""
    if not is_here(holder):
        return True
    try:
        process = psutil.Process(holder.pid)
        is_same = abs(_started_s(process) - holder.started) < _START_TOLERANCE_S
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


def _host() -> str:
    namespace = Path("/proc/self/ns/pid")
    return f"{socket.gethostname()} {namespace.readlink()}" if os.path.lexists(namespace) else socket.gethostname()


def _started_s(process: psutil.Process) -> float:
    """Return a process's start in seconds that do not change with the clock: Linux derives start and boot time from the present
    time of day, so only their difference is constant.
    """
    return process.create_time() - (psutil.boot_time() if sys.platform == "linux" else 0.0)


@dataclass(frozen=True, slots=True)
class LeaseClock:
    """The clock of leases: the database server's own, or `now`. `ttl_s`: how long a lease lasts without a heartbeat, in
    seconds.
    """

    now: Callable[[], datetime]
    is_servers: bool
    ttl_s: float = LEASE_TTL_S

    def seconds(self) -> float:
        """Return seconds on this host's clock, for measuring durations."""
        return seconds_since_boot() if self.is_servers else self.now().timestamp()

    def heartbeat(self) -> dict[str, Any]:
        """Return the columns of a heartbeat, on a server by its own clock."""
        ttl = timedelta(seconds=self.ttl_s)
        if self.is_servers:
            return {"heartbeat_at": server_now(), "expires_at": func.clock_timestamp() + literal(ttl, Interval())}
        now = self.now()
        return {"heartbeat_at": now, "expires_at": now + ttl}


def server_now() -> ColumnElement[datetime]:
    """Return the current time of PostgreSQL's clock, as an SQL expression."""
    return func.clock_timestamp(type_=LEASE.c.heartbeat_at.type)


_IS_SHOWN = (LEASE.c.scope_id == bindparam("scope"), LEASE.c.token == bindparam("shown"), LEASE.c.holder != "")
_RENEW = {
    True: update(LEASE)
    .where(*_IS_SHOWN)
    .values(heartbeat_at=server_now(), expires_at=func.clock_timestamp() + bindparam("ttl", type_=Interval())),
    False: update(LEASE).where(*_IS_SHOWN).values(heartbeat_at=bindparam("now"), expires_at=bindparam("until")),
}
"""The heartbeat by the server's clock, and by ours; every transaction has one (budget 5)."""


def own_clock(engine: Engine, now: Callable[[], datetime]) -> LeaseClock:
    """Return the clock for a state DB: this host's for SQLite, whose file is local; else the server's."""
    return LeaseClock(now, is_servers=engine.dialect.name == "postgresql")


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to stage and publish one feed, until it is released or expires.

    `token` is larger than that of every earlier lease of the feed. Leaving the block releases the lease.
    """

    engine: Engine
    scope_id: int
    token: int
    clock: LeaseClock

    def renew(self) -> None:
        """Send a heartbeat. Raises `LeaseLostError` if another run has taken over."""
        with writing(self.engine) as connection:
            show_token(connection, self.scope_id, self.token, self.clock)
            free_pages(connection)

    def release(self) -> None:
        """Release the lease at once. A lost lease is left as it is."""
        held = (LEASE.c.scope_id == self.scope_id, LEASE.c.token == self.token)
        with writing(self.engine) as connection:
            connection.execute(update(LEASE).where(*held).values(holder=""))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def show_token(connection: Connection, scope_id: int, token: int, clock: LeaseClock) -> None:
    """Renew the lease inside the caller's transaction, so that it commits only while the lease is held.

    Raises `LeaseLostError` if it is not: the transaction must not be committed.
    """
    ttl, now = timedelta(seconds=clock.ttl_s), clock.now()
    beat = {"ttl": ttl} if clock.is_servers else {"now": now, "until": now + ttl}
    if run_prepared(connection, _RENEW[clock.is_servers], [{"scope": scope_id, "shown": token, **beat}]) != 1:
        raise LeaseLostError(
            "another run has taken this feed over; this one stops",
            hint="nothing is lost: the other run continues where this one stopped; `eventsync status` shows who it is",
        )


def acquire(engine: Engine, scope_id: int, holder: Holder, clock: LeaseClock) -> Lease:
    """Take the lease of a feed, from a holder that has expired or died on this host.

    An expired lease is fenced off: its holder can write nothing more. Raises `HeldByAnotherError` while it is held.
    """
    now = server_now() if clock.is_servers else null()
    read = select(LEASE, now.label("server_now")).where(LEASE.c.scope_id == scope_id)
    with writing(engine) as connection:
        if clock.is_servers:  # takeovers one by one; renewals do not wait for it
            connection.execute(select(func.pg_advisory_xact_lock(_TAKEOVERS + scope_id)))
        for _ in range(5):  # a holder may have renewed its lease meanwhile
            seen = connection.execute(read).one_or_none()
            if seen is None or not seen.holder:
                break
            if not is_free(seen, clock.now):
                raise held_by(seen)
            if _fence(connection, seen):
                break
            rival = seen
        else:
            raise held_by(rival)
        beat, token = clock.heartbeat(), (seen.token if seen is not None else 0) + 1
        taken = {"token": token, "holder": holder.name, "host": holder.host, "pid": holder.pid, "boot": holder.boot}
        taken |= {**beat, "process_started": holder.started, "acquired_at": beat["heartbeat_at"]}
        anew = update(LEASE).where(LEASE.c.scope_id == scope_id)
        connection.execute(insert(LEASE).values(scope_id=scope_id, **taken) if seen is None else anew.values(**taken))
        return Lease(engine, scope_id, token, clock)


def _fence(connection: Connection, seen: Row[*tuple[Any, ...]]) -> bool:
    """End an expired lease; return False if its holder has renewed it since it was read."""
    names = ("scope_id", "token", "heartbeat_at")
    is_as_seen = (LEASE.c[name] == getattr(seen, name) for name in names)
    return connection.execute(update(LEASE).where(*is_as_seen).values(holder="")).rowcount == 1


def is_free(seen: Row[*tuple[Any, ...]], now: Callable[[], datetime]) -> bool:
    """Return whether a lease has no holder, an expired one, or one that died on this host.

    `seen.server_now`: the database's clock, None to use `now`. A heartbeat in the future, from a clock that was set back,
    counts as expired; it would otherwise block every run for hours.
    """
    silence = (seen.server_now or now()) - seen.heartbeat_at
    before = Holder(seen.holder, seen.host, seen.pid, seen.process_started, seen.boot)
    return not before.name or abs(silence) > seen.expires_at - seen.heartbeat_at or not is_running(before)


def is_at_work(seen: Row[*tuple[Any, ...]], now: Callable[[], datetime]) -> bool:
    """Return whether the holder of a lease renews it, or is a process on this host that was suspended and still runs."""
    holder = Holder(seen.holder, seen.host, seen.pid, seen.process_started, seen.boot)
    return not is_free(seen, now) or (is_here(holder) and is_running(holder))


def held_by(seen: Row[*tuple[Any, ...]], what: str = "the feed is held by") -> HeldByAnotherError:
    """Return the error that names the holder of a lease."""
    host = seen.host.partition(" ")[0]
    return HeldByAnotherError(holder=seen.holder, since=seen.acquired_at, host=host, pid=seen.pid, what=what)


class LeaseKeeper:
    """One lease, renewed by a thread every `beat_s` seconds for the length of a `with` block, which ends by releasing it.

    `clock_s` must go on while the process is stopped and the machine sleeps. A renewal that fails because the state DB
    is busy is tried again with the next beat; only another run's takeover loses the lease.
    """

    def __init__(self, lease: Lease, clock_s: Callable[[], float], *, beat_s: float = HEARTBEAT_S) -> None:
        self._lease = lease
        self._clock_s = clock_s
        self._beat_s = beat_s
        self._renewed_at = clock_s()
        self._is_over = threading.Event()
        self._asking = asyncio.Lock()
        begin = copy_context().run  # what is logged there names the same run and feed
        self._thread = threading.Thread(target=begin, args=(self._beat,), name="eventsync-heartbeat", daemon=True)

    @property
    def token(self) -> int:
        """The fencing token that each transaction shows."""
        return self._lease.token

    async def assure(self) -> None:
        """Return if the lease was renewed a moment ago; after a longer time renew it first.

        Raises:
            LeaseLostError: another run has the feed; nothing may be sent any more.
            SyncError: the state DB cannot be asked, so that nothing may be sent either.
        """
        if self._is_fresh():
            return
        async with self._asking:
            if not self._is_fresh():
                await asyncio.to_thread(self._renew)

    def __enter__(self) -> Self:
        """Start the heartbeat."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the heartbeat and release the lease. One that cannot be released expires, or is taken from a dead process."""
        self._is_over.set()
        self._thread.join(_LAST_BEAT_S)
        try:
            self._lease.release()
        except SyncError as problem:
            structlog.get_logger().warning("the lease could not be released", problem=str(problem))

    def _is_fresh(self) -> bool:
        return self._clock_s() - self._renewed_at <= FRESH_S

    def _renew(self) -> None:
        """Renew; the time of the request counts, not that of the answer."""
        asked_at = self._clock_s()
        self._lease.renew()
        self._renewed_at = asked_at

    def _beat(self) -> None:
        while not self._is_over.wait(self._beat_s):
            try:
                self._renew()
            except LeaseLostError as lost:
                self._renewed_at = -inf  # the next request asks, and learns who has the feed
                structlog.get_logger().warning("the lease was lost: nothing leaves any more", problem=str(lost))
                return
            except SyncError as problem:
                structlog.get_logger().warning("the lease could not be renewed; it is tried again", problem=str(problem))


@dataclass(frozen=True, slots=True)
class FencedTransaction:
    """The context of a run's transactions: its `run_id` and lease `token`, the feed's scope, and the clocks."""

    engine: Engine
    scope_id: int
    feed: FeedName
    namespace: str
    run_id: str
    token: int
    now: Callable[[], datetime]
    lease_clock: LeaseClock
    number: int = 0
    """The run's number in entries."""

    @contextmanager
    def transaction(self, lock: Callable[[Connection, int], None] = lambda _connection, _scope_id: None) -> Iterator[Connection]:
        """Run one durable transaction that also renews the lease. Raises `LeaseLostError` if another run has the feed.

        A long one renews it again at its end, since a waiting run would otherwise take over. `lock`: takes a lock for the
        feed's scope before the transaction locks the lease, so that heartbeats go on while it waits.
        """
        clock = self.lease_clock
        with writing(self.engine) as connection:
            lock(connection, self.scope_id)
            began_s = clock.seconds()
            show_token(connection, self.scope_id, self.token, clock)
            yield connection
            if clock.seconds() - began_s > clock.ttl_s * _LONG:
                show_token(connection, self.scope_id, self.token, clock)

    def key(self, row_key: RowKey, revision: int = 0) -> IdempotencyKey:
        """Return the row's idempotency key, a pure function of its arguments: a lost ledger leads to the same keys again."""
        return idempotency_key(self.namespace, self.feed, row_key, revision=revision)

    def take_over(self, connection: Connection) -> None:
        """Close the records of killed runs: an open record needs the lease, and this run holds it."""
        others = (RUN.c.scope_id == self.scope_id, RUN.c.id != self.run_id, RUN.c.finished_at.is_(None))
        columns = {"finished_at": self.now(), "phase": Phase.FINISHED.value, "outcome": LOST}
        message = f"the process was killed; run {self.run_id} continues"
        connection.execute(update(RUN).where(*others).values(**columns, message=message))

    def note(self, connection: Connection, **columns: object) -> None:
        """Update the run's record."""
        connection.execute(update(RUN).where(RUN.c.scope_id == self.scope_id, RUN.c.id == self.run_id).values(**columns))
