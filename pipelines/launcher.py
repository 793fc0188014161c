"""Dagster's default launcher, taught to notice that a run's process is gone, on this machine.

Without it a run stays STARTED for ever after a reboot or a `kill -9`, and keeps its place in the queue. Which host and
process a run has is written as tags by whoever starts it in its own process; for launched runs Dagster's own event says it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

import psutil
from dagster import DagsterEventType, DagsterRun
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus

PID_TAG = "eventsync/pid"
HOST_TAG = "eventsync/host"
BORN_TAG = "eventsync/process_started"


class PidCheckingRunLauncher(DefaultRunLauncher):
    """Answers the daemon's run monitoring for runs of this host; says nothing about other hosts' runs."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Return True: the run monitoring may ask."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Say whether the run's process is alive; RUNNING where that cannot be known from here."""
        pid = run.tags.get(PID_TAG) or self._launched_pid(run)
        if pid is None or run.tags.get(HOST_TAG, socket.gethostname()) != socket.gethostname():
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        if _is_alive(int(pid), run.tags.get(BORN_TAG)):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"process {pid} is gone")

    def _launched_pid(self, run: DagsterRun) -> str | None:
        for entry in self._instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT):
            pid = entry.get_dagster_event().engine_event_data.metadata.get("pid")
            if pid is not None:
                return str(pid.value)
        return None


def process_tags() -> Mapping[str, str]:
    """Return the tags that let the daemon of this host notice that this very process died."""
    me = psutil.Process()
    return {PID_TAG: str(me.pid), HOST_TAG: socket.gethostname(), BORN_TAG: f"{me.create_time():.2f}"}


def _is_alive(pid: int, born: str | None) -> bool:
    try:
        return born is None or abs(psutil.Process(pid).create_time() - float(born)) < 1
    except psutil.NoSuchProcess:
        return False
