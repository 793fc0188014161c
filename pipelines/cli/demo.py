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

    Needs no account and no network. Afterwards `eventsync ui --demo` leaves it all running to look at.
    """
    from pipelines.cli.showcase import show_demo  # noqa: PLC0415  # keeps `--help` fast

    return show_demo(folder, as_json=as_json)
