"""Run a job in this process; the launcher that detects dead processes.

The module keeps its path because existing dagster.yaml files name the launcher in it.
"""

from __future__ import annotations

import dagster as dg

from mappings.spec.feed import FeedMapping
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus, origin_tags
from pipelines.orchestration.run_request import launch_config, launch_tags, wanted_assets
from pipelines.orchestration.run_tags import end_runs_of_the_dead
from pipelines.orchestration.workers import INTERRUPTIONS, process_tags, worker_of
from pipelines.run.options import RunOptions

_QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}
"""Silences the console: the event log keeps everything, stack traces included, and the terminal shows the run's report."""


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
        worker = worker_of(self._instance, run)
        if worker is not None and worker.is_dead():
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"process {worker.pid} has died")
        return CheckRunHealthResult(WorkerStatus.RUNNING)


def run_job(definitions: dg.Definitions, mapping: FeedMapping, options: RunOptions, run_id: str, launched_by: str = "cli") -> str:
    """Run the job of one feed in this process, listed in the Dagster UI like any other run; return the run's status.

    The days of a window are partitions, made by Dagster's own job of all assets. An interrupted run returns CANCELED, although
    Dagster records a failure or no end.
    """
    job = definitions.resolve_implicit_global_asset_job_def() if options.window else definitions.resolve_job_def(names.JOB)
    keys = {dg.AssetKey(path) for path in wanted_assets(mapping, options)}
    with dg.DagsterInstance.get() as instance:
        end_runs_of_the_dead(instance)
        try:
            result = job.get_subset(asset_selection=keys, asset_check_selection=set()).execute_in_process(
                instance=instance,
                run_id=run_id,
                run_config={**launch_config(options, mapping.feed), "loggers": _QUIET},
                tags={**launch_tags(mapping, options, launched_by), **process_tags(), **origin_tags()},
                raise_on_error=False,
            )
        finally:
            run = instance.get_run_by_id(run_id)
            if run is not None and not run.is_finished:
                instance.report_run_canceled(run, "interrupted; the state is intact: the next run continues")
                instance.event_log_storage.free_concurrency_slots_for_run(run_id)
    if result.success:
        return "SUCCESS"
    errors = [event.job_failure_data.error for event in result.all_events if event.is_run_failure]
    return "CANCELED" if any(error and error.cls_name in INTERRUPTIONS for error in errors) else "FAILURE"
