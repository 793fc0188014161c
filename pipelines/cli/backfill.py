"""`eventsync backfill`: a window of a feed's past, in slices that can be resumed where they stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Literal

import typer
from typing_extensions import TypedDict

from pipelines.cli.completion import brake_words
from pipelines.cli.options import IS_WORKING, AsJson, OneFeed

if IS_WORKING:
    from mappings.errors import ConfigError
    from mappings.spec.feed import FeedMapping
    from mappings.strict import written
    from pipelines.cli.dry_run import Days, rehearse_backfill
    from pipelines.cli.feed_files import chosen_feeds, folder_of
    from pipelines.cli.output.console import Output
    from pipelines.cli.output.words import worst
    from pipelines.cli.run import options_of, runner_of, tell_after, tell_before, watcher_of
    from pipelines.cli.run_report import RunReport, report_of, show_report
    from pipelines.clock import monotonic_s, new_run_id, now
    from pipelines.run.backfill import BACKFILL, PATIENCE_S, BackfillPlan, is_awaited, is_of, make_plan, plan_of_record
    from pipelines.run.context import open_context
    from pipelines.run.feed_run import FeedRun, RunIdentity
    from pipelines.run.options import RunOptions, Window
    from pipelines.run.outcome import ExitCode
    from pipelines.run.service import require_service
    from pipelines.run.signals import is_stop_asked, leaving_on_second_signal, signals_raised
    from pipelines.settings import Settings, current_settings
    from pipelines.telemetry.logs import configure_logs
    from state.backfills import BackfillRecord, Backfills, BackfillState, SliceEnd, SliceRecord, SliceState
    from state.database import existing_database
    from state.holders import HeldByAnotherError
    from state.notes import ServiceNotes
    from state.queries import LedgerQueries


def backfill(  # the options of the surface
    feed: OneFeed,
    first: Annotated[str, typer.Option("--from", metavar="DAY", help="The first day: 2031-05-03.")] = "",
    last: Annotated[str, typer.Option("--to", metavar="DAY", help="The last day, which counts; today without it.")] = "",
    by: Annotated[
        str, typer.Option(metavar="WAY", help="What tells a row's day: cursor, file or event; what suits the feed without it.")
    ] = "",
    column: Annotated[str, typer.Option(metavar="NAME", help="By cursor: the column that tells when a row changed.")] = "",
    slice_: Annotated[
        str, typer.Option("--slice", metavar="LENGTH", help="How the window is cut: day, week, month, or a number of days.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what each slice would send; write and send nothing.")] = False,
    status: Annotated[str | None, typer.Option(metavar="draft", help="Send every event as a draft.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Send at most this many rows now; the rest is left.")] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BRAKE",
            help="Pass a brake: rejected, shrink, left_out, new, copies, scope, keys.",
            autocompletion=brake_words,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the slices that are left.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="Show the feed's backfills and how far they have come.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Want no more of a backfill; what is sent stays sent.")] = False,
    no_dagster: Annotated[bool, typer.Option("--no-dagster", help="The engine alone: for cron and containers.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another run of the feed, instead of leaving.")] = False,
    as_json: AsJson = False,
) -> int:
    """Bring a window of a feed's past to the service, slice by slice; every row exactly once, however often it is begun.

    For example:

        # What a month would send, day by day
        eventsync backfill crm-events --from 2031-05-01 --to 2031-05-31 --dry-run
        # Send it; the same command again goes on where it stopped
        eventsync backfill crm-events --from 2031-05-01 --to 2031-05-31
        # A year of dated files, month by month, as drafts
        eventsync backfill lisbon-agenda --from 2030-01-01 --to 2030-12-31 --by file --slice month --status draft
        # The events of one week, of any source
        eventsync backfill krakow-culture --from 2031-06-02 --to 2031-06-08 --by event
        # How far it is; go on; or leave it
        eventsync backfill crm-events --list
        eventsync backfill crm-events --resume
        eventsync backfill crm-events --cancel

    Slices run one behind another, and let scheduled runs in between. Exit codes are those of `eventsync run`; 130: interrupted,
    and `--resume` goes on.
    """
    accepted = list(accept or ())
    described = {"--to": last, "--by": by, "--column": column, "--slice": slice_}
    _check_options({"--list": list_all, "--cancel": cancel, "--resume": resume, "--dry-run": dry_run}, first, described)
    settings, output = current_settings(), Output(json=as_json)
    configure_logs(settings)
    mapping = chosen_feeds(folder_of(settings, [feed]), [feed])[0].mapping
    if list_all:
        return list_backfills(settings, mapping, output)
    plan = None
    if first:
        days = _day("--from", first), _day("--to", last) if last else now().date()
        plan = make_plan(mapping, days, by, column, slice_)
        plan = plan.model_copy(update={"status": options_of(keys=None, accept=[], status=status).status})
    if cancel:
        return cancel_backfill(settings, mapping, plan, output)
    require_service(settings)
    options = options_of(keys=None, accept=accepted, limit=limit, wait=wait)
    request = BackfillRequest(settings, mapping, plan, options, is_resumed=resume, uses_dagster=not no_dagster)
    return _rehearse(request, output) if dry_run else run_backfill(request, output)


def _check_options(modes: Mapping[str, bool], first: str, described: Mapping[str, str]) -> None:
    asked = [option for option, is_asked in modes.items() if is_asked]
    if len(asked) > 1 and asked != ["--resume", "--dry-run"]:
        raise ConfigError(f"{' and '.join(asked)} exclude each other", hint="say one of them")
    if not first and not asked:
        raise ConfigError("no window was named", hint="name its days, --from 2031-05-01 --to 2031-05-31; or say --resume")
    if not first and asked == ["--dry-run"]:
        raise ConfigError("no window was named to rehearse", hint="name its days, --from 2031-05-01 --to 2031-05-31")
    if not first and (named := [option for option, word in described.items() if word]):
        raise ConfigError(f"{', '.join(named)} without --from means nothing", hint="name the first day as well")


def _day(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text} is no day", hint="days are written 2031-05-03") from error


if IS_WORKING:

    class Slice(Days):
        """One slice of a backfill: its days, how far it has come, and its run."""

        number: int
        state: SliceState
        run_id: str
        exit_code: int | None
        message: str
        counts: Mapping[str, int]
        started_at: datetime | None
        finished_at: datetime | None

    class Backfill(Days):
        """One backfill: the days asked for, and its slices; so many are `left`."""

        id: str
        by: str
        column: str
        slice: str
        status: Literal["draft"] | None
        state: BackfillState
        created_at: datetime
        left: int
        slices: Sequence[Slice]


class BackfillAtWork(TypedDict):
    """How far a backfill is: rows `read` and `sent` by this command, and where it stands as a whole."""

    exit_code: int
    feed: str
    read: int
    sent: int
    backfill: Backfill


class BackfillList(TypedDict):
    """The backfills of a feed, youngest first."""

    feed: str
    backfills: Sequence[Backfill]


class CancelledBackfill(TypedDict):
    """The backfill that was cancelled."""

    feed: str
    backfill: Backfill


_COLUMNS = ("backfill", "days", "state", "slices", "left", "asked for at")
_SLICE_COLUMNS = ("slice", "days", "state", "read", "new", "delivered", "rejected", "how it ended", "run")


def list_backfills(settings: Settings, mapping: FeedMapping, output: Output) -> int:
    """Show the feed's backfills, and the slices of the one that is open, or else of the last; return 0."""
    with _kept(settings, mapping) as kept:
        records = kept.all() if kept else ()
    output.document(BackfillList(feed=mapping.feed, backfills=[document_of(record) for record in records]))
    if not records:
        output.note(f"{mapping.feed}: no backfill was asked for yet")
        return 0
    output.table(f"{mapping.feed}: backfills", _COLUMNS, map(_line, records))
    shown = next((record for record in records if record.state is BackfillState.OPEN), records[0])
    output.table(f"{mapping.feed}: the slices of {shown.backfill_id}", _SLICE_COLUMNS, map(_slice_line, shown.slices))
    if shown.state is BackfillState.OPEN:
        output.note(f"`eventsync backfill {mapping.feed} --resume` goes on, `--cancel` leaves it")
    return 0


