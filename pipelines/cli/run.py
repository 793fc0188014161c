"""`eventsync run`: stage, checks, publish; visible in the Dagster UI like a scheduled run unless `--no-dagster`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated
from uuid import uuid4

import typer

from pipelines.cli.completion import brake_words
from pipelines.cli.options import IS_WORKING, AsJson, FeedNames

if IS_WORKING:
    import httpx
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from mappings.errors import ConfigError, MappingFileError
    from mappings.outcome import did_you_mean
    from mappings.row_key import FeedName
    from mappings.spec.feed import FeedMapping
    from mappings.yaml.loader import LoadedFeed
    from pipelines.before_serving import prepare_dagster_home
    from pipelines.cli.dry_run import rehearse_feeds
    from pipelines.cli.feed_files import chosen_feeds, folder_of
    from pipelines.cli.output.console import Output, Progress
    from pipelines.cli.output.words import worst
    from pipelines.cli.run_report import RunReport, Runs, report_of, show_reports
    from pipelines.clock import new_run_id, now
    from pipelines.orchestration.webserver import Webserver, webserver_url
    from pipelines.run.context import open_context
    from pipelines.run.feed_run import FeedRun, RunIdentity, Watcher
    from pipelines.run.options import BRAKE_TEXTS, RunOptions
    from pipelines.run.outcome import ExitCode, FaultError, faults_as_errors, outcome_of
    from pipelines.run.service import require_service
    from pipelines.run.signals import is_stop_asked, leaving_on_second_signal, signals_raised
    from pipelines.settings import Settings, current_settings
    from pipelines.telemetry.logs import configure_logs


def run(  # the options of the surface
    feeds: FeedNames = None,
    all_feeds: Annotated[bool, typer.Option("--all", help="Every feed of the folder.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read, map and compare; write and send nothing.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Send at most this many rows; the rest stay pending.")] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="K,...",
            help="Only these row keys: a row's own means all of its events. Exit code 1 names what the source lacks.",
        ),
    ] = None,
    status: Annotated[str | None, typer.Option(metavar="draft", help="Send every event as a draft.")] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BRAKE",
            help="Pass a brake: rejected, shrink, left_out, new, copies, scope, keys.",
            autocompletion=brake_words,
        ),
    ] = None,
    stage_only: Annotated[bool, typer.Option("--stage-only", help="Stage; send nothing.")] = False,
    publish_only: Annotated[bool, typer.Option("--publish-only", help="Send what is staged; do not read the source.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Read the source from its start, also where only what changed would be read.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another run of the feed, instead of leaving.")] = False,
    no_dagster: Annotated[bool, typer.Option("--no-dagster", help="The engine alone: for cron and containers.")] = False,
    as_json: AsJson = False,
) -> int:
    """Bring a feed's rows to the service: stage, ask the brakes, publish.

    For example:

        # Everything a partner's file holds
        eventsync run lisbon-agenda
        # See what it would do first
        eventsync run lisbon-agenda --dry-run
        # Ten rows, as drafts
        eventsync run lisbon-agenda --limit 10 --status draft
        # Row 17 with each of its days, and one day of row 18
        eventsync run lisbon-agenda --keys '17,18|2031-03-03'
        # Every row again, of a source that is read by what changed
        eventsync run crm-events --full
        # The good rows, in spite of a brake
        eventsync run lisbon-agenda --accept rejected

    Exit codes: 0 done, 1 rows need attention, 2 configuration, 3 key or scope refused, 4 held by another run,
    5 stopped by a brake, 6 paused or unavailable, 130 interrupted.
    """
    options = options_of(
        limit=limit,
        keys=keys,
        status=status,
        accept=accept or [],
        stage_only=stage_only,
        publish_only=publish_only,
        full=full,
        wait=wait,
    )
    output = Output(json=as_json)
    reports = ReportsSoFar(output)
    with leaving_on_second_signal(reports.show_at_last):
        try:
            with signals_raised():
                settings = current_settings()
                configure_logs(settings)
                folder = folder_of(settings, feeds or ())
                mappings = _wanted(feeds or (), chosen_feeds(folder, feeds or ()), is_all=all_feeds)
                require_service(settings)
            if dry_run:
                return rehearse_feeds(settings, mappings, options, output)
            runner = runner_of(settings, options, output, uses_dagster=not no_dagster)
            tell_before(settings, mappings)
            reports.collect(runner(mappings))
        except KeyboardInterrupt:
            reports.show(ExitCode.INTERRUPTED)
            output.aside("interrupted; the state is intact: run again to go on")
            return ExitCode.INTERRUPTED
        broken = folder.broken if all_feeds else ()
        exit_code = worst({report.exit_code for report in reports.reports} | ({2} if broken else set()))
        reports.show(exit_code)
        for error in broken:
            output.error(error)
        tell_after(settings, mappings, reports.reports, broken if all_feeds else None)
        return exit_code


def options_of(*, keys: str | None, accept: list[str], **others: object) -> RunOptions:
    """Return the options that the words ask for.

    Raises:
        ConfigError: with every word that cannot be.
    """
    asked = {"keys": tuple(filter(None, (keys or "").split(","))), "accept": _brakes(accept), **others}
    if asked.get("stage_only") and asked.get("publish_only"):
        raise ConfigError("--stage-only and --publish-only exclude each other", hint="leave out one; neither does both")
    try:
        return RunOptions.model_validate(asked)
    except ValidationError as error:
        wrong = error.errors()
        hints = dict.fromkeys(filter(None, map(_hint, wrong)))
        raise ConfigError("\n".join(map(_problem, wrong)), hint="; ".join(hints)) from error


def _problem(wrong: ErrorDetails) -> str:
    if not wrong["loc"]:  # words that do not go together
        return wrong["msg"].removeprefix("Value error, ")
    option = str(wrong["loc"][0]).replace("_", "-")
    return f"--{option} {wrong['input']}: {wrong['msg'].lower()}"


def _hint(wrong: ErrorDetails) -> str:
    if not wrong["loc"]:
        return ""
    return did_you_mean(str(wrong["input"]), BRAKE_TEXTS if wrong["loc"][0] == "accept" else ("draft",))


def _brakes(words: list[str]) -> tuple[str, ...]:
    return tuple(brake.strip() for word in words for brake in word.split(",") if brake.strip())


def tell_before(settings: Settings, feeds: Sequence[FeedMapping]) -> None:
    """Notify of feeds whose last run was lost. A notification that fails is logged, and keeps no run from beginning."""
    if not settings.channels.addresses:
        return
    from pipelines.notifications.notices import nothing_fails, notifier_of  # see the door sign

    with nothing_fails(), open_context(settings) as workshop:
        notifier_of(settings, workshop.engine).tell_of_lost_runs(feeds)


def tell_after(
    settings: Settings,
    feeds: Sequence[FeedMapping],
    reports: Iterable[RunReport],
    broken: Sequence[MappingFileError] | None,
) -> None:
    """Notify of the feeds that were run. A notification that fails is logged, and fails no run; an interruption ends only this.

    `broken`: the files of the folder that cannot be used, None where only a part of it was looked at.
    """
    if not settings.channels.addresses:
        return
    from pipelines.notifications.causes import Cause, Concern
    from pipelines.notifications.notices import nothing_fails, notifier_of  # see the door sign

    crashes = {
        FeedName(report.feed): Concern(Cause.FAILED, report.message, report.hint)
        for report in reports
        if report.exit_code == ExitCode.ATTENTION and report.outcome == "failed"
    }
    with suppress(KeyboardInterrupt), nothing_fails(), open_context(settings) as workshop:
        teller = notifier_of(settings, workshop.engine)
        files, concerns = ((), {}) if broken is None else teller.files(broken, feeds)
        about = {one.feed: one for one in (*files, *feeds)}
        teller.tell(about.values(), {**crashes, **concerns})


@dataclass(slots=True)
class ReportsSoFar:
    """The reports of the runs that have ended. They are printed once, however the command ends."""

    output: Output
    reports: list[RunReport] = field(default_factory=list)
    is_shown: bool = False

    def collect(self, reports: Iterable[RunReport]) -> None:
        """Take the reports as they come; after an interruption no further feed is begun."""
        for report in reports:
            self.reports.append(report)
            if is_stop_asked() or report.exit_code == ExitCode.INTERRUPTED:
                break

    def show(self, exit_code: int) -> None:
        """Print what was done."""
        self.is_shown = True
        show_reports(self.output, self.reports, exit_code)

    def show_at_last(self) -> None:
        """Print the document of an interrupted command that does not end by itself."""
        if not self.is_shown:
            self.output.document(Runs(exit_code=int(ExitCode.INTERRUPTED), runs=self.reports))


def _wanted(names: Sequence[str], feeds: Sequence[LoadedFeed], *, is_all: bool) -> list[FeedMapping]:
    if not names and not is_all:
        known = ", ".join(feed.mapping.feed for feed in feeds) or "none"
        raise ConfigError("no feed was named", hint=f"name one or more, or say --all; the feeds here: {known}")
    if names and is_all:
        raise ConfigError("--all and names of feeds exclude each other", hint="leave out one of them")
    return [feed.mapping for feed in feeds]


if IS_WORKING:
    Runner = Callable[[Sequence[FeedMapping]], Iterable[RunReport]]


def runner_of(settings: Settings, options: RunOptions, output: Output, *, uses_dagster: bool, launched_by: str = "cli") -> Runner:
    """Return what runs feeds as asked for: the engine alone, a webserver that is there, or Dagster in this process."""
    if not uses_dagster:
        return lambda feeds: _with_engine(settings, feeds, options, output)
    if url := webserver_url(settings):
        server = Webserver(httpx.Client(base_url=url, timeout=30.0, trust_env=False))
        if server.is_there():
            return lambda feeds: _on_webserver(server, settings, feeds, options, output, launched_by)
        if settings.dagster_url:
            output.note(f"no Dagster webserver answers at {url}; running in this process instead")
    return lambda feeds: run_in_process(settings, feeds, options, output, launched_by=launched_by)


def _with_engine(settings: Settings, feeds: Sequence[FeedMapping], options: RunOptions, output: Output) -> Iterator[RunReport]:
    def run(mapping: FeedMapping, run_id: str) -> RunReport:
        with output.progress(mapping.feed) as bar, open_context(settings, output.aside) as workshop:
            result = FeedRun(workshop, mapping, RunIdentity(run_id, "cli"), options, watcher_of(bar)).run()
            return report_of(workshop, mapping, run_id, result.outcome)

    for mapping in feeds:
        yield _unless_at_fault(run, mapping, new_run_id(now()))


def _on_webserver(
    server: Webserver,
    settings: Settings,
    feeds: Sequence[FeedMapping],
    options: RunOptions,
    output: Output,
    launched_by: str,
) -> Iterator[RunReport]:
    for mapping in feeds:
        run_id = server.launch(mapping, options, launched_by)
        try:
            with signals_raised():
                status = server.follow(run_id, time.sleep, output.aside)  # noqa: TID251  # another process is followed by asking
        except KeyboardInterrupt:
            yield _left_alone(mapping, run_id, str(server.http.base_url.join(f"/runs/{run_id}")))
            return
        with open_context(settings) as workshop:
            yield report_of(workshop, mapping, run_id, dagster_status=status)


def _left_alone(mapping: FeedMapping, run_id: str, page: str) -> RunReport:
    told, hint = f"run {run_id} goes on without us, on the Dagster webserver", f"look at it, or stop it, at {page}"
    return RunReport(mapping.feed, run_id, "interrupted", int(ExitCode.INTERRUPTED), told, hint)


def run_in_process(
    settings: Settings,
    feeds: Sequence[FeedMapping],
    options: RunOptions,
    output: Output,
    *,
    launched_by: str = "cli",
) -> Iterator[RunReport]:
    """Run each feed's job in this process, on the Dagster instance of the UI; print what is waited for."""
    prepare_dagster_home(settings.dagster_home)
    with output.waiting("starting Dagster (--no-dagster does without it)"), signals_raised():
        from pipelines.definitions import build_definitions  # Dagster takes seconds to import
        from pipelines.launcher import run_job

        wanted = {mapping.feed for mapping in feeds}
        definitions = build_definitions(settings, lambda: open_context(settings, output.aside), wanted=wanted)

    def run(mapping: FeedMapping, run_id: str) -> RunReport:
        with output.waiting(f"running {mapping.feed}"):
            status = run_job(definitions, mapping, options, run_id, launched_by)
        with open_context(settings) as workshop:
            return report_of(workshop, mapping, run_id, dagster_status=status)

    for mapping in feeds:
        yield _unless_at_fault(run, mapping, str(uuid4()))


def _unless_at_fault(run: Callable[[FeedMapping, str], RunReport], mapping: FeedMapping, run_id: str) -> RunReport:
    """Return the report of one feed's run; an unexpected exception is that feed's failure, and the next one runs."""
    try:
        with faults_as_errors(lambda: "at work", run_id):
            return run(mapping, run_id)
    except FaultError as fault:
        failed = outcome_of(fault)
        return RunReport(mapping.feed, run_id, failed.name, int(failed.exit_code), failed.message, failed.hint)


def watcher_of(bar: Progress) -> Watcher:
    """Return what moves a bar forward while a run works: by each row that is read, then by each that is owed and settled."""
    read = 0

    def advance(rows: int) -> None:
        nonlocal read
        read += rows
        bar.advance(rows)

    return Watcher(read=advance, owed=lambda rows: bar.expect(read + rows), settled=bar.advance)
