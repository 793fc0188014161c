"""The command `status` at work: where each feed stands, and what somebody has to do about it.

Single rows are `row_list`'s, past runs `run_list`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipelines.cli.output import Output
from pipelines.cli.run_words import run_document, run_told
from pipelines.cli.shelf import Shelf, open_shelf
from pipelines.settings import current_settings
from pipelines.telling.waiting import HELP
from state.views import FeedStatus, LeaseHolder, RunRecord

_RUNS_OF_ONE = 10
_RUNS_OF_ALL = 3


def show_status(feed: str | None, *, as_json: bool) -> int:
    """Show where the feeds stand; return 0.

    Raises:
        ConfigError: there is no such feed.
    """
    settings, output = current_settings(), Output(json=as_json)
    with open_shelf(settings) as shelf:
        name = None if feed is None else shelf.feed_name(feed)
        most = _RUNS_OF_ALL if name is None else _RUNS_OF_ONE
        feeds = [(status, _runs(shelf, status, most)) for status in shelf.statuses(name)]
        output.document({"feeds": [_document(status, runs) for status, runs in feeds], "elsewhere": shelf.elsewhere()})
        for status, runs in feeds:
            _show(output, status, runs)
        if not feeds:
            output.note(f"{name}: nothing was run yet" if name else "nothing was run here yet")
            if sentence := shelf.elsewhere_sentence():
                output.note(sentence)
    return 0


def _runs(shelf: Shelf, status: FeedStatus, most: int) -> tuple[RunRecord, ...]:
    return shelf.books.runs(destination=status.book.destination, feed=status.book.feed, limit=most) if shelf.books else ()


def _document(status: FeedStatus, runs: tuple[RunRecord, ...]) -> dict[str, Any]:
    return {
        "feed": status.book.feed,
        "destination": status.book.destination,
        "counts": status.counts,
        "drifted": status.drifted,
        "to_publish": status.to_publish,
        "cancelled": status.cancelled,
        "vanished": status.vanished,
        "waiting": status.waiting,
        "help": {what: _help(status, what) for what in status.waiting},
        "set_aside": status.set_aside,
        "gate": status.gate,
        "lease": status.lease,
        "last_whole_read": status.last_whole_read,
        "slices_left": status.slices_left,
        "runs": [run_document(run) for run in runs],
    }


def _show(output: Output, status: FeedStatus, runs: tuple[RunRecord, ...]) -> None:
    feed = status.book.feed
    output.note(f"{feed} at {status.book.destination.partition('#')[0] or 'no service'}")
    for line in _lines(status):
        output.note(f"  {line}")
    if runs:
        output.note("  last runs:")
    for line in (line for run in runs for line in run_told(run)):
        output.note(f"    {line}")


def _lines(status: FeedStatus) -> Iterable[str]:
    counts = [f"{state.value.replace('_', ' ')} {count:,}" for state, count in status.counts.items() if count]
    yield f"rows: {', '.join(counts) or 'none yet'}"
    if status.drifted:
        by_hand = f", {status.to_publish:,} of them drafts to be published by hand" if status.to_publish else ""
        off = f", {status.cancelled:,} cancelled at the source, to be withdrawn by hand" if status.cancelled else ""
        yield f"drift: {status.drifted:,} changed since they were sent{by_hand}{off}"
    if status.vanished:
        yield f"vanished: {status.vanished:,} gone from the source"
    yield from _waiting_lines(status)
    yield "brakes: nothing is held back" if status.gate.is_open else f"brakes: nothing may be sent: {status.gate.reason}"
    if status.slices_left:
        feed = status.book.feed
        yield f"backfill: {status.slices_left:,} slices are left: `eventsync backfill {feed} --list` shows them, --resume goes on"
    yield f"held by: {_holder(status.lease)}"


def _waiting_lines(status: FeedStatus) -> Iterable[str]:
    """Tell what waits for a person and what helps, one line each."""
    told = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in status.waiting.items())
    yield f"waits for a person: {told}; see `eventsync rows {status.book.feed}`" if told else "waits for a person: nothing"
    for what in status.waiting:
        yield f"  {what.replace('_', ' ')}: {_help(status, what)}"
    if status.set_aside:
        yield f"set aside: {status.set_aside:,}, which nobody needs to look at"


def _help(status: FeedStatus, what: str) -> str:
    return HELP[what].format(feed=status.book.feed)


def _holder(lease: LeaseHolder | None) -> str:
    if lease is None:
        return "nobody"
    held = f"{lease.name} (process {lease.pid} on {lease.host}) since {lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{held}; that process is gone: the next run takes over" if lease.is_gone else held
