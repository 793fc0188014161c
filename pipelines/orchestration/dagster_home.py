"""Dagster's home folder: made on first use, with the settings that a sync worker needs. Settings that somebody has written or
changed are left alone; those that an earlier version wrote, and nobody has changed, are brought up to date.

What Dagster does with its home is its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from state.private_files import keep_private, make_private_folder

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
FORMER = frozenset({"e3bfe54e13b2381bbe0b5d3b2585a11487b1246dc9175225d740621d37657173"})
"""The SHA-256 of each text that an earlier version wrote."""


def prepare_dagster_home(home: Path) -> None:
    """Make the folder with its settings, and point this process and its children at it: what they make is private."""
    keep_private()
    make_private_folder(home.absolute())
    settings = home / "dagster.yaml"
    if not settings.exists() or hashlib.sha256(settings.read_bytes()).hexdigest() in FORMER:
        _write_whole(settings, DAGSTER_YAML)
    os.environ["DAGSTER_HOME"] = str(home)


def settings_lacking(home: Path) -> tuple[str, ...]:
    """Return which of our settings a home's own file does not name, so that Dagster goes by its defaults; none without a file."""
    try:
        text = (home / "dagster.yaml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    named = set(_names(text))
    return tuple(name for name in _names(DAGSTER_YAML) if name not in named)


def _names(text: str) -> Iterator[str]:
    yield from (line.partition(":")[0].strip() for line in text.splitlines() if line[:1].isalpha())


def _write_whole(file: Path, text: str) -> None:
    """Write it so that whoever reads it meanwhile finds the former text or this one."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)