def cancel_backfill(settings: Settings, mapping: FeedMapping, plan: BackfillPlan | None, output: Output) -> int:
    """Cancel the open backfill, the one of these days where there are several; return 0.

    Raises:
        ConfigError: there is none, or more than one.
    """
    with _kept(settings, mapping) as kept:
        record = open_one(mapping, kept.all() if kept else (), plan)
        count = kept.cancel(record.backfill_id) if kept else 0
        ended = kept.one(record.backfill_id) if kept else record
    output.document(CancelledBackfill(feed=mapping.feed, backfill=document_of(ended)))
    output.note(f"{mapping.feed}: backfill {record.backfill_id} is cancelled, {count} of {len(record.slices)} slices undone")
    if record.is_at_work:
        output.note("a run that is at one of its slices ends that one first; what is staged is sent by the feed's next run")
    return 0


def open_one(mapping: FeedMapping, records: Sequence[BackfillRecord], plan: BackfillPlan | None) -> BackfillRecord:
    """Return the open backfill that is meant; `plan` selects one where there are several.

    Raises:
        ConfigError: there is none, or more than one.
    """
    found = [one for one in records if one.state is BackfillState.OPEN and plan in {None, plan_of_record(one)}]
    if not found:
        hint = f"`eventsync backfill {mapping.feed} --list` shows what there is; --from and --to begin one"
        raise ConfigError(f"{mapping.feed} has no open backfill" + (f" of {plan}" if plan else ""), hint=hint)
    if len(found) > 1:
        told = "; ".join(f"{one.backfill_id}: {plan_of_record(one)}" for one in found)
        raise ConfigError(f"{mapping.feed} has {len(found)} open backfills: {told}", hint="name its days with --from and --to")
    return found[0]


