"""The way to a collector: OpenTelemetry's providers and exporters, opened once for each process, and never waited for long.

What is told over it is `otel`'s; which signals go where is read in `otel_env`.
"""

from __future__ import annotations

import logging
import sys
import threading
from dataclasses import dataclass, field
from importlib.metadata import version

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Tracer

from pipelines.otel_env import Exporter, Wanted

PATIENCE_S = 2.0
"""How long the end of a run waits for a collector. One that is not heard of by then is not waited for again."""
_NAME = "eventsync"


@dataclass(slots=True)
class Exporting:
    """Both providers of this process; with their own they leave OpenTelemetry's global ones to others."""

    traces: TracerProvider
    metrics: MeterProvider
    is_deaf: bool = False
    _told: threading.Event = field(default_factory=threading.Event)

    @property
    def tracer(self) -> Tracer:
        """What makes spans."""
        return self.traces.get_tracer(_NAME, version(_NAME))

    @property
    def meter(self) -> Meter:
        """What counts."""
        return self.metrics.get_meter(_NAME, version(_NAME))

    def flush(self) -> None:
        """Send what there is, for at most a few seconds: an unreachable collector holds up one run, once."""
        if self.is_deaf:
            return
        over = threading.Event()

        def send() -> None:
            self.traces.force_flush()
            self.metrics.force_flush()
            over.set()

        threading.Thread(target=send, name="eventsync-otel", daemon=True).start()
        if not over.wait(PATIENCE_S):
            self.is_deaf = True
            hint = "check OTEL_EXPORTER_OTLP_ENDPOINT; runs are not affected"
            structlog.get_logger().warning("the OpenTelemetry collector does not answer", waited_s=PATIENCE_S, hint=hint)


def exporting(wanted: Wanted, ids: IdGenerator) -> Exporting:
    """Open the way to where the signals go. Nothing is registered for the process's end: `flush` is called before it."""
    _forward_complaints()
    resource = _resource()
    traces = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
    spans, numbers = _span_exporter(wanted.traces), _metric_exporter(wanted.metrics)
    if spans is not None:
        traces.add_span_processor(BatchSpanProcessor(spans))
    readers = [] if numbers is None else [PeriodicExportingMetricReader(numbers)]
    return Exporting(traces, MeterProvider(readers, resource, shutdown_on_exit=False))


def _resource() -> Resource:
    """Return what the environment says we are; where it does not name the service, it is `eventsync`."""
    found = Resource.create()
    name = str(found.attributes.get("service.name", ""))
    named = {} if name and not name.startswith("unknown_service") else {"service.name": _NAME}
    return found.merge(Resource({**named, "service.version": version(_NAME)}))


def _span_exporter(exporter: Exporter) -> SpanExporter | None:
    match exporter:
        case "otlp":
            return OTLPSpanExporter()
        case "console":
            return ConsoleSpanExporter(out=sys.stderr)
        case "none":
            return None


def _metric_exporter(exporter: Exporter) -> MetricExporter | None:
    match exporter:
        case "otlp":
            return OTLPMetricExporter()
        case "console":
            return ConsoleMetricExporter(out=sys.stderr)
        case "none":
            return None


class _Forward(logging.Handler):
    """Tells in our own log what the SDK complains of, each kind of complaint once: it repeats itself every few seconds."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._known: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Take one complaint."""
        if str(record.msg) not in self._known:
            self._known.add(str(record.msg))
            structlog.get_logger().warning("OpenTelemetry complains", complaint=record.getMessage())


def _forward_complaints() -> None:
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.handlers = [_Forward()]
