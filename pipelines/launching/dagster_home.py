"""Dagster's home folder: made on first use, with the settings that a sync worker needs; an existing one is left alone.

Homes that are written by hand, for a deployment of several containers, are not seen here.
"""

from __future__ import annotations

import os
from pathlib import Path

DAGSTER_YAML = """\
# Written once by eventsync; yours from then on.
telemetry: {enabled: false}
nux: {enabled: false}
python_logs: {python_log_level: INFO}
run_launcher: {module: pipelines.launcher, class: PidCheckingRunLauncher}
run_queue: {dequeue_interval_seconds: 1}
concurrency:
  pools: {granularity: op, default_limit: 4}
  runs:
    max_concurrent_runs: 4
    tag_concurrency_limits:
      - {key: eventsync/feed, value: {applyLimitPerUniqueValue: true}, limit: 1}
run_monitoring:
  enabled: true
  poll_interval_seconds: 10
  start_timeout_seconds: 60
  cancel_timeout_seconds: 60
  free_slots_after_run_end_seconds: 30
run_retries: {enabled: true, max_retries: 0}  # only runs that ask for it by a tag: dagster/max_retries
schedules: {use_threads: true, num_workers: 4}
sensors: {use_threads: true, num_workers: 4}
freshness: {enabled: true}
retention:
  schedule: {purge_after_days: 30}
  sensor: {purge_after_days: {skipped: 3, success: 30, failure: 30}}
"""


def prepare_dagster_home(home: Path) -> None:
    """Make the folder with its settings, and point this process and its children at it."""
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(DAGSTER_YAML, encoding="utf-8")
    os.environ["DAGSTER_HOME"] = str(home)
