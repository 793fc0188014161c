"""Who may stage and publish a feed: a lease with a heartbeat, and a token that fences off whoever lost it.

What a holder does with it is `stage`'s and `outbox`'s: each of their transactions shows the token first.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from sqlalchemy import Connection, Engine, bindparam, insert, select, update

from mappings.errors import TransientError
from state.database import writing
from state.tables import LEASE

LEASE_TTL_S = 60.0
_START_TOLERANCE_S = 1.0  # the start of one process, asked twice, may differ by the clock's corrections


class HeldByAnotherError(TransientError):
    """Another run holds the feed: `holder` on `host` with process id `pid`, since `since`; it is alive or may be."""

    def __init__(self, *, holder: str, since: datetime, host: str, pid: int) -> None:
        super().__init__(
            f"the feed is held by {holder} (process {pid} on {host}) since {since:%Y-%m-%d %H:%M:%S} UTC",
            hint="wait for that run to end (`--wait`), or stop it; a dead holder's lease expires within a minute",
        )
        self.holder = holder
        self.since = since
        self.host = host
        self.pid = pid


class LeaseLostError(TransientError):
    """Another run has taken the feed over: this one must stop at once. What it had not settled, the other will."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that can be told from any other: `started` is its start in seconds since the epoch.

    `host` names the machine and, where there are such, the container's process namespace: ids mean nothing beyond it.
    """

    name: str
    host: str
    pid: int
    started: float


def this_process(name: str) -> Holder:
    """Describe the running process under a name for people, for example `eventsync run`."""
    own = psutil.Process()
    return Holder(name, _host(), own.pid, own.create_time())


def is_running(holder: Holder) -> bool:
    """Whether the process still runs; True where that cannot be known, because it is on another host."""
    if holder.host != _host():
        return True
    try:
        process = psutil.Process(holder.pid)
        is_same = abs(process.create_time() - holder.started) < _START_TOLERANCE_S
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _host() -> str:
    namespace = Path("/proc/self/ns/pid")
    return f"{socket.gethostname()} {namespace.readlink()}" if os.path.lexists(namespace) else socket.gethostname()


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to stage and publish one feed, until released, or lost by silence of more than `ttl_s` seconds.

    `token` is larger than that of every earlier lease of the feed. Leaving the block releases the lease.
    """

    engine: Engine
    scope_id: int
    token: int
    now: Callable[[], datetime]
    ttl_s: float

    def renew(self) -> None:
        """Say that we are alive. Raises `LeaseLostError` if another run has taken over."""
        with writing(self.engine) as connection:
            show_token(connection, self.scope_id, self.token, self.now(), self.ttl_s)

    def release(self) -> None:
        """Let the next run in at once. A lease that was lost is left alone."""
        with writing(self.engine) as connection:
            connection.execute(_RELEASE, {"scope": self.scope_id, "shown": self.token, "now": self.now()})

    def __enter__(self) -> Self:
        """Hand out the lease itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release it, however the block ended."""
        self.release()


_OURS = (LEASE.c.scope_id == bindparam("scope"), LEASE.c.token == bindparam("shown"))
_RELEASE = update(LEASE).where(*_OURS).values(holder="", expires_at=bindparam("now"))
_SHOW = update(LEASE).where(*_OURS, LEASE.c.holder != "").values(heartbeat_at=bindparam("now"), expires_at=bindparam("until"))


def show_token(connection: Connection, scope_id: int, token: int, now: datetime, ttl_s: float) -> None:
    """Renew the lease inside the caller's transaction, which so commits only while the lease is ours.

    Raises `LeaseLostError` if it is not: the transaction must not commit.
    """
    until = now + timedelta(seconds=ttl_s)
    shown = connection.execute(_SHOW, {"scope": scope_id, "shown": token, "now": now, "until": until})
    if shown.rowcount != 1:
        raise LeaseLostError(
            "another run has taken this feed over; this one stops",
            hint="nothing is lost: the other run continues where this one stopped; `eventsync status` shows who it is",
        )


def acquire(engine: Engine, scope_id: int, holder: Holder, *, now: Callable[[], datetime], ttl_s: float = LEASE_TTL_S) -> Lease:
    """Take the feed, from nobody, from a holder that fell silent, or at once from one that died on this host.

    Raises `HeldByAnotherError` while another run holds it.
    """
    with writing(engine) as connection:
        instant = now()
        token = _next_token(connection, scope_id, instant)
        connection.execute(_TAKE, _as_row(scope_id, token, holder, instant, ttl_s))
    return Lease(engine, scope_id, token, now, ttl_s)


def _next_token(connection: Connection, scope_id: int, now: datetime) -> int:
    present = connection.execute(select(LEASE).where(LEASE.c.scope_id == scope_id).with_for_update()).one_or_none()
    if present is None:
        connection.execute(insert(LEASE), {**_as_row(scope_id, 0, _NOBODY, now, 0.0), "scope_id": scope_id})
        return 1
    before = Holder(present.holder, present.host, present.pid, present.process_started)
    if before.name and present.expires_at > now and is_running(before):
        raise HeldByAnotherError(
            holder=before.name, since=present.acquired_at, host=before.host.partition(" ")[0], pid=before.pid
        )
    return int(present.token) + 1


_NOBODY = Holder("", "", 0, 0.0)
_TAKE = update(LEASE).where(LEASE.c.scope_id == bindparam("scope"))


def _as_row(scope_id: int, token: int, holder: Holder, now: datetime, ttl_s: float) -> dict[str, object]:
    return {
        "scope": scope_id,
        "token": token,
        "holder": holder.name,
        "host": holder.host,
        "pid": holder.pid,
        "process_started": holder.started,
        "acquired_at": now,
        "heartbeat_at": now,
        "expires_at": now + timedelta(seconds=ttl_s),
    }
