"""`eventsync status`: shows the state of the feeds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, feed_words

if IS_WORKING:
    from mappings.row_key import FeedName
    from pipelines.cli.feed_files import BrokenFile, broken_files, broken_lines
    from pipelines.cli.output.console import Output, counted, counts_line, document_from, spelt
    from pipelines.cli.run_report import Run, run_document, run_outcome, show_run
    from pipelines.cli.state_reader import open_state
    from pipelines.run.outcome import WAITING, ExitCode, help_on, unsent_line
    from state.enums import EntryState
    from state.ledger.gate import Gate
    from state.queries import FeedStatus, LeaseHolder, RunRecord

OneFeedOrAll = Annotated[
    str | None, typer.Argument(metavar="[FEED]", help="One feed (default: all feeds).", autocompletion=feed_words)
]


def status(
    feed: OneFeedOrAll = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=0, metavar="N", help="Also show the last N runs of each feed.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show the state of all feeds, one line each; of one feed the rows by state, what waits for a person, and the last run.

    For example:

        # Which feeds need attention
        eventsync status
        # What one feed needs
        eventsync status lisbon-agenda
        # Its last runs
        eventsync status lisbon-agenda --runs 5

    Only the state DB is read; no key and no service is needed. With --json, --runs is 3 by default, and 10 for one feed. Exit
    codes: 0 done, 2 there is no such feed.
    """
    output = Output(is_json=as_json)
    with open_state() as reader:
        name = None if feed is None else reader.feed_name(feed)
        if runs is None:  # for people the last one, of one feed only
            runs = int(name is not None) if not as_json else _RUNS_OF_ALL if name is None else _RUNS_OF_ONE
        feeds = [(one, reader.runs(one.book.feed, runs, one.book.destination) if runs else ()) for one in reader.statuses(name)]
        elsewhere, estranged = reader.elsewhere(), reader.estranged()
        advice = reader.elsewhere_sentence()
        gone = {one.book.feed for one, _ in feeds if reader.has_no_file(one.book.feed)}
        broken = reader.folder.broken if reader.folder and name is None else ()
    documents = [_document(*one) for one in feeds]
    output.document(Status(feeds=documents, elsewhere=elsewhere, estranged=estranged, broken=broken_files(broken)))
    output.note(*estranged)
    if feeds and name is None:
        _show_all(output, [status for status, _ in feeds], gone)
    for status, some in feeds:
        if name is not None or some:
            output.note(_at_service(status))
            output.note(*([_GONE.format(feed=status.book.feed)] if status.book.feed in gone else []), *_lines(status), indent=2)
            if some:
                output.note(f"last run{'s' * (len(some) != 1)}:", indent=2)
            for run in some:
                show_run(output, run, indent=4)
    output.note(*broken_lines(broken))
    if not feeds:
        output.note(f"{name} has not run yet" if name else "no feed has run here yet", *filter(None, [advice]))
    return 0


