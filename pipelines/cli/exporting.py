"""The command `metrics` at work: the numbers printed, put into a file, or served until Ctrl-C. What they are is `gauges`'."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from pipelines.cli.output import Output
from pipelines.cli.whole_file import written_whole
from pipelines.clock import monotonic_s
from pipelines.run.signals import wait_to_be_stopped
from pipelines.settings import current_settings
from pipelines.telemetry.logs import configure_logs
from pipelines.telemetry.metrics import MetricsPage, exposition, look, serving_metrics


def print_metrics(*, as_json: bool) -> int:
    """Print the numbers as Prometheus reads them, or as the document; return 0.

    Raises:
        SyncError: the state DB cannot be read.
    """
    gauges = look(current_settings())
    Output(json=as_json).document({"metrics": gauges})
    if not as_json:
        sys.stdout.write(exposition(gauges))
    return 0


def write_metrics(out: Path, *, as_json: bool) -> int:
    """Write the numbers to a file that is whole at any moment; return 0.

    Raises:
        ConfigError: it cannot be written.
        SyncError: the state DB cannot be read.
    """
    gauges = look(current_settings())
    with written_whole(out, "--out") as file:
        file.write_text(exposition(gauges), "utf-8")
    Output(json=as_json).document({"out": out.resolve(), "metrics": gauges})
    return 0


def serve_metrics(host: str, port: int, *, as_json: bool) -> int:
    """Serve the numbers until Ctrl-C, and tell where; return 0.

    Raises:
        ConfigError: the address cannot be had.
    """
    settings, output = current_settings(), Output(json=as_json)
    configure_logs(settings)
    with serving_metrics(MetricsPage(settings, monotonic_s).gauges, host, port) as url:
        output.document({"url": url, "pid": os.getpid()})
        if not as_json:
            output.note(f"Prometheus finds the numbers at {url}; stop with Ctrl-C.")
        with suppress(KeyboardInterrupt):
            wait_to_be_stopped()
    return 0
