"""`eventsync run --dry-run`: stages into a copy of the feed's ledger, and shows what a run would send."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NotRequired
from uuid import uuid4

from typing_extensions import TypedDict

from mappings.errors import SyncError
from mappings.outcome import shown_place
from mappings.row_key import FeedName, IdempotencyKey, RowKey
from mappings.spec.feed import FeedMapping
from pipelines.cli.output.console import (
    Output,
    Progress,
    counted,
    counts_line,
    document_from,
    read_line,
    rejection_lines,
    spelt,
)
from pipelines.clock import now
from pipelines.run.brakes import BrakeResult, brake_error, pass_the_gate
from pipelines.run.context import RunContext
from pipelines.run.feed_run import FeedRun, RunIdentity, Watcher
from pipelines.run.options import RunOptions, as_of_moment
from pipelines.run.outcome import ExitCode, RunOutcome, faults_as_errors, outcome_of
from pipelines.run.publish import PublishReport, outcome_of_publish
from pipelines.run.signals import InterruptedRunError, is_stop_asked
from pipelines.run.stage import Staged
from pipelines.settings import Settings
from state.ledger.accounts import PublishAccount, ReadAccount, RejectedRow
from state.ledger.standing import FeedScope, Standing
from state.moving import rehearsal_copy
from state.opening import existing_database
from state.queries import LedgerQueries, RowFilter

_SHOWN = 10
"""How many rows to be sent are shown, and how many rejected rows."""
_CLAIMED_AT_ONCE = 500
_REHEARSED = "a rehearsal"
"""Holder of the lease during a dry run."""


@dataclass(frozen=True, slots=True)
class Sending:
    """A row that the run would send, with its idempotency key and payload."""

    place: str
    row_key: RowKey
    idempotency_key: IdempotencyKey
    event: dict[str, Any]


class Rehearsal(TypedDict):
    """What a run of one feed would do. `first`: the first rows it would send; `waiting`: how many rows would wait for a person
    afterwards.

    If the source could not be read, `read` is null and the counts of the read are left out.
    """

    feed: str
    outcome: str
    exit_code: int
    message: str
    hint: str
    read: ReadAccount | None
    skipped: NotRequired[Mapping[str, int]]
    warnings: NotRequired[int]
    vanished: NotRequired[int]
    past: NotRequired[int]
    withdrawn: NotRequired[int]
    rejections: NotRequired[Sequence[RejectedRow]]
    brakes: NotRequired[Sequence[BrakeResult]]
    would_send: int
    first: Sequence[Sending]
    waiting: Mapping[str, int]


def rehearse_feeds(
    settings: Settings, feeds: Sequence[FeedMapping], options: RunOptions, output: Output, as_of: str | None = None
) -> list[Rehearsal]:
    """Return what a run of each feed would do, apart from what the service's answers decide; a signal ends the list early."""
    rehearsals = []
    for mapping in feeds:
        with output.progress(f"dry run of {mapping.feed}") as bar:
            clock = partial(as_of_moment, as_of, mapping) if as_of else now
            rehearsals.append(_rehearse(settings, mapping, options, bar, clock))
        if is_stop_asked():
            break
    return rehearsals


def _rehearse(
    settings: Settings, mapping: FeedMapping, options: RunOptions, bar: Progress, clock: Callable[[], datetime]
) -> Rehearsal:
    feed, staged = mapping.feed, None
    try:
        with (
            faults_as_errors("doing a dry run"),
            existing_database(settings.state_url) as engine,
            rehearsal_copy(engine, settings.destination, feed) as copy,
        ):
            context = RunContext(settings, copy, now=clock)
            outcome, staged = rehearse_stage(context, mapping, options, Watcher(read=bar.advance))
            if outcome.exit_code is not ExitCode.DONE or options.stage_only:
                return _document(feed, outcome, staged)
            pass_the_gate(context.ledger(mapping), mapping, options, _REHEARSED)
            would_send, first, standing = _owed(_rehearsal(context, mapping, options))
            ended = outcome_of_publish(PublishReport(PublishAccount(), None, 0.0, standing=standing), mapping)
            if ended.exit_code is ExitCode.DONE:
                ended = replace(ended, name=outcome.name)
            (status,) = LedgerQueries(copy, clock).status(destination=settings.destination, feed=feed)
            return _document(feed, ended, staged, would_send=would_send, first=first, waiting=status.waiting)
    except SyncError as error:
        return _document(feed, outcome_of(error), staged)
    except KeyboardInterrupt:
        return _document(feed, _interrupted(), staged)


