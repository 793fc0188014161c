"""`eventsync backfill`: sends a window of a feed in slices, by Dagster where its webserver is there, else in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date, timedelta
from typing import Annotated
from uuid import uuid4

import typer

from pipelines.cli.options import IS_WORKING, Accept, AsDraft, AsJson, NoDagster, OneFeed, Wait

if IS_WORKING:
    from mappings.errors import ConfigError
    from mappings.row_key import FeedName
    from mappings.spec.feed import FeedMapping
    from mappings.strict import written
    from pipelines.cli.backfill_report import (
        BackfillAtWork,
        BackfillList,
        BackfillRehearsal,
        CancelledBackfill,
        RehearsedSlice,
        accounts_text,
        backfill_document,
        days_text,
        progress_text,
        slice_end,
        slice_line,
    )
    from pipelines.cli.dagster_backfills import DagsterBackfills, DagsterRecord
    from pipelines.cli.dry_run import rehearse_stage
    from pipelines.cli.feed_files import one_feed
    from pipelines.cli.output.console import Output, counted, document_from
    from pipelines.cli.run import Launcher, notify_after, notify_before, options_of
    from pipelines.cli.run_report import RunReport, report_from_outcome, sent_in, show_report
    from pipelines.cli.webserver import Webserver
    from pipelines.clock import monotonic_s, new_backfill_id, now
    from pipelines.logs import configure_logs
    from pipelines.run.backfill import BackfillPlan, is_shown, make_plan, plan_of_record
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
        str, typer.Option("--slice", metavar="LENGTH", help="In this process: day, week, month, or a number of days per slice.")
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

    Slices run one after another; a scheduled run that is due runs between two of them. Where a Dagster webserver
    answers (`eventsync ui`, EVENTSYNC_DAGSTER_URL), Dagster makes the backfill, in runs of up to 31 days; Ctrl-C then
    ends only the command. Exit codes are those of `eventsync run`; after 130 (interrupted), `--resume` continues.
    """
    modes = {"--list": list_all, "--cancel": cancel, "--resume": resume, "--dry-run": dry_run}
    _check_options(modes, first, {"--to": last, "--by": by, "--column": column, "--slice": slice_})
    settings, output = current_settings(), Output(is_json=as_json)
    configure_logs(settings)
    mapping = one_feed(settings, feed)
    options = options_of(accept=accept, limit=limit, wait=wait)
    plan = None
    if first:
        days = _day("--from", first), _day("--to", last) if last else now().date()
        plan = make_plan(mapping, days, by, column, slice_)
        plan = plan.model_copy(update={"status": options_of(accept=(), status=status).status})
    if dry_run:
        require_service(settings)
        return _rehearse(settings, mapping, options, plan, output)
    # A limit counts over all slices, which only one process can.
    server = None if no_dagster or limit else Launcher(settings, options, output).webserver()
    if list_all:
        return _list_all(settings, mapping, server, output)
    if cancel:
        return _cancel(settings, mapping, server, plan, output)
    require_service(settings)
    with open_context(settings, output.aside) as context:
        in_dagster = DagsterBackfills(server, context, mapping, output) if server else None
        work = _Start(context, mapping, options, in_dagster, output, uses_dagster=not no_dagster)
        return work.resume(plan) if resume or plan is None else work.begin(plan)


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


_A_MOMENT_S = 0.5
_THROUGH = frozenset({"done", "needs attention"})
"""Outcomes after which a slice is done. After any other one, the slice is run again."""


def _records(
    settings: Settings, mapping: FeedMapping, output: Output, server: Webserver | None = None
) -> Sequence[BackfillRecord]:
    """Return the backfills of a feed, newest first, those in Dagster too; none if there is no state DB."""
    if not settings.base_url:
        hint = "set it to the address of the service whose backfills you want"
        raise ConfigError("EVENT_API_BASE_URL is not set", hint=hint)
    with existing_database(settings.state_url) as engine:
        if engine is None:
            return ()
        context = RunContext(settings, engine)
        return _all_records(context, mapping, DagsterBackfills(server, context, mapping, output) if server else None)


def _all_records(context: RunContext, mapping: FeedMapping, in_dagster: DagsterBackfills | None) -> Sequence[BackfillRecord]:
    found = (*_backfills(context, mapping.feed).all(), *(in_dagster.records() if in_dagster else ()))
    return sorted(found, key=lambda one: one.created_at, reverse=True)


def _list_all(settings: Settings, mapping: FeedMapping, server: Webserver | None, output: Output) -> int:
    """Print the feed's backfills, and the slices of the open one or else of the newest; return 0."""
    feed, records = mapping.feed, _records(settings, mapping, output, server)
    output.document(BackfillList(feed=feed, backfills=[backfill_document(record) for record in records]))
    if not records:
        output.note(f"{feed}: no backfills yet")
        return 0
    output.table(f"{feed}: backfills", map(_line, records))
    shown = next((record for record in records if record.state is BackfillState.OPEN), records[0])
    output.table(f"{feed}: the slices of {shown.backfill_id}", map(slice_line, shown.slices))
    if shown.state is BackfillState.OPEN:
        output.note(f"`eventsync backfill {feed} --resume` continues it, `--cancel` cancels it")
    return 0


