"""Running a feed's job in this very process, on the same Dagster instance as the UI: the run is in its list all the same.

Launching on a webserver that is already there is `webserver`'s. The tags let others notice if this process dies.
"""

from __future__ import annotations

from dagster import AssetKey, DagsterEventType, DagsterInstance, Definitions, ExecuteInProcessResult
from dagster._core.events import RunFailureReason

from mappings.spec.feed import FeedMapping
from pipelines.orchestration.webserver import launch_config, launch_tags, launched_job, wanted_assets
from pipelines.orchestration.workers import end_runs_of_the_dead, ended_on_leaving, process_tags
from pipelines.run.options import RunOptions

QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}
"""The event log keeps everything, stack traces included; the terminal is the person's, who gets a report."""


def run_job(definitions: Definitions, mapping: FeedMapping, options: RunOptions, run_id: str, launched_by: str = "cli") -> str:
    """Run the job of one feed; return the run's status. How it ended in words stands in the state DB."""
    job = definitions.resolve_job_def(launched_job(mapping, options))
    with DagsterInstance.get() as instance, ended_on_leaving(instance, run_id):
        end_runs_of_the_dead(instance)
        result = job.execute_in_process(
            instance=instance,
            run_id=run_id,
            run_config={**launch_config(options), "loggers": QUIET},
            asset_selection=[AssetKey(path) for path in wanted_assets(mapping.feed, options)] or None,
            tags={**launch_tags(mapping, options, launched_by), **process_tags()},
            raise_on_error=False,
        )
    return _status(result)


def _status(result: ExecuteInProcessResult) -> str:
    """Return how it ended; what a signal interrupted counts as canceled here, though Dagster notes a failure."""
    if result.success:
        return "SUCCESS"
    ends = [event.job_failure_data for event in result.all_events if event.event_type is DagsterEventType.RUN_FAILURE]
    is_interrupted = any(end.failure_reason is RunFailureReason.UNEXPECTED_TERMINATION for end in ends)
    return "CANCELED" if is_interrupted else "FAILURE"
