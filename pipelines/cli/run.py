"""`eventsync run`: stages, checks and publishes feeds; in the Dagster UI like a scheduled run unless `--no-dagster`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit
from uuid import uuid4

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, Accept, AsDraft, AsJson, AsOf, FeedNames, NoDagster, Wait

if TYPE_CHECKING:
    from dagster import Definitions

if IS_WORKING:
    import httpx
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from connectors.addresses import is_loopback
    from mappings.errors import ConfigError, MappingFileError, SyncError
    from mappings.reasons import did_you_mean
    from mappings.row_key import FeedName, typed_keys
    from mappings.spec.feed import FeedMapping
    from mappings.yaml.loader import load_feed
    from pipelines.before_serving import main as prepare_storage
    from pipelines.before_serving import prepare_dagster_home
    from pipelines.cli.dry_run import Rehearsal, rehearse_feeds, show_rehearsal
    from pipelines.cli.feed_files import broken_files, chosen_feeds, feeds_here, folder_of
    from pipelines.cli.output.console import Output, counted
    from pipelines.cli.run_report import RunReport, Runs, report_from_outcome, report_of, show_report, show_sum
    from pipelines.cli.webserver import DagsterRefusedError, Webserver, webserver_url
    from pipelines.cli.workers import WORKERS, fork_process, run_side_by_side
    from pipelines.logs import configure_logs
    from pipelines.run.context import open_context, require_service
    from pipelines.run.feed_run import FeedRun, RunIdentity, Watcher
    from pipelines.run.options import BRAKE_TEXTS, RunOptions, as_of_moment
    from pipelines.run.outcome import ExitCode, FaultError, MachineError, RunOutcome, faults_as_errors, outcome_of, worst
    from pipelines.run.signals import InterruptedRunError, is_stop_asked, leaving_on_second_signal, signals_raised
    from pipelines.settings import Settings, current_settings


def run(  # the options of the surface
    feeds: FeedNames = None,
    all_feeds: Annotated[bool, typer.Option("--all", help="Run every feed of the folder.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read, map and compare; write and send nothing.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Send at most this many rows; the rest stay pending.")] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="K,...",
            help="Only these row keys (`\\,` is a comma in a key); an expanded row's own key includes all its events. Exit"
            " code 1: the source lacks some.",
        ),
    ] = None,
    status: AsDraft = None,
    accept: Accept = None,
    stage_only: Annotated[bool, typer.Option("--stage-only", help="Only stage; send nothing.")] = False,
    publish_only: Annotated[
        bool, typer.Option("--publish-only", help="Only send what is staged; do not read the source.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Read the whole source, even if it is normally read incrementally.")
    ] = False,
    as_of: AsOf = None,
    wait: Wait = False,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Run this many feeds at a time.")] = 1,
    no_dagster: NoDagster = False,
    as_json: AsJson = False,
) -> int:
    """Send a feed's rows to the service: stage them, check the brakes, publish.

    For example:

        # All new rows of a feed
        eventsync run lisbon-agenda
        # Show what a run would do
        eventsync run lisbon-agenda --dry-run
        # Ten rows, as drafts
        eventsync run lisbon-agenda --limit 10 --status draft
        # Row 17 with all of its days, and one day of row 18
        eventsync run lisbon-agenda --keys '17,18|2031-03-03'
        # Read every row of a source that is normally read incrementally
        eventsync run crm-events --full
        # Pass a brake: send the good rows although many are rejected
        eventsync run lisbon-agenda --accept rejected
        # Every feed of the folder, four at a time
        eventsync run --all --jobs 4
        # What a run on that day would have done
        eventsync run lisbon-agenda --dry-run --as-of 2026-04-01

    Without --dry-run, --as-of works only with a service on this machine, such as the sandbox, and does not use Dagster.

    Exit codes: 0 done, 1 rows need attention, 2 configuration, 3 key or scope refused, 4 held by another run,
    5 stopped by a brake, 6 paused or unavailable, 130 interrupted.
    """
    asked = {"limit": limit, "stage_only": stage_only, "publish_only": publish_only, "full": full, "wait": wait}
    options = options_of(keys=keys, accept=accept, status=status, **asked)
    output, reports = Output(is_json=as_json), list[RunReport]()
    with leaving_on_second_signal(lambda: output.document(Runs(exit_code=int(ExitCode.INTERRUPTED), runs=reports))):
        try:
            with signals_raised():
                settings = current_settings()
                configure_logs(settings)
                folder = folder_of(settings, feeds or ())
                mappings = list(chosen_feeds(folder, feeds or ()))
                if not feeds and not all_feeds:
                    raise ConfigError("no feed was named", hint=f"name one or more, or add --all; {feeds_here(folder)}")
                if feeds and all_feeds:
                    raise ConfigError("--all and names of feeds cannot be combined", hint="leave out one of them")
                if dry_run and jobs > 1:
                    raise ConfigError("--dry-run and --jobs cannot be combined", hint="leave out --jobs: nothing is sent")
                require_service(settings)
                if as_of:
                    _check_as_of(settings, mappings, as_of, options, is_rehearsal=dry_run)
            if dry_run:
                rehearsals = rehearse_feeds(settings, mappings, options, output, as_of)
                output.document(Rehearsals(rehearsals=rehearsals))
                for rehearsal in rehearsals:
                    show_rehearsal(output, rehearsal)
                output.note(f"dry run{f' as of {as_of}' if as_of else ''}: nothing was written or sent")
                return worst({rehearsal["exit_code"] for rehearsal in rehearsals})
            notify_before(settings, mappings)
            launcher = Launcher(settings, options, output, as_of=as_of, jobs=jobs)
            for report in launcher.run(mappings, uses_dagster=not (no_dagster or as_of)):
                reports.append(report)
                show_report(output, report)
        except KeyboardInterrupt:
            output.document(Runs(exit_code=ExitCode.INTERRUPTED, runs=reports))
            output.aside("interrupted; the state is intact: run the same command again to continue")
            return ExitCode.INTERRUPTED
        broken, not_begun = folder.broken if all_feeds else (), len(mappings) - len(reports)
        exit_code = worst({report.exit_code for report in reports} | ({2} if broken else set()) | ({130} if not_begun else set()))
        order = {mapping.feed: number for number, mapping in enumerate(mappings)}
        document = Runs(exit_code=exit_code, runs=sorted(reports, key=lambda report: order[FeedName(report.feed)]))
        if all_feeds:
            document["broken"] = broken_files(broken)
        output.document(document)
        show_sum(output, reports)
        if not_begun:
            output.aside(f"interrupted: {counted(not_begun, 'feed')} not begun; {_CONTINUE}")
        for error in broken:
            output.error(error)
        notify_after(settings, mappings, reports, broken if all_feeds else None)
        return exit_code


class Rehearsals(TypedDict):
    """What runs would do; nothing was written or sent."""

    rehearsals: Sequence[Rehearsal]


def _check_as_of(
    settings: Settings, feeds: Sequence[FeedMapping], as_of: str, options: RunOptions, *, is_rehearsal: bool
) -> None:
    """Check that --as-of is a date or time, and that no real service would be sent events by it.

    Raises:
        ConfigError: it is not, or one would be.
    """
    for mapping in feeds:
        as_of_moment(as_of, mapping)
    if options.publish_only:
        raise ConfigError("--as-of and --publish-only cannot be combined: no row is read", hint="leave out one of them")
    if not is_rehearsal and not is_loopback(urlsplit(settings.base_url).hostname or ""):
        message = f"--as-of would send events by another day's date, and {settings.base_url} is not on this machine"
        hint = "add --dry-run, which sends nothing; or point EVENT_API_BASE_URL to a sandbox (`eventsync sandbox`)"
        raise ConfigError(message, hint=hint)


def options_of(*, accept: Sequence[str] | None, keys: str | None = None, **others: object) -> RunOptions:
    """Build the run's options from the command line's; several brakes or keys may be joined by commas.

    Raises:
        ConfigError: with every invalid value.
    """
    if others.get("stage_only") and others.get("publish_only"):
        raise ConfigError(
            "--stage-only and --publish-only cannot be combined", hint="leave out one; without either, a run does both"
        )
    brakes = tuple(brake.strip() for brake in ",".join(accept or ()).split(",") if brake.strip())
    try:
        return RunOptions.model_validate({"keys": tuple(typed_keys(keys or "")), "accept": brakes, **others})
    except ValidationError as error:
        problems, hints = zip(*map(_problem, error.errors()), strict=True)
        raise ConfigError("\n".join(problems), hint="; ".join(dict.fromkeys(filter(None, hints)))) from error


def _problem(wrong: ErrorDetails) -> tuple[str, str]:
    """Return what is wrong with an option's value, and a suggestion."""
    if not wrong["loc"]:  # words that do not go together
        return wrong["msg"].removeprefix("Value error, "), ""
    option, word = str(wrong["loc"][0]), wrong["input"]
    hint = did_you_mean(str(word), BRAKE_TEXTS if option == "accept" else ("draft",))
    return f"--{option.replace('_', '-')} {word}: {wrong['msg'].lower()}", hint


