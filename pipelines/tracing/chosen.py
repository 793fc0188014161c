"""Who listens to the runs of this process: an OpenTelemetry collector where the environment names one, else nobody.

What the environment asks for is read in `otel_env`; what is told is `telemetry`'s.
"""

from __future__ import annotations

import os
import random
from functools import cache

import structlog

from pipelines.otel_env import Wanted, wanted_of
from pipelines.settings import Settings
from pipelines.tracing.telemetry import UNTOLD, Telemetry

_INSTALL = "pip install 'eventsync[otel]'"


def telemetry_of(settings: Settings) -> Telemetry:
    """Return whom runs tell of themselves. What cannot be had is told once in the log, and costs no run anything."""
    wanted = wanted_of(settings.otel)
    if not wanted.is_any and not wanted.problems:
        return UNTOLD
    for name, value in settings.otel.items():
        os.environ.setdefault(name, value)  # its SDK reads the environment itself, and knows no `.env` file
    return _opened(wanted, settings.trace_requests)


@cache
def _opened(wanted: Wanted, trace_requests: float) -> Telemetry:
    """Open what is wanted once for each process: its threads and its connection serve every run."""
    for problem in wanted.problems:
        structlog.get_logger().warning("not everything is told to OpenTelemetry", problem=problem)
    if not wanted.is_any:
        return UNTOLD
    try:
        from pipelines.tracing.otel import open_recorder  # noqa: PLC0415  # an extra, and half a second of imports
    except ModuleNotFoundError as missing:
        structlog.get_logger().warning("nothing is told to OpenTelemetry", problem=f"{missing}", hint=_INSTALL)
        return UNTOLD
    return open_recorder(wanted, trace_requests, random.random)
