"""`eventsync demo`: the whole product on this machine, twice, without an account."""

from __future__ import annotations

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
    with demo_service(folder) as (sandbox, environ):
        output.note(f"The sandbox service listens at {sandbox.base_url}; the feeds are in {PACKAGED_FEEDS}.")
        settings = read_settings(environ, Path.cwd())
        first = sync_feeds(settings, output, "First run: every row ends somewhere", show_report)
        second = sync_feeds(settings, output, "Second run: nothing has changed, nothing is sent", show_accounts)
    sent = sum(map(sent_in, second))
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


"""The service's folder inside the demo's, by which a demo's folder is recognised."""
