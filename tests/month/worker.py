"""A run that Dagster's scheduler has queued, carried out as a run worker would, at a time of day that is handed in.

As a script it is a process of its own: each line on stdin names a run and the time at which it begins, the file that the
command names tells the time since, and how the run ended is one JSON line on stdout.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.events import DagsterEvent
from dagster._core.execution.api import execute_run
from dagster._core.test_utils import freeze_time

from pipelines.definitions import application
from pipelines.logs import configure_logs
from pipelines.orchestration.workers import process_tags
from pipelines.run.context import RunContext, open_context
from pipelines.settings import Settings, current_settings, read_settings


class MonthClock:
    """A time of day that jumps and goes on by itself after each jump, which is written into a file for other processes."""

    def __init__(self, at: datetime, file: Path) -> None:
        self._file = file
        self.set(at)

    def set(self, at: datetime) -> None:
        self._at, self._since = at, monotonic()
        draft = self._file.with_suffix(".new")
        draft.write_text(at.isoformat(), "ascii")
        draft.replace(self._file)  # a reader meanwhile finds one moment or the other

    def now(self) -> datetime:
        return self._at + timedelta(seconds=monotonic() - self._since)


def settings_of(environ: Mapping[str, str]) -> Settings:
    """The settings of a deployment whose folders are all named in full."""
    return read_settings(environ, Path("/"))


def definitions_at(settings: Settings, now: Callable[[], datetime]) -> dg.Definitions:
    """What Dagster sees, with this clock wherever the time of day is asked for."""

    @contextmanager
    def open_then() -> Iterator[RunContext]:
        with open_context(settings) as context:
            yield replace(context, now=now)

    return application(settings, open_then)


@dg.definitions
def defs() -> dg.Definitions:
    """What the scheduler loads: the project's definitions, without its logs."""
    settings = current_settings()
    return application(settings, lambda: open_context(settings))


def carry_out(instance: dg.DagsterInstance, definitions: dg.Definitions, run_id: str) -> bool:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    starting = DagsterEvent(event_type_value=dg.DagsterEventType.PIPELINE_STARTING.value, job_name=run.job_name)
    instance.report_dagster_event(starting, run_id)
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return execute_run(InMemoryJob(definitions.resolve_job_def(run.job_name)), run, instance).success


def serve(clock: Path) -> None:
    """Say that it is ready, then carry runs out until stdin ends."""

    def say(what: object) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    settings = settings_of(os.environ)
    configure_logs(settings)
    with dg.DagsterInstance.from_config(str(Path(settings.dagster_home))) as instance:
        say("ready")
        for line in sys.stdin:
            order = json.loads(line)
            with freeze_time(datetime.fromisoformat(order["at"])):
                instance.add_run_tags(order["run_id"], process_tags())
                definitions = definitions_at(settings, lambda: datetime.fromisoformat(clock.read_text("ascii")))
                say({"is_success": carry_out(instance, definitions, order["run_id"])})


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
