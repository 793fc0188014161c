"""Runs that ended without a word, because their process was killed or interrupted: told as ended, their pool slots given back.

The daemon does this too, where one runs (`launcher`); the command line must not have to wait for one.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from pipelines.launching.workers import HOST_TAG, tagged_worker

NOT_ENDED = [DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]


def end_runs_of_the_dead(instance: DagsterInstance) -> None:
    """Fail the runs that dead processes of this host had begun, so that no pool and no schedule waits for them."""
    for run in instance.get_runs(RunsFilter(statuses=NOT_ENDED, tags={HOST_TAG: socket.gethostname()})):
        worker = tagged_worker(run)
        if worker is not None and worker.is_dead:
            instance.report_run_failed(run, f"process {worker.pid} is gone; the state is intact: the next run goes on")
            _free_slots(instance, run)


@contextmanager
def ended_on_leaving(instance: DagsterInstance, run_id: str) -> Iterator[None]:
    """Cancel the run if the block is left before Dagster itself has noted its end."""
    try:
        yield
    finally:
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            instance.report_run_canceled(run, "interrupted; the state is intact: the next run goes on")
            _free_slots(instance, run)


def _free_slots(instance: DagsterInstance, run: DagsterRun) -> None:
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
