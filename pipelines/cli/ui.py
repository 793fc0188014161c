"""`eventsync ui`: the Dagster UI over the feeds here, or over the demo, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.options import IS_WORKING, DemoFolder

if IS_WORKING:
    from pipelines.cli.demo import show_demo_ui, show_ui


def ui(
    demo: Annotated[bool, typer.Option("--demo", help="The demo's feeds and sandbox instead of yours.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the Dagster UI; another one if it is taken.")] = 3000,
    folder: DemoFolder = Path(".eventsync/demo"),
) -> int:
    """Run the Dagster UI with its daemon (schedules, queue), until Ctrl-C.

    For example:

        # Your feeds, at the service of the environment
        eventsync ui
        # The demo, with the sandbox's pages
        eventsync ui --demo

    `make ui` is the demo. Exit codes: 0 after Ctrl-C, 2 if it cannot start.
    """
    return show_demo_ui(folder, port) if demo else show_ui(port)
