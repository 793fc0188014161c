"""`eventsync demo`: the whole thing on this machine, twice, without an account. What it shows is `showcase`'s."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.flags import AsJson


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
    from pipelines.cli.showcase import show_demo  # noqa: PLC0415  # keeps `--help` fast

    return show_demo(folder, as_json=as_json)
