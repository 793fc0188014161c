"""Which process works on a Dagster run, written down so that its death can be told from another process's birth.

Who asks, and what is done about a dead one, is told in `launcher` and `left_behind`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

import psutil
from dagster import DagsterRun

PID_TAG = "eventsync/pid"
HOST_TAG = "eventsync/host"
BORN_TAG = "eventsync/process_started"

TOLERANCE_S = 1.0
"""The start of one process, asked twice, may differ by the clock's corrections."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A process of a host, born within the two times (seconds since the epoch): ids are given away again."""

    pid: int
    host: str
    born_from: float
    born_until: float

    @property
    def is_dead(self) -> bool:
        """Whether it is surely gone; False for a process of another host, of which we cannot know."""
        return self.host == socket.gethostname() and not self._is_running()

    def _is_running(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return self.born_from <= process.create_time() <= self.born_until and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


def process_tags() -> Mapping[str, str]:
    """Return the tags by which `tagged_worker` knows this very process."""
    me = psutil.Process()
    return {PID_TAG: str(me.pid), HOST_TAG: socket.gethostname(), BORN_TAG: f"{me.create_time():.2f}"}


def tagged_worker(run: DagsterRun) -> Worker | None:
    """Return the process that wrote its tags on a run when it began it, None if none did."""
    try:
        pid, born = int(run.tags[PID_TAG]), float(run.tags[BORN_TAG])
    except (KeyError, ValueError):
        return None
    return Worker(pid, run.tags.get(HOST_TAG, ""), born - TOLERANCE_S, born + TOLERANCE_S)
