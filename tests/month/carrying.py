"""A run that Dagster's scheduler has queued, carried out as a run worker would, with a clock handed in.

Who queues runs is `office`'s; `worker` does the same in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.events import DagsterEvent
from dagster._core.execution.api import execute_run

from pipelines.definitions import build_definitions
from pipelines.run.context import RunContext, open_context
from pipelines.settings import Settings, read_settings


def settings_of(environ: Mapping[str, str]) -> Settings:
    """The settings of a deployment whose folders are all named in full."""
    return read_settings(environ, Path("/"))


def definitions_at(settings: Settings, now: Callable[[], datetime]) -> dg.Definitions:
    """What Dagster sees, with this clock wherever the time of day is asked for."""

    @contextmanager
    def open_then() -> Iterator[RunContext]:
        with open_context(settings) as workshop:
            yield replace(workshop, now=now)

    return build_definitions(settings, open_then)


def carry_out(instance: dg.DagsterInstance, definitions: dg.Definitions, run_id: str) -> bool:
    """Carry a run out; whether it succeeded."""
    run = instance.get_run_by_id(run_id)
    assert run is not None
    starting = DagsterEvent(event_type_value=dg.DagsterEventType.PIPELINE_STARTING.value, job_name=run.job_name)
    instance.report_dagster_event(starting, run_id)
    run = instance.get_run_by_id(run_id)
    assert run is not None
    job = definitions.resolve_job_def(run.job_name)
    return execute_run(InMemoryJob(job), run, instance).success
