"""`eventsync status`: where the feeds stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.completion import feed_words
from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from pipelines.cli.output.console import Output
    from pipelines.cli.run_report import Run, run_document, run_outcome, run_told
    from pipelines.cli.state_reader import StateReader, open_state
    from pipelines.notifications.causes import HELP
    from pipelines.run.outcome import ExitCode
    from pipelines.settings import current_settings
    from state.enums import EntryState
    from state.ledger.gate import Gate
    from state.queries import FeedStatus, LeaseHolder, RunRecord

OneFeedOrAll = Annotated[
    str | None, typer.Argument(metavar="[FEED]", help="One feed; all without it.", autocompletion=feed_words)
]


def status(
    feed: OneFeedOrAll = None,
    runs: Annotated[int | None, typer.Option("--runs", min=0, metavar="N", help="Also the last N runs of each feed.")] = None,
    as_json: AsJson = False,
) -> int:
    """Show where the feeds stand: a line for each; of one feed rows by state, what waits and what would help, the last run.

    For example:

        # Every morning: which feeds need attention
        eventsync status
        # What one of them needs
        eventsync status lisbon-agenda
        # How its last runs went
        eventsync status lisbon-agenda --runs 5

    Reads the state DB only; neither key nor service is needed. The document has 3 runs of each feed, or 10 of one, unless
    --runs says how many. Exit codes: 0, or 2 if there is no such feed.
    """
    settings, output = current_settings(), Output(json=as_json)
    with open_state(settings) as reader:
        name = None if feed is None else reader.feed_name(feed)
        most = _most(runs, is_one=name is not None, as_json=as_json)
        feeds = [(status, _runs(reader, status, most)) for status in reader.statuses(name)]
        estranged = reader.estranged()
        output.document(
            Status(
                feeds=[_document(status, some) for status, some in feeds],
                elsewhere=reader.elsewhere(),
                estranged=estranged,
            )
        )
        for sentence in estranged:
            output.note(sentence)
        if feeds and name is None:
            _show_all(output, [status for status, _ in feeds])
        for status, some in feeds:
            if name is not None or some:
                _show(output, status, some)
        if not feeds:
            output.note(f"{name}: nothing was run yet" if name else "nothing was run here yet")
            if sentence := reader.elsewhere_sentence():
                output.note(sentence)
    return 0


class Standing(TypedDict):
    """Where a feed stands. `counts`: rows by state; `waiting`: what waits for a person, by the word of `rows --state`, and what
    would `help`; `set_aside`: entries that a person has
    ignored. `gate`: whether staged rows may be published; `lease`: who holds the feed; `runs`: the last ones;
    `slices_left`: of backfills that are open.
    """

    feed: str
    destination: str
    counts: Mapping[EntryState, int]
    drifted: int
    to_publish: int
    cancelled: int
    returned: int
    vanished: int
    waiting: Mapping[str, int]
    help: Mapping[str, str]
    set_aside: int
    gate: Gate
    lease: LeaseHolder | None
    last_whole_read: int | None
    slices_left: int
    runs: Sequence[Run]


class Status(TypedDict):
    """Where the feeds stand at the configured service, or at all. `elsewhere`: other destinations that the state DB knows;
    `estranged`: sentences about rows that are delivered under a feed's name or a namespace that is not used any more.
    """

    feeds: Sequence[Standing]
    elsewhere: Sequence[str]
    estranged: tuple[str, ...]


_RUNS_OF_ONE = 10
_RUNS_OF_ALL = 3
_COLUMNS = ("feed", "last run (UTC)", "how it ended", "waits for a person", "besides")
_NAMED = 5


if IS_WORKING:
    _FINE = frozenset({None, ExitCode.DONE, ExitCode.HELD, ExitCode.LATER, ExitCode.INTERRUPTED})


"""Exit codes of runs that need no person: the next run goes on."""


def _most(runs: int | None, *, is_one: bool, as_json: bool) -> int:
    """Return how many runs of a feed to show: as many as asked for; else for people the last one, of one feed only."""
    if runs is not None:
        return runs
    if as_json:
        return _RUNS_OF_ONE if is_one else _RUNS_OF_ALL
    return int(is_one)


def _runs(reader: StateReader, status: FeedStatus, most: int) -> tuple[RunRecord, ...]:
    if not most:
        return ()
    return reader.books.runs(destination=status.book.destination, feed=status.book.feed, limit=most) if reader.books else ()


def _document(status: FeedStatus, runs: tuple[RunRecord, ...]) -> Standing:
    return Standing(
        feed=status.book.feed,
        destination=status.book.destination,
        counts=status.counts,
        drifted=status.drifted,
        to_publish=status.to_publish,
        cancelled=status.cancelled,
        returned=status.returned,
        vanished=status.vanished,
        waiting=status.waiting,
        help={what: _help(status, what) for what in status.waiting},
        set_aside=status.set_aside,
        gate=status.gate,
        lease=status.lease,
        last_whole_read=status.last_whole_read,
        slices_left=status.slices_left,
        runs=[run_document(run) for run in runs],
    )


def _show_all(output: Output, feeds: Sequence[FeedStatus]) -> None:
    """Show a line for each feed, then how many need attention and how to see why."""
    is_one_service = len({status.book.destination for status in feeds}) == 1
    output.table("where the feeds stand", _COLUMNS, [_row(status, is_one_service=is_one_service) for status in feeds])
    needy = [status.book.feed for status in feeds if _needs_somebody(status)]
    named = ", ".join(needy[:_NAMED]) + (", …" if len(needy) > _NAMED else "")
    told = f"{len(needy):,} of {len(feeds):,} feed{'s' * (len(feeds) != 1)}"
    output.note(
        f"{told} need{'s' * (len(needy) == 1)} somebody: {named}; `eventsync status {needy[0]}` tells what would help"
        if needy
        else f"{told} need somebody"
    )


def _needs_somebody(status: FeedStatus) -> bool:
    last = status.last_run
    return bool(status.waiting) or not status.gate.is_open or (last is not None and last.exit_code not in _FINE)


def _row(status: FeedStatus, *, is_one_service: bool) -> tuple[object, ...]:
    book, last = status.book, status.last_run
    return (
        book.feed if is_one_service else f"{book.feed} at {book.destination.partition('#')[0] or 'no service'}",
        f"{last.started_at:%Y-%m-%d %H:%M}" if last else "never",
        run_outcome(last) if last else "",
        _waiting_told(status),
        "; ".join(_besides(status)),
    )


def _besides(status: FeedStatus) -> Iterator[str]:
    """Yield in a few words what is in progress, and what holds it up."""
    if status.lease is not None:
        yield "its run is gone, the next takes over" if status.lease.is_gone else f"held by {status.lease.name}"
    if not status.gate.is_open:
        yield "nothing may be sent: " + (", ".join(status.gate.brakes) or "the last read was cut short")
    if pending := status.counts[EntryState.PENDING]:
        yield f"{pending:,} to be sent"
    if status.slices_left:
        yield f"{status.slices_left:,} slices of a backfill are left"


def _show(output: Output, status: FeedStatus, runs: tuple[RunRecord, ...]) -> None:
    feed = status.book.feed
    output.note(f"{feed} at {status.book.destination.partition('#')[0] or 'no service'}")
    for line in _lines(status):
        output.note(f"  {line}")
    if runs:
        output.note(f"  last run{'s' * (len(runs) != 1)}:")
    for line in (line for run in runs for line in run_told(run)):
        output.note(f"    {line}")


def _lines(status: FeedStatus) -> Iterable[str]:
    counts = [f"{state.value.replace('_', ' ')} {count:,}" for state, count in status.counts.items() if count]
    yield f"rows: {', '.join(counts) or 'none yet'}"
    if status.drifted:
        by_hand = f", {status.to_publish:,} of them drafts to be published by hand" if status.to_publish else ""
        off = f", {status.cancelled:,} cancelled at the source, to be withdrawn by hand" if status.cancelled else ""
        back = f", {status.returned:,} removed by hand and back in the source" if status.returned else ""
        yield f"drift: {status.drifted:,} changed since they were sent{by_hand}{off}{back}"
    if status.vanished:
        yield f"vanished: {status.vanished:,} gone from the source"
    yield from _waiting_lines(status)
    yield "brakes: nothing is held back" if status.gate.is_open else f"brakes: nothing may be sent: {status.gate.reason}"
    if status.slices_left:
        feed = status.book.feed
        yield f"backfill: {status.slices_left:,} slices are left: `eventsync backfill {feed} --list` shows them, --resume goes on"
    yield f"held by: {_holder(status.lease)}"


def _waiting_lines(status: FeedStatus) -> Iterable[str]:
    """Yield what waits for a person and what helps, one line each."""
    told = _waiting_told(status)
    yield f"waits for a person: {told}; see `eventsync rows {status.book.feed}`" if told else "waits for a person: nothing"
    for what in status.waiting:
        yield f"  {what.replace('_', ' ')}: {_help(status, what)}"
    if status.set_aside:
        yield f"ignored: {status.set_aside:,}: `eventsync rows {status.book.feed} --state ignored` lists them"


def _waiting_told(status: FeedStatus) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in status.waiting.items())


def _help(status: FeedStatus, what: str) -> str:
    return HELP[what].format(feed=status.book.feed)


def _holder(lease: LeaseHolder | None) -> str:
    if lease is None:
        return "nobody"
    held = f"{lease.name} (process {lease.pid} on {lease.host}) since {lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{held}; that process is gone: the next run takes over" if lease.is_gone else held
