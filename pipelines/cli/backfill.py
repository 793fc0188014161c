"""`eventsync backfill`: sends a window of a feed's past in slices, and resumes at the first slice that is not done."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Annotated, Literal

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, Accept, AsDraft, AsJson, NoDagster, OneFeed, Wait

if IS_WORKING:
    from mappings.errors import ConfigError
    from mappings.row_key import FeedName
    from mappings.spec.feed import FeedMapping
    from mappings.strict import written
    from pipelines.before_serving import prepare_dagster_home
    from pipelines.cli.dry_run import rehearse_stage
    from pipelines.cli.feed_files import one_feed
    from pipelines.cli.output.console import Output, counted, document_from
    from pipelines.cli.run import Launcher, notify_after, notify_before, options_of
    from pipelines.cli.run_report import RunReport, report_from_outcome, sent_in, show_report
    from pipelines.clock import monotonic_s, new_backfill_id, now
    from pipelines.logs import configure_logs
    from pipelines.run.backfill import BackfillPlan, make_plan, plan_of_record
    from pipelines.run.context import BACKFILL, PATIENCE_S, RunContext, is_awaited, open_context, require_service, was_launched_by
    from pipelines.run.empty_slices import EmptySlices
    from pipelines.run.options import RunOptions, Window
    from pipelines.run.outcome import ExitCode, RunOutcome, worst
    from pipelines.run.signals import is_stop_asked, leaving_on_second_signal, signals_raised
    from pipelines.run.stage import Staged
    from pipelines.settings import Settings, current_settings
    from state.backfills import BackfillRecord, Backfills, BackfillState, SliceEnd, SliceRecord, SliceState
    from state.errors import HeldByAnotherError
    from state.ledger.accounts import PublishAccount, ReadAccount
    from state.moving import rehearsal_copy
    from state.opening import existing_database
    from state.queries import LedgerQueries


def backfill(  # the options of the surface
    feed: OneFeed,
    first: Annotated[str, typer.Option("--from", metavar="DAY", help="The first day: 2031-05-03.")] = "",
    last: Annotated[str, typer.Option("--to", metavar="DAY", help="The last day, included (default: today).")] = "",
    by: Annotated[
        str, typer.Option(metavar="WAY", help="What decides a row's day: cursor, file or event (default: what fits the feed).")
    ] = "",
    column: Annotated[
        str, typer.Option(metavar="NAME", help="With --by cursor: the column with the time of a row's last change.")
    ] = "",
    slice_: Annotated[
        str, typer.Option("--slice", metavar="LENGTH", help="Length of a slice: day, week, month, or a number of days.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what each slice would send; write and send nothing.")] = False,
    status: AsDraft = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Send at most this many rows now; --resume sends the rest.")] = None,
    accept: Accept = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue with the slices that are not done.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the feed's backfills and their progress.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel a backfill; rows already sent stay sent.")] = False,
    no_dagster: NoDagster = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> int:
    """Send a window of a feed's past to the service in slices; each row is sent once, however often you start it.

    For example:

        # What a month would send, day by day
        eventsync backfill crm-events --from 2031-05-01 --to 2031-05-31 --dry-run
        # Send it; the same command continues where it stopped
        eventsync backfill crm-events --from 2031-05-01 --to 2031-05-31
        # A year of dated files, month by month, as drafts
        eventsync backfill lisbon-agenda --from 2030-01-01 --to 2030-12-31 --by file --slice month --status draft
        # The events of one week, of any source
        eventsync backfill krakow-culture --from 2031-06-02 --to 2031-06-08 --by event
        # Show the progress; continue; or cancel
        eventsync backfill crm-events --list
        eventsync backfill crm-events --resume
        eventsync backfill crm-events --cancel

    Slices run one after another; a scheduled run that is due runs between two of them. Exit codes are those of
    `eventsync run`; after 130 (interrupted), `--resume` continues.
    """
    modes = {"--list": list_all, "--cancel": cancel, "--resume": resume, "--dry-run": dry_run}
    _check_options(modes, first, {"--to": last, "--by": by, "--column": column, "--slice": slice_})
    settings, output = current_settings(), Output(is_json=as_json)
    configure_logs(settings)
    mapping = one_feed(settings, feed)
    if list_all:
        return _list_all(settings, mapping.feed, output)
    plan = None
    if first:
        days = _day("--from", first), _day("--to", last) if last else now().date()
        plan = make_plan(mapping, days, by, column, slice_)
        plan = plan.model_copy(update={"status": options_of(accept=(), status=status).status})
    if cancel:
        return _cancel(settings, mapping.feed, plan, output)
    require_service(settings)
    options = options_of(accept=accept, limit=limit, wait=wait)
    if dry_run:
        return _rehearse(settings, mapping, options, plan, output)
    with open_context(settings, output.aside) as context:
        record = _begin_or_resume(context, mapping.feed, plan, output, is_resumed=resume)
        return BackfillWork(context, mapping, options, record, output, uses_dagster=not no_dagster).run()


def _check_options(modes: Mapping[str, bool], first: str, described: Mapping[str, str]) -> None:
    asked = [option for option, is_asked in modes.items() if is_asked]
    if len(asked) > 1 and asked != ["--resume", "--dry-run"]:
        raise ConfigError(f"{' and '.join(asked)} cannot be combined", hint="choose one of them")
    if first:
        return
    if asked in ([], ["--dry-run"]):
        resume = "" if asked else "; or continue with --resume"
        raise ConfigError("no days were given", hint=f"add --from 2031-05-01 --to 2031-05-31{resume}")
    if named := [option for option, word in described.items() if word]:
        raise ConfigError(f"{', '.join(named)} needs --from", hint="add the first day: --from 2031-05-01")


def _day(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text} is not a date", hint="write it like 2031-05-03") from error


Days = TypedDict("Days", {"from": date, "to": date})


class BackfillSlice(Days):
    """One slice of a backfill: its days, its state and its run."""

    number: int
    state: SliceState
    run_id: str
    exit_code: int | None
    message: str
    counts: Mapping[str, int]
    started_at: datetime | None
    finished_at: datetime | None


class Backfill(Days):
    """One backfill: its days and its slices; `left` counts the slices that are not done."""

    id: str
    by: str
    column: str
    slice: str
    status: Literal["draft"] | None
    state: BackfillState
    created_at: datetime
    left: int
    slices: Sequence[BackfillSlice]


class BackfillAtWork(TypedDict):
    """The progress of a backfill: rows `read` and `sent` by this command, and the state of the whole backfill."""

    exit_code: int
    feed: str
    read: int
    sent: int
    backfill: Backfill


class BackfillList(TypedDict):
    """The backfills of a feed, newest first."""

    feed: str
    backfills: Sequence[Backfill]


class CancelledBackfill(TypedDict):
    """The backfill that was cancelled."""

    feed: str
    backfill: Backfill


class RehearsedSlice(Days):
    """What a run of one slice would do."""

    outcome: str
    exit_code: int
    message: str
    hint: str
    read: ReadAccount | None
    would_send: int
    brakes: Sequence[str]
    notices: Sequence[str]


class BackfillRehearsal(TypedDict):
    """What a backfill would do, from a dry run."""

    feed: str
    by: str
    slice: str
    exit_code: int
    would_send: int
    slices: Sequence[RehearsedSlice]


_A_MOMENT_S = 0.5
_THROUGH = frozenset({"done", "needs attention"})
"""Outcomes after which a slice is done. After any other one, the slice is run again."""


def _records(settings: Settings, feed: FeedName) -> Sequence[BackfillRecord]:
    """Return the backfills of a feed, newest first; none if there is no state DB."""
    if not settings.base_url:
        hint = "set it to the address of the service whose backfills you want"
        raise ConfigError("EVENT_API_BASE_URL is not set", hint=hint)
    with existing_database(settings.state_url) as engine:
        return Backfills(engine, settings.destination, feed, now).all() if engine else ()


def _list_all(settings: Settings, feed: FeedName, output: Output) -> int:
    """Print the feed's backfills, and the slices of the open one or else of the newest; return 0."""
    records = _records(settings, feed)
    output.document(BackfillList(feed=feed, backfills=[_document(record) for record in records]))
    if not records:
        output.note(f"{feed}: no backfills yet")
        return 0
    output.table(f"{feed}: backfills", map(_line, records))
    shown = next((record for record in records if record.state is BackfillState.OPEN), records[0])
    output.table(f"{feed}: the slices of {shown.backfill_id}", map(_slice_line, shown.slices))
    if shown.state is BackfillState.OPEN:
        output.note(f"`eventsync backfill {feed} --resume` continues it, `--cancel` cancels it")
    return 0


