"""Going through the slices of a backfill, one behind another: begun, run, written down; and what is said of it.

A feed is published by one run at a time, so that slices have nothing to gain from running beside each other: within a run,
many requests are in flight. Between two slices the feed is free, and a scheduled run may come in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from mappings.measures import written
from mappings.spec.feed import FeedMapping
from pipelines.cli.backfilling.listing import document_of, open_one
from pipelines.cli.backfilling.slice_runs import SliceRuns
from pipelines.cli.output import Output
from pipelines.cli.run_notices import tell_after, tell_before
from pipelines.cli.run_report import RunReport, show_report
from pipelines.cli.severity import worst
from pipelines.clock import monotonic_s, new_run_id, now
from pipelines.run.backfill import BACKFILL, PATIENCE_S, BackfillPlan, is_awaited, is_of, plan_of_record
from pipelines.run.context import open_context
from pipelines.run.options import RunOptions
from pipelines.run.outcome import ExitCode
from pipelines.run.signals import is_stop_asked, leaving_on_second_signal, signals_raised
from pipelines.settings import Settings
from state.backfills import BackfillRecord, Backfills, BackfillState, SliceEnd, SliceRecord, SliceState
from state.holders import HeldByAnotherError
from state.notes import ServiceNotes
from state.views.books import Books

_A_MOMENT_S = 0.5
_THROUGH = frozenset({"done", "needs attention"})
"""A slice whose run ended so owes nothing that another run of it would send; one that failed may owe all."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asked for: `plan` is None where an open backfill is to be gone on with, whatever its days."""

    settings: Settings
    mapping: FeedMapping
    plan: BackfillPlan | None
    options: RunOptions
    is_resumed: bool
    uses_dagster: bool


def backfill_feed(wish: Wish, output: Output) -> int:
    """Go through the slices that are left; return the exit code of the worst, or of the one that stopped it.

    Whenever it is interrupted, what was done until then is written down and told.

    Raises:
        SyncError: no backfill is meant, another process is at it, or the state DB fails.
    """
    with open_context(wish.settings, output.aside) as workshop:
        kept = Backfills(workshop.engine, wish.settings.destination, wish.mapping.feed, now)
        record = _meant(wish, kept, output)
        _check_alone(wish, record, Books(workshop.engine))
        journey = Journey(wish, kept, record, output, workshop.notes)
        with leaving_on_second_signal(journey.last_words):
            try:
                tell_before(wish.settings, [wish.mapping])
                codes = list(journey.codes())
            except KeyboardInterrupt:
                codes = [int(ExitCode.INTERRUPTED)]
            exit_code = journey.told(worst(codes))
            tell_after(wish.settings, [wish.mapping], filter(None, [journey.stopped_by]), None)
            return exit_code


def _meant(wish: Wish, kept: Backfills, output: Output) -> BackfillRecord:
    """Return the backfill to go on with: the one that the words mean, or a new one."""
    records = kept.all()
    if wish.is_resumed or wish.plan is None:
        return open_one(wish.mapping, records, wish.plan)
    for one in records:
        if one.state is BackfillState.OPEN and plan_of_record(one) == wish.plan:
            output.note(f"{wish.mapping.feed}: going on with backfill {one.backfill_id}, {_progress(one)}")
            return one
    days = [(slice_.first.isoformat(), slice_.last.isoformat()) for slice_ in wish.plan.slices]
    output.note(f"{wish.mapping.feed}: {wish.plan}: {_slices(len(days))}")
    return kept.open(new_run_id(now()), wish.plan.model_dump_json(), days)


def _check_alone(wish: Wish, record: BackfillRecord, books: Books) -> None:
    """Refuse to begin beside a living run that is at one of the slices: there is nothing to be patient for.

    Raises:
        HeldByAnotherError: who it is.
    """
    if not record.is_at_work:
        return
    for status in books.status(destination=wish.settings.destination, feed=wish.mapping.feed):
        held = status.lease
        if held is not None and not held.is_gone and is_of(held.name, BACKFILL):
            raise HeldByAnotherError(holder=held.name, since=held.acquired_at, host=held.host, pid=held.pid)


