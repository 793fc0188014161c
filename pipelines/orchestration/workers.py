"""Which process works on a Dagster run, written down so that its death can be told from another process's birth.

Who asks, and what is done about a dead one, is told in `launcher` and `left_behind`.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter
from dagster._core.definitions.reconstruct import ReconstructableJob

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


def own_job() -> str:
    """Return the name of the job that a code server spawned this process for; "" in any other process, or if it cannot be told.

    Dagster hands it over with the process and tells it to nobody before the definitions are loaded, and Python keeps what a
    process was made with to itself: where either changes, a process builds what it does not need.
    """
    handed = vars(multiprocessing.current_process()).get("_args", ())
    return next((one.job_name for one in handed if isinstance(one, ReconstructableJob)), "")
