"""Running feeds for a person: which ones, through Dagster or not, with a bar on long work, and one report at the end.

The verb's words are `run`'s; what a run does is `pipelines.feed_run`'s; how a report looks `run_report`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import httpx

from mappings.errors import ConfigError
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import LoadedFeed
from pipelines.cli.chosen import chosen_feeds, folder_of
from pipelines.cli.output import Output, Progress
from pipelines.cli.rehearsing import rehearse_feeds
from pipelines.cli.run_notices import tell_after, tell_before
from pipelines.cli.run_report import RunReport, report_of, show_reports
from pipelines.cli.severity import worst
from pipelines.clock import new_run_id, now
from pipelines.orchestration.dagster_home import prepare_dagster_home
from pipelines.orchestration.webserver import (
    Launch,
    Webserver,
    launch_config,
    launch_tags,
    launched_job,
    wanted_assets,
    webserver_url,
)
from pipelines.run.context import open_context, require_service
from pipelines.run.feed_run import FeedRun, RunIdentity, Watcher
from pipelines.run.options import RunOptions
from pipelines.run.outcome import ExitCode, FaultError, faults_as_errors, outcome_of
from pipelines.run.signals import is_stop_asked, leaving_on_second_signal, signals_raised
from pipelines.settings import Settings, current_settings
from pipelines.telemetry.logs import configure_logs


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for."""

    feeds: tuple[str, ...]
    options: RunOptions
    is_all: bool
    is_dry: bool
    uses_dagster: bool
    as_json: bool
    launched_by: str = "cli"


def run_feeds(request: Request) -> int:
    """Run every feed asked for, one after another; return the exit code of the worst.

    Whenever it is interrupted there is a report of what was done until then.

    Raises:
        SyncError: nothing could be run at all.
    """
    output = Output(json=request.as_json)
    said = _Said(output, [])
    with leaving_on_second_signal(said.at_last):
        try:
            with signals_raised():
                settings = current_settings()
                configure_logs(settings)
                folder = folder_of(settings, () if request.is_all else request.feeds)
                feeds = _asked(request, chosen_feeds(folder, request.feeds))
                require_service(settings)
            if request.is_dry:
                return rehearse_feeds(settings, feeds, request.options, output)
            runner = runner_of(request, settings, output)
            tell_before(settings, feeds)
            said.take(runner(feeds))
        except KeyboardInterrupt:
            return said.interrupted()
        broken = folder.broken if request.is_all else ()
        exit_code = said.reports_and_code(is_any_broken=bool(broken))
        for error in broken:
            output.error(error)
        tell_after(settings, feeds, said.reports, broken if request.is_all else None)
        return exit_code


@dataclass(slots=True)
class _Said:
    """The reports so far, and whether they are printed: they are once, however the command ends."""

    output: Output
    reports: list[RunReport]
    is_out: bool = False

    def take(self, reports: Iterable[RunReport]) -> None:
        """Take the reports as they come; a person who stops one feed does not want the next one begun."""
        for report in reports:
            self.reports.append(report)
            if is_stop_asked() or report.exit_code == ExitCode.INTERRUPTED:
                break

    def reports_and_code(self, *, is_any_broken: bool) -> int:
        """Print what was done; return the exit code of the worst."""
        exit_code = worst({report.exit_code for report in self.reports} | ({2} if is_any_broken else set()))
        self.is_out = True
        show_reports(self.output, self.reports, exit_code)
        return exit_code

    def interrupted(self) -> int:
        """Print what was done before it was interrupted between two runs, or before the first."""
        self.is_out = True
        show_reports(self.output, self.reports, ExitCode.INTERRUPTED)
        self.output.aside("interrupted; the state is intact: run again to go on")
        return ExitCode.INTERRUPTED

    def at_last(self) -> None:
        """Print the document, in place of whatever the process hangs in."""
        if not self.is_out:
            self.output.document({"exit_code": int(ExitCode.INTERRUPTED), "runs": self.reports})


def _asked(request: Request, feeds: Sequence[LoadedFeed]) -> list[FeedMapping]:
    if not request.feeds and not request.is_all:
        known = ", ".join(feed.mapping.feed for feed in feeds) or "none"
        raise ConfigError("no feed was named", hint=f"name one or more, or say --all; the feeds here: {known}")
    if request.feeds and request.is_all:
        raise ConfigError("--all and names of feeds exclude each other", hint="leave out one of them")
    return [feed.mapping for feed in feeds]


Runner = Callable[[Sequence[FeedMapping]], Iterable[RunReport]]


def runner_of(request: Request, settings: Settings, output: Output) -> Runner:
    """Return what runs feeds as asked for: the engine alone, a webserver that is there, or Dagster in this process."""
    if not request.uses_dagster:
        return lambda feeds: _with_engine(settings, feeds, request.options, output)
    url = webserver_url(settings)
    if url:
        http = httpx.Client(base_url=url, timeout=30.0, trust_env=False)
        server = Webserver(http)
        if server.is_there():
            return lambda feeds: _on_webserver(server, settings, feeds, request, output)
        if settings.dagster_url:
            output.note(f"no Dagster webserver answers at {url}; running in this process instead")
    return lambda feeds: run_in_process(settings, feeds, request.options, output, launched_by=request.launched_by)


def _with_engine(settings: Settings, feeds: Sequence[FeedMapping], options: RunOptions, output: Output) -> Iterator[RunReport]:
    def run(mapping: FeedMapping, run_id: str) -> RunReport:
        with output.progress(mapping.feed) as bar, open_context(settings, output.aside) as workshop:
            result = FeedRun(workshop, mapping, RunIdentity(run_id, "cli"), options, watcher_of(bar)).run()
            return report_of(workshop, mapping, run_id, result.outcome)

    for mapping in feeds:
        yield _unless_at_fault(run, mapping, new_run_id(now()))


def _on_webserver(
    server: Webserver, settings: Settings, feeds: Sequence[FeedMapping], request: Request, output: Output
) -> Iterator[RunReport]:
    options = request.options
    for mapping in feeds:
        tags = launch_tags(mapping, options, request.launched_by)
        wanted = tuple(wanted_assets(mapping.feed, options))
        launch = Launch(launched_job(mapping, options), launch_config(options), wanted, tags)
        run_id = server.launch(launch)
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
    """Run each feed's job in this process, on the Dagster instance of the UI; people are told what is waited for."""
    prepare_dagster_home(settings.dagster_home)
    with output.waiting("starting Dagster (--no-dagster does without it)"), signals_raised():
        from pipelines.definitions import build_definitions  # noqa: PLC0415  # Dagster takes seconds to import
        from pipelines.orchestration.in_process import run_job  # noqa: PLC0415  # as above

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
