"""Which process executes a run, and the end of runs whose process has died.

A process id alone does not identify a process, because ids are reused; its start time is recorded with it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

import dagster as dg
import psutil

from pipelines.orchestration.dagster_private import GRPC_INFO_TAG, HIDDEN_TAG_PREFIX

PID_TAG = "eventsync/pid"
HOST_TAG = "eventsync/host"
BORN_TAG = "eventsync/process_started"
TOLERANCE_S = 1.0
"""Two readings of a process's start time may differ by this much, after corrections of the clock."""
BEGUN = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
"""Statuses of a run whose process is or was at work."""
INTERRUPTIONS = frozenset({KeyboardInterrupt.__name__, dg.DagsterExecutionInterruptedError.__name__})
"""Errors of runs that a signal has ended, as a restart of the machine does."""
_REPORTING = Lock()
"""Ticks are threads of the code server: two at once would report a dead run twice."""
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Worker:
    """A process on a host, started between `born_from` and `born_until` (seconds since the epoch)."""

    pid: int
    host: str
    born_from: float
    born_until: float

    def is_dead(self) -> bool:
        """Return whether the process has certainly ended; False for a process of another host, which cannot be checked."""
        if self.host != socket.gethostname():
            return False
        try:
            process = psutil.Process(self.pid)
            is_same = self.born_from <= process.create_time() <= self.born_until
            return not is_same or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True


def process_tags() -> Mapping[str, str]:
    """Return run tags that identify this process as the worker; the UI hides them."""
    process = psutil.Process()
    found = {PID_TAG: str(process.pid), HOST_TAG: socket.gethostname(), BORN_TAG: f"{process.create_time():.2f}"}
    return {f"{HIDDEN_TAG_PREFIX}{name}": value for name, value in found.items()}


def _tagged_worker(run: dg.DagsterRun) -> Worker | None:
    tags = {name.removeprefix(HIDDEN_TAG_PREFIX): value for name, value in run.tags.items()}  # version 0.1 did not hide them
    try:
        pid, born = int(tags[PID_TAG]), float(tags[BORN_TAG])
    except (KeyError, ValueError):
        return None
    return Worker(pid, tags.get(HOST_TAG, ""), born - TOLERANCE_S, born + TOLERANCE_S)


def _launched_worker(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Worker | None:
    """Return the process that Dagster's engine event names for a run, if its code server is on this host."""
    if json.loads(run.tags.get(GRPC_INFO_TAG, "{}")).get("host") not in {*_THIS_MACHINE, socket.gethostname()}:
        return None
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        pid = entry.get_dagster_event().engine_event_data.metadata.get("pid")
        if pid is not None:
            return Worker(int(str(pid.value)), socket.gethostname(), 0.0, entry.timestamp + TOLERANCE_S)
    return None


def worker_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Worker | None:
    """Return the process of a run; None if it is not known, as on another host."""
    return _tagged_worker(run) or _launched_worker(instance, run)


def report_dead(instance: dg.DagsterInstance, run_id: str, why: str) -> None:
    """Report a run as failed, unless it has ended in the meantime, and give its slots in pools back."""
    with _REPORTING:
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            instance.report_run_failed(run, f"{why}; the state is intact: the next run continues")
            instance.event_log_storage.free_concurrency_slots_for_run(run_id)
