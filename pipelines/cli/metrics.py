"""`eventsync metrics`: the numbers that monitors watch. What they are is `pipelines.measuring.gauges`'."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.flags import AsJson


def metrics(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Serve /metrics there until Ctrl-C; 0: a free port.")] = None,
    host: Annotated[str, typer.Option(help="Address to serve at; others than this machine reach 0.0.0.0.")] = "127.0.0.1",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write them to FILE, which is whole at any moment.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Tell monitors where the feeds stand, as Prometheus reads it: rows by state, what waits for a person, how fresh they are.

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
        from mappings.errors import ConfigError  # noqa: PLC0415  # keeps `--help` fast

        raise ConfigError("--port and --out exclude each other", hint="what is served can be written by a second command")
    from pipelines.cli.exporting import print_metrics, serve_metrics, write_metrics  # noqa: PLC0415  # keeps `--help` fast

    if port is not None:
        return serve_metrics(host, port, as_json=as_json)
    return print_metrics(as_json=as_json) if out is None else write_metrics(out, as_json=as_json)
