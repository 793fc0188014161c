"""Prepare for a code server's first run: read the environment, make Dagster's home and storage, end a predecessor's runs.

`python -m pipelines.before_serving`, in the environment of the server and on its host. A host of the same name that died with
runs at work leaves them STARTED, and their feeds waiting for them.
"""

from __future__ import annotations

import sys

import dagster as dg

from mappings.errors import SyncError
from pipelines.control_characters import replaced
from pipelines.orchestration.dagster_home import prepare_dagster_home
from pipelines.orchestration.workers import end_runs_of_the_dead
from pipelines.run.outcome import outcome_of
from pipelines.settings import current_settings


def prepare() -> None:
    """Make the home and the storage, so that no process of the deployment finds storage that another is still making.

    Raises:
        ConfigError: the environment is not fit to serve in.
    """
    settings = current_settings()
    prepare_dagster_home(settings.dagster_home)
    with dg.DagsterInstance.get() as instance:
        end_runs_of_the_dead(instance)


def main() -> int:
    """Prepare, and return the exit code; print what is wrong to stderr."""
    try:
        prepare()
    except SyncError as error:
        sys.stderr.write(replaced(f"{error}\n{error.hint}\n"))
        return int(outcome_of(error).exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
