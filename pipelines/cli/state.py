"""`eventsync state`: verify, export, import, migrate the state DB as a whole, or rename its service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import ConfigError
    from pipelines.cli.output.console import Output, counted, document_from
    from pipelines.clock import now
    from pipelines.run.outcome import ExitCode
    from pipelines.settings import Settings, current_settings
    from state.database import StateDb, shown_url
    from state.export import export_to, import_from
    from state.moving import migrate as migrate_database
    from state.moving import rename_service
    from state.opening import existing_database, opened_database
    from state.verify import Finding, examine


class Verified(TypedDict):
    """What was looked at, and everything that is not as it must be."""

    state_db: str
    schema: str | None
    entries: int
    runs: int
    findings: Sequence[Finding]


class Exported(TypedDict):
    """The file that the state DB was written to, with the number of rows of each table."""

    state_db: str
    file: Path
    bytes: int
    rows: Mapping[str, int]


class Imported(TypedDict):
    """The file that the state DB was filled from."""

    state_db: str
    file: Path
    rows: Mapping[str, int]


FromTo = TypedDict("FromTo", {"from": str, "to": str})


class Migrated(FromTo):
    """From where to where the state DB was moved."""

    rows: Mapping[str, int]


class RenamedService(FromTo):
    """From where to where a service has moved, the feeds that moved with it, and how many rows of each table."""

    state_db: str
    feeds: tuple[str, ...]
    rows: Mapping[str, int]


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
    settings, output = current_settings(), Output(json=as_json)
    name = shown_url(settings.state_url)
    with existing_database(settings.state_url, upgrades=False) as engine:
        found = None if engine is None else examine(engine)
    if found is None:
        output.document(Verified(state_db=name, schema=None, entries=0, runs=0, findings=[]))
        output.note(f"there is no state DB at {name} yet: the first run makes it")
        return ExitCode.DONE
    output.document(document_from(Verified, found, state_db=name))
    summary = f"{name}: schema {found.schema or 'none'}, {found.entries:,} entries, {found.runs:,} runs"
    if not found.findings:
        output.note(f"{summary}: all is as it must be")
        return ExitCode.DONE
    rows = [(one.check, one.feed, one.which, one.problem) for one in found.findings]
    output.table(f"{summary}: {counted(len(rows), 'finding')}", ("what", "feed", "row or run", "finding"), rows)
    output.note("findings in the file or its tables: restore a backup; any other: please report them as a fault of eventsync")
    return ExitCode.ATTENTION


def compact(as_json: AsJson = False) -> int:  # noqa: ARG001  # scripts of 0.1 may pass --json; the error is then a document
    """Gone since 0.2: it packed the bodies of delivered rows, which are stored as they were sent again.

    For example:

        # In its place, to make the state DB smaller
        eventsync prune --older-than 90d

    Scripts that call it can drop the call: nothing needs it. Exit code: 2.
    """
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
    settings, output = current_settings(), Output(json=as_json)
    name = shown_url(settings.state_url)
    with _present(settings) as engine, output.progress("writing rows") as bar:
        done = export_to(engine, file, now(), bar.expect, bar.advance)
    size = file.stat().st_size
    output.document(Exported(state_db=name, file=file, bytes=size, rows=done))
    return _show(output, f"{name} → {file}, {size / 1_000_000:,.1f} MB", done)


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
    settings, output = current_settings(), Output(json=as_json)
    name = shown_url(settings.state_url)
    if not file.is_file():
        raise ConfigError(f"there is no file {file}", hint="`eventsync state export FILE` writes one")
    with opened_database(settings.state_url) as engine, output.progress("writing rows, then reading them back") as bar:
        done = import_from(engine, file, bar.advance)
    output.document(Imported(state_db=name, file=file, rows=done))
    advice = "what was written was read back and is the same; `eventsync state verify` looks at what it says"
    return _show(output, f"{file} → {name}", done, advice)


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
    settings, output = current_settings(), Output(json=as_json)
    name = shown_url(settings.state_url)
    try:
        there = shown_url(url)
    except ConfigError as error:
        raise ConfigError(str(error).replace("EVENTSYNC_STATE_URL", "URL"), hint=error.hint) from error
    with (
        _present(settings) as source,
        opened_database(url) as target,
        output.progress("copying rows, then comparing them") as bar,
    ):
        done = migrate_database(source, target, now, bar.expect, bar.advance)
    output.document({"from": name, "to": there, "rows": done})
    advice = (
        f"every row is there, and the same. Now set EVENTSYNC_STATE_URL to {there} wherever eventsync runs, "
        f"and take {name} away: a run that goes on with it would not know what the others have sent"
    )
    return _show(output, f"{name} → {there}", done, advice)


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
    old, new = service
    settings, output = current_settings(), Output(json=as_json)
    with _present(settings) as engine:
        done = rename_service(engine, old, new, now)
    name = shown_url(settings.state_url)
    output.document({"state_db": name, "from": done.old, "to": done.new, "feeds": done.feeds, "rows": done.rows})
    output.table(f"{done.old} → {done.new}: {', '.join(done.feeds)}", _COLUMNS, list(done.rows.items()))
    output.note(f"now set EVENT_API_BASE_URL to {done.new} wherever eventsync runs")
    return ExitCode.DONE


_COLUMNS = ("table", "rows")


@contextmanager
def _present(settings: Settings) -> Iterator[StateDb]:
    """Open the state DB, which must be there."""
    with existing_database(settings.state_url) as engine:
        if engine is None:
            name = shown_url(settings.state_url)
            raise ConfigError(f"there is no state DB at {name}", hint="set EVENTSYNC_STATE_URL to the one that is meant")
        yield engine


def _show(output: Output, title: str, done: dict[str, int], *advice: str) -> int:
    rows = [(table, count) for table, count in done.items() if count]
    output.table(title, _COLUMNS, [*rows, ("in all", sum(done.values()))])
    output.note(*advice)
    return ExitCode.DONE


HELP = "The state DB as a whole: sound, saved, moved."
COMMANDS = (verify, compact, export, import_, migrate, rename)
