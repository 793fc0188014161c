"""Every command of `eventsync` by its full name, as the command line itself has it."""

from __future__ import annotations

from collections.abc import Iterator

import typer
from typer.core import TyperCommand, TyperGroup

from pipelines.cli.app import app


def every_command(group: TyperGroup | None = None, before: str = "") -> Iterator[tuple[str, TyperCommand]]:
    """Yield the verbs, and the verbs of groups as `state verify`."""
    group = group or typer.main.get_command(app)
    with typer.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, TyperGroup):
                yield from every_command(command, f"{before}{name} ")
            else:
                yield f"{before}{name}", command
