"""Which process holds a feed, whether it still runs, and the clock by which its silence is measured."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from mappings.errors import TransientError

if TYPE_CHECKING:
    from sqlalchemy import Row

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class BootClock:
    """A monotonic clock that also counts while processes are stopped and the machine sleeps (CLOCK_BOOTTIME).

    `boot` identifies the start of the machine that it counts from, the same in all of its containers; "" where the system
    has no id. Seconds of different boots do not compare.
    """

    boot: str
    seconds: Callable[[], float]


def boot_clock() -> BootClock:
    """Return the clock of this host."""
    return BootClock(boot_id(), seconds_since_boot)


def seconds_since_boot() -> float:
    """Return seconds on a clock that also counts the time in which the machine was asleep, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


def boot_id() -> str:
    """Return a name for this start of this machine that no other machine or start has; "" where the system has none."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


_START_TOLERANCE_S = 1.0  # far less than it takes for a process id to come round again


class HeldByAnotherError(TransientError):
    """Another run holds the feed: `holder` on `host` with process id `pid`, since `since`; it is alive or may be."""

    def __init__(
        self, *, holder: str, since: datetime, host: str, pid: int, what: str = "the feed is held by", hint: str = ""
    ) -> None:
        super().__init__(
            f"{what} {holder} (process {pid} on {host}) since {since:%Y-%m-%d %H:%M:%S} UTC",
            hint=hint
            or "wait for that run to end (`eventsync run` does, with --wait), or stop it; a dead one lets go within a minute",
        )
        self.holder = holder
        self.since = since
        self.host = host
        self.pid = pid


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, identified for ever: `started` is its start in seconds, from any origin.

    `host` names the machine and, where there are such, the container's process namespace: ids mean nothing beyond it.
    `boot` is the start of the machine, as `BootClock.boot`: machines of one name, and containers of one, differ in it.
    """

    name: str
    host: str
    pid: int
    started: float
    boot: str


def this_process(name: str) -> Holder:
    """Describe the running process under a name for people, for example `eventsync run`."""
    pid = os.getpid()
    return Holder(name, _host(), pid, _started_s(psutil.Process(pid)), boot_id())


def is_running(holder: Holder) -> bool:
    """Whether the process still runs; True where that cannot be known, because it is on another host."""
    if (holder.host, holder.boot) != (_host(), boot_id()):
        return True
    try:
        process = psutil.Process(holder.pid)
        is_same = abs(_started_s(process) - holder.started) < _START_TOLERANCE_S
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def is_free(seen: Row[*tuple[Any, ...]], pulse: BootClock | None, now: Callable[[], datetime]) -> bool:
    """Whether the row of a lease names no holder, one that fell silent, or one that died on this host.

    `seen.server_now`: the database's own clock, None where `pulse` and `now` are asked.
    """
    before = Holder(seen.holder, seen.host, seen.pid, seen.process_started, seen.boot)
    return not before.name or _is_silent(seen, pulse, now) or not is_running(before)


def held_by(seen: Row[*tuple[Any, ...]], what: str = "the feed is held by", hint: str = "") -> HeldByAnotherError:
    """Return the error that names the holder of a lease."""
    host = seen.host.partition(" ")[0]
    return HeldByAnotherError(holder=seen.holder, since=seen.acquired_at, host=host, pid=seen.pid, what=what, hint=hint)


def _is_silent(seen: Row[*tuple[Any, ...]], pulse: BootClock | None, now: Callable[[], datetime]) -> bool:
    """Whether the last heartbeat is further away than the holder itself allowed. One in the future, by a clock that was
    set back since, would otherwise keep everybody out for hours.
    """
    if seen.server_now is not None:
        silence = seen.server_now - seen.heartbeat_at
    elif pulse is not None and pulse.boot == seen.boot:
        silence = timedelta(seconds=pulse.seconds() - seen.beat_s)
    else:  # the machine was started again since, or the state DB was moved here
        silence = now() - seen.heartbeat_at
    return bool(abs(silence) > seen.expires_at - seen.heartbeat_at)


def _started_s(process: psutil.Process) -> float:
    """Linux gives both in the time of day as it is set now: only their difference stays the same."""
    return process.create_time() - (psutil.boot_time() if sys.platform == "linux" else 0.0)


def _host() -> str:
    namespace = Path("/proc/self/ns/pid")
    return f"{socket.gethostname()} {namespace.readlink()}" if os.path.lexists(namespace) else socket.gethostname()


class LeaseLostError(TransientError):
    """Another run has taken the feed over: this one must stop at once. What it had not settled, the other will."""
