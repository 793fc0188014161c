"""OpenTelemetry spans and metrics of runs, exported as the OTEL_* variables say. Needs the extra `otel`."""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span
from structlog.contextvars import bound_contextvars, get_contextvars

from connectors.event_api.transport import Exchanged
from pipelines.telemetry.tracing import Advance, Telemetry, Wanted

PATIENCE_S = 2.0
"""Seconds that the end of a run waits for a collector; one that did not answer is not waited for again."""
TRACED_FAILURES = 200
"""Failed requests per phase that get a span each; further ones are sampled like all others."""
_NAME = "eventsync"
_NS = 1_000_000_000


@dataclass(slots=True)
class _Phase:
    """A running phase: its name, the span of its run, its outcome, and its number of failed requests."""

    name: str
    run: Span
    outcome: str = ""
    failures: int = 0


_RUN: ContextVar[Mapping[str, str]] = ContextVar("eventsync_run", default={})  # noqa: B039  # never changed in place
_PHASE: ContextVar[_Phase | None] = ContextVar("eventsync_phase", default=None)


class _OwnLog(logging.Handler):
    """Logs each warning of the SDK once in our log; the SDK repeats them every few seconds."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._known: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Log a warning, unless an equal one was logged before."""
        if str(record.msg) not in self._known:
            self._known.add(str(record.msg))
            structlog.get_logger().warning("OpenTelemetry reports a problem", problem=record.getMessage())


class _RunIds(RandomIdGenerator):
    """Generates trace ids from run ids, so that the spans of one run form one trace, across processes."""

    def generate_trace_id(self) -> int:
        """Return the trace id of the current run; a random one outside a run."""
        run_id = _RUN.get().get("eventsync.run_id")
        if run_id is None:
            return super().generate_trace_id()
        return int.from_bytes(hashlib.blake2b(run_id.encode(), digest_size=16).digest())


