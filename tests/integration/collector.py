"""A collector of OpenTelemetry data as a server on this machine: it keeps what it is sent, as its own protocol reads it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from lookalikes.threaded import Answer, answering_by
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class Span:
    """One span as it arrived."""

    name: str
    trace_id: str
    span_id: bytes
    parent_id: bytes
    is_error: bool
    about: dict[str, Any]


@dataclass
class Collector:
    """What arrived so far, raw and read."""

    url: str
    raw: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    numbers: dict[str, list[tuple[dict[str, Any], float]]] = field(default_factory=dict)
    resources: list[dict[str, Any]] = field(default_factory=list)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def below(self, parent: Span) -> list[Span]:
        return [span for span in self.spans if span.parent_id == parent.span_id]

    def take_traces(self, body: bytes) -> None:
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(_about(part.resource.attributes))
            for span in (span for scope in part.scope_spans for span in scope.spans):
                ids = span.trace_id.hex(), span.span_id, span.parent_span_id
                self.spans.append(Span(span.name, *ids, span.status.code == 2, _about(span.attributes)))

    def take_metrics(self, body: bytes) -> None:
        parts = ExportMetricsServiceRequest.FromString(body).resource_metrics
        for metric in (metric for part in parts for scope in part.scope_metrics for metric in scope.metrics):
            points = [(_about(one.attributes), one.as_int or one.as_double) for one in metric.sum.data_points]
            points += [(_about(one.attributes), one.count) for one in metric.histogram.data_points]
            self.numbers[metric.name] = points


@contextmanager
def collecting() -> Iterator[Collector]:
    def take(request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        plain = gzip.decompress(body) if request.headers["content-encoding"] == "gzip" else body
        collector.raw.append(plain)
        collector.headers.append({name.lower(): value for name, value in request.headers.items()})
        (collector.take_traces if request.path == "/v1/traces" else collector.take_metrics)(plain)
        return Answer()

    collector = Collector("")
    with answering_by(take) as collector.url:
        yield collector


def _about(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
