"""The interface through which a run reports spans and metrics; by default they are discarded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, get_args

from connectors.event_api.transport import Seen

Advance = Callable[[int], None]
Exporter = Literal["otlp", "console", "none"]
PROTOCOL = "http/protobuf"


class Telemetry:
    """The default recorder, which discards everything and costs nothing per row."""

    seen: Seen | None = None
    """Called with each request to the service; None if requests are not traced."""

    def run(self, feed: str, run_id: str, launched_by: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Open the span of a run."""
        return nullcontext()

    def phase(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Open the span of a phase."""
        return nullcontext()

    def count(self, account: Mapping[str, int]) -> None:
        """Report the number of rows of a phase, by outcome."""

    def end(self, outcome: str, exit_code: int) -> None:
        """Report the outcome of a phase or a run."""

    def reading(self, advance: Advance) -> Advance:
        """Return a callback for chunks of rows read, which also calls `advance`."""
        return advance

    def settling(self, advance: Advance) -> Advance:
        """Return a callback for rows settled, which also calls `advance`."""
        return advance


NO_TELEMETRY = Telemetry()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The exporter of each signal. `problems`: settings that are not supported; they fail no run."""

    traces: Exporter = "none"
    metrics: Exporter = "none"
    problems: tuple[str, ...] = ()


def wanted_of(otel: Mapping[str, str]) -> Wanted:
    """Return the exporters that OTEL_* variables select: OTLP with an endpoint, none without, unless an exporter is named."""
    if otel.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return Wanted()
    exporters: dict[str, Exporter] = {}
    problems: list[str] = []
    for signal in ("TRACES", "METRICS"):
        has_endpoint = otel.get("OTEL_EXPORTER_OTLP_ENDPOINT") or otel.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
        word = otel.get(f"OTEL_{signal}_EXPORTER", "").strip() or ("otlp" if has_endpoint else "none")
        protocol = otel.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or otel.get("OTEL_EXPORTER_OTLP_PROTOCOL") or PROTOCOL
        exporter: Exporter = next((known for known in get_args(Exporter) if known == word), "none")
        if word != exporter:
            problems.append(f"OTEL_{signal}_EXPORTER={word} is not supported; use one of {', '.join(get_args(Exporter))}")
        elif exporter == "otlp" and protocol != PROTOCOL:
            problems.append(f"OTLP over {protocol} is not supported; use {PROTOCOL} (usually port 4318)")
            exporter = "none"
        exporters[signal] = exporter
    return Wanted(exporters["TRACES"], exporters["METRICS"], tuple(problems))