def _line(one: BackfillRecord) -> dict[str, object]:
    line = {"backfill": one.backfill_id, "days": str(plan_of_record(one)), "state": one.state.value}
    return {**line, "slices": len(one.slices), "left": len(one.left), "created at": one.created_at}


def _slice_line(one: SliceRecord) -> dict[str, object]:
    state = "running, or killed" if one.state is SliceState.WORKING else one.state.value
    line = {"slice": one.number, "days": _days(one.first, one.last), "state": state}
    line |= {name: one.counts.get(name, "") for name in ("read", "new", "delivered", "rejected")}
    ended = one.message.partition("\n")[0] or f"exit code {one.exit_code}" if one.exit_code else ""
    return {**line, "how it ended": ended, "run": one.run_id}


def _cancel(settings: Settings, feed: FeedName, plan: BackfillPlan | None, output: Output) -> int:
    """Cancel the open backfill, return 0; `plan` selects one if several are open."""
    record = _open_one(feed, _records(settings, feed), plan)
    with open_context(settings) as context:
        backfills = _backfills(context, feed)
        count = backfills.cancel(record.backfill_id)
        output.document(CancelledBackfill(feed=feed, backfill=_document(backfills.one(record.backfill_id))))
    output.note(f"{feed}: backfill {record.backfill_id} is cancelled; {count} of {len(record.slices)} slices were not done")
    if record.is_at_work:
        output.note("a slice that is running now finishes first; the feed's next run sends what is staged")
    return 0