def _line(one: BackfillRecord) -> dict[str, object]:
    line = {"backfill": one.backfill_id, "days": str(plan_of_record(one)), "state": one.state.value}
    return {**line, "slices": len(one.slices), "left": len(one.left), "created at": one.created_at}


def _cancel(settings: Settings, mapping: FeedMapping, server: Webserver | None, plan: BackfillPlan | None, output: Output) -> int:
    """Cancel the open backfill, return 0; `plan` selects one if several are open. Dagster also stops its runs."""
    feed, record = mapping.feed, _open_one(mapping.feed, _records(settings, mapping, output, server), plan)
    with open_context(settings) as context:
        if server and isinstance(record, DagsterRecord):
            record = DagsterBackfills(server, context, mapping, output).cancel(record)
        else:
            backfills = _backfills(context, feed)
            backfills.cancel(record.backfill_id)
            if record.is_at_work:
                output.note("a slice that is running now finishes first; the feed's next run sends what is staged")
            record = backfills.one(record.backfill_id)
        output.document(CancelledBackfill(feed=feed, backfill=backfill_document(record)))
    output.note(f"{feed}: backfill {record.backfill_id} is cancelled; {progress_text(record)}")
    return 0


def _backfills(context: RunContext, feed: FeedName) -> Backfills:
    return Backfills(context.engine, context.settings.destination, feed, now)


def _open_one(feed: FeedName, records: Sequence[BackfillRecord], plan: BackfillPlan | None) -> BackfillRecord:
    """Return the feed's open backfill; `plan` selects one if several are open.

    Raises:
        ConfigError: none is open, or more than one matches.
    """
    found = [one for one in records if one.state is BackfillState.OPEN and _is_of(one, plan)]
    if not found:
        hint = f"`eventsync backfill {feed} --list` lists the backfills; --from and --to start one"
        raise ConfigError(f"{feed} has no open backfill" + (f" of {plan}" if plan else ""), hint=hint)
    if len(found) > 1:
        several = "; ".join(f"{one.backfill_id}: {plan_of_record(one)}" for one in found)
        raise ConfigError(
            f"{feed} has {len(found)} open backfills: {several}", hint="select one by its days, with --from and --to"
        )
    return found[0]


def _is_of(record: BackfillRecord, plan: BackfillPlan | None) -> bool:
    """Return whether a backfill can be continued, with the days, the way and the status of a plan, in slices of any length."""
    if isinstance(record, DagsterRecord) and not record.can_continue:
        return False
    return plan is None or plan_of_record(record).model_copy(update={"slice": plan.slice}) == plan


@dataclass(frozen=True, slots=True)
class _Start:
    """Begins a backfill in Dagster if its webserver is there, else in this process; resumes one where it began."""

    context: RunContext
    mapping: FeedMapping
    options: RunOptions
    in_dagster: DagsterBackfills | None
    output: Output
    uses_dagster: bool

    def begin(self, plan: BackfillPlan) -> int:
        """Begin a backfill, or continue the open one of these days; return the exit code."""
        backfills = _backfills(self.context, self.mapping.feed)
        records = _all_records(self.context, self.mapping, self.in_dagster)
        if any(one.state is BackfillState.OPEN and _is_of(one, plan) for one in records):
            return self.resume(plan)
        if self.in_dagster and is_shown(self.mapping, plan.window):
            return self.in_dagster.launch(plan, self.options)
        days = [(slice_.first.isoformat(), slice_.last.isoformat()) for slice_ in plan.slices]
        self.output.note(f"{self.mapping.feed}: {plan}: {counted(len(days), 'slice')}")
        return self._work(backfills.open(new_backfill_id(now()), plan.model_dump_json(), days))

    def resume(self, plan: BackfillPlan | None) -> int:
        """Continue the open backfill (`plan` None: of any days), or the last one that was cancelled in Dagster; return the exit
        code.

        Raises:
            ConfigError: none is open or more than one matches.
            HeldByAnotherError: a living run works on one of its slices.
        """
        feed, records = self.mapping.feed, _all_records(self.context, self.mapping, self.in_dagster)
        last = next((one for one in records if _is_of(one, plan)), None)
        is_cancelled = isinstance(last, DagsterRecord) and last.state is BackfillState.CANCELLED
        record = last if last and is_cancelled else _open_one(feed, records, plan)
        self.output.note(f"{feed}: continuing backfill {record.backfill_id}, {progress_text(record)}")
        if self.in_dagster and isinstance(record, DagsterRecord):
            return self.in_dagster.resume(record, self.options)
        return self._work(record)

    def _work(self, record: BackfillRecord) -> int:
        queries, destination = LedgerQueries(self.context.engine), self.context.settings.destination
        for status in queries.status(destination=destination, feed=self.mapping.feed) if record.is_at_work else ():
            held = status.lease
            if held is not None and not held.is_gone and was_launched_by(held.name, BACKFILL):
                raise HeldByAnotherError(holder=held.name, since=held.acquired_at, host=held.host, pid=held.pid)
        work = BackfillWork(self.context, self.mapping, self.options, record, self.output, uses_dagster=self.uses_dagster)
        return work.run()


