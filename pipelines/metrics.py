"""Prometheus metrics of all feeds, read from the state DB, and the HTTP server that monitors scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import version

import structlog
from prometheus_client import CollectorRegistry, Metric, generate_latest, start_http_server
from prometheus_client.registry import Collector

from mappings.errors import ConfigError, SyncError
from pipelines.clock import now
from pipelines.settings import Settings
from state.enums import ProblemKind, Waiting
from state.ledger.standing import FeedScope
from state.opening import existing_database
from state.queries import FeedStatus, LedgerQueries, last_done


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric, with its labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Gauge:
    """All samples of one metric; `help` is one sentence that includes the unit."""

    name: str
    help: str
    samples: tuple[Sample, ...]


class _Gauges(Collector):
    """A collector of our gauges, for prometheus-client."""

    def __init__(self, gauges: Callable[[], Iterable[Gauge]]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        for gauge in self._gauges():
            metric = Metric(gauge.name, gauge.help, "gauge")
            for sample in gauge.samples:
                metric.add_sample(gauge.name, dict(sample.labels), sample.value)
            yield metric


def exposition(gauges: Iterable[Gauge]) -> str:
    """Return the metrics in Prometheus's text format."""
    return generate_latest(_Gauges(lambda: gauges)).decode()


GAUGES: Mapping[str, str] = {
    "eventsync_build_info": "Always 1; the label is the version.",
    "eventsync_state_db_up": "1 if the state DB can be read, else 0; at 0 only this and the build info are present.",
    "eventsync_rows": "Rows of the feed in the ledger, by state.",
    "eventsync_rows_waiting": "Rows that wait for a person, by the value of `eventsync rows --state`.",
    "eventsync_rows_vanished": "Rows with upcoming events that are gone from the source, without ignored ones.",
    "eventsync_rows_to_publish": "Drafts whose row is now published in the source: a person must publish them by hand.",
    "eventsync_rows_set_aside": "Rows that a person has ignored, until they change.",
    "eventsync_backfill_slices_left": "Slices of open backfills that are not done.",
    "eventsync_gate_open": "1 if staged rows may be published, 0 after a brake or an unfinished stage.",
    "eventsync_braked": "1 for each brake that currently stops the feed.",
    "eventsync_feed_held": "1 while a run or a person's decision holds the feed, else 0.",
    "eventsync_holder_gone": "1 if the process that holds the feed was killed; the next run takes over.",
    "eventsync_last_done_timestamp_seconds": "When a run last ended with exit code 0 (Unix time).",
    "eventsync_last_run_start_timestamp_seconds": "When the last run began (Unix time).",
    "eventsync_last_run_end_timestamp_seconds": "When the last run ended (Unix time); missing during a run.",
    "eventsync_last_run_exit_code": "Exit code of the last run; missing during a run.",
    "eventsync_last_read_rows": "Rows of the last read of the source, by outcome; `read` is their total.",
    "eventsync_last_publish_rows": "Rows that the last run had to send, by outcome.",
    "eventsync_last_publish_pace": "Sending speed of the last run, by `what`: rows_per_s, used_share, limited, ...",
}
"""Help texts by metric name, in the order of the output."""
_Number = tuple[str, Mapping[str, str], float]


def gauges_of(statuses: Sequence[FeedStatus], done: Mapping[FeedScope, datetime], *, is_up: bool = True) -> tuple[Gauge, ...]:
    """Return the metrics of all feeds; metrics without samples are left out.

    `done`: when a run of each feed last ended with exit code 0. `is_up`: whether the state DB could be read.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in GAUGES}
    samples["eventsync_build_info"].append(Sample({"version": version("eventsync")}, 1))
    samples["eventsync_state_db_up"].append(Sample({}, int(is_up)))
    for status in statuses:
        feed = {"feed": str(status.book.feed), "destination": status.book.destination}
        for name, labels, value in (*_numbers(status), *_numbers_of_runs(status, done.get(status.book))):
            samples[name].append(Sample({**feed, **labels}, value))
    return tuple(Gauge(name, GAUGES[name], tuple(found)) for name, found in samples.items() if found)


def _numbers(status: FeedStatus) -> Iterator[_Number]:
    for state, count in status.counts.items():
        yield "eventsync_rows", {"state": state.value}, count
    for word in (ProblemKind.REJECTED.value, *Waiting):
        yield "eventsync_rows_waiting", {"state": word}, status.waiting.get(word, 0)
    yield "eventsync_rows_vanished", {}, status.vanished
    yield "eventsync_rows_to_publish", {}, status.to_publish
    yield "eventsync_rows_set_aside", {}, status.set_aside
    yield "eventsync_backfill_slices_left", {}, status.slices_left
    yield "eventsync_gate_open", {}, int(status.gate.is_open)
    for brake in () if status.gate.is_open else status.gate.brakes:
        yield "eventsync_braked", {"brake": brake}, 1
    yield "eventsync_feed_held", {}, int(status.lease is not None)
    yield "eventsync_holder_gone", {}, int(status.lease is not None and status.lease.is_gone)


def _numbers_of_runs(status: FeedStatus, done: datetime | None) -> Iterator[_Number]:
    run, read = status.last_run, status.last_read
    began, ended = (run.started_at, run.finished_at) if run is not None else (None, None)
    times = {"last_done": done, "last_run_start": began, "last_run_end": ended}
    for name, at in times.items():
        if at is not None:
            yield f"eventsync_{name}_timestamp_seconds", {}, at.timestamp()
    if run is not None and run.exit_code is not None:
        yield "eventsync_last_run_exit_code", {}, run.exit_code
    if run is not None and run.publish is not None:
        for outcome, count in asdict(run.publish).items():
            yield "eventsync_last_publish_rows", {"outcome": outcome}, count
    for what, value in run.pace.items() if run is not None else ():
        yield "eventsync_last_publish_pace", {"what": what}, value
    for outcome, count in asdict(read.read).items() if read is not None and read.read is not None else ():
        yield "eventsync_last_read_rows", {"outcome": outcome}, count


def read_gauges(settings: Settings) -> tuple[Gauge, ...]:
    """Read the metrics of all feeds at the configured service, or at every service if none is configured. Writes nothing.

    Raises:
        SyncError: the state DB exists and cannot be read.
    """
    destination = settings.destination if settings.base_url else None
    with existing_database(settings.state_url, upgrades=False) as engine:
        if engine is None:
            return gauges_of((), {})
        return gauges_of(LedgerQueries(engine, now).status(destination=destination), last_done(engine, destination))


def current_gauges(settings: Settings) -> tuple[Gauge, ...]:
    """Read the metrics for a monitor; `eventsync_state_db_up` is 0 if the state DB cannot be read."""
    try:
        return read_gauges(settings)
    except SyncError as trouble:
        structlog.get_logger().warning("the metrics cannot be read from the state DB", trouble=str(trouble))
        return gauges_of((), {}, is_up=False)


@contextmanager
def serving_metrics(settings: Settings, host: str, port: int) -> Iterator[str]:
    """Serve the metrics from a thread during the block; yield their address. Port 0 chooses a free one.

    Raises:
        ConfigError: the address cannot be used.
    """
    registry = CollectorRegistry()
    registry.register(_Gauges(partial(current_gauges, settings)))
    try:
        server, thread = start_http_server(port, host, registry=registry)
    except OSError as error:
        raise ConfigError(f"metrics cannot be served at {host}:{port}: {error.strerror}", hint="choose another port") from error
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
