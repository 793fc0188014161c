"""What a run tells tracing tools of itself while it works: nothing at all, unless somebody listens.

Who listens is chosen in `chosen`; how it is told to OpenTelemetry is `otel`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, get_args

from connectors.event_api.transport import Seen

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Work:
    """One run of one feed: what all that is told of it is found by."""

    feed: str
    run_id: str
    launched_by: str


class Telemetry:
    """Where nobody listens: every method leaves things as they are, and costs nothing per row."""

    @property
    def seen(self) -> Seen | None:
        """What each request to the service is told to; None where nobody wants to know."""
        return None

    def run(self, work: Work) -> AbstractContextManager[None]:
        """Stand around all that one process does for a run."""
        del work
        return nullcontext()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Stand around one of its phases."""
        del name
        return nullcontext()

    def counted(self, account: Mapping[str, int]) -> None:
        """Tell how many rows of a phase ended where."""

    def ended(self, outcome: str, exit_code: int) -> None:
        """Tell how a phase ended, or the run where it came to none."""

    def reading(self, advance: Advance) -> Advance:
        """Return what is told after each chunk of rows how many were read, and tells it to `advance`."""
        return advance

    def settling(self, advance: Advance) -> Advance:
        """Return what is told how many rows were settled, and tells it to `advance`."""
        return advance


NO_TELEMETRY = Telemetry()
"""Nobody listens."""
Exporter = Literal["otlp", "console", "none"]
PROTOCOL = "http/protobuf"
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SIGNALS = ("TRACES", "METRICS")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where each signal goes. `problems`: what was asked for and cannot be had; it costs the signal, never the run."""

    traces: Exporter = "none"
    metrics: Exporter = "none"
    problems: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        """Whether anything is to be told to anybody."""
        return {self.traces, self.metrics} != {"none"}


def wanted_of(otel: Mapping[str, str]) -> Wanted:
    """Return what OTEL_* variables ask for: with an endpoint OTLP, without one nothing, unless an exporter is named."""
    if otel.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return Wanted()
    problems: list[str] = []
    traces, metrics = (_exporter(signal, otel, problems) for signal in _SIGNALS)
    return Wanted(traces, metrics, tuple(problems))


def _exporter(signal: str, otel: Mapping[str, str], problems: list[str]) -> Exporter:
    has_endpoint = bool(otel.get(_ENDPOINT) or otel.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))
    word = otel.get(f"OTEL_{signal}_EXPORTER", "").strip() or ("otlp" if has_endpoint else "none")
    if word not in get_args(Exporter):
        problems.append(f"OTEL_{signal}_EXPORTER={word}: there are {', '.join(get_args(Exporter))}")
        return "none"
    protocol = otel.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or otel.get("OTEL_EXPORTER_OTLP_PROTOCOL") or PROTOCOL
    if word == "otlp" and protocol != PROTOCOL:
        problems.append(f"OTLP is spoken as {PROTOCOL} (mostly port 4318), not as {protocol}")
        return "none"
    return "otlp" if word == "otlp" else "console" if word == "console" else "none"
