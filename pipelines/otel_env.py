"""What the standard OTEL_* variables ask for, as far as it concerns a run: which signals go where, or why none does.

Everything else that they say (endpoints, headers, samplers, resources) OpenTelemetry's own SDK reads by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import unquote

from connectors.masking import passwords_in

Exporter = Literal["otlp", "console", "none"]
PROTOCOL = "http/protobuf"
TRACE_REQUESTS = "EVENTSYNC_TRACE_REQUESTS"
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


def secrets_in(otel: Mapping[str, str]) -> Iterator[str]:
    """Yield what OTEL_* variables hold that nobody must see: values of headers, passwords in addresses."""
    for name, value in otel.items():
        if name.endswith("_HEADERS"):
            for header in value.split(","):
                secret = unquote(header.partition("=")[2].strip())
                yield from (secret, *secret.split()[1:])
        if name.endswith("_ENDPOINT"):
            yield from passwords_in(value)


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
