"""Prepare Dagster's home folder and storage before the servers of a deployment start.

Run `python -m pipelines.before_serving` on the code server's host, in its environment. It creates the home and the storage, so
that no process finds storage that another one is still creating. It also ends the runs that a killed server of the same host name
left STARTED: their feeds would wait for them.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

from mappings.errors import SyncError
from pipelines.run.outcome import outcome_of
from pipelines.safe_output import replaced
from pipelines.settings import current_settings
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
"""SHA-256 digests of the texts that earlier versions wrote; a file with one of them may be replaced."""
_SETTING = re.compile(r"^[a-z]\w*", re.IGNORECASE | re.MULTILINE)


def prepare_dagster_home(home: Path) -> None:
    """Create Dagster's home with `dagster.yaml`, private to the user, and set DAGSTER_HOME for this process and its children.

    A file that a person wrote or changed is kept; an unchanged one of an earlier version is replaced.
    """
    keep_private()
    make_private_folder(home.absolute())
    settings = home / "dagster.yaml"
    if not settings.exists() or hashlib.sha256(settings.read_bytes()).hexdigest() in FORMER:
        new = home / f".dagster.yaml.{os.getpid()}"
        new.write_text(DAGSTER_YAML, encoding="utf-8")
        new.replace(settings)  # a concurrent reader finds the old text or the new one, never a part
    os.environ["DAGSTER_HOME"] = str(home)


def missing_settings(home: Path) -> tuple[str, ...]:
    """Return our settings that the home's `dagster.yaml` lacks, so that Dagster's defaults apply; none if there is no file."""
    try:
        present = _SETTING.findall((home / "dagster.yaml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(name for name in _SETTING.findall(DAGSTER_YAML) if name not in present)


def main() -> int:
    """Prepare home and storage; return the exit code. Errors go to stderr."""
    import dagster as dg  # noqa: PLC0415  # takes a second, and commands need only the home

    from pipelines.orchestration.run_tags import end_runs_of_the_dead  # noqa: PLC0415  # as above

    try:
        prepare_dagster_home(current_settings().dagster_home)
        with dg.DagsterInstance.get() as instance:
            end_runs_of_the_dead(instance)
    except SyncError as error:
        sys.stderr.write(replaced(f"{error}\n{error.hint}\n"))
        return int(outcome_of(error).exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