class FeedStanding(TypedDict):
    """The state of a feed. `counts`: rows by state; `waiting`: rows that wait for a person, by the value of `rows --state`;
    `help`: what to do about them, and about rows to be sent (`pending`).

    `set_aside`: entries that a person has ignored; `gate`: whether staged rows may be published; `lease`: who holds the feed;
    `runs`: the last ones; `slices_left`: of open backfills.
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
    """The state of the feeds, at the configured service or at all. `elsewhere`: other destinations in the state DB; `broken`: the
    mapping files with mistakes, empty for one feed.

    `estranged`: sentences about rows delivered under a feed name or namespace that is no longer used.
    """

    feeds: Sequence[FeedStanding]
    elsewhere: Sequence[str]
    estranged: tuple[str, ...]
    broken: Sequence[BrokenFile]


_RUNS_OF_ONE = 10
_RUNS_OF_ALL = 3
_NAMED = 5
_GONE_NOTE = "its mapping file is gone"
_GONE = (
    f"{_GONE_NOTE}: no run can change what is below; its rows stay in the ledger, so that nothing is sent twice;"
    " a file with `feed: {feed}` lets it run again"
)
if IS_WORKING:
    _FINE = frozenset({None, ExitCode.DONE, ExitCode.HELD, ExitCode.LATER, ExitCode.INTERRUPTED})
    """Exit codes of runs that need no person: the next run continues."""


def _document(status: FeedStatus, runs: Sequence[RunRecord]) -> FeedStanding:
    scope, documents = status.book, [run_document(run) for run in runs]
    return document_from(
        FeedStanding, status, feed=scope.feed, destination=scope.destination, help=dict(_helps(status)), runs=documents
    )


def _helps(status: FeedStatus) -> Iterator[tuple[str, str]]:
    """Yield each kind of waiting row with what to do about it; rows to be sent, unless a run is at it."""
    if unsent := _unsent(status):
        yield EntryState.PENDING.value, unsent
    yield from ((what, help_on(what, status.book.feed)) for what in status.waiting)


def _unsent(status: FeedStatus) -> str:
    """Return what sends the rows that are staged, "" if there are none or a run is at it."""
    return "" if status.lease else unsent_line(status.counts[EntryState.PENDING], status.gate, status.book.feed)


def _show_all(output: Output, feeds: Sequence[FeedStatus], gone: Collection[FeedName]) -> None:
    """Print one line per feed, those that need attention first, then how many do."""
    is_one_service = len({status.book.destination for status in feeds}) == 1
    needy, lines = [], []
    for status in feeds:
        last, waiting = status.last_run, _counts(status.waiting)
        is_needy = bool(waiting) or not status.gate.is_open or (last is not None and last.exit_code not in _FINE)
        if is_needy:
            needy.append(str(status.book.feed))
        started, ended = (f"{last.started_at:%Y-%m-%d %H:%M}", run_outcome(last)) if last else ("never", "")
        name = status.book.feed if is_one_service else _at_service(status)
        line = {"feed": name, "last run (UTC)": started, "outcome": ended, "waits for a person": waiting}
        lines.append((not is_needy, {**line, "notes": "; ".join([*[_GONE_NOTE] * (status.book.feed in gone), *_notes(status)])}))
    output.table("feeds", [line for _, line in sorted(lines, key=itemgetter(0))])
    of_all = f"{len(needy):,} of {counted(len(feeds), 'feed')} need{'s' * (len(needy) == 1)} attention"
    named = ", ".join(needy[:_NAMED]) + (", …" if len(needy) > _NAMED else "")
    output.note(f"{of_all}: {named}; `eventsync status {needy[0]}` shows what to do" if needy else of_all)


def _at_service(status: FeedStatus) -> str:
    return f"{status.book.feed} at {status.book.destination.partition('#')[0] or 'no service'}"


def _counts(counts: Mapping[str, int] | Mapping[EntryState, int]) -> str:
    return counts_line({spelt(what): count for what, count in counts.items()})


def _row_counts(status: FeedStatus) -> str:
    """Return the rows by state, with how many rows of a state that waits for a person do not wait."""
    terms = []
    for state, count in status.counts.items():
        resting = count - status.waiting.get(state, 0) if state.value in WAITING else 0
        why = (
            "of past events" + " or gone from the source" * (state is EntryState.REFUSED) + " or ignored" * bool(status.set_aside)
        )
        terms += [f"{spelt(state)} {count:,}" + (f" ({resting:,} {why})" if resting > 0 else "")] * bool(count)
    return ", ".join(terms)


def _notes(status: FeedStatus) -> Iterator[str]:
    """Yield short notes on a feed: its lease, its brakes, rows and slices left."""
    if status.lease is not None:
        yield "its run was killed, the next one takes over" if status.lease.is_gone else f"held by {status.lease.name}"
    if not status.gate.is_open:
        yield "sending is stopped: " + (", ".join(status.gate.brakes) or "the last read did not end")
    if pending := status.counts[EntryState.PENDING]:
        yield f"{pending:,} to be sent"
    if status.slices_left:
        yield f"{status.slices_left:,} slices of a backfill are left"


def _lines(status: FeedStatus) -> Iterator[str]:
    feed = status.book.feed
    yield f"rows: {_row_counts(status) or 'none yet'}"
    if status.drifted:
        by_hand = f", {status.to_publish:,} of them drafts to publish by hand" if status.to_publish else ""
        off = f", {status.cancelled:,} cancelled at the source, to withdraw by hand" if status.cancelled else ""
        back = f", {status.returned:,} removed by hand and back in the source" if status.returned else ""
        yield f"drift: {status.drifted:,} changed since they were sent{by_hand}{off}{back}"
    if status.vanished:
        yield f"vanished: {status.vanished:,} gone from the source"
    if unsent := _unsent(status):
        yield f"to be sent: {unsent}"
    waiting = _counts(status.waiting)
    yield f"waits for a person: {waiting}; see `eventsync rows {feed}`" if waiting else "waits for a person: nothing"
    yield from (f"  {spelt(what)}: {help_}" for what, help_ in _helps(status) if what in status.waiting)
    if status.set_aside:
        yield f"ignored: {status.set_aside:,}: `eventsync rows {feed} --state ignored` lists them"
    if not status.gate.is_open:
        yield f"brakes: sending is stopped: {status.gate.reason}"
    if status.slices_left:
        yield f"backfill: {status.slices_left:,} slices left: `eventsync backfill {feed} --list` shows them, --resume continues"
    if (lease := status.lease) is None:
        yield "held by: no run"
    else:
        gone = "; this process has died: the next run takes over" if lease.is_gone else ""
        yield f"held by: {lease.name} (process {lease.pid} on {lease.host}) since {lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC{gone}"
