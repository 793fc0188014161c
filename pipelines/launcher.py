"""Run a job in this process, and end runs whose process has died.

A process id alone does not identify a process, because ids are reused; its start time is recorded with it. The module keeps its
path because existing dagster.yaml files name the launcher in it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import dagster as dg
import psutil

from mappings.spec.feed import FeedMapping
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import (
    GRPC_INFO_TAG,
    HIDDEN_TAG_PREFIX,
    BulkActionStatus,
    CheckRunHealthResult,
    DefaultRunLauncher,
    RunFailureReason,
    WorkerStatus,
    origin_tags,
    put_backfill,
)
from pipelines.orchestration.webserver import are_partitions, launch_config, launch_tags, launched_job, slice_tags, wanted_assets
from pipelines.run.backfill import plan_of_record
from pipelines.run.options import RunOptions, Window
from pipelines.run.outcome import ExitCode
from state.backfills import BackfillRecord, BackfillState, SliceState

PID_TAG = "eventsync/pid"
HOST_TAG = "eventsync/host"
BORN_TAG = "eventsync/process_started"
TOLERANCE_S = 1.0
"""Two readings of a process's start time may differ by this much, after corrections of the clock."""
NOT_ENDED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}
"""Silences the console: the event log keeps everything, stack traces included, and the terminal shows the run's report."""


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


class PidCheckingRunLauncher(DefaultRunLauncher):
    """Dagster's default launcher, which also detects that the process of a run on this machine has died.

    Without it, a run stays STARTED for ever after a reboot or `kill -9`, and keeps its place in the queue. Runs of other hosts
    count as running.
    """

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True, so that Dagster's run monitoring calls `check_run_worker_health`."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Return whether the run's process is alive; RUNNING if that cannot be known on this host."""
        worker = _tagged_worker(run) or self._launched_worker(run)
        if worker is not None and worker.is_dead():
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"process {worker.pid} has died")
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    def _launched_worker(self, run: dg.DagsterRun) -> Worker | None:
        """Return the process that Dagster's engine event names for a run, if its code server is on this host."""
        if json.loads(run.tags.get(GRPC_INFO_TAG, "{}")).get("host") not in _THIS_MACHINE:
            return None
        for entry in self._instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
            pid = entry.get_dagster_event().engine_event_data.metadata.get("pid")
            if pid is not None:
                return Worker(int(str(pid.value)), socket.gethostname(), 0.0, entry.timestamp + TOLERANCE_S)
        return None


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


def end_runs_of_the_dead(instance: dg.DagsterInstance) -> None:
    """Fail the unfinished runs of this host whose process has died, so that no pool and no schedule waits for them."""
    for run in instance.get_runs(dg.RunsFilter(statuses=NOT_ENDED)):
        worker = _tagged_worker(run)
        if worker is not None and worker.is_dead():
            instance.report_run_failed(run, f"process {worker.pid} has died; the state is intact: the next run continues")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def run_job(
    definitions: dg.Definitions,
    mapping: FeedMapping,
    options: RunOptions,
    run_id: str,
    launched_by: str = "cli",
    backfill: BackfillRecord | None = None,
) -> str:
    """Run the job of one feed in this process, listed in the Dagster UI like any other run; return the run's status.

    `backfill`: the backfill whose slice is run. An interrupted run returns CANCELED, although Dagster records a failure or no
    end.
    """
    name = launched_job(mapping, options)
    is_own = name == names.JOB
    job = definitions.resolve_job_def(name) if is_own else definitions.resolve_implicit_global_asset_job_def()
    keys = {dg.AssetKey(path) for path in wanted_assets(mapping, options)}
    with dg.DagsterInstance.get() as instance:
        end_runs_of_the_dead(instance)
        tags = dict(launch_tags(mapping, options, launched_by))
        if backfill and options.window:
            show_backfill(instance, mapping, backfill)
            tags |= slice_tags(backfill.backfill_id, mapping, options.window)
        try:
            result = job.get_subset(asset_selection=keys, asset_check_selection=set()).execute_in_process(
                instance=instance,
                run_id=run_id,
                run_config={**launch_config(options), "loggers": _QUIET},
                tags={**tags, **process_tags(), **origin_tags()},
                raise_on_error=False,
            )
        finally:
            run = instance.get_run_by_id(run_id)
            if run is not None and not run.is_finished:
                instance.report_run_canceled(run, "interrupted; the state is intact: the next run continues")
                instance.event_log_storage.free_concurrency_slots_for_run(run_id)
    if result.success:
        return "SUCCESS"
    ends = [event.job_failure_data for event in result.all_events if event.event_type is dg.DagsterEventType.RUN_FAILURE]
    is_interrupted = any(end.failure_reason is RunFailureReason.UNEXPECTED_TERMINATION for end in ends)
    return "CANCELED" if is_interrupted else "FAILURE"


SLICES_TAG = "slices"
DAYS_TAG = "days"
_LEFT_ON_PURPOSE = frozenset({None, int(ExitCode.DONE), int(ExitCode.INTERRUPTED)})
"""Exit codes of slices that are left without a failure: never started (None), stopped at a limit, or interrupted."""


def show_backfill(instance: dg.DagsterInstance, mapping: FeedMapping, record: BackfillRecord) -> None:
    """Record a backfill with its current state for the Backfills tab of the Dagster UI: the slices that have, or may have, a run.

    While slices are left it is shown as canceled, which also holds after a kill: Dagster's daemon would act on a state of work in
    progress.
    """
    plan = plan_of_record(record)
    windows = [plan.window_of(one) for one in record.slices if one.run_id or one.state is not SliceState.DONE]
    is_by_day = are_partitions(mapping, plan.window)
    partitions = [day for one in windows for day in _days_of(one)] if is_by_day else list(map(str, windows))
    status, ended = BulkActionStatus.CANCELED, None
    if record.state is BackfillState.DONE:
        status = BulkActionStatus.COMPLETED_SUCCESS
    elif any(one.state is SliceState.LEFT and one.exit_code not in _LEFT_ON_PURPOSE for one in record.slices):
        status = BulkActionStatus.COMPLETED_FAILED
    if status is not BulkActionStatus.CANCELED:
        ended = max(filter(None, (one.finished_at for one in record.slices)), default=None)
    done = sum(one.state is SliceState.DONE for one in record.slices)
    tags = {
        names.FEED_TAG: str(mapping.feed),
        DAYS_TAG: str(plan.window),
        SLICES_TAG: f"{done} of {len(record.slices)} done",
    }
    # Dagster expects each run of a partitioned job to name its partitions.
    job = names.ASSETS_JOB if is_by_day else ""
    put_backfill(
        instance,
        record.backfill_id,
        status,
        tags=tags,
        partitions=partitions,
        job=job,
        began=record.created_at,
        ended=ended,
    )


def _days_of(window: Window) -> list[str]:
    return [str(window.first + timedelta(days=number)) for number in range((window.last - window.first).days + 1)]
