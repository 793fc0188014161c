"""The commands `state export`, `import`, `migrate` and `rename` at work: a state DB or its service is elsewhere from now on."""

from __future__ import annotations

from pathlib import Path

from mappings.errors import ConfigError
from pipelines.cli.output import Output
from pipelines.clock import now
from pipelines.run.outcome import ExitCode
from pipelines.settings import current_settings
from state.archive.export_file import Carried, export_to, import_from
from state.archive.moving import migrate, rename_service
from state.database import existing_database, open_database, shown_url

_COLUMNS = ("table", "rows")


def show_export(file: Path, *, as_json: bool) -> int:
    """Write the state DB to a file and tell what is in it; return 0.

    Raises:
        ConfigError: there is no state DB, or the file is there already or cannot be written.
        SyncError: the state DB cannot be read.
    """
    settings, output = current_settings(), Output(json=as_json)
    name = shown_url(settings.state_url)
    with existing_database(settings.state_url) as engine, output.progress("writing rows") as bar:
        if engine is None:
            raise _nothing_at(name)
        done = export_to(engine, file, now(), bar.expect, bar.advance)
    size = file.stat().st_size
    output.document({"state_db": name, "file": file, "bytes": size, "rows": done.rows})
    _tell(output, f"{name} → {file}, {size / 1_000_000:,.1f} MB", done)
    return ExitCode.DONE


def show_import(file: Path, *, as_json: bool) -> int:
    """Fill the state DB from a file and tell what was in it; return 0.

    Raises:
        ConfigError: the file is none of ours, damaged or of another version, or the state DB is not empty.
        SyncError: the state DB cannot be written.
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
    output.document({"state_db": name, "file": file, "rows": done.rows})
    _tell(output, f"{file} → {name}", done)
    output.note("what was written was read back and is the same; `eventsync state verify` looks at what it says")
    return ExitCode.DONE


def show_migration(url: str, *, as_json: bool) -> int:
    """Copy the state DB to an empty one at `url`, compare the two, and tell what to do next; return 0.

    Raises:
        HeldByAnotherError: a run is at work.
        ConfigError: there is no state DB, or the other one is not empty.
        SyncError: either of them cannot be read or written.
    """
    settings, output = current_settings(), Output(json=as_json)
    name, there = shown_url(settings.state_url), _shown(url)
    with existing_database(settings.state_url) as source:
        if source is None:
            raise _nothing_at(name)
        target = open_database(url)
        try:
            with output.progress("copying rows, then comparing them") as bar:
                done = migrate(source, target, now, bar.expect, bar.advance)
        finally:
            target.dispose()
    output.document({"from": name, "to": there, "rows": done.rows})
    _tell(output, f"{name} → {there}", done)
    output.note(
        f"every row is there, and the same. Now set EVENTSYNC_STATE_URL to {there} wherever eventsync runs, "
        f"and take {name} away: a run that goes on with it would not know what the others have sent"
    )
    return ExitCode.DONE


def show_renaming(old: str, new: str, *, as_json: bool) -> int:
    """Record that a service has moved to another address, and print what moved with it; return 0.

    Raises:
        HeldByAnotherError: a run is at work.
        ConfigError: there is no state DB, it knows nothing of the old address, or rows of the new one.
    """
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


def _shown(url: str) -> str:
    try:
        return shown_url(url)
    except ConfigError as error:
        raise ConfigError(str(error).replace("EVENTSYNC_STATE_URL", "URL"), hint=error.hint) from error


def _nothing_at(name: str) -> ConfigError:
    return ConfigError(f"there is no state DB at {name}", hint="set EVENTSYNC_STATE_URL to the one that is meant")


def _tell(output: Output, title: str, done: Carried) -> None:
    rows = [(table, count) for table, count in done.rows.items() if count]
    output.table(title, _COLUMNS, [*rows, ("in all", done.total)])