def _backfills(context: RunContext, feed: FeedName) -> Backfills:
    return Backfills(context.engine, context.settings.destination, feed, now)


def _open_one(feed: FeedName, records: Sequence[BackfillRecord], plan: BackfillPlan | None) -> BackfillRecord:
    """Return the feed's open backfill; `plan` selects one if several are open.

    Raises:
        ConfigError: none is open, or more than one matches.
    """
    found = [one for one in records if one.state is BackfillState.OPEN and plan in {None, plan_of_record(one)}]
    if not found:
        hint = f"`eventsync backfill {feed} --list` lists the backfills; --from and --to start one"
        raise ConfigError(f"{feed} has no open backfill" + (f" of {plan}" if plan else ""), hint=hint)
    if len(found) > 1:
        several = "; ".join(f"{one.backfill_id}: {plan_of_record(one)}" for one in found)
        raise ConfigError(
            f"{feed} has {len(found)} open backfills: {several}", hint="select one by its days, with --from and --to"
        )
    return found[0]


def _document(record: BackfillRecord) -> Backfill:
    """Build the JSON document of a backfill."""
    plan = plan_of_record(record)
    window, left = plan.window, len(record.left)
    slices = [
        document_from(BackfillSlice, one, **{"from": date.fromisoformat(one.first), "to": date.fromisoformat(one.last)})
        for one in record.slices
    ]
    words = {"from": window.first, "to": window.last, "by": window.by, "column": window.column, "slice": plan.slice}
    return document_from(Backfill, record, **words, id=record.backfill_id, status=plan.status, left=left, slices=slices)


def _days(first: object, last: object) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _progress(record: BackfillRecord) -> str:
    done = sum(one.state is SliceState.DONE for one in record.slices)
    return f"{done} of {counted(len(record.slices), 'slice')} done"


