"""What monitors are told of the feeds: where their rows stand, what waits for a person, how fresh they are, as plain numbers.

Read from the state DB alone, so that it is as true of runs elsewhere. In which format it is told is `exposition`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version

from pipelines.measuring.exposition import Gauge, Sample
from pipelines.row_words import WAITING
from state.ledger.row_record import Book
from state.views.views import FeedStatus, RunRecord

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
    for word in WAITING:
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
