"""`eventsync demo`: the whole product on this machine, twice, without an account. Also what `eventsync ui` starts."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import ConfigError
    from mappings.yaml.loader import load_folder
    from pipelines.before_serving import prepare_dagster_home
    from pipelines.cli.feed_files import require_folder
    from pipelines.cli.output.console import Output
    from pipelines.cli.reload import watching
    from pipelines.cli.run import run_in_process
    from pipelines.cli.run_report import RunReport, show_accounts, show_report
    from pipelines.cli.subprocesses import Sandbox, free_port, running_dagster, running_sandbox
    from pipelines.clock import monotonic_s
    from pipelines.orchestration.webserver import note_path, read_folder_version
    from pipelines.run.options import RunOptions
    from pipelines.run.service import require_service
    from pipelines.run.signals import wait_to_be_stopped
    from pipelines.settings import PACKAGED_FEEDS, Settings, current_settings, read_settings
    from pipelines.telemetry.logs import configure_logs
    from pipelines.telemetry.metrics import MetricsPage, serving_metrics
    from state.private_files import make_private_folder


def demo(
    folder: Annotated[Path, typer.Option(help="Where the demo keeps its state; emptied first.")] = Path(".eventsync/demo"),
    as_json: AsJson = False,
) -> int:
    """Start the sandbox service, sync the sample feeds through Dagster, then run again: nothing is sent twice.

    For example:

        # Every row of three sample feeds ends somewhere
        eventsync demo
        # The accounts alone, for a script
        eventsync demo --json

    Needs no account and no network. Afterwards `eventsync ui --demo` leaves it all running to look at. Exit codes: 0, or 1 if a
    run did not end well, or the second one has sent something.
    """
    output = Output(json=as_json)
    with stage_set(folder) as (sandbox, environ):
        output.note(f"The sandbox service listens at {sandbox.base_url}; the feeds are in {PACKAGED_FEEDS}.")
        settings = read_settings(environ, Path.cwd())
        first = play_round(settings, output, "First run: every row ends somewhere", show_report)
        second = play_round(settings, output, "Second run: nothing has changed, nothing is sent", show_accounts)
    sent = sum(sent_in(report) for report in second)
    output.document(Demo(first=first, second=second, sent_twice=sent))
    output.note(
        f"\nSecond run: {sent} sent. See it all in the Dagster UI, with the published pages: make ui (or eventsync ui --demo)"
    )
    return 0 if sent == 0 and all(report.exit_code == 0 for report in (*first, *second)) else 1


class Demo(TypedDict):
    """Both rounds of the demo; in the second one nothing is sent."""

    first: Sequence[RunReport]
    second: Sequence[RunReport]
    sent_twice: int


SANDBOX = "sandbox"
"""The service's folder inside the demo's, by which a demo's folder is recognised."""


def show_demo_ui(folder: Path, port: int) -> int:
    """Run the demo, then leave the sandbox and the Dagster UI running until Ctrl-C.

    Raises:
        SyncError: something does not start.
    """
    output = Output()
    with stage_set(folder) as (sandbox, environ):
        settings = read_settings(environ, Path.cwd())
        play_round(settings, output, "Syncing the sample feeds", show_accounts)
        return leave_running(settings, environ, port, [f"The published events: {sandbox.base_url}/"])


def show_ui(port: int) -> int:
    """Run the Dagster UI over the configured feeds until Ctrl-C.

    Raises:
        SyncError: the service is not configured, there is no folder of mapping files, or the UI does not start.
    """
    settings = current_settings()
    require_folder(settings)
    require_service(settings)
    prepare_dagster_home(settings.dagster_home)
    return leave_running(settings, os.environ, port, [])


@contextmanager
def stage_set(folder: Path, feeds: Path | None = None) -> Iterator[tuple[Sandbox, Mapping[str, str]]]:
    """Empty the demo's folder and start a sandbox there; yields it with the environment that points at it and at `feeds`."""
    home = _emptied(folder.resolve())
    with running_sandbox(home / SANDBOX) as sandbox:
        environ = {
            **os.environ,
            "EVENT_API_BASE_URL": sandbox.base_url,
            "EVENT_API_KEY": sandbox.api_key,
            "EVENTSYNC_FEEDS": str(feeds or PACKAGED_FEEDS),
            "EVENTSYNC_STATE_URL": f"sqlite:///{home / 'state.db'}",
            "EVENTSYNC_NAMESPACE": "demo",
            "DAGSTER_HOME": str(home / "dagster"),
        }
        prepare_dagster_home(home / "dagster")
        configure_logs(read_settings(environ, Path.cwd()))
        yield sandbox, environ


def _emptied(home: Path) -> Path:
    """Return the folder with nothing in it; refuse one that holds anything but an earlier demo.

    Raises:
        ConfigError: it holds other files, or cannot be made.
    """
    try:
        if home.exists() and any(home.iterdir()) and not (home / SANDBOX).is_dir():
            raise ConfigError(f"{home} is not empty, and no demo was there", hint="choose a folder of its own with --folder")
        shutil.rmtree(home, ignore_errors=True)
        make_private_folder(home)
    except OSError as error:
        raise ConfigError(f"{home} cannot be made: {error.strerror}", hint="choose another place with --folder") from error
    return home


if IS_WORKING:
    Show = Callable[[Output, RunReport], None]


def play_round(settings: Settings, output: Output, title: str, show: Show) -> list[RunReport]:
    """Run every feed there is, and show each report."""
    output.note(f"\n{title}")
    feeds = [feed.mapping for feed in load_folder(settings.feeds).feeds]
    reports = list(run_in_process(settings, feeds, RunOptions(), output))
    for report in reports:
        show(output, report)
    return reports


def sent_in(report: RunReport) -> int:
    """Return how many rows a run has sent."""
    account = report.publish or {}
    return account.get("new", 0) + account.get("carried_over", 0) - account.get("pending", 0)


def leave_running(settings: Settings, environ: Mapping[str, str], wanted_port: int, lines: list[str]) -> int:
    """Run the Dagster UI until Ctrl-C, reloading it when mapping files change; print its address and further `lines`."""
    output = Output()
    seen = read_folder_version(settings.feeds)
    with ExitStack() as running:
        with output.waiting("starting the Dagster UI"):
            url = running.enter_context(running_dagster(settings.dagster_home, environ, free_port(wanted_port)))
        monitored = running.enter_context(_monitored(settings))
        note_path(settings).write_text(json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8")
        feeds = f"Feeds, watched:       {settings.feeds}"
        for line in (f"\nThe Dagster UI:       {url}/", *lines, *monitored, feeds, *map(str, seen.broken), "Stop with Ctrl-C."):
            output.note(line)
        try:
            with watching(url, settings.feeds, seen.digest, output.note):
                wait_to_be_stopped()
        except KeyboardInterrupt:
            output.note("stopping")
        finally:
            note_path(settings).unlink(missing_ok=True)
    return 0


@contextmanager
def _monitored(settings: Settings) -> Iterator[list[str]]:
    """Serve the numbers of `eventsync metrics` while the block runs, where a port is set; yield the lines to print."""
    if settings.metrics_port is None:
        yield []
        return
    configure_logs(settings)
    with serving_metrics(MetricsPage(settings, monotonic_s).gauges, "127.0.0.1", settings.metrics_port) as url:
        yield [f"For Prometheus:       {url}"]
