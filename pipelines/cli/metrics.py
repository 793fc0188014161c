"""`eventsync metrics`: prints or serves the feeds' numbers in the Prometheus text format."""

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
    from pipelines.logs import configure_logs
    from pipelines.metrics import Gauge, exposition, read_gauges, serving_metrics
    from pipelines.run.signals import wait_to_be_stopped
    from pipelines.safe_output import undisturbed
    from pipelines.settings import current_settings


def metrics(
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve /metrics on this port until Ctrl-C; 0 chooses a free port.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve at; 0.0.0.0 admits other machines.")] = "127.0.0.1",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the metrics to FILE, replaced in one step.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Print metrics of the feeds for Prometheus: rows by state, rows that wait for a person, times of the last runs.

    For example:

        # Once
        eventsync metrics
        # Serve them to Prometheus at http://127.0.0.1:9464/metrics
        eventsync metrics --port 9464
        # Write them for node_exporter's textfile collector, by cron
        eventsync metrics --out /var/lib/node_exporter/eventsync.prom

    Only the state DB is read, also during runs; no key and no service is needed. `eventsync ui` serves the same metrics if
    EVENTSYNC_METRICS_PORT is set. Exit codes: 0 done, 2 the port is taken or the file cannot be written, 2 or 6 the state DB
    cannot be read.
    """
    if port is not None and out is not None:
        raise ConfigError("--port and --out cannot be combined", hint="use one command to serve and another one to write")
    settings, output = current_settings(), Output(is_json=as_json)
    if port is not None:
        configure_logs(settings)
        with serving_metrics(settings, host, port) as url:
            output.document(Serving(url=url, pid=os.getpid()))
            if not as_json:
                output.note(f"Serving metrics for Prometheus at {url}. Stop with Ctrl-C.")
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
        undisturbed(sys.stdout).write(exposition(gauges))
    return 0


class Metrics(TypedDict):
    """The metrics; `out`: the file they were written to."""

    metrics: Sequence[Gauge]
    out: NotRequired[Path]


class Serving(TypedDict):
    """The address at which the metrics are served, and the process to signal."""

    url: str
    pid: int