def _begin_or_resume(
    context: RunContext, feed: FeedName, plan: BackfillPlan | None, output: Output, *, is_resumed: bool
) -> BackfillRecord:
    """Return the open backfill to continue (`plan` None: of any days), or start a new one.

    Raises:
        ConfigError: a backfill is to be resumed, and none is open or more than one matches.
        HeldByAnotherError: a living run works on one of its slices.
    """
    backfills = _backfills(context, feed)
    records = backfills.all()
    is_known = any(one.state is BackfillState.OPEN and plan_of_record(one) == plan for one in records)
    if plan is None or is_resumed or is_known:
        record = _open_one(feed, records, plan)
        output.note(f"{feed}: continuing backfill {record.backfill_id}, {_progress(record)}")
    else:
        days = [(slice_.first.isoformat(), slice_.last.isoformat()) for slice_ in plan.slices]
        output.note(f"{feed}: {plan}: {counted(len(days), 'slice')}")
        record = backfills.open(new_backfill_id(now()), plan.model_dump_json(), days)
    queries = LedgerQueries(context.engine)
    for status in queries.status(destination=context.settings.destination, feed=feed) if record.is_at_work else ():
        held = status.lease
        if held is not None and not held.is_gone and was_launched_by(held.name, BACKFILL):
            raise HeldByAnotherError(holder=held.name, since=held.acquired_at, host=held.host, pid=held.pid)
    return record


