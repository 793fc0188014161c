"""Dagster's default launcher, extended to notice that the process of a run on this machine is gone.

Without it a run stays STARTED for ever after a reboot or a `kill -9`, and keeps its place in the queue. The module keeps its
path because dagster.yaml files name it.
"""

from __future__ import annotations

import json
import socket

import dagster as dg

from pipelines.orchestration.dagster_private import GRPC_INFO_TAG, CheckRunHealthResult, DefaultRunLauncher, WorkerStatus
from pipelines.orchestration.workers import TOLERANCE_S, Worker, tagged_worker

THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


class PidCheckingRunLauncher(DefaultRunLauncher):
    """Answers the daemon's run monitoring for runs of this host; those of other hosts count as running."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Return True: the run monitoring may ask."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Return whether the run's process is alive; RUNNING where that cannot be known from here."""
        worker = tagged_worker(run) or self._launched_worker(run)
        if worker is None or not worker.is_dead:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"process {worker.pid} is gone")

    def _launched_worker(self, run: dg.DagsterRun) -> Worker | None:
        """Return the process of a launched run, as Dagster's own event names it: on the host of its code server."""
        if json.loads(run.tags.get(GRPC_INFO_TAG, "{}")).get("host") not in THIS_MACHINE:
            return None
        for entry in self._instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
            pid = entry.get_dagster_event().engine_event_data.metadata.get("pid")
            if pid is not None:
                return Worker(int(str(pid.value)), socket.gethostname(), 0.0, entry.timestamp + TOLERANCE_S)
        return None
