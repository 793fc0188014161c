"""Numbers for monitors, and the text format in which Prometheus reads them (exposition format 0.0.4).

Which numbers there are is `gauges`'.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

import structlog

from mappings.errors import ConfigError, SyncError
from pipelines.clock import now
from pipelines.settings import Settings
from state.database import existing_database
from state.enums import ProblemKind, Waiting
from state.ledger.row_record import Book
from state.views.books import Books, last_done
from state.views.views import FeedStatus, RunRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number, told from others of its name by its labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Gauge:
    """All numbers of one name; `help` is one sentence, its unit included."""

    name: str
    help: str
    samples: tuple[Sample, ...]


def exposition(gauges: Iterable[Gauge]) -> str:
    """Return the numbers as a page that Prometheus reads."""
    return "".join(f"{line}\n" for gauge in gauges for line in _lines(gauge))


def _lines(gauge: Gauge) -> Iterator[str]:
    yield f"# HELP {gauge.name} {gauge.help}"
    yield f"# TYPE {gauge.name} gauge"
    for sample in gauge.samples:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
        yield f"{gauge.name}{{{labels}}} {sample.value!r}" if labels else f"{gauge.name} {sample.value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


GAUGES: Mapping[str, str] = {
    "eventsync_build_info": "Always 1; the label says which version tells all this.",
    "eventsync_state_db_up": "1 where the state DB could be read just now, else 0: then nothing else is told.",
    "eventsync_rows": "Rows of the feed in the ledger, by their state.",
    "eventsync_rows_waiting": "Rows that wait for a person, by the word that `eventsync rows --state` takes.",
    "eventsync_rows_vanished": "Rows that are gone from the source, with events to come, without ignored ones.",
    "eventsync_rows_to_publish": "Drafts that the source calls published by now: to be published by hand.",
    "eventsync_rows_set_aside": "Rows that a person has ignored: on no list until they change.",
    "eventsync_backfill_slices_left": "Slices of backfills that are open, not gone through yet.",
    "eventsync_gate_open": "1 where staged rows may be published, 0 where a brake or an unfinished stage holds them.",
    "eventsync_braked": "1 for each brake that holds the feed now.",
    "eventsync_feed_held": "1 while a run or a person's decision holds the feed, else 0.",
    "eventsync_holder_gone": "1 where the process that holds the feed has ended without a word: the next run takes over.",
    "eventsync_last_done_timestamp_seconds": "When a run last delivered what it owed, with exit code 0 (Unix time).",
    "eventsync_last_run_start_timestamp_seconds": "When the last run began (Unix time).",
    "eventsync_last_run_end_timestamp_seconds": "When the last run ended (Unix time); missing while it is at work.",
    "eventsync_last_run_exit_code": "Its exit code, as in the README; missing while it is at work.",
    "eventsync_last_read_rows": "Rows of the last read of the source, by where each ended; `read` is how many there were.",
    "eventsync_last_publish_rows": "Rows that the last run owed, by where each ended.",
    "eventsync_last_publish_pace": "How fast the last run sent, number by number: rows_per_s, used_share, limited, ...",
}
"""Every number by its name, in the order in which they are told."""
_Told = tuple[str, Mapping[str, str], float]


def gauges_of(statuses: Sequence[FeedStatus], done: Mapping[Book, datetime]) -> tuple[Gauge, ...]:
    """Return the numbers of all feeds; `done`: when a run of each last ended as it should."""
    told: list[_Told] = [*_of_us(is_up=True)]
    for status in statuses:
        told += _of_feed(status, done.get(status.book))
    return _gathered(told)


def gauges_in_the_dark() -> tuple[Gauge, ...]:
    """Return what can be told where the state DB cannot be read."""
    return _gathered(_of_us(is_up=False))


def _gathered(told: Iterable[_Told]) -> tuple[Gauge, ...]:
    """Put the numbers of one name together; names without any are left out."""
    by_name: dict[str, list[Sample]] = {name: [] for name in GAUGES}
    for name, labels, value in told:
        by_name[name].append(Sample(labels, value))
    return tuple(Gauge(name, GAUGES[name], tuple(samples)) for name, samples in by_name.items() if samples)


def _of_us(*, is_up: bool) -> Iterator[_Told]:
    yield "eventsync_build_info", {"version": version("eventsync")}, 1
    yield "eventsync_state_db_up", {}, int(is_up)


def _of_feed(status: FeedStatus, done: datetime | None) -> Iterator[_Told]:
    feed = {"feed": str(status.book.feed), "destination": status.book.destination}
    yield from _rows(status, feed)
    yield "eventsync_gate_open", feed, int(status.gate.is_open)
    for brake in () if status.gate.is_open else status.gate.brakes:
        yield "eventsync_braked", {**feed, "brake": brake}, 1
    yield "eventsync_feed_held", feed, int(status.lease is not None)
    yield "eventsync_holder_gone", feed, int(status.lease is not None and status.lease.is_gone)
    if done is not None:
        yield "eventsync_last_done_timestamp_seconds", feed, done.timestamp()
    if status.last_run is not None:
        yield from _run(status.last_run, feed)
    if status.last_read is not None and status.last_read.read is not None:
        yield from _counts("eventsync_last_read_rows", feed, asdict(status.last_read.read))


def _rows(status: FeedStatus, feed: Mapping[str, str]) -> Iterator[_Told]:
    for state, count in status.counts.items():
        yield "eventsync_rows", {**feed, "state": state.value}, count
    for word in (ProblemKind.REJECTED.value, *Waiting):
        yield "eventsync_rows_waiting", {**feed, "state": word}, status.waiting.get(word, 0)
    yield "eventsync_rows_vanished", feed, status.vanished
    yield "eventsync_rows_to_publish", feed, status.to_publish
    yield "eventsync_rows_set_aside", feed, status.set_aside
    yield "eventsync_backfill_slices_left", feed, status.slices_left


def _run(run: RunRecord, feed: Mapping[str, str]) -> Iterator[_Told]:
    yield "eventsync_last_run_start_timestamp_seconds", feed, run.started_at.timestamp()
    if run.finished_at is not None:
        yield "eventsync_last_run_end_timestamp_seconds", feed, run.finished_at.timestamp()
    if run.exit_code is not None:
        yield "eventsync_last_run_exit_code", feed, run.exit_code
    if run.publish is not None:
        yield from _counts("eventsync_last_publish_rows", feed, asdict(run.publish))
    for what, value in run.pace.items():
        yield "eventsync_last_publish_pace", {**feed, "what": what}, value


def _counts(name: str, feed: Mapping[str, str], account: Mapping[str, int]) -> Iterator[_Told]:
    for outcome, count in account.items():
        yield name, {**feed, "outcome": outcome}, count


KEPT_S = 2.0
"""So long the numbers are good for whoever else asks: several monitors cost as much as one."""


def look(settings: Settings) -> tuple[Gauge, ...]:
    """Return the numbers of all feeds at the configured service, or at every service where none is; nothing is written.

    Raises:
        SyncError: there is a state DB, and it cannot be read.
    """
    destination = settings.destination if settings.base_url else None
    with existing_database(settings.state_url, upgrades=False) as engine:
        if engine is None:
            return gauges_of((), {})
        return gauges_of(Books(engine, now).status(destination=destination), last_done(engine, destination))


@dataclass(slots=True)
class MetricsPage:
    """The numbers for whoever asks, several at a time. `clock_s`: seconds that never go back."""

    settings: Settings
    clock_s: Callable[[], float]
    _kept: tuple[Gauge, ...] = ()
    _read_at: float = 0.0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def gauges(self) -> tuple[Gauge, ...]:
        """Return the numbers as they stand now, or stood a moment ago; a state DB that cannot be read is a number, too."""
        with self._turn:
            if not self._kept or self.clock_s() - self._read_at > KEPT_S:
                self._kept = self._look()
                self._read_at = self.clock_s()
            return self._kept

    def _look(self) -> tuple[Gauge, ...]:
        try:
            return look(self.settings)
        except SyncError as trouble:
            structlog.get_logger().warning("the state DB cannot be read for a monitor", trouble=str(trouble))
            return gauges_in_the_dark()


PATH = "/metrics"
_PATIENCE_S = 10.0


@contextmanager
def serving_metrics(gauges: Callable[[], tuple[Gauge, ...]], host: str, port: int) -> Iterator[str]:
    """Serve the numbers from a thread for the length of the block; yields the page's address. Port 0 takes a free one.

    Raises:
        ConfigError: the address cannot be had.
    """
    try:
        server = _Server((host, port), gauges)
    except OSError as error:
        raise ConfigError(f"metrics cannot be served at {host}:{port}: {error.strerror}", hint="choose another port") from error
    thread = threading.Thread(target=server.serve_forever, name="eventsync-metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}{PATH}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """The numbers' server, a thread for each request."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], gauges: Callable[[], tuple[Gauge, ...]]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Door)
        self.gauges = gauges


class _Door(BaseHTTPRequestHandler):
    """Answers one request: the numbers, a sign of life, or that there is nothing else."""

    server: _Server
    server_version = "eventsync"
    sys_version = ""
    timeout = _PATIENCE_S

    def do_GET(self) -> None:  # the name that http.server looks for
        """Answer whatever is asked; nothing can be changed here."""
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(HTTPStatus.OK, exposition(self.server.gauges()), CONTENT_TYPE)
            case "/-/healthy":
                self._answer(HTTPStatus.OK, "here\n")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, f"only {PATH} is served here\n")

    do_HEAD = do_GET  # noqa: N815  # as above

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as http.server calls it
        """Say nothing of each request: monitors come every few seconds."""

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
