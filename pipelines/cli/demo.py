"""`eventsync demo`: two runs of the sample feeds on this machine, without an account."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, DemoFolder

if IS_WORKING:
    from pipelines.cli.output.console import Output
    from pipelines.cli.run import sync_feeds
    from pipelines.cli.run_report import RunReport, sent_in, show_accounts, show_report
    from pipelines.cli.servers import demo_service
    from pipelines.settings import PACKAGED_FEEDS, read_settings


def demo(folder: DemoFolder = Path(".eventsync/demo"), as_json: AsJson = False) -> int:
    """Start the sandbox service, sync the sample feeds through Dagster, and run again to show that nothing is sent twice.

    For example:

        # Three sample feeds, with the outcome of every row
        eventsync demo
        # Only the accounts, as JSON
        eventsync demo --json

    Needs no account and no network. `eventsync ui --demo` keeps the demo running, with the Dagster UI. Exit codes: 0 done, 1 a
    run failed, or the second one sent something.
    """
    output = Output(is_json=as_json)
    with demo_service(folder) as (sandbox, environ):
        output.note(f"The sandbox service listens at {sandbox.base_url}; the feeds are in {PACKAGED_FEEDS}.")
        settings = read_settings(environ, Path.cwd())
        first = sync_feeds(settings, output, "First run: the outcome of every row", show_report)
        second = sync_feeds(settings, output, "Second run: no row has changed, so nothing is sent", show_accounts)
    sent = sum(map(sent_in, second))
    output.document(Demo(first=first, second=second, sent_twice=sent))
    output.note(
        f"\nSecond run: {sent} sent. To see the runs in the Dagster UI and the published pages: make ui (or eventsync ui --demo)"
    )
    if activation := _activation():
        output.note(f"eventsync is not on your PATH yet; before you type its commands: {activation}")
    return 0 if sent == 0 and all(report.exit_code == 0 for report in (*first, *second)) else 1


def _activation() -> str:
    """Return the command that activates the virtual environment of this process, "" if it is active or there is none."""
    programs = Path(sys.prefix) / "bin"
    found, script = shutil.which("eventsync"), programs / "activate"
    if (found and Path(found).parent == programs) or not script.is_file():
        return ""
    return f"source {script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script}"


class Demo(TypedDict):
    """The reports of both runs of the demo; the second one sends nothing."""

    first: Sequence[RunReport]
    second: Sequence[RunReport]
    sent_twice: int
