"""`eventsync state`: the state DB as such, one verb for each thing that is done to the whole of it.

What a verb does stands in a module of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.flags import AsJson


def verify(as_json: AsJson = False) -> int:
    """Look at the whole state DB: its file, its tables, every entry of the ledger, the accounts of every run.

    For example:

        # All of it
        eventsync state verify
        # For a script, before a backup
        eventsync state verify --json

    Keys are made anew from namespace, feed and row key, bodies compared with their fingerprints; no event id may stand
    twice. Changes nothing. Exit codes: 0 all is as it must be, 1 not all (each finding is listed), 2 and 6 as for `run`.
    """
    from pipelines.cli.verifying import show_findings  # noqa: PLC0415  # keeps `--help` fast

    return show_findings(as_json=as_json)


def compact(as_json: AsJson = False) -> int:  # noqa: ARG001 # scripts of 0.1 may pass --json; the error is then a document
    """Gone since 0.2: it packed the bodies of delivered rows, which are stored as they were sent again.

    For example:

        # In its place, to make the state DB smaller
        eventsync prune --older-than 90d

    Scripts that call it can drop the call: nothing needs it. Exit code: 2.
    """
    from mappings.errors import ConfigError  # noqa: PLC0415  # keeps `--help` fast

    raise ConfigError(
        "`state compact` is gone: bodies are stored as they were sent, and nothing needs to be packed",
        hint="drop the call; `eventsync prune --older-than 90d` removes history",
    )


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that is not there yet, for example state.ndjson.gz.")],
    as_json: AsJson = False,
) -> int:
    """Write the whole state DB to one file, from which any SQLite or PostgreSQL can be filled.

    For example:

        # A backup, while runs are at work
        eventsync state export backup.ndjson.gz
        # What is in it
        zcat backup.ndjson.gz | head

    It holds what was so at one moment, with a sum for each table; keys of the service are never in it, bodies and raw cells
    of partners are: only its owner can read it. Exit codes: 0 done, 2 and 6 as for `run`; cut short, it leaves no file.
    """
    from pipelines.cli.carrying import show_export  # noqa: PLC0415  # keeps `--help` fast

    return show_export(file, as_json=as_json)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `eventsync state export` has written.")],
    as_json: AsJson = False,
) -> int:
    """Fill the state DB at EVENTSYNC_STATE_URL, which must be empty, from such a file.

    For example:

        # Into a file that is not there yet
        EVENTSYNC_STATE_URL=sqlite:///restored.db eventsync state import backup.ndjson.gz

    All of it or nothing: the sums in the file are compared, and what was written is read back. Exit codes: 0 done, 2 the
    file is damaged or the state DB is not empty, 6 as for `run`.
    """
    from pipelines.cli.carrying import show_import  # noqa: PLC0415  # keeps `--help` fast

    return show_import(file, as_json=as_json)


def migrate(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Where to: the address of an empty state DB, as EVENTSYNC_STATE_URL.")
    ],
    as_json: AsJson = False,
) -> int:
    """Move the state DB from EVENTSYNC_STATE_URL to another place: from SQLite to PostgreSQL, or back.

    For example:

        # From one machine's file to a server; the password comes from PGPASSWORD or ~/.pgpass
        eventsync state migrate postgresql://eventsync@db.example/eventsync
        # From then on
        export EVENTSYNC_STATE_URL=postgresql://eventsync@db.example/eventsync

    Every feed is held meanwhile, so that no run begins; the copy is compared with its original, row by row. The original stays as
    it is: take it away afterwards, so that no run goes on with it. Exit codes: 0 done, 2 the other place is not empty or
    cannot be used, 4 a run is at work, 6 as for `run`; cut short, nothing has changed.
    """
    from pipelines.cli.carrying import show_migration  # noqa: PLC0415  # keeps `--help` fast

    return show_migration(url, as_json=as_json)


def rename(
    service: Annotated[
        tuple[str, str],
        typer.Option(metavar="OLD NEW", help="The address of the service until now, and from now on, as EVENT_API_BASE_URL."),
    ],
    as_json: AsJson = False,
) -> int:
    """Record that the service has moved to another address, so that no row is new to it.

    For example:

        # The service has another host name
        eventsync state rename --service https://api.old.example https://api.new.example
        # From then on
        export EVENT_API_BASE_URL=https://api.new.example

    The feeds, their rows, images and backfills of all namespaces at the old address are those of the new one, and every key
    stays what it was. It is refused where the state DB knows rows at the new address already. Exit codes: 0 done, 2 nothing
    is known of the old address or rows are known of the new one, 4 a run is at work, 6 as for `run`.
    """
    from pipelines.cli.carrying import show_renaming  # noqa: PLC0415  # keeps `--help` fast

    return show_renaming(*service, as_json=as_json)
