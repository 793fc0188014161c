"""`eventsync state`: verify, export, import, migrate the state DB as a whole, or rename its service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import ConfigError
    from pipelines.cli.output.console import Output
    from pipelines.clock import now
    from pipelines.run.outcome import ExitCode
    from pipelines.settings import current_settings
    from state.archive.export import export_to, import_from
    from state.archive.moving import migrate as migrate_database
    from state.archive.moving import rename_service
    from state.archive.verify import Finding, examine
    from state.database import existing_database, open_database, shown_url


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


class Renamed(FromTo):
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
    output.document(Verified(state_db=name, schema=found.schema, entries=found.entries, runs=found.runs, findings=found.findings))
    looked_at = f"{name}: schema {found.schema or 'none'}, {found.entries:,} entries, {found.runs:,} runs"
    if not found.findings:
        output.note(f"{looked_at}: all is as it must be")
        return ExitCode.DONE
    rows = [(one.check, one.feed, one.which, one.problem) for one in found.findings]
    output.table(f"{looked_at}: {len(rows):,} finding{'s' * (len(rows) != 1)}", _COLUMNS_of_verifying, rows)
    output.note(_WHAT_HELPS)
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
    with existing_database(settings.state_url) as engine, output.progress("writing rows") as bar:
        if engine is None:
            raise _nothing_at(name)
        done = export_to(engine, file, now(), bar.expect, bar.advance)
    size = file.stat().st_size
    output.document(Exported(state_db=name, file=file, bytes=size, rows=done))
    _tell(output, f"{name} → {file}, {size / 1_000_000:,.1f} MB", done)
    return ExitCode.DONE


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
    engine = open_database(settings.state_url)
    try:
        with output.progress("writing rows, then reading them back") as bar:
            done = import_from(engine, file, bar.advance)
    finally:
        engine.dispose()
    output.document(Imported(state_db=name, file=file, rows=done))
    _tell(output, f"{file} → {name}", done)
    output.note("what was written was read back and is the same; `eventsync state verify` looks at what it says")
    return ExitCode.DONE


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
    name, there = shown_url(settings.state_url), _shown(url)
    with existing_database(settings.state_url) as source:
        if source is None:
            raise _nothing_at(name)
        target = open_database(url)
        try:
            with output.progress("copying rows, then comparing them") as bar:
                done = migrate_database(source, target, now, bar.expect, bar.advance)
        finally:
            target.dispose()
    output.document({"from": name, "to": there, "rows": done})
    _tell(output, f"{name} → {there}", done)
    output.note(
        f"every row is there, and the same. Now set EVENTSYNC_STATE_URL to {there} wherever eventsync runs, "
        f"and take {name} away: a run that goes on with it would not know what the others have sent"
    )
    return ExitCode.DONE


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
    name = shown_url(settings.state_url)
    with existing_database(settings.state_url) as engine:
        if engine is None:
            raise _nothing_at(name)
        done = rename_service(engine, old, new, now)
    document = {"state_db": name, "from": done.old, "to": done.new, "feeds": done.feeds, "rows": done.rows}
    output.document(document)
    output.table(f"{done.old} → {done.new}: {', '.join(done.feeds)}", _COLUMNS, list(done.rows.items()))
    output.note(f"now set EVENT_API_BASE_URL to {done.new} wherever eventsync runs")
    return ExitCode.DONE


_COLUMNS = ("table", "rows")


def _shown(url: str) -> str:
    try:
        return shown_url(url)
    except ConfigError as error:
        raise ConfigError(str(error).replace("EVENTSYNC_STATE_URL", "URL"), hint=error.hint) from error


def _nothing_at(name: str) -> ConfigError:
    return ConfigError(f"there is no state DB at {name}", hint="set EVENTSYNC_STATE_URL to the one that is meant")


def _tell(output: Output, title: str, done: dict[str, int]) -> None:
    rows = [(table, count) for table, count in done.items() if count]
    output.table(title, _COLUMNS, [*rows, ("in all", sum(done.values()))])


_COLUMNS_of_verifying = ("what", "feed", "row or run", "finding")
_WHAT_HELPS = "findings in the file or its tables: restore a backup; any other: please report them as a fault of eventsync"
HELP = "The state DB as a whole: sound, saved, moved."
COMMANDS = (verify, compact, export, import_, migrate, rename)