def notify_before(settings: Settings, feeds: Sequence[FeedMapping]) -> None:
    """Notify owners of feeds whose last run was lost. A failed notification is logged and stops no run."""
    if not settings.channels.addresses:
        return
    from pipelines.notices import nothing_fails, notifier_of

    with nothing_fails(), open_context(settings) as context:
        notifier_of(settings, context.engine).notify_of_lost_runs(feeds)


def notify_after(
    settings: Settings, feeds: Sequence[FeedMapping], reports: Iterable[RunReport], broken: Sequence[MappingFileError] | None
) -> None:
    """Notify owners of the feeds that were run. A failed notification is logged; an interruption ends only the notifying.

    `broken`: the broken files of the folder, None if only a part of it was loaded.
    """
    if not settings.channels.addresses:
        return
    from pipelines.notices import Cause, Concern, nothing_fails, notifier_of

    crashes = {
        FeedName(report.feed): Concern(Cause.FAILED, report.message, report.hint)
        for report in reports
        if report.exit_code == ExitCode.ATTENTION and report.outcome == "failed"
    }
    with suppress(KeyboardInterrupt), nothing_fails(), open_context(settings) as context:
        notifier = notifier_of(settings, context.engine)
        files, concerns = ((), {}) if broken is None else notifier.files(broken, feeds)
        about = {one.feed: one for one in (*files, *feeds)}
        notifier.notify(about.values(), {**crashes, **concerns})


