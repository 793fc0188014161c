"""A process that is Dagster's clock for one feed: each line on stdin is a tick of its schedule, and the run that the tick asks
for is carried out here, as a run worker would. How it ended is one JSON line on stdout; `test_overlap` gives the orders.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

import dagster as dg

from pipelines.before_serving import prepare_dagster_home
from pipelines.definitions import build_definitions
from pipelines.orchestration import names
from pipelines.run.context import open_context
from pipelines.settings import current_settings
from pipelines.telemetry.logs import configure_logs

AT = datetime(2031, 5, 1, 14, 15, tzinfo=UTC)


def serve(feed: str) -> None:
    """Announces itself with a line on stdout, then ticks until stdin ends."""
    settings = current_settings()
    configure_logs(settings)
    prepare_dagster_home(settings.dagster_home)
    definitions = build_definitions(settings, lambda: open_context(settings))
    with dg.DagsterInstance.get() as instance:
        say("ready")
        for _ in sys.stdin:
            say(tick(definitions, instance, feed))


def tick(definitions: dg.Definitions, instance: dg.DagsterInstance, feed: str) -> dict[str, object]:
    schedule = definitions.resolve_schedule_def(f"{names.job_of(feed)}_schedule")
    told = schedule.evaluate_tick(dg.build_schedule_context(instance=instance, scheduled_execution_time=AT))
    if not told.run_requests:
        return {"skipped": told.skip_message}
    (request,) = told.run_requests
    job = definitions.resolve_job_def(names.job_of(feed))
    tags = {names.FEED_TAG: feed, **request.tags}
    result = job.execute_in_process(instance=instance, tags=tags, run_config=request.run_config, raise_on_error=False)
    return {"skipped": "", "run_id": result.run_id, "is_success": result.success}


def say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