@dataclass(slots=True)
class BackfillWork:
    """Runs the slices of a backfill; counts slices `done` and rows `read` and `sent`; `counts`: those of each slice."""

    context: RunContext
    mapping: FeedMapping
    options: RunOptions
    record: BackfillRecord
    output: Output
    uses_dagster: bool
    read: int = 0
    sent: int = 0
    done: int = 0
    counts: list[Mapping[str, int]] = field(default_factory=list)
    began_s: float = field(default_factory=lambda: monotonic_s())  # noqa: PLW0108  # imported for work only
    stopped_by: RunReport | None = None
    launcher: Launcher = field(init=False)
    empty: EmptySlices = field(init=False)

    def __post_init__(self) -> None:
        """Create the launcher and the search for empty slices."""
        self.launcher = Launcher(self.context.settings, self.options, self.output, BACKFILL)
        self.empty = EmptySlices(self.context, self.mapping)
        if self.uses_dagster and not is_shown(self.mapping, plan_of_record(self.record).window):
            self.uses_dagster = False
            self.output.note("Dagster has no partitions for some of these days: the backfill runs without it")

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
        feed = self.mapping.feed
        self.output.note(*self.empty.notices)
        if self.stopped_by is not None:
            show_report(self.output, self.stopped_by)
        done = f"{progress_text(record)}; {accounts_text(self.counts)}"
        self.output.note(f"{feed}: backfill {record.backfill_id}: {done}")
        if record.left:
            self.output.note(f"continue with `eventsync backfill {feed} --resume`")
        elif record.state is BackfillState.CANCELLED:
            self.output.note("the backfill was cancelled meanwhile")

    def _print_document(self, exit_code: int) -> None:
        feed, backfill = self.mapping.feed, backfill_document(self.record)
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
        title = f"{self.mapping.feed} {days_text(one.first, one.last)} ({one.number} of {len(self.record.slices)})"
        launcher = self.launcher
        launcher.options, launcher.title = options, title
        try:
            if one.state is SliceState.LEFT and one.exit_code is None:
                with self.output.progress(f"looking for rows of {days_text(one.first, one.last)}") as bar:
                    if self.empty.has(window, bar.advance):
                        return self._nothing_read()
            if self.uses_dagster:
                launcher.load([self.mapping])
            report = launcher.run_one(self.mapping, str(uuid4()), uses_dagster=self.uses_dagster)
        except KeyboardInterrupt:
            end = SliceEnd(SliceState.LEFT, "", int(ExitCode.INTERRUPTED), "interrupted before its run began", {})
            self.backfills.end_slice(self.record.backfill_id, one.number, claim, end)
            raise
        return report

    def _nothing_read(self) -> RunReport:
        report = report_from_outcome(self.mapping.feed, "", RunOutcome("done", ExitCode.DONE))
        return replace(report, read=asdict(ReadAccount()), publish=asdict(PublishAccount()))

    def _end_slice(self, one: SliceRecord, claim: str, report: RunReport, *, left: int) -> bool:
        """Record and print how a slice ended; return whether to run the next one."""
        read, publish = report.read or {}, report.publish or {}
        self.read += read.get("read", 0)
        self.sent += sent_in(report)
        is_spent = self.options.limit is not None and self.sent >= self.options.limit
        is_through = report.outcome in _THROUGH and not (is_spent and publish.get("pending"))
        self.done += is_through
        end = slice_end(report, SliceState.DONE if is_through else SliceState.LEFT)
        self.counts.append(end.counts)
        is_claimed = self.backfills.end_slice(self.record.backfill_id, one.number, claim, end)
        terms = [f"{read['read']:,} read", f"{read['new']:,} new", f"{sent_in(report):,} sent"] if read else []
        terms += [f"{read[name]:,} {name}" for name in ("rejected", "held", "drifted") if read.get(name)]
        if report.exit_code != ExitCode.DONE:
            terms.append(report.outcome)
            self.stopped_by = report
        self.output.note(f"{days_text(one.first, one.last)}: {', '.join(terms)} · {self._pace(left)}")
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
        record = _open_one(mapping.feed, _records(settings, mapping, output), None)
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
    line = {"days": days_text(one["from"], one["to"]), "read": counts.get("read", "")}
    line |= {"would send": one["would_send"] if counts else ""}
    line |= {name: counts.get(name, "") for name in ("unchanged", "drifted", "rejected", "held")}
    return {**line, "left out": counts.get("filtered", ""), "how it would end": one["message"] if one["exit_code"] else ""}
