"""Who holds a feed: a process that can be told from every other one, and whether it still runs.

What it may do is `lease`'s.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import astuple, dataclass
from pathlib import Path

import psutil

from state.pulse import boot_id

_START_TOLERANCE_S = 1.0  # far less than it takes for a process id to come round again


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that can be told from any other: `started` is its start in seconds, wherever they count from.

    `host` names the machine and, where there are such, the container's process namespace: ids mean nothing beyond it.
    `boot` is the start of the machine, as `Pulse.boot`: machines of one name, and containers of one, differ in it.
    """

    name: str
    host: str
    pid: int
    started: float
    boot: str

    def __str__(self) -> str:
        """The text by which `holder_of` knows it again."""
        return json.dumps(astuple(self))


def holder_of(text: str) -> Holder | None:
    """Return the process that a text names, None where it names none."""
    try:
        return Holder(*json.loads(text))
    except (ValueError, TypeError):
        return None


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


def _started_s(process: psutil.Process) -> float:
    """Linux tells both in the time of day as it is set now: only their difference stays the same for ever."""
    return process.create_time() - (psutil.boot_time() if sys.platform == "linux" else 0.0)


def _host() -> str:
    namespace = Path("/proc/self/ns/pid")
    return f"{socket.gethostname()} {namespace.readlink()}" if os.path.lexists(namespace) else socket.gethostname()