@dataclass(slots=True)
class Journey:
    """The way through the slices of one backfill, and how far it has come."""

    wish: Wish
    kept: Backfills
    record: BackfillRecord
    output: Output
    notes: ServiceNotes
    rows: int = 0
    sent: int = 0
    done: int = 0
    began_s: float = field(default_factory=monotonic_s)
    stopped_by: RunReport | None = None
    is_out: bool = False

    def codes(self) -> Iterator[int]:
        """Run one slice after the other until one stops; yield the exit code of each."""
        left = self.record.left
        for place, one in enumerate(left):
            claim = new_run_id(now())
            self._give_way(is_first=place == 0)
            if is_stop_asked():
                yield int(ExitCode.INTERRUPTED)
                return
            if not self.kept.begin_slice(self.record.backfill_id, one.number, claim):
                continue
            title = f"{self.wish.mapping.feed} {_days(one)} ({one.number} of {len(self.record.slices)})"
            report = self._run(one, claim, self._options(one, is_first=place == 0), title)
            yield report.exit_code
            if not self._end(one, claim, report, left=len(left) - place - 1):
                return

    def told(self, exit_code: int) -> int:
        """Tell how far the backfill has come, as one document or a sentence; return the exit code."""
        self.record = self.kept.one(self.record.backfill_id)
        self.is_out = True
        self.output.document(self._document(exit_code))
        feed, record = self.wish.mapping.feed, self.record
        if self.stopped_by is not None:
            show_report(self.output, self.stopped_by)
        self.output.note(
            f"{feed}: backfill {record.backfill_id}: {_progress(record)}; {self.rows:,} rows read, {self.sent:,} sent"
        )
        if record.left:
            self.output.note(f"go on with `eventsync backfill {feed} --resume`")
        elif record.state is BackfillState.CANCELLED:
            self.output.note("it was cancelled meanwhile")
        return exit_code

    def last_words(self) -> None:
        """Print the document, in place of whatever the process hangs in."""
        if not self.is_out:
            self.output.document(self._document(int(ExitCode.INTERRUPTED)))

    def _give_way(self, *, is_first: bool) -> None:
        """Let a run in that waits for the feed: between two slices it is free for too short a time to be noticed."""
        with signals_raised():
            if not is_first and is_awaited(self.notes, self.wish.mapping.feed, now()):
                self.output.aside(f"{self.wish.mapping.feed}: another run waits for the feed; it goes first")
                time.sleep(PATIENCE_S + _A_MOMENT_S)  # noqa: TID251  # whoever waits looks again within that time

    @property
    def _runs(self) -> SliceRuns:
        return SliceRuns(self.wish.settings, self.wish.mapping, self.output, self.wish.uses_dagster)

    def _run(self, one: SliceRecord, claim: str, options: RunOptions, title: str) -> RunReport:
        """Run one slice; interrupted while Dagster is still loaded, it has not begun, and is free again."""
        try:
            return self._runs.run(options, title)
        except KeyboardInterrupt:
            end = SliceEnd(SliceState.LEFT, "", int(ExitCode.INTERRUPTED), "interrupted before its run began", {})
            self.kept.end_slice(self.record.backfill_id, one.number, claim, end)
            raise

    def _options(self, one: SliceRecord, *, is_first: bool) -> RunOptions:
        """Return what the run of a slice is asked for: but for the first, it waits for a scheduled run that has come in."""
        plan = plan_of_record(self.record)
        limit = None if self.wish.options.limit is None else self.wish.options.limit - self.sent
        more = {"window": plan.window_of(one), "status": plan.status, "limit": limit}
        return self.wish.options.model_copy(update={**more, "wait": self.wish.options.wait or not is_first})

    def _end(self, one: SliceRecord, claim: str, report: RunReport, *, left: int) -> bool:
        """Write down how a slice ended, and tell; return whether to go on."""
        self.rows += report.read["read"] if report.read else 0
        self.sent += _sent(report)
        is_spent = self.wish.options.limit is not None and self.sent >= self.wish.options.limit
        is_through = report.outcome in _THROUGH and not (is_spent and _owed(report))
        self.done += is_through
        state = SliceState.DONE if is_through else SliceState.LEFT
        message = "\n".join(filter(None, (report.message, report.hint)))
        end = SliceEnd(state, report.run_id, report.exit_code, message or report.outcome, _counts(report))
        is_ours = self.kept.end_slice(self.record.backfill_id, one.number, claim, end)
        self.output.note(f"{_days(one)}: {_line(report)} · {self._pace(left)}")
        if report.exit_code != ExitCode.DONE or is_spent:
            self.stopped_by = report if report.exit_code != ExitCode.DONE else None
        return is_ours and is_through and not is_spent

    def _pace(self, left: int) -> str:
        taken_s = max(monotonic_s() - self.began_s, 1e-3)
        through = len(self.record.slices) - left
        rest = f", about {_spelt(taken_s / self.done * left)} left" if left and self.done else ""
        return f"slice {through} of {len(self.record.slices)}, {written(self.rows / taken_s)} rows/s{rest}"

    def _document(self, exit_code: int) -> dict[str, object]:
        return {
            "exit_code": exit_code,
            "feed": self.wish.mapping.feed,
            "read": self.rows,
            "sent": self.sent,
            "backfill": document_of(self.record),
        }


def _line(report: RunReport) -> str:
    if not report.read:
        return report.outcome
    told = [f"{report.read['read']:,} read", f"{report.read['new']:,} new", f"{_sent(report):,} sent"]
    told += [f"{report.read[name]:,} {name}" for name in ("rejected", "held", "drifted") if report.read[name]]
    return ", ".join(told) + ("" if report.exit_code == ExitCode.DONE else f": {report.outcome}")


def _sent(report: RunReport) -> int:
    account = report.publish
    return account["new"] + account["carried_over"] - account["pending"] if account else 0


def _owed(report: RunReport) -> int:
    return report.publish["pending"] if report.publish else 0


def _counts(report: RunReport) -> dict[str, int]:
    """Return what became of a slice's rows: what the read made of them, and of what was owed what the service said."""
    answered = {name: count for name, count in (report.publish or {}).items() if name != "new"}
    return {**(report.read or {}), **answered}


def _progress(record: BackfillRecord) -> str:
    done = sum(one.state is SliceState.DONE for one in record.slices)
    return f"{done} of {_slices(len(record.slices))} done"


def _days(one: SliceRecord) -> str:
    return one.first if one.first == one.last else f"{one.first} to {one.last}"


def _slices(count: int) -> str:
    return f"{count:,} slice{'s' * (count != 1)}"


def _spelt(seconds: float) -> str:
    """Spell a time as long as people ask for: 40 s, 12 min, 3 h."""
    for unit, length in (("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
