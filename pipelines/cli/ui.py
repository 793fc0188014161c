"""`eventsync ui`: runs the Dagster UI for your feeds, or for the demo, until Ctrl-C."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.options import IS_WORKING, DemoFolder

if IS_WORKING:
    from pipelines.before_serving import prepare_dagster_home
    from pipelines.cli.feed_files import require_folder
    from pipelines.cli.output.console import Output
    from pipelines.cli.run import sync_feeds
    from pipelines.cli.run_report import show_accounts
    from pipelines.cli.servers import demo_service, leave_running
    from pipelines.run.context import require_service
    from pipelines.settings import current_settings, read_settings


def ui(
    demo: Annotated[bool, typer.Option("--demo", help="Use the demo's feeds and sandbox instead of yours.")] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the Dagster UI; if it is taken, a free one is used.")
    ] = 3000,
    folder: DemoFolder = Path(".eventsync/demo"),
) -> int:
    """Run the Dagster UI and its daemon (schedules, queue) until Ctrl-C; start either again if it ends.

    For example:

        # Your feeds, with the configured service
        eventsync ui
        # The demo, with the sandbox's pages
        eventsync ui --demo

    `make ui` runs the demo. Exit codes: 0 after Ctrl-C, 2 it cannot start.
    """
    if demo:
        with demo_service(folder) as (sandbox, environ):
            settings = read_settings(environ, Path.cwd())
            sync_feeds(settings, Output(), "Syncing the sample feeds", show_accounts)
            own = f"The demo's own state, service and runs are in {folder}; `eventsync ui` shows your own runs."
            return leave_running(settings, environ, port, [f"The published events: {sandbox.base_url}/", own])
    settings = current_settings()
    require_folder(settings)
    require_service(settings)
    prepare_dagster_home(settings.dagster_home)
    return leave_running(settings, os.environ, port, [])