def document_of(record: BackfillRecord) -> Backfill:
    """Return a backfill as scripts read it."""
    plan = plan_of_record(record)
    return {
        "id": record.backfill_id,
        "from": plan.window.first,
        "to": plan.window.last,
        "by": plan.window.by,
        "column": plan.window.column,
        "slice": plan.slice,
        "status": plan.status,
        "state": record.state,
        "created_at": record.created_at,
        "left": len(record.left),
        "slices": [_slice_document(one) for one in record.slices],
    }


def _slice_document(one: SliceRecord) -> Slice:
    return {
        "number": one.number,
        "from": date.fromisoformat(one.first),
        "to": date.fromisoformat(one.last),
        "state": one.state,
        "run_id": one.run_id,
        "exit_code": one.exit_code,
        "message": one.message,
        "counts": one.counts,
        "started_at": one.started_at,
        "finished_at": one.finished_at,
    }


def _line(record: BackfillRecord) -> tuple[object, ...]:
    told = record.backfill_id, str(plan_of_record(record)), record.state.value
    return (*told, len(record.slices), len(record.left), record.created_at)


def _slice_line(one: SliceRecord) -> tuple[object, ...]:
    days = one.first if one.first == one.last else f"{one.first} to {one.last}"
    counts = (one.counts.get(name, "") for name in ("read", "new", "delivered", "rejected"))
    ended = "" if one.exit_code in {None, 0} else one.message.partition("\n")[0] or f"exit code {one.exit_code}"
    return (one.number, days, _STATES[one.state], *counts, ended, one.run_id)


if IS_WORKING:
    _STATES = {
        SliceState.LEFT: "left",
        SliceState.WORKING: "at work, or killed",
        SliceState.DONE: "done",
        SliceState.CANCELLED: "cancelled",
    }


@contextmanager
def _kept(settings: Settings, mapping: FeedMapping) -> Iterator[Backfills | None]:
    if not settings.base_url:
        hint = "backfills are kept by service, as all that was sent is: set it to the one in question"
        raise ConfigError("EVENT_API_BASE_URL is not set", hint=hint)
    with existing_database(settings.state_url) as engine:
        yield None if engine is None else Backfills(engine, settings.destination, mapping.feed, now)