@dataclass(slots=True)
class Launcher:
    """Launches runs of feeds, and reports each; after an interrupted one no further run begins.

    `title`: text beside the progress bar, instead of the feed's name. `as_of`: the current time of the runs, without Dagster.
    `jobs`: how many feeds run at a time, in processes of their own.
    """

    settings: Settings
    options: RunOptions
    output: Output
    launched_by: str = "cli"
    title: str = ""
    as_of: str | None = None
    jobs: int = 1
    _definitions: Definitions | None = None

    def run(self, feeds: Sequence[FeedMapping], *, uses_dagster: bool) -> Iterator[RunReport]:
        """Run feeds without Dagster, on a webserver that answers, or by Dagster here; yield their reports."""
        if uses_dagster and (server := self.webserver()):
            yield from self._run_on_webserver(server, feeds)
        elif min(self.jobs, len(feeds)) > 1:
            yield from self._run_in_workers(feeds, uses_dagster=uses_dagster)
        elif uses_dagster:
            yield from self.run_in_process(feeds)
        else:
            yield from self._run_each(feeds, uses_dagster=False)

    def webserver(self) -> Webserver | None:
        """Return the webserver to launch runs on, None to run them in this process."""
        url = webserver_url(self.settings)
        if not url:
            return None
        server = Webserver(httpx.Client(base_url=url, timeout=30.0, trust_env=False), self.settings.location)
        if server.is_there():
            return server
        if self.settings.dagster_url:
            self.output.note(f"no Dagster webserver answers at {url}; the run starts in this process instead")
        return None

    def load(self, feeds: Sequence[FeedMapping]) -> Definitions:
        """Load Dagster with the definitions of these feeds; later calls return the same."""
        settings, output = self.settings, self.output
        if self._definitions is None:
            prepare_dagster_home(settings.dagster_home)
            with output.progress("starting Dagster (skip it with --no-dagster)", is_counted=False), signals_raised():
                from pipelines.definitions import application  # Dagster takes seconds to import

                wanted = {mapping.feed for mapping in feeds}
                self._definitions = application(settings, partial(open_context, settings, output.aside), wanted=wanted)
        return self._definitions

    def run_in_process(self, feeds: Sequence[FeedMapping]) -> Iterator[RunReport]:
        """Run each feed's job in this process, on the Dagster instance of the UI; yield their reports."""
        self.load(feeds)
        yield from self._run_each(feeds, uses_dagster=True)

    def run_one(self, mapping: FeedMapping, run_id: str, *, uses_dagster: bool) -> RunReport:
        """Run one feed in this process; an unexpected exception fails that feed only."""
        try:
            with faults_as_errors("at work", run_id):
                return self._run_by_dagster(mapping, run_id) if uses_dagster else self._run_by_engine(mapping, run_id)
        except (FaultError, MachineError) as fault:
            return report_from_outcome(mapping.feed, run_id, outcome_of(fault))

    def _run_each(self, feeds: Iterable[FeedMapping], *, uses_dagster: bool) -> Iterator[RunReport]:
        for mapping in feeds:
            report = self.run_one(mapping, str(uuid4()), uses_dagster=uses_dagster)
            yield report
            if is_stop_asked() or report.exit_code == ExitCode.INTERRUPTED:
                return

    def _run_in_workers(self, feeds: Sequence[FeedMapping], *, uses_dagster: bool) -> Iterator[RunReport]:
        """Run each feed in a worker process; a process that dies fails its feed only."""
        with_dagster = ["pipelines.definitions", "pipelines.launcher"] if uses_dagster else []
        WORKERS.set_forkserver_preload([__name__, *with_dagster])
        if uses_dagster:
            prepare_dagster_home(self.settings.dagster_home)
            fork_process(prepare_storage).join()  # workers would create it at once
        run_ids = {str(mapping.feed): str(uuid4()) for mapping in feeds}
        work = partial(run_in_worker, options=self.options, as_of=self.as_of, uses_dagster=uses_dagster)
        # A mapping cannot be pickled: the classes of its steps are made at run time.
        runs = {str(mapping.feed): partial(work, mapping.path, mapping.feed, run_ids[mapping.feed]) for mapping in feeds}
        with open_context(self.settings) as context:  # creates the state DB before several processes need it
            for feed, report in run_side_by_side(runs, self.jobs, self.output):
                lost = (InterruptedRunError if is_stop_asked() else SyncError)(_LOST, hint=_CONTINUE)
                yield report or report_of(context, FeedName(feed), run_ids[feed], outcome_of(lost))

    def _run_by_dagster(self, mapping: FeedMapping, run_id: str) -> RunReport:
        definitions = self.load([mapping])
        from pipelines.launcher import run_job  # loaded above

        outcome = trouble = None
        try:
            with self.output.progress(f"running {mapping.feed}", is_counted=False), faults_as_errors("at work", run_id):
                status = run_job(definitions, mapping, self.options, run_id, self.launched_by)
        except (FaultError, MachineError) as error:  # of Dagster's history: what is recorded of the run says how it ended
            status, trouble, outcome = "FAILURE", error, outcome_of(error)
        with open_context(self.settings) as context:
            report = report_of(context, mapping.feed, run_id, outcome, dagster_status=status)
        if trouble is not None and report.message != str(trouble):
            self.output.aside(f"{mapping.feed}: Dagster's history lacks a part of this run: {trouble}; {trouble.hint}")
        return report

    def _run_by_engine(self, mapping: FeedMapping, run_id: str) -> RunReport:
        output, identity = self.output, RunIdentity(run_id, self.launched_by)
        title = self.title or mapping.feed
        with output.progress(f"{title}: rows read") as bar, open_context(self.settings, output.aside) as context:
            watcher = Watcher(read=bar.advance, owed=partial(bar.restart, f"{title}: rows sent"), settled=bar.advance)
            as_of = as_of_moment(self.as_of, mapping) if self.as_of else None
            outcome = FeedRun(replace(context, as_of=as_of), mapping, identity, self.options, watcher).run()
            return report_of(context, mapping.feed, run_id, outcome)

    def _launch(self, server: Webserver, mapping: FeedMapping) -> str:
        run_id = server.launch(mapping, self.options, self.launched_by)
        if not self.output.is_json:
            self.output.aside(f"{mapping.feed}: runs in Dagster: {server.page_of(run_id)}; Ctrl-C ends only this command")
        return run_id

    def _run_on_webserver(self, server: Webserver, feeds: Sequence[FeedMapping]) -> Iterator[RunReport]:
        waiting, at_work, refused = deque(feeds), dict[str, FeedMapping](), list[RunReport]()

        def launch_next() -> None:
            while waiting and not is_stop_asked():
                mapping = waiting.popleft()
                try:
                    at_work[self._launch(server, mapping)] = mapping
                except DagsterRefusedError as error:
                    if len(feeds) == 1:
                        raise
                    refused.append(report_from_outcome(mapping.feed, "", outcome_of(error)))
                else:
                    return

        for _ in range(self.jobs):
            launch_next()
        ended = server.follow(at_work, time.sleep, self.output.aside)  # noqa: TID251  # another process is asked
        try:
            while at_work:
                with signals_raised():
                    run_id, status = next(ended)
                with open_context(self.settings) as context:
                    report = report_of(context, at_work[run_id].feed, run_id, dagster_status=status)
                del at_work[run_id]
                if report.exit_code == ExitCode.INTERRUPTED:
                    waiting.clear()
                launch_next()
                yield report
        except KeyboardInterrupt:
            for run_id, mapping in at_work.items():
                message = f"run {run_id} continues on the Dagster webserver"
                left_alone = RunOutcome(
                    "interrupted", ExitCode.INTERRUPTED, message, f"see it, or stop it, at {server.page_of(run_id)}"
                )
                yield report_from_outcome(mapping.feed, run_id, left_alone)
        yield from refused


def run_in_worker(
    path: Path, feed: str, run_id: str, output: Output, *, options: RunOptions, as_of: str | None, uses_dagster: bool
) -> RunReport:
    """Run one feed in a worker process; every error becomes its report."""
    settings = current_settings()
    configure_logs(settings)
    try:
        mapping = load_feed(path, folders=settings.files)
        return Launcher(settings, options, output, as_of=as_of).run_one(mapping, run_id, uses_dagster=uses_dagster)
    except SyncError as error:
        return report_from_outcome(feed, run_id, outcome_of(error))
    except KeyboardInterrupt:
        return report_from_outcome(feed, run_id, outcome_of(InterruptedRunError("interrupted", hint=_CONTINUE)))


_CONTINUE = "run the same command again to continue"
_LOST = "the process of the run has died; the state is intact"


def sync_feeds(settings: Settings, output: Output, title: str, show: Callable[[Output, RunReport], None]) -> list[RunReport]:
    """Run every feed of the folder, and print each report."""
    output.note(f"\n{title}")
    feeds = folder_of(settings).feeds
    reports = list(Launcher(settings, RunOptions(), output).run_in_process(feeds))
    for report in reports:
        show(output, report)
    return reports
