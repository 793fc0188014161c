"""`eventsync sandbox`: runs the local sandbox service."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import ConfigError
    from sandbox.server import Address, Announcement, serve
    from sandbox.store import StateInUseError
    from sandbox.switches import SwitchError, parse_switches


def sandbox(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 0,
    state: Annotated[
        Path | None, typer.Option(help="Folder that keeps the service's state (default: in memory, lost when it stops).")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "--keys", help="Secret of the default API key (default: a new one).")
    ] = None,
    rate: Annotated[str | None, typer.Option(help="Limit on creating events, for example 20/s.")] = None,
    switches: Annotated[list[str] | None, typer.Option("--set", help="Set a switch, as NAME=VALUE; may be repeated.")] = None,
    as_json: AsJson = False,
) -> int:
    """Run a local copy of the Event Publishing service until Ctrl-C.

    Start it, and set the environment of another shell:

        eventsync sandbox --port 8765 --state .eventsync/sandbox --key rehearsal
        export EVENT_API_BASE_URL=http://127.0.0.1:8765 EVENT_API_KEY=rehearsal

    Simulate trouble: `--set latency_ms=200`, `--rate 20/s`, `--set idempotency=ignore` (all switches: docs/sandbox.md).
    """
    wanted = [*([f"rate_events={rate}"] if rate else []), *(switches or [])]

    def announce(announcement: Announcement) -> None:
        if as_json:
            typer.echo(json.dumps(asdict(announcement)))  # on one line, which a script can wait for
            return
        typer.echo(f"The sandbox listens at {announcement.base_url} (pages and API); stop it with Ctrl-C.")
        typer.echo(f"  export EVENT_API_BASE_URL={announcement.base_url} EVENT_API_KEY={announcement.api_key}")

    try:
        serve(Address(port=port), state, parse_switches(wanted), key, announce)
    except (SwitchError, StateInUseError, OSError) as refusal:
        raise ConfigError(f"the sandbox cannot start: {refusal}", hint="docs/sandbox.md lists its switches") from refusal
    return 0


class SandboxAnnouncement(TypedDict):
    """The address of the sandbox, the secret of its default key, and the process to signal."""

    base_url: str
    api_key: str
    pid: int