@dataclass(slots=True)
class BackfillWork:
    """Runs the slices of a backfill; counts slices `done` and rows `read` and `sent`."""

    context: RunContext
    mapping: FeedMapping
    options: RunOptions
    record: BackfillRecord
    output: Output
    uses_dagster: bool
    read: int = 0
    sent: int = 0
    done: int = 0
    began_s: float = field(default_factory=lambda: monotonic_s())  # noqa: PLW0108  # imported for work only
    stopped_by: RunReport | None = None
    launcher: Launcher = field(init=False)
    empty: EmptySlices = field(init=False)
    is_shown: bool = field(init=False)

    def __post_init__(self) -> None:
        """Create the launcher and the search for empty slices; the Dagster UI shows a backfill that this process runs."""
        self.launcher = Launcher(self.context.settings, self.options, self.output, BACKFILL)
        self.empty = EmptySlices(self.context, self.mapping)
        self.is_shown = self.uses_dagster and self.launcher.webserver() is None

    def run(self) -> int:
        """Run the slices that are left; return the gravest exit code of the slices.

        An interruption at any time still records and prints the progress.

        Raises:
            SyncError: another process works on the backfill, or the state DB fails.
        """
        settings = self.context.settings
        with leaving_on_second_signal(lambda: self._print_document(ExitCode.INTERRUPTED)):
            try:
                notify_before(settings, [self.mapping])
                codes = list(self._exit_codes())
            except KeyboardInterrupt:
                codes = [int(ExitCode.INTERRUPTED)]
            exit_code = worst(codes)
            self._show(exit_code)
            notify_after(settings, [self.mapping], filter(None, [self.stopped_by]), None)
            return exit_code

    @property
    def backfills(self) -> Backfills:
        """The records of the feed's backfills."""
        return _backfills(self.context, self.mapping.feed)

    def _exit_codes(self) -> Iterator[int]:
        """Run one slice after another until one ends the backfill; yield the exit code of each."""
        left = self.record.left
        for place, one in enumerate(left):
            claim = new_backfill_id(now())
            if place:
                self._give_way()
            if is_stop_asked():
                yield int(ExitCode.INTERRUPTED)
                return
            if not self.backfills.begin_slice(self.record.backfill_id, one.number, claim):
                continue
            report = self._run_slice(one, claim, is_first=place == 0)
            yield report.exit_code
            if not self._end_slice(one, claim, report, left=len(left) - place - 1):
                return

    def _show(self, exit_code: int) -> None:
        """Print the backfill's progress, as a document or as sentences."""
        self.record = record = self.backfills.one(self.record.backfill_id)
        self._print_document(exit_code)
        if self.is_shown and exit_code != ExitCode.INTERRUPTED and any(one.run_id for one in record.slices):
            self._show_in_dagster(record)
        feed = self.mapping.feed
        self.output.note(*self.empty.notices)
        if self.stopped_by is not None:
            show_report(self.output, self.stopped_by)
        done = f"{_progress(record)}; {self.read:,} rows read, {self.sent:,} sent"
        self.output.note(f"{feed}: backfill {record.backfill_id}: {done}")
        if record.left:
            self.output.note(f"continue with `eventsync backfill {feed} --resume`")
        elif record.state is BackfillState.CANCELLED:
            self.output.note("the backfill was cancelled meanwhile")

    def _print_document(self, exit_code: int) -> None:
        feed, backfill = self.mapping.feed, _document(self.record)
        self.output.document(document_from(BackfillAtWork, self, exit_code=int(exit_code), feed=feed, backfill=backfill))

    def _give_way(self) -> None:
        """Let a run that waits for the feed go first: between two slices the feed is free for too short a time to be noticed."""
        with signals_raised():
            if is_awaited(self.context.notes, self.mapping.feed, now()):
                self.output.aside(f"{self.mapping.feed}: another run waits for the feed; it goes first")
                time.sleep(PATIENCE_S + _A_MOMENT_S)  # noqa: TID251  # a waiting run tries again within that time

    def _run_slice(self, one: SliceRecord, claim: str, *, is_first: bool) -> RunReport:
        """Run one slice, unless it is empty; return its report.

        An interruption while Dagster is still loading releases the slice. Every slice but the first waits for a scheduled run
        that has started meanwhile. A slice that is empty now is still run if an earlier run may have staged rows of it.
        """
        plan = plan_of_record(self.record)
        window = plan.window_of(one)
        limit = None if self.options.limit is None else self.options.limit - self.sent
        more = {"window": window, "status": plan.status, "limit": limit}
        options = self.options.model_copy(update={**more, "wait": self.options.wait or not is_first})
        title = f"{self.mapping.feed} {_days(one.first, one.last)} ({one.number} of {len(self.record.slices)})"
        launcher = self.launcher
        launcher.options, launcher.title = options, title
        try:
            if one.state is SliceState.LEFT and one.exit_code is None:
                with self.output.progress(f"looking for rows of {_days(one.first, one.last)}") as bar:
                    if self.empty.has(window, bar.advance):
                        return self._nothing_read()
            launcher.backfill = self.backfills.one(self.record.backfill_id) if self.is_shown else None
            (report,) = launcher.run([self.mapping], uses_dagster=self.uses_dagster)
        except KeyboardInterrupt:
            end = SliceEnd(SliceState.LEFT, "", int(ExitCode.INTERRUPTED), "interrupted before its run began", {})
            self.backfills.end_slice(self.record.backfill_id, one.number, claim, end)
            raise
        return report

    def _nothing_read(self) -> RunReport:
        report = report_from_outcome(self.mapping.feed, "", RunOutcome("done", ExitCode.DONE))
        return replace(report, read=asdict(ReadAccount()), publish=asdict(PublishAccount()))

    def _show_in_dagster(self, record: BackfillRecord) -> None:
        """Show the backfill's state in the Backfills tab of the Dagster UI."""
        prepare_dagster_home(self.context.settings.dagster_home)
        from dagster import DagsterInstance  # Dagster takes seconds to import

        from pipelines.launcher import show_backfill

        with DagsterInstance.get() as instance:
            show_backfill(instance, self.mapping, record)

    def _end_slice(self, one: SliceRecord, claim: str, report: RunReport, *, left: int) -> bool:
        """Record and print how a slice ended; return whether to run the next one."""
        read, publish = report.read or {}, report.publish or {}
        self.read += read.get("read", 0)
        self.sent += sent_in(report)
        is_spent = self.options.limit is not None and self.sent >= self.options.limit
        is_through = report.outcome in _THROUGH and not (is_spent and publish.get("pending"))
        self.done += is_through
        message = "\n".join(filter(None, (report.message, report.hint))) or report.outcome
        # Both accounts in one: `new` of the publish repeats what the read counted.
        counts = {**read, **{name: count for name, count in publish.items() if name != "new"}}
        state = SliceState.DONE if is_through else SliceState.LEFT
        end = SliceEnd(state, report.run_id, report.exit_code, message, counts)
        is_claimed = self.backfills.end_slice(self.record.backfill_id, one.number, claim, end)
        terms = [f"{read['read']:,} read", f"{read['new']:,} new", f"{sent_in(report):,} sent"] if read else []
        terms += [f"{read[name]:,} {name}" for name in ("rejected", "held", "drifted") if read.get(name)]
        if report.exit_code != ExitCode.DONE:
            terms.append(report.outcome)
            self.stopped_by = report
        self.output.note(f"{_days(one.first, one.last)}: {', '.join(terms)} · {self._pace(left)}")
        return is_claimed and is_through and not is_spent

    def _pace(self, left: int) -> str:
        taken_s = max(monotonic_s() - self.began_s, 1e-3)
        through = len(self.record.slices) - left
        rest = f", about {timedelta(seconds=round(taken_s / self.done * left))} left" if left and self.done else ""
        return f"slice {through} of {len(self.record.slices)}, {written(self.read / taken_s)} rows/s{rest}"


