"""`eventsync state`: verifies, exports, imports or migrates the state DB, or renames its service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
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
    from state.verify import Finding, examine, find_left_log


class Verified(TypedDict):
    """What was checked, and every finding."""

    state_db: str
    schema: str | None
    entries: int
    runs: int
    findings: Sequence[Finding]


class Exported(TypedDict):
    """The file that the state DB was written to, and the number of rows of each table."""

    state_db: str
    file: Path
    bytes: int
    rows: Mapping[str, int]


class Imported(TypedDict):
    """The file that the state DB was filled from, and the number of rows of each table."""

    state_db: str
    file: Path
    rows: Mapping[str, int]


FromTo = TypedDict("FromTo", {"from": str, "to": str})


class Migrated(FromTo):
    """The old and the new address of the state DB, and the number of rows of each table."""

    rows: Mapping[str, int]


class RenamedService(FromTo):
    """The old and the new address of the service, the feeds that moved, and the number of rows of each table."""

    state_db: str
    feeds: tuple[str, ...]
    rows: Mapping[str, int]


def verify(as_json: AsJson = False) -> int:
    """Check the whole state DB: its file, its tables, every entry of the ledger, the accounts of every run.

    For example:

        # As a table
        eventsync state verify
        # For a script, before a backup
        eventsync state verify --json

    Derives each idempotency key again from namespace, feed and row key, compares bodies with their fingerprints, and looks for
    event ids used twice. Changes nothing. Exit codes: 0 no findings, 1 findings (each is listed), 2 and 6 as for `run`.
    """
    settings, output = current_settings(), Output(is_json=as_json)
    name = shown_url(settings.state_url)
    with existing_database(settings.state_url, upgrades=False, keeps_log=True) as engine:
        found = None if engine is None else examine(engine)
        if engine and found and found.findings and (left := find_left_log(engine)):
            found = replace(found, findings=(left, *found.findings))
    if found is None:
        output.document(Verified(state_db=name, schema=None, entries=0, runs=0, findings=[]))
        output.note(f"there is no state DB at {name} yet: the first run creates it")
        return ExitCode.DONE
    output.document(document_from(Verified, found, state_db=name))
    summary = f"{name}: schema {found.schema or 'none'}, {found.entries:,} entries, {found.runs:,} runs"
    if not found.findings:
        output.note(f"{summary}: no findings")
        return ExitCode.DONE
    rows = [{"check": one.check, "feed": one.feed, "row or run": one.which, "finding": one.problem} for one in found.findings]
    output.table(f"{summary}: {counted(len(rows), 'finding')}", rows)
    output.note("findings in the file or its tables: restore a backup; any other finding is a bug of eventsync: please report it")
    return ExitCode.ATTENTION


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, for example state.ndjson.gz.")],
    as_json: AsJson = False,
) -> int:
    """Write the whole state DB to one file, which can be imported into SQLite or PostgreSQL.

    For example:

        # A backup, also during runs
        eventsync state export backup.ndjson.gz
        # What is in it
        zcat backup.ndjson.gz | head

    The file is a snapshot of one moment, with a checksum for each table. It never contains API keys, but it contains bodies and
    partners' raw cells: only its owner can read it. Exit codes: 0 done, 2 and 6 as for `run`. An interrupted export leaves no
    file.
    """
    settings, output = current_settings(), Output(is_json=as_json)
    name = shown_url(settings.state_url)
    with _present(settings) as engine, output.progress("writing rows") as bar:
        done = export_to(engine, file, now(), bar.expect, bar.advance)
    size = file.stat().st_size
    output.document(Exported(state_db=name, file=file, bytes=size, rows=done))
    return _show(output, f"{name} → {file}, {size / 1_000_000:,.1f} MB", done)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `eventsync state export` has written.")],
    as_json: AsJson = False,
) -> int:
    """Fill the empty state DB at EVENTSYNC_STATE_URL from an exported file.

    For example:

        # Into a new SQLite file
        EVENTSYNC_STATE_URL=sqlite:///restored.db eventsync state import backup.ndjson.gz

    Everything is imported, or nothing: the file's checksums are compared, and the written rows are read back. Exit codes: 0 done,
    2 the file is damaged or the state DB is not empty, 6 as for `run`.
    """
    settings, output = current_settings(), Output(is_json=as_json)
    name = shown_url(settings.state_url)
    if not file.is_file():
        raise ConfigError(f"there is no file {file}", hint="`eventsync state export FILE` writes one")
    with opened_database(settings.state_url) as engine, output.progress("writing rows, then reading them back") as bar:
        done = import_from(engine, file, bar.advance)
    output.document(Imported(state_db=name, file=file, rows=done))
    advice = "the written rows were read back and are equal; `eventsync state verify` checks their contents"
    return _show(output, f"{file} → {name}", done, advice)


def migrate(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The address of an empty state DB, written like EVENTSYNC_STATE_URL.")
    ],
    as_json: AsJson = False,
) -> int:
    """Copy the state DB from EVENTSYNC_STATE_URL to another address: from SQLite to PostgreSQL, or back.

    For example:

        # From a file to a server; the password is read from PGPASSWORD or ~/.pgpass
        eventsync state migrate postgresql://eventsync@db.example/eventsync
        # From then on
        export EVENTSYNC_STATE_URL=postgresql://eventsync@db.example/eventsync

    Holds every feed meanwhile, so that no run starts, and compares the copy with the original row by row. The original is not
    changed: delete it afterwards, so that no run uses it. Exit codes: 0 done, 2 the new state DB is not empty or cannot be used,
    4 a run is at work, 6 as for `run`. An interrupted migration changes nothing.
    """
    settings, output = current_settings(), Output(is_json=as_json)
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
        f"every row was copied and compared. Now set EVENTSYNC_STATE_URL to {there} wherever eventsync runs, "
        f"and delete {name}: a run that still uses it does not know what other runs have sent"
    )
    return _show(output, f"{name} → {there}", done, advice)


def rename(
    service: Annotated[
        tuple[str, str],
        typer.Option(metavar="OLD NEW", help="The old and the new address of the service, written like EVENT_API_BASE_URL."),
    ],
    as_json: AsJson = False,
) -> int:
    """Record that the service has a new address, so that no row is sent to it again.

    For example:

        # The service has a new host name
        eventsync state rename --service https://api.old.example https://api.new.example
        # From then on
        export EVENT_API_BASE_URL=https://api.new.example

    Moves feeds, rows, images and backfills of all namespaces to the new address; idempotency keys do not change. Exit codes:
    0 done, 2 the state DB has nothing of the old address, or has rows of the new one already, 4 a run is at work, 6 as for
    `run`.
    """
    old, new = service
    settings, output = current_settings(), Output(is_json=as_json)
    with _present(settings) as engine:
        done = rename_service(engine, old, new, now)
    name = shown_url(settings.state_url)
    output.document({"state_db": name, "from": done.old, "to": done.new, "feeds": done.feeds, "rows": done.rows})
    advice = f"now set EVENT_API_BASE_URL to {done.new} wherever eventsync runs"
    return _show(output, f"{done.old} → {done.new}: {', '.join(done.feeds)}", done.rows, advice)


@contextmanager
def _present(settings: Settings) -> Iterator[StateDb]:
    """Open the state DB. Raises `ConfigError` if there is none."""
    with existing_database(settings.state_url) as engine:
        if engine is None:
            name = shown_url(settings.state_url)
            raise ConfigError(f"there is no state DB at {name}", hint="set EVENTSYNC_STATE_URL to the address of the state DB")
        yield engine


def _show(output: Output, title: str, done: Mapping[str, int], *advice: str) -> int:
    counts = {**done, "total": sum(done.values())}
    output.table(title, ({"table": table, "rows": count} for table, count in counts.items() if count or table == "total"))
    output.note(*advice)
    return ExitCode.DONE


HELP = "Verify, export, import or migrate the state DB."
COMMANDS = (verify, export, import_, migrate, rename)
