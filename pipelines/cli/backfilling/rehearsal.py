"""`backfill --dry-run`: every slice staged on one copy of the feed's ledger, and what each of them would send.

The copy is `state.rehearsal`'s; nothing real is written, and no event is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from mappings.errors import SyncError
from pipelines.cli.backfilling.listing import open_one
from pipelines.cli.backfilling.slices import Wish
from pipelines.cli.output import Output
from pipelines.cli.severity import worst
from pipelines.clock import new_run_id, now
from pipelines.run.backfill import BackfillPlan, Window, plan_of_record
from pipelines.run.brakes import brake_error
from pipelines.run.context import RunContext
from pipelines.run.feed_run import FeedRun, RunIdentity, Watcher
from pipelines.run.options import RunOptions
from pipelines.run.outcome import ExitCode, Outcome, outcome_of
from pipelines.run.signals import InterruptedRunError
from pipelines.run.stage import Staged
from state.archive.rehearsal import rehearsal_copy
from state.backfills import Backfills
from state.database import existing_database

_COLUMNS = ("days", "read", "would send", "unchanged", "drifted", "rejected", "held", "left out", "how it would end")


@dataclass(frozen=True, slots=True)
class RehearsedSlice:
    """What one slice would come to; `staged` is None where it would not come to its end."""

    days: Window
    outcome: Outcome
    staged: Staged | None = None

    @property
    def would_send(self) -> int:
        """So many rows would be staged to be sent."""
        return self.staged.report.account.new if self.staged and not self.staged.stopping else 0

    def document(self) -> dict[str, Any]:
        """Return it as scripts read it."""
        staged = self.staged
        return {
            "from": self.days.first,
            "to": self.days.last,
            "outcome": self.outcome.name,
            "exit_code": int(self.outcome.exit_code),
            "message": self.outcome.message,
            "hint": self.outcome.hint,
            "read": asdict(staged.report.account) if staged else None,
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


def rehearse_backfill(wish: Wish, output: Output) -> int:
    """Rehearse the slices that are left, and show what each would send; return 0, or the code with which a backfill would stop.

    Raises:
        SyncError: no backfill is meant, or the state DB cannot be read.
    """
    plan, slices = _meant(wish)
    with output.progress(f"rehearsing {wish.mapping.feed}", len(slices)) as bar:
        rehearsed = []
        for one in _rehearsed(wish, plan, slices):
            rehearsed.append(one)
            bar.advance()
    exit_code = worst({int(one.outcome.exit_code) for one in rehearsed})
    would_send = sum(one.would_send for one in rehearsed)
    document = {"feed": wish.mapping.feed, "by": plan.window.by, "slice": plan.slice, "exit_code": exit_code}
    output.document({**document, "would_send": would_send, "slices": [one.document() for one in rehearsed]})
    output.table(f"{wish.mapping.feed}: {plan}", _COLUMNS, (one.line() for one in rehearsed))
    for notice in dict.fromkeys(notice for one in rehearsed if one.staged for notice in one.staged.notices):
        if "belong to no window" in notice:
            output.note(notice)
    _show_end(output, rehearsed, would_send)
    return exit_code


def _show_end(output: Output, rehearsed: list[RehearsedSlice], would_send: int) -> None:
    last = rehearsed[-1] if rehearsed else None
    if last and last.outcome.exit_code is not ExitCode.DONE:
        output.note(f"it would stop at {last.days}: {last.outcome.told}")
    output.note(f"{would_send:,} row{'s' * (would_send != 1)} would be sent; a rehearsal: nothing was written or sent")


def _meant(wish: Wish) -> tuple[BackfillPlan, tuple[Window, ...]]:
    """Return the plan, and the slices that are left of it."""
    if wish.plan is not None:
        return wish.plan, wish.plan.slices
    with existing_database(wish.settings.state_url) as engine:
        kept = Backfills(engine, wish.settings.destination, wish.mapping.feed, now).all() if engine else ()
    record = open_one(wish.mapping, kept, None)
    plan = plan_of_record(record)
    return plan, tuple(map(plan.window_of, record.left))


def _rehearsed(wish: Wish, plan: BackfillPlan, slices: tuple[Window, ...]) -> Iterator[RehearsedSlice]:
    """Stage one slice after the other, as far as a backfill would come."""
    with (
        existing_database(wish.settings.state_url) as engine,
        rehearsal_copy(engine, wish.settings.destination, wish.mapping.feed) as copy,
    ):
        workshop = RunContext(wish.settings, copy)
        for days in slices:
            one = _stage(workshop, wish, wish.options.model_copy(update={"window": days, "status": plan.status}))
            yield RehearsedSlice(days, *one)
            if one[0].exit_code is not ExitCode.DONE:
                return


def _stage(workshop: RunContext, wish: Wish, options: RunOptions) -> tuple[Outcome, Staged | None]:
    ticket = RunIdentity(new_run_id(now()), "a rehearsal")
    try:
        staged = FeedRun(workshop, wish.mapping, ticket, options, Watcher()).stage()
    except SyncError as error:
        return outcome_of(error), None
    except KeyboardInterrupt:
        return outcome_of(InterruptedRunError("interrupted; nothing was written or sent", hint="rehearse it again")), None
    if staged.stopping:
        return outcome_of(brake_error(staged.stopping, wish.mapping.feed)), staged
    return Outcome("rehearsed", ExitCode.DONE), staged