def open_recorder(wanted: Wanted, trace_requests: float, random: Callable[[], float]) -> Telemetry:
    """Build the recorder of this process, without touching OpenTelemetry's global providers."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate, logger.handlers = False, [_OwnLog()]
    found = Resource.create()
    name = str(found.attributes.get("service.name", ""))
    named = {} if name and not name.startswith("unknown_service") else {"service.name": _NAME}
    resource = found.merge(Resource({**named, "service.version": version(_NAME)}))
    traces = TracerProvider(resource=resource, id_generator=_RunIds(), shutdown_on_exit=False)
    if wanted.traces != "none":
        spans = OTLPSpanExporter() if wanted.traces == "otlp" else ConsoleSpanExporter(out=sys.stderr)
        traces.add_span_processor(BatchSpanProcessor(spans))
    readers: list[MetricReader] = []
    if wanted.metrics != "none":
        numbers = OTLPMetricExporter() if wanted.metrics == "otlp" else ConsoleMetricExporter(out=sys.stderr)
        readers.append(PeriodicExportingMetricReader(numbers))
    return Recorder(traces, MeterProvider(readers, resource, shutdown_on_exit=False), trace_requests, random)


class Recorder(Telemetry):
    """Reports to OpenTelemetry. `trace_requests`: the share (0 to 1) of ordinary requests that get a span."""

    def __init__(
        self, traces: TracerProvider, metrics: MeterProvider, trace_requests: float, random: Callable[[], float]
    ) -> None:
        self._traces, self._metrics, self._is_unreachable = traces, metrics, False
        self._trace_requests, self._random = trace_requests, random
        self._tracer, meter = traces.get_tracer(_NAME, version(_NAME)), metrics.get_meter(_NAME, version(_NAME))
        self._rows_read = meter.create_counter("eventsync.rows.read", "{row}", "Rows read from sources, as they are read.")
        self._rows_settled = meter.create_counter("eventsync.rows.settled", "{row}", "Rows whose answer was recorded.")
        self._rows_ended = meter.create_counter("eventsync.rows.ended", "{row}", "Rows of a phase, by outcome.")
        self._phases = meter.create_histogram("eventsync.phase.duration", "s", "Duration of a phase, by outcome.")
        self._requests = meter.create_histogram("http.client.request.duration", "s", "Time from a request to its answer.")
        self.seen = self._record_request

    @contextmanager
    def run(self, feed: str, run_id: str, launched_by: str) -> Iterator[None]:
        """Open the trace of a run; log lines carry its id. Export it at the end, if the collector answers soon."""
        attributes = {"eventsync.feed": feed, "eventsync.run_id": run_id, "eventsync.launched_by": launched_by}
        token = _RUN.set(attributes)
        try:
            with self._span(f"run {feed}", attributes) as span:
                trace_id = f"{span.get_span_context().trace_id:032x}"
                with bound_contextvars(trace_id=trace_id):
                    yield
        finally:
            _RUN.reset(token)
            self._flush()

    def _flush(self) -> None:
        """Export what is collected, within a few seconds; after one timeout no later run waits.

        In a thread: the exporters' own timeouts do not limit a connection that hangs.
        """
        if self._is_unreachable:
            return
        is_over = threading.Event()

        def export() -> None:
            self._traces.force_flush()
            self._metrics.force_flush()
            is_over.set()

        threading.Thread(target=export, name="eventsync-otel", daemon=True).start()
        if not is_over.wait(PATIENCE_S):
            self._is_unreachable = True
            hint = "check OTEL_EXPORTER_OTLP_ENDPOINT; runs are not affected"
            structlog.get_logger().warning("the OpenTelemetry collector does not answer", waited_s=PATIENCE_S, hint=hint)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Open the span of a phase, and measure its duration."""
        phase = _Phase(name, get_current_span())
        token, began_ns = _PHASE.set(phase), time.time_ns()
        try:
            with self._span(name, _feed()):
                yield
        finally:
            _PHASE.reset(token)
            attributes = {**_feed(), "eventsync.phase": name, "eventsync.outcome": phase.outcome or "interrupted"}
            self._phases.record((time.time_ns() - began_ns) / _NS, attributes)

    def count(self, account: Mapping[str, int]) -> None:
        """Add the counts to the phase's span and to the metrics."""
        get_current_span().set_attributes({f"eventsync.rows.{name}": count for name, count in account.items()})
        phase = _PHASE.get()
        attributes = {**_feed(), "eventsync.phase": phase.name if phase else ""}
        for name, count in account.items():
            if count:
                self._rows_ended.add(count, {**attributes, "eventsync.row.outcome": name})

    def end(self, outcome: str, exit_code: int) -> None:
        """Set the outcome on the spans of the phase and of the run; the last phase decides the run's."""
        phase, span = _PHASE.get(), get_current_span()
        for each in (span, phase.run) if phase else (span,):
            each.set_attributes({"eventsync.outcome": outcome, "eventsync.exit_code": exit_code})
            if exit_code:
                each.set_status(Status(StatusCode.ERROR, outcome))
        if phase:
            phase.outcome = outcome

    def reading(self, advance: Advance) -> Advance:
        """Return a callback that makes a span of each chunk of rows: read, mapped and recorded since the chunk before."""
        attributes, began_ns = _feed(), time.time_ns()

        def advance_and_trace(rows: int) -> None:
            nonlocal began_ns
            span = self._tracer.start_span("chunk", start_time=began_ns, attributes={"eventsync.rows": rows})
            began_ns = time.time_ns()
            span.end(began_ns)
            self._rows_read.add(rows, attributes)
            advance(rows)

        return advance_and_trace

    def settling(self, advance: Advance) -> Advance:
        """Return a callback that counts settled rows, without spans: answers are too many for that."""
        attributes = _feed()

        def advance_and_count(rows: int) -> None:
            self._rows_settled.add(rows, attributes)
            advance(rows)

        return advance_and_count

    def _record_request(self, exchanged: Exchanged) -> None:
        """Measure a request. A span is made for requests without a row, the first failed ones, and a share of the others."""
        known: dict[str, str | int] = {
            "http.request.method": exchanged.method,
            "url.path": exchanged.path,
            "server.address": exchanged.host,
            "http.response.status_code": exchanged.status,
            "error.type": exchanged.error,
        }
        attributes = {name: value for name, value in known.items() if value}
        self._requests.record(exchanged.seconds, attributes)
        phase, is_failed = _PHASE.get(), bool(exchanged.error) or exchanged.status >= 400
        if phase and exchanged.key and is_failed and phase.failures < TRACED_FAILURES:
            phase.failures += 1
        elif exchanged.key and self._random() >= self._trace_requests:
            return
        row = {"eventsync.idempotency_key": exchanged.key, "eventsync.row_key": str(get_contextvars().get("row_key") or "")}
        attributes |= {name: value for name, value in row.items() if value}
        name, ended_ns = f"{exchanged.method} {exchanged.path}", time.time_ns()
        began_ns = ended_ns - int(exchanged.seconds * _NS)
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, start_time=began_ns, attributes=attributes)
        if is_failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended_ns)

    @contextmanager
    def _span(self, name: str, attributes: Mapping[str, str]) -> Iterator[Span]:
        """Open a span; an error adds its type, not its message, which may contain personal data."""
        with self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as left:
                span.set_attribute("error.type", type(left).__name__)
                span.set_status(Status(StatusCode.ERROR, type(left).__name__))
                raise


def _feed() -> dict[str, str]:
    return {name: value for name, value in _RUN.get().items() if name == "eventsync.feed"}
