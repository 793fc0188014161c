"""A dry run (`run --dry-run`): stages into a copy of the feed's ledger and reports what a run would send."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Any, NotRequired

from typing_extensions import TypedDict

from mappings.delivery import Intent
from mappings.errors import SyncError
from mappings.row_key import IdempotencyKey, RowKey
from mappings.spec.feed import FeedMapping
from pipelines.cli.output.console import Output, Progress
from pipelines.cli.output.words import BRAKE_COLUMNS, REJECTION_COLUMNS, brake_rows, read_line, rejection_rows, worst
from pipelines.clock import new_run_id, now
from pipelines.run.backfill import BackfillPlan
from pipelines.run.brakes import BrakeResult, brake_error, pass_the_gate
from pipelines.run.context import RunContext
from pipelines.run.feed_run import FeedRun, RunIdentity, Watcher
from pipelines.run.options import RunOptions, Window
from pipelines.run.outcome import BrakeError, ExitCode, Outcome, faults_as_errors, outcome_of
from pipelines.run.publish import PublishReport
from pipelines.run.signals import InterruptedRunError, is_stop_asked
from pipelines.run.stage import Staged
from pipelines.run.standing import outcome_of_publish
from pipelines.settings import Settings
from state.archive.moving import rehearsal_copy
from state.database import existing_database
from state.ledger.accounts import PublishAccount, ReadAccount, RejectedRow, StageReport
from state.ledger.outbox import Outbox
from state.ledger.standing import NOTHING, FeedScope, Standing
from state.queries import LedgerQueries, RowFilter

Days = TypedDict("Days", {"from": date, "to": date})


class RehearsedSlice(Days):
    """What one slice would do."""

    outcome: str
    exit_code: int
    message: str
    hint: str
    read: ReadAccount | None
    would_send: int
    brakes: Sequence[str]
    notices: Sequence[str]


class BackfillRehearsal(TypedDict):
    """What a backfill would do; nothing was written or sent."""

    feed: str
    by: str
    slice: str
    exit_code: int
    would_send: int
    slices: Sequence[RehearsedSlice]


class Rehearsal(TypedDict):
    """What a run of one feed would do. `first`: the first of the rows it would send; `waiting` counts what would wait for a
    person afterwards. `read` is null where the source could not be read, and what comes of reading is then left out.
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


class Rehearsals(TypedDict):
    """What runs would do; nothing was written or sent."""

    rehearsals: Sequence[Rehearsal]


SHOWN = 10
"""So many of the rows to be sent are shown, and so many rejected ones."""
_SENDING_COLUMNS = ("place", "row key", "status", "startAt", "title")


