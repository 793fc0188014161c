"""What is done once before a code server takes its first run: the environment is read, Dagster's home and storage made, runs of
a predecessor ended. The server itself is Dagster's.

`python -m pipelines.before_serving`, in the environment of the server and on its host: a host of the same name that died with
runs at work leaves them STARTED, and their feeds waiting for them.
"""

from __future__ import annotations

import sys

from dagster import DagsterInstance

from mappings.errors import SyncError
from pipelines.control_characters import replaced
from pipelines.orchestration.dagster_home import prepare_dagster_home
from pipelines.orchestration.workers import end_runs_of_the_dead
from pipelines.run.outcome import outcome_of
from pipelines.settings import current_settings


def prepare() -> None:
    """Make what the server and its neighbours need, so that none of them meets storage that another is still making.

    Raises:
        ConfigError: the environment is not fit to serve in.
    """
    settings = current_settings()
    prepare_dagster_home(settings.dagster_home)
    with DagsterInstance.get() as instance:
        end_runs_of_the_dead(instance)


def main() -> int:
    """Prepare, and return the exit code; what is wrong is on stderr."""
    try:
        prepare()
    except SyncError as error:
        sys.stderr.write(replaced(f"{error}\n{error.hint}\n"))
        return int(outcome_of(error).exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