def _interrupted() -> RunOutcome:
    return outcome_of(InterruptedRunError("interrupted; nothing was written or sent", hint="run the same command again"))


def _rehearsal(context: RunContext, mapping: FeedMapping, options: RunOptions, watcher: Watcher | None = None) -> FeedRun:
    return FeedRun(context, mapping, RunIdentity(str(uuid4()), _REHEARSED), options, watcher or Watcher())


def rehearse_stage(
    context: RunContext, mapping: FeedMapping, options: RunOptions, watcher: Watcher | None = None
) -> tuple[RunOutcome, Staged | None]:
    """Stage into a copy of the state DB; return the outcome and what was staged (None if nothing was read)."""
    staged = None
    try:
        staged = None if options.publish_only else _rehearsal(context, mapping, options, watcher).stage()
    except SyncError as error:
        return outcome_of(error), None
    except KeyboardInterrupt:
        return _interrupted(), None
    if staged and staged.stopping:
        return outcome_of(brake_error(staged.stopping, mapping.feed)), staged
    return RunOutcome("rehearsed", ExitCode.DONE), staged


def _owed(run: FeedRun) -> tuple[int, Sequence[Sending], Standing]:
    """Return how many rows the run would send, the first of them in order of sending, and the counts that wait for a decision."""
    queries, scope = LedgerQueries(run.context.engine), FeedScope(run.context.settings.destination, run.mapping.feed)
    first = []
    with run.context.lease(run.mapping, _REHEARSED, is_patient=False) as lease:
        outbox = run.open_outbox(lease)
        owed = outbox.owed
        intents = outbox.settle_and_claim((), _SHOWN)
        for intent in intents:
            (row,) = queries.rows(scope, RowFilter(row_key=intent.row_key))
            first.append(Sending(row.origin, intent.row_key, intent.key, json.loads(intent.body)))
        if not run.options.keys:
            return min(owed, run.options.limit or owed), first, outbox.standing()
        count = len(intents)  # the outbox counts no selection of keys: claim them all
        while claimed := len(outbox.settle_and_claim((), _CLAIMED_AT_ONCE)):
            count += claimed
        return count, first, outbox.standing()


def _document(feed: FeedName, outcome: RunOutcome, staged: Staged | None = None, **owed: object) -> Rehearsal:
    """Build the JSON document of a dry run; without `owed` nothing would be sent."""
    others: dict[str, object] = {"read": None, "would_send": 0, "first": (), "waiting": {}, **owed}
    if staged:
        report = staged.report
        others |= {name: getattr(report, name) for name in ("skipped", "warnings", "vanished", "past", "withdrawn", "rejections")}
        others |= {"read": report.account, "brakes": staged.brakes}
    return document_from(Rehearsal, outcome, feed=feed, outcome=outcome.name, **others)


def show_rehearsal(output: Output, one: Rehearsal) -> None:
    """Print what a run of one feed would do."""
    feed, read = one["feed"], one["read"]
    output.note(f"{feed}: {one['outcome']}")
    output.note(*one["message"].splitlines(), *([f"what to do: {one['hint']}"] if one["hint"] else []), indent=2)
    if read:
        output.note(read_line(asdict(read)), indent=2)
        if one["skipped"]:
            output.note(f"left out: {counts_line(one['skipped'])}", indent=2)
        counts = {"warnings": one["warnings"], "gone from the source": one["vanished"], "gone, past events": one["past"]}
        counts["to be withdrawn"] = one["withdrawn"]
        output.note(*(f"{name}: {count:,}" for name, count in counts.items() if count), indent=2)
        if one["rejections"]:
            output.table(f"{feed}: the first rejected rows", rejection_lines(one["rejections"][:_SHOWN]))
        output.table(f"{feed}: brakes", map(_brake_line, one["brakes"]))
    if one["waiting"]:
        waiting = counts_line({spelt(kind): count for kind, count in one["waiting"].items()})
        output.note(f"{feed}: would wait for a person: {waiting}")
    count = counted(one["would_send"], "row")
    output.note(f"{feed}: a run would send {count}")
    if one["first"]:
        lines = (
            {"place": shown_place(row.place), "row key": row.row_key}
            | {name: row.event.get(name, "") for name in ("status", "startAt", "title")}
            for row in one["first"]
        )
        output.table(f"{feed}: the first {len(one['first'])} of {count} that a run would send", lines)


def _brake_line(brake: BrakeResult) -> dict[str, object]:
    verdict = "free" if not brake.is_tripped else "accepted for this run" if brake.is_accepted else "STOPS"
    return {"brake": brake.name, "verdict": verdict, "why": brake.sentence}