@dataclass(frozen=True, slots=True)
class Sending:
    """A row that the run would send, with its key and the payload."""

    place: str
    row_key: RowKey
    idempotency_key: IdempotencyKey
    event: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owed:
    """What the run would have to send: `count` rows in all, `first` the first of them; `standing` waits for a decision."""

    count: int
    first: tuple[Sending, ...]
    standing: Standing = NOTHING


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a run of one feed would do. `owed` is None where it would send nothing.

    `waiting` counts what would wait for a person afterwards, by the word that `rows --state` takes.
    """

    feed: str
    outcome: Outcome
    staged: Staged | None = None
    owed: Owed | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)

    def document(self) -> Rehearsal:
        """Return it as scripts read it."""
        document = Rehearsal(
            feed=self.feed,
            outcome=self.outcome.name,
            exit_code=int(self.outcome.exit_code),
            message=self.outcome.message,
            hint=self.outcome.hint,
            read=self.staged.report.account if self.staged else None,
            would_send=self.owed.count if self.owed else 0,
            first=self.owed.first if self.owed else (),
            waiting=self.waiting,
        )
        if self.staged:
            report = self.staged.report
            document["skipped"] = report.skipped
            document["warnings"] = report.warnings
            document["vanished"] = report.vanished
            document["past"] = report.past
            document["withdrawn"] = report.withdrawn
            document["rejections"] = report.rejections
            document["brakes"] = self.staged.brakes
        return document


def show_rehearsals(output: Output, rehearsals: Sequence[DryRun]) -> None:
    """Print them: one JSON document, or for people the accounts, the brakes, and the first rows that would be sent."""
    output.document(Rehearsals(rehearsals=[rehearsal.document() for rehearsal in rehearsals]))
    for rehearsal in rehearsals:
        _show(output, rehearsal)
    output.note("a rehearsal: nothing was written or sent")


def _show(output: Output, rehearsal: DryRun) -> None:
    outcome = rehearsal.outcome
    output.note(f"{rehearsal.feed}: {outcome.name}")
    for line in (*outcome.message.splitlines(), *([f"what would help: {outcome.hint}"] if outcome.hint else [])):
        output.note(f"  {line}")
    if rehearsal.staged:
        _show_stage(output, rehearsal.feed, rehearsal.staged)
    if rehearsal.waiting:
        told = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in rehearsal.waiting.items())
        output.note(f"{rehearsal.feed}: would wait for a person: {told}")
    if rehearsal.owed:
        _show_owed(output, rehearsal.feed, rehearsal.owed)


def _show_owed(output: Output, feed: str, owed: Owed) -> None:
    output.note(f"{feed}: a run would send {_rows(owed.count)}")
    if owed.first:
        title = f"{feed}: the first {len(owed.first)} of {_rows(owed.count)} that a run would send"
        output.table(title, _SENDING_COLUMNS, map(_sending_row, owed.first))


def _show_stage(output: Output, feed: str, staged: Staged) -> None:
    report = staged.report
    output.note(f"  {read_line(asdict(report.account))}")
    for line in _notes(report):
        output.note(f"  {line}")
    if report.rejections:
        title = f"{feed}: the first rejected rows"
        output.table(title, REJECTION_COLUMNS, rejection_rows(report.rejections[:SHOWN]))
    output.table(f"{feed}: brakes", BRAKE_COLUMNS, brake_rows(staged.brakes))


def _notes(report: StageReport) -> list[str]:
    notes = []
    if report.skipped:
        notes.append("left out: " + ", ".join(f"{label} {count:,}" for label, count in report.skipped.items()))
    counts = {"warnings": report.warnings, "gone from the source": report.vanished, "gone, being over": report.past}
    counts |= {"to be withdrawn": report.withdrawn}
    notes += [f"{name}: {count:,}" for name, count in counts.items() if count]
    return notes


def _sending_row(sending: Sending) -> tuple[object, ...]:
    event = sending.event
    return sending.place, sending.row_key, event.get("status", ""), event.get("startAt", ""), event.get("title", "")


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


_CLAIMED_AT_ONCE = 500
_LAUNCHED_BY = "a rehearsal"


def rehearse_feeds(settings: Settings, feeds: Sequence[FeedMapping], options: RunOptions, output: Output) -> int:
    """Rehearse each feed and show what a run would do; return 0, or the gravest exit code that a run would end with.

    5: a brake would stop it. What depends on the service's answers to events is not known.
    """
    rehearsals = []
    for mapping in feeds:
        with output.progress(f"rehearsing {mapping.feed}") as bar:
            rehearsals.append(_rehearse(settings, mapping, options, bar))
        if is_stop_asked():
            break
    show_rehearsals(output, rehearsals)
    return worst({int(rehearsal.outcome.exit_code) for rehearsal in rehearsals})


def _rehearse(settings: Settings, mapping: FeedMapping, options: RunOptions, bar: Progress) -> DryRun:
    try:
        with (
            faults_as_errors(lambda: "rehearsing"),
            existing_database(settings.state_url) as engine,
            rehearsal_copy(engine, settings.destination, mapping.feed) as copy,
        ):
            run = FeedRun(
                context=RunContext(settings, copy),
                mapping=mapping,
                identity=RunIdentity(new_run_id(now()), _LAUNCHED_BY),
                options=options,
                watcher=Watcher(read=bar.advance),
            )
            return _on_copy(run)
    except SyncError as error:
        return DryRun(mapping.feed, outcome_of(error))
    except KeyboardInterrupt:
        interrupted = InterruptedRunError("interrupted; nothing was written or sent", hint="rehearse it again")
        return DryRun(mapping.feed, outcome_of(interrupted))


def _on_copy(run: FeedRun) -> DryRun:
    feed = run.mapping.feed
    staged = None if run.options.publish_only else run.stage()
    rehearsed = Outcome("rehearsed", ExitCode.DONE)
    if staged and staged.stopping:
        return DryRun(feed, outcome_of(brake_error(staged.stopping, feed)), staged)
    if run.options.stage_only:
        return DryRun(feed, rehearsed, staged)
    try:
        pass_the_gate(run.context.ledger(run.mapping), run.mapping, run.options, _LAUNCHED_BY)
    except BrakeError as closed:
        return DryRun(feed, outcome_of(closed), staged)
    owed = _owed(run)
    told = outcome_of_publish(PublishReport(PublishAccount(), None, 0.0, standing=owed.standing), run.mapping)
    outcome = replace(told, name=rehearsed.name) if told.exit_code is ExitCode.DONE else told
    return DryRun(feed, outcome, staged, owed, _waiting(run))


def _waiting(run: FeedRun) -> Mapping[str, int]:
    """Count what would wait for a person after the run, before any answer of the service."""
    (status,) = LedgerQueries(run.context.engine, run.context.now).status(
        destination=run.context.settings.destination, feed=run.mapping.feed
    )
    return status.waiting


def _owed(run: FeedRun) -> Owed:
    """Return how many rows the run would send, the first of them in the order of sending, and what waits for a decision."""
    with run.context.lease(run.mapping, _LAUNCHED_BY, is_patient=False) as lease:
        outbox = run.open_outbox(lease)
        owed = outbox.owed
        intents = outbox.settle_and_claim((), SHOWN)
        first = tuple(_sending(run, intent) for intent in intents)
        count = len(intents) + _rest(outbox) if run.options.keys else min(owed, run.options.limit or owed)
        return Owed(count, first, outbox.standing())


def _rest(outbox: Outbox) -> int:
    """Count what is left in an outbox of picked keys, by taking it out."""
    count = 0
    while claimed := len(outbox.settle_and_claim((), _CLAIMED_AT_ONCE)):
        count += claimed
    return count


def _sending(run: FeedRun, intent: Intent) -> Sending:
    book = FeedScope(run.context.settings.destination, run.mapping.feed)
    entry = LedgerQueries(run.context.engine).rows(book, RowFilter(row_key=intent.row_key))[0]
    return Sending(entry.origin, intent.row_key, intent.key, json.loads(intent.body))


_REHEARSAL_COLUMNS = ("days", "read", "would send", "unchanged", "drifted", "rejected", "held", "left out", "how it would end")


@dataclass(frozen=True, slots=True)
class DrySlice:
    """What one slice would do; `staged` is None where it would fail."""

    days: Window
    outcome: Outcome
    staged: Staged | None = None

    @property
    def would_send(self) -> int:
        """So many rows would be staged to be sent."""
        return self.staged.report.account.new if self.staged and not self.staged.stopping else 0

    def document(self) -> RehearsedSlice:
        """Return it as scripts read it."""
        staged = self.staged
        return {
            "from": self.days.first,
            "to": self.days.last,
            "outcome": self.outcome.name,
            "exit_code": int(self.outcome.exit_code),
            "message": self.outcome.message,
            "hint": self.outcome.hint,
            "read": staged.report.account if staged else None,
            "would_send": self.would_send,
            "brakes": [verdict.name for verdict in staged.stopping] if staged else [],
            "notices": staged.notices if staged else (),
        }

    def line(self) -> tuple[object, ...]:
        """Return it as people read it."""
        account = self.staged.report.account if self.staged else None
        if account is None:
            return (str(self.days), "", "", "", "", "", "", "", self.outcome.message)
        counts = (account.unchanged, account.drifted, account.rejected, account.held, account.filtered)
        ended = "" if self.outcome.exit_code is ExitCode.DONE else self.outcome.message
        return (str(self.days), account.read, self.would_send, *counts, ended)


def rehearse_backfill(
    settings: Settings,
    mapping: FeedMapping,
    options: RunOptions,
    plan: BackfillPlan,
    slices: tuple[Window, ...],
    output: Output,
) -> int:
    """Rehearse the slices that are left, and show what each would send; return 0, or the code with which a backfill would stop.

    Raises:
        SyncError: the state DB cannot be read.
    """
    with output.progress(f"rehearsing {mapping.feed}", len(slices)) as bar:
        rehearsed = []
        for one in _rehearsed(settings, mapping, options, plan, slices):
            rehearsed.append(one)
            bar.advance()
    exit_code = worst({int(one.outcome.exit_code) for one in rehearsed})
    would_send = sum(one.would_send for one in rehearsed)
    output.document(
        BackfillRehearsal(
            feed=mapping.feed,
            by=plan.window.by,
            slice=plan.slice,
            exit_code=exit_code,
            would_send=would_send,
            slices=[one.document() for one in rehearsed],
        )
    )
    output.table(f"{mapping.feed}: {plan}", _REHEARSAL_COLUMNS, (one.line() for one in rehearsed))
    for notice in dict.fromkeys(notice for one in rehearsed if one.staged for notice in one.staged.notices):
        if "belong to no window" in notice:
            output.note(notice)
    _show_end(output, rehearsed, would_send)
    return exit_code


def _show_end(output: Output, rehearsed: list[DrySlice], would_send: int) -> None:
    last = rehearsed[-1] if rehearsed else None
    if last and last.outcome.exit_code is not ExitCode.DONE:
        output.note(f"it would stop at {last.days}: {last.outcome.text}")
    output.note(f"{would_send:,} row{'s' * (would_send != 1)} would be sent; a rehearsal: nothing was written or sent")


def _rehearsed(
    settings: Settings, mapping: FeedMapping, options: RunOptions, plan: BackfillPlan, slices: tuple[Window, ...]
) -> Iterator[DrySlice]:
    """Stage one slice after the other, as far as a backfill would come."""
    with (
        existing_database(settings.state_url) as engine,
        rehearsal_copy(engine, settings.destination, mapping.feed) as copy,
    ):
        context = RunContext(settings, copy)
        for days in slices:
            one = _stage_slice(context, mapping, options.model_copy(update={"window": days, "status": plan.status}))
            yield DrySlice(days, *one)
            if one[0].exit_code is not ExitCode.DONE:
                return


def _stage_slice(context: RunContext, mapping: FeedMapping, options: RunOptions) -> tuple[Outcome, Staged | None]:
    identity = RunIdentity(new_run_id(now()), "a rehearsal")
    try:
        staged = FeedRun(context, mapping, identity, options, Watcher()).stage()
    except SyncError as error:
        return outcome_of(error), None
    except KeyboardInterrupt:
        return outcome_of(InterruptedRunError("interrupted; nothing was written or sent", hint="rehearse it again")), None
    if staged.stopping:
        return outcome_of(brake_error(staged.stopping, mapping.feed)), staged
    return Outcome("rehearsed", ExitCode.DONE), staged