_A_MOMENT_S = 0.5
_THROUGH = frozenset({"done", "needs attention"})
"""A slice whose run ended so owes nothing that another run of it would send; one that failed may owe all."""


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What the options ask for; `plan` is None to resume the open backfill, of any days."""

    settings: Settings
    mapping: FeedMapping
    plan: BackfillPlan | None
    options: RunOptions
    is_resumed: bool
    uses_dagster: bool


def run_backfill(request: BackfillRequest, output: Output) -> int:
    """Go through the slices that are left; return the exit code of the worst, or of the one that stopped it.

    Interrupted at any time, it records and prints what was done until then.

    Raises:
        SyncError: no backfill is meant, another process is at it, or the state DB fails.
    """
    with open_context(request.settings, output.aside) as context:
        kept = Backfills(context.engine, request.settings.destination, request.mapping.feed, now)
        record = _meant(request, kept, output)
        _check_alone(request, record, LedgerQueries(context.engine))
        run = BackfillRun(request, kept, record, output, context.notes)
        with leaving_on_second_signal(run.last_words):
            try:
                tell_before(request.settings, [request.mapping])
                codes = list(run.codes())
            except KeyboardInterrupt:
                codes = [int(ExitCode.INTERRUPTED)]
            exit_code = run.told(worst(codes))
            tell_after(request.settings, [request.mapping], filter(None, [run.stopped_by]), None)
            return exit_code


def _meant(request: BackfillRequest, kept: Backfills, output: Output) -> BackfillRecord:
    """Return the backfill to go on with: the one that the words mean, or a new one."""
    records = kept.all()
    if request.is_resumed or request.plan is None:
        return open_one(request.mapping, records, request.plan)
    for one in records:
        if one.state is BackfillState.OPEN and plan_of_record(one) == request.plan:
            output.note(f"{request.mapping.feed}: going on with backfill {one.backfill_id}, {_progress(one)}")
            return one
    days = [(slice_.first.isoformat(), slice_.last.isoformat()) for slice_ in request.plan.slices]
    output.note(f"{request.mapping.feed}: {request.plan}: {_slices(len(days))}")
    return kept.open(new_run_id(now()), request.plan.model_dump_json(), days)


def _check_alone(request: BackfillRequest, record: BackfillRecord, books: LedgerQueries) -> None:
    """Refuse to begin beside a living run that is at one of the slices: there is nothing to be patient for.

    Raises:
        HeldByAnotherError: who it is.
    """
    if not record.is_at_work:
        return
    for status in books.status(destination=request.settings.destination, feed=request.mapping.feed):
        held = status.lease
        if held is not None and not held.is_gone and is_of(held.name, BACKFILL):
            raise HeldByAnotherError(holder=held.name, since=held.acquired_at, host=held.host, pid=held.pid)


@dataclass(slots=True)
class BackfillRun:
    """One command at work on the slices of a backfill, and how far it has come."""

    request: BackfillRequest
    kept: Backfills
    record: BackfillRecord
    output: Output
    notes: ServiceNotes
    rows: int = 0
    sent: int = 0
    done: int = 0
    began_s: float = field(default_factory=lambda: monotonic_s())  # noqa: PLW0108  # imported for work only
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
            title = f"{self.request.mapping.feed} {_days(one)} ({one.number} of {len(self.record.slices)})"
            report = self._run(one, claim, self._options(one, is_first=place == 0), title)
            yield report.exit_code
            if not self._end(one, claim, report, left=len(left) - place - 1):
                return

    def told(self, exit_code: int) -> int:
        """Print how far the backfill is, as one document or a sentence; return the exit code."""
        self.record = self.kept.one(self.record.backfill_id)
        self.is_out = True
        self.output.document(self._document(exit_code))
        feed, record = self.request.mapping.feed, self.record
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
        """Print the document of an interrupted command that does not end by itself."""
        if not self.is_out:
            self.output.document(self._document(int(ExitCode.INTERRUPTED)))

    def _give_way(self, *, is_first: bool) -> None:
        """Let a run in that waits for the feed: between two slices it is free for too short a time to be noticed."""
        with signals_raised():
            if not is_first and is_awaited(self.notes, self.request.mapping.feed, now()):
                self.output.aside(f"{self.request.mapping.feed}: another run waits for the feed; it goes first")
                time.sleep(PATIENCE_S + _A_MOMENT_S)  # noqa: TID251  # a waiting run looks again within that time

    def _run(self, one: SliceRecord, claim: str, options: RunOptions, title: str) -> RunReport:
        """Run one slice; interrupted while Dagster is still loaded, it has not begun, and is free again."""
        request = self.request
        try:
            if request.uses_dagster:
                runner = runner_of(request.settings, options, self.output, uses_dagster=True, launched_by=BACKFILL)
                (report,) = runner([request.mapping])
                return report
            with self.output.progress(title) as bar, open_context(request.settings, self.output.aside) as context:
                identity = RunIdentity(new_run_id(now()), BACKFILL)
                result = FeedRun(context, request.mapping, identity, options, watcher_of(bar)).run()
                return report_of(context, request.mapping, identity.run_id, result.outcome)
        except KeyboardInterrupt:
            end = SliceEnd(SliceState.LEFT, "", int(ExitCode.INTERRUPTED), "interrupted before its run began", {})
            self.kept.end_slice(self.record.backfill_id, one.number, claim, end)
            raise

    def _options(self, one: SliceRecord, *, is_first: bool) -> RunOptions:
        """Return what the run of a slice is asked for: but for the first, it waits for a scheduled run that has come in."""
        plan = plan_of_record(self.record)
        limit = None if self.request.options.limit is None else self.request.options.limit - self.sent
        more = {"window": plan.window_of(one), "status": plan.status, "limit": limit}
        return self.request.options.model_copy(update={**more, "wait": self.request.options.wait or not is_first})

    def _end(self, one: SliceRecord, claim: str, report: RunReport, *, left: int) -> bool:
        """Record and print how a slice ended; return whether to go on."""
        self.rows += report.read["read"] if report.read else 0
        self.sent += _sent(report)
        is_spent = self.request.options.limit is not None and self.sent >= self.request.options.limit
        is_through = report.outcome in _THROUGH and not (is_spent and _owed(report))
        self.done += is_through
        state = SliceState.DONE if is_through else SliceState.LEFT
        message = "\n".join(filter(None, (report.message, report.hint)))
        end = SliceEnd(state, report.run_id, report.exit_code, message or report.outcome, _counts(report))
        is_ours = self.kept.end_slice(self.record.backfill_id, one.number, claim, end)
        self.output.note(f"{_days(one)}: {_report_line(report)} · {self._pace(left)}")
        if report.exit_code != ExitCode.DONE or is_spent:
            self.stopped_by = report if report.exit_code != ExitCode.DONE else None
        return is_ours and is_through and not is_spent

    def _pace(self, left: int) -> str:
        taken_s = max(monotonic_s() - self.began_s, 1e-3)
        through = len(self.record.slices) - left
        rest = f", about {_spelt(taken_s / self.done * left)} left" if left and self.done else ""
        return f"slice {through} of {len(self.record.slices)}, {written(self.rows / taken_s)} rows/s{rest}"

    def _document(self, exit_code: int) -> BackfillAtWork:
        return BackfillAtWork(
            exit_code=exit_code,
            feed=self.request.mapping.feed,
            read=self.rows,
            sent=self.sent,
            backfill=document_of(self.record),
        )


def _report_line(report: RunReport) -> str:
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


def _rehearse(request: BackfillRequest, output: Output) -> int:
    plan, slices = _slices_left(request)
    return rehearse_backfill(request.settings, request.mapping, request.options, plan, slices, output)


def _slices_left(request: BackfillRequest) -> tuple[BackfillPlan, tuple[Window, ...]]:
    """Return the plan, and the slices that are left of it."""
    if request.plan is not None:
        return request.plan, request.plan.slices
    with existing_database(request.settings.state_url) as engine:
        kept = Backfills(engine, request.settings.destination, request.mapping.feed, now).all() if engine else ()
    record = open_one(request.mapping, kept, None)
    plan = plan_of_record(record)
    return plan, tuple(map(plan.window_of, record.left))
