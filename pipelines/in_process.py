"""Running a feed's job in this very process, on the same Dagster instance as the UI: the run is in its list all the same.

Launching on a webserver that is already there is `webserver`'s. The tags let the daemon notice if this process dies.
"""

from __future__ import annotations

from dagster import AssetKey, DagsterInstance, Definitions

from mappings.vocabulary import FeedName
from pipelines import names
from pipelines.launch_request import launch_config, wanted_assets
from pipelines.launcher import process_tags
from pipelines.options import RunOptions

QUIET = {"console": {"config": {"log_level": "ERROR"}}}
"""The event log keeps everything; the terminal is the person's, who gets a report."""


def run_job(definitions: Definitions, feed: FeedName, options: RunOptions) -> tuple[str, str]:
    """Run the job of one feed; return the run's id and its status. How it ended in words stands in the state DB."""
    job = definitions.resolve_job_def(names.job_of(feed))
    with DagsterInstance.get() as instance:
        result = job.execute_in_process(
            instance=instance,
            run_config={**launch_config(options), "loggers": QUIET},
            asset_selection=[AssetKey(path) for path in wanted_assets(feed, options)] or None,
            tags={names.LAUNCHED_BY_TAG: "cli", names.FEED_TAG: feed, **process_tags()},
            raise_on_error=False,
        )
    return result.run_id, "SUCCESS" if result.success else "FAILURE"
