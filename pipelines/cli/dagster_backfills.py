"""Backfills that Dagster's daemon makes, started and followed by the command. As records, their slices are the runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from mappings.spec.feed import FeedMapping
from pipelines.cli.backfill_report import BackfillAtWork, accounts_text, backfill_document, progress_text, slice_end, slice_line
from pipelines.cli.output.console import Output, document_from
from pipelines.cli.run_report import report_of
from pipelines.cli.webserver import DAEMON_S, ROOT_TAG, BackfillRun, DagsterBackfill, Webserver
from pipelines.orchestration import names
from pipelines.run.backfill import DAYS_OF_A_RUN, BackfillPlan, plan_of_record, plan_of_tag, window_of
from pipelines.run.context import RunContext
from pipelines.run.empty_slices import EmptySlices
from pipelines.run.options import RunOptions
from pipelines.run.outcome import ExitCode, worst
from pipelines.run.signals import signals_raised
from state.backfills import BackfillRecord, BackfillState, SliceRecord, SliceState

_STATES = {
    "COMPLETED": BackfillState.DONE,
    "COMPLETED_SUCCESS": BackfillState.DONE,
    "CANCELED": BackfillState.CANCELLED,
    "CANCELING": BackfillState.CANCELLED,
}
_RUN_STATES = {"SUCCESS": SliceState.DONE, "FAILURE": SliceState.LEFT, "CANCELED": SliceState.LEFT}


@dataclass(frozen=True, slots=True)
class DagsterRecord(BackfillRecord):
    """A backfill of Dagster, with those that continue it. `attempts`: all of them, oldest first; the last one gives the id."""

    attempts: tuple[DagsterBackfill, ...]

    @property
    def can_continue(self) -> bool:
        """Whether it is at work, or the command launched it: else its options are not known, and the UI must re-execute it."""
        return not self.attempts[-1].has_ended or names.PLAN_TAG in self.attempts[-1].tags

    @property
    def days_left(self) -> list[str]:
        """The days that no run has made."""
        asked = {day for first, last in self.attempts[0].days for day in days_between(first, last)}
        ends = [(one.first, one.last) for one in self.slices if one.state is SliceState.DONE]
        made = {day for first, last in ends for day in days_between(date.fromisoformat(first), date.fromisoformat(last))}
        return sorted(asked - made)


def days_between(first: date, last: date) -> list[str]:
    """Return all days from the first to the last, as the names of partitions."""
    return [str(first + timedelta(days=number)) for number in range((last - first).days + 1)]


@dataclass(frozen=True, slots=True)
class DagsterBackfills:
    """The backfills of a feed in Dagster: lists, launches, follows and cancels them."""

    server: Webserver
    context: RunContext
    mapping: FeedMapping
    output: Output

    def records(self) -> list[DagsterRecord]:
        """Return the feed's backfills in Dagster, newest first, those of the UI too."""
        attempts = defaultdict[str, list[DagsterBackfill]](list)
        for one in reversed(self.server.backfills(self.mapping.feed)):
            attempts[one.tags.get(ROOT_TAG, one.backfill_id)].append(one)
        return [_record(self.context, self.mapping, several) for several in reversed(attempts.values()) if several[0].days]

    def launch(self, plan: BackfillPlan, options: RunOptions) -> int:
        """Launch a backfill of the slices that have rows, as long as the runs that Dagster cuts it into, and follow it."""
        plan, empty = plan.model_copy(update={"slice": str(DAYS_OF_A_RUN)}), EmptySlices(self.context, self.mapping)
        self.output.note(f"{self.mapping.feed}: {plan}")
        with self.output.progress("looking for rows") as bar:
            windows = [one for one in plan.slices if not empty.has(one, bar.advance)]
        self.output.note(*empty.notices)
        days = [day for one in windows for day in days_between(one.first, one.last)]
        if days:
            return self._watch(self.server.launch_backfill(self.mapping, plan, days, options))
        self._show(0, BackfillRecord("", plan.model_dump_json(), BackfillState.DONE, self.context.now(), ()), ())
        return int(ExitCode.DONE)

    def resume(self, record: DagsterRecord, options: RunOptions) -> int:
        """Follow a backfill that is at work, or launch the days that are left of one that has ended."""
        if not record.attempts[-1].has_ended:
            return self._watch(record.backfill_id)
        plan, attempts = plan_of_record(record), [one.backfill_id for one in record.attempts]
        return self._watch(self.server.launch_backfill(self.mapping, plan, record.days_left, options, attempts))

    def cancel(self, record: DagsterRecord) -> DagsterRecord:
        """Cancel a backfill with its runs, and wait until Dagster has done so."""
        self.server.cancel_backfill(record.backfill_id)
        self._follow(record.backfill_id, is_cancelled=True)
        return self._one(record.backfill_id)

    def _one(self, backfill_id: str) -> DagsterRecord:
        return next(one for one in self.records() if one.backfill_id == backfill_id)

    def _watch(self, backfill_id: str) -> int:
        """Follow a backfill to its end and print it; return the gravest exit code of its runs. Ctrl-C leaves it alone."""
        feed, codes = self.mapping.feed, set[int]()
        page = self.server.page_of(f"b/{backfill_id}")
        self.output.note(f"{feed}: Dagster makes backfill {backfill_id}: {page}")
        try:
            self._follow(backfill_id)
        except KeyboardInterrupt:
            again = f"`eventsync backfill {feed} --resume` follows it, `--cancel` cancels it"
            self.output.aside(f"the backfill continues in Dagster: see {page}; {again}")
            codes.add(ExitCode.INTERRUPTED)
        record = self._one(backfill_id)
        attempt = record.attempts[-1]
        runs = {run.run_id for run in attempt.runs}
        slices = [one for one in record.slices if one.run_id in runs]
        codes |= {one.exit_code for one in slices if one.exit_code is not None}
        if record.state is not BackfillState.DONE and not any(codes):
            codes.add(ExitCode.INTERRUPTED if record.state is BackfillState.CANCELLED else ExitCode.ATTENTION)
        self._show(worst(codes), record, slices)
        if attempt.error:
            self.output.note(f"Dagster reports: {attempt.error.strip().splitlines()[0]}")
        if attempt.has_ended and record.state is not BackfillState.DONE:
            self.output.note(f"continue with `eventsync backfill {feed} --resume`")
        return worst(codes)

    def _follow(self, backfill_id: str, *, is_cancelled: bool = False) -> None:
        """Show the progress of a backfill until it has ended: what it waits for, then its days."""
        states = self.server.follow_backfill(backfill_id, time.sleep, self.output.aside)  # noqa: TID251  # as for runs
        with signals_raised():
            self._await_daemon(states, is_cancelled=is_cancelled)
            shown = 0
            with self.output.progress(f"days of {backfill_id}") as bar:
                for one in states:
                    bar.advance(one.ended_days - shown)
                    shown = one.ended_days
                    bar.expect(sum((last - first).days + 1 for first, last in one.days) - shown)

    def _await_daemon(self, states: Iterator[DagsterBackfill], *, is_cancelled: bool) -> None:
        """Consume states until the first run has started; of a cancelled backfill, to its end."""
        one = next(states)
        if one.has_ended or (one.has_started and not is_cancelled):
            return
        waits = f"{self.mapping.feed}: waits for Dagster's daemon, which looks every {DAEMON_S} s"
        self.output.aside(waits)
        with self.output.progress(waits, is_counted=False):
            for one in states:
                if one.has_started and not is_cancelled:
                    return

    def _show(self, exit_code: int, record: BackfillRecord, slices: Sequence[SliceRecord]) -> None:
        """Print a backfill; `slices`: those of this attempt."""
        feed, counts = self.mapping.feed, [one.counts for one in slices]
        read = sum(one.get("read", 0) for one in counts)
        published = [one for one in counts if "pending" in one]
        sent = sum(one["new"] + one["carried_over"] - one["pending"] for one in published)
        words = {"exit_code": exit_code, "feed": feed, "read": read, "sent": sent, "backfill": backfill_document(record)}
        self.output.document(document_from(BackfillAtWork, None, **words))
        self.output.table(f"{feed}: the runs of {record.backfill_id}", map(slice_line, slices))
        if not record.backfill_id:
            self.output.note(f"{feed}: no row has one of these days")
            return
        first = record.attempts[0].backfill_id if isinstance(record, DagsterRecord) else record.backfill_id
        name = f"{record.backfill_id}, which continues {first}" if record.backfill_id != first else first
        self.output.note(f"{feed}: backfill {name}: {progress_text(record)}; {accounts_text(counts)}")