def _rehearse(settings: Settings, mapping: FeedMapping, options: RunOptions, plan: BackfillPlan | None, output: Output) -> int:
    """Print what each slice would send, without writing; without a `plan`, of the open backfill's remaining slices.

    Return 0, or the exit code of the slice at which the backfill would stop: later ones are not read.
    """
    if plan is None:
        record = _open_one(mapping.feed, _records(settings, mapping.feed), None)
        plan = plan_of_record(record)
        windows = tuple(map(plan.window_of, record.left))
    else:
        windows = plan.slices
    slices: list[RehearsedSlice] = []
    with (
        output.progress(f"dry run of {mapping.feed}", len(windows)) as bar,
        existing_database(settings.state_url) as engine,
        rehearsal_copy(engine, settings.destination, mapping.feed) as copy,
    ):
        for window in windows:
            of_slice = options.model_copy(update={"window": window, "status": plan.status})
            outcome, staged = rehearse_stage(RunContext(settings, copy), mapping, of_slice)
            slices.append(_rehearsed(window, outcome, staged))
            bar.advance()
            if outcome.exit_code is not ExitCode.DONE:
                break
    exit_code, would_send = worst({one["exit_code"] for one in slices}), sum(one["would_send"] for one in slices)
    words = {"feed": mapping.feed, "by": plan.window.by, "slice": plan.slice}
    output.document(document_from(BackfillRehearsal, None, **words, exit_code=exit_code, would_send=would_send, slices=slices))
    output.table(f"{mapping.feed}: {plan}", map(_rehearsal_line, slices))
    output.note(*dict.fromkeys(notice for one in slices for notice in one["notices"] if "belong to no window" in notice))
    if exit_code:
        output.note(f"the backfill would stop at {window}: {outcome.text}")
    output.note(f"dry run: {counted(would_send, 'row')} would be sent; nothing was written or sent")
    return exit_code


def _rehearsed(window: Window, outcome: RunOutcome, staged: Staged | None) -> RehearsedSlice:
    return document_from(
        RehearsedSlice,
        outcome,
        **{"from": window.first, "to": window.last},
        outcome=outcome.name,
        read=staged.report.account if staged else None,
        would_send=staged.report.account.new if staged and not staged.stopping else 0,
        brakes=[verdict.name for verdict in staged.stopping] if staged else [],
        notices=staged.notices if staged else (),
    )


def _rehearsal_line(one: RehearsedSlice) -> dict[str, object]:
    counts = asdict(one["read"]) if one["read"] else {}
    line = {"days": _days(one["from"], one["to"]), "read": counts.get("read", "")}
    line |= {"would send": one["would_send"] if counts else ""}
    line |= {name: counts.get(name, "") for name in ("unchanged", "drifted", "rejected", "held")}
    return {**line, "left out": counts.get("filtered", ""), "how it would end": one["message"] if one["exit_code"] else ""}
