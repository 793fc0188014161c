"""`eventsync metrics`: the numbers that monitors watch, in the Prometheus text format."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NotRequired

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import ConfigError
    from pipelines.cli.output.console import Output, written_whole
    from pipelines.clock import monotonic_s
    from pipelines.run.signals import wait_to_be_stopped
    from pipelines.settings import current_settings
    from pipelines.telemetry.logs import configure_logs
    from pipelines.telemetry.metrics import Gauge, MetricsPage, exposition, read_gauges, serving_metrics


def metrics(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Serve /metrics there until Ctrl-C; 0: a free port.")] = None,
    host: Annotated[str, typer.Option(help="Address to serve at; others than this machine reach 0.0.0.0.")] = "127.0.0.1",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write them to FILE, which is whole at any moment.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Print where the feeds stand, for Prometheus: rows by state, what waits for a person, how fresh they are.

    For example:

        # Once
        eventsync metrics
        # For Prometheus to come and fetch: http://127.0.0.1:9464/metrics
        eventsync metrics --port 9464
        # For the textfile collector of node_exporter, by cron
        eventsync metrics --out /var/lib/node_exporter/eventsync.prom

    Reads the state DB only, also while runs are at work; neither key nor service is needed. `eventsync ui` serves the same
    where EVENTSYNC_METRICS_PORT is set. Exit codes: 0, 2 if the port or the file cannot be had, 2 or 6 if the state DB cannot
    be read.
    """
    if port is not None and out is not None:
        raise ConfigError("--port and --out exclude each other", hint="what is served can be written by a second command")
    settings, output = current_settings(), Output(json=as_json)
    if port is not None:
        configure_logs(settings)
        with serving_metrics(MetricsPage(settings, monotonic_s).gauges, host, port) as url:
            output.document(Serving(url=url, pid=os.getpid()))
            if not as_json:
                output.note(f"Prometheus finds the numbers at {url}; stop with Ctrl-C.")
            with suppress(KeyboardInterrupt):
                wait_to_be_stopped()
        return 0
    gauges = read_gauges(settings)
    document = Metrics(metrics=gauges)
    if out is not None:
        with written_whole(out, "--out") as file:
            file.write_text(exposition(gauges), "utf-8")
        document["out"] = out.resolve()
    output.document(document)
    if out is None and not as_json:
        sys.stdout.write(exposition(gauges))
    return 0


class Metrics(TypedDict):
    """The numbers that monitors watch; `out`: the file they were written to."""

    metrics: Sequence[Gauge]
    out: NotRequired[Path]


class Serving(TypedDict):
    """Where the numbers are served, and the process to signal."""

    url: str
    pid: int