def _record(context: RunContext, mapping: FeedMapping, attempts: list[DagsterBackfill]) -> DagsterRecord:
    first, last = attempts[0], attempts[-1]
    if tag := last.tags.get(names.PLAN_TAG):
        plan = plan_of_tag(tag)
    else:
        window = window_of(mapping, (first.days[0][0], first.days[-1][1]))
        plan = BackfillPlan(window=window, slice=str(DAYS_OF_A_RUN))
    runs = {run.first: run for attempt in attempts for run in attempt.runs}
    slices = [_slice(context, mapping, number, runs[day]) for number, day in enumerate(sorted(runs), start=1)]
    state = _STATES.get(last.status, BackfillState.OPEN)
    record = DagsterRecord(last.backfill_id, plan.model_dump_json(), state, first.began, tuple(slices), tuple(attempts))
    return record if record.days_left else replace(record, state=BackfillState.DONE)


def _slice(context: RunContext, mapping: FeedMapping, number: int, run: BackfillRun) -> SliceRecord:
    state = _RUN_STATES.get(run.status, SliceState.WORKING)
    if state is SliceState.WORKING:
        return SliceRecord(number, run.first, run.last, state, run.run_id, None, "", {}, run.began, None)
    end = slice_end(report_of(context, mapping.feed, run.run_id, dagster_status=run.status), state)
    ended = (state, run.run_id, end.exit_code, end.message, end.counts)
    return SliceRecord(number, run.first, run.last, *ended, run.began, run.ended)
