"""The command `state verify` at work: the state DB examined, and what was found told.

What is looked at is `state.soundness`'s.
"""

from __future__ import annotations

from pipelines.cli.output import Output
from pipelines.run.outcome import ExitCode
from pipelines.settings import current_settings
from state.archive.verify import Examination, examine
from state.database import existing_database, shown_url

_COLUMNS = ("what", "feed", "row or run", "finding")
_WHAT_HELPS = "findings in the file or its tables: restore a backup; any other: please report them as a fault of eventsync"


def show_findings(*, as_json: bool) -> int:
    """Examine the state DB and show what is not as it must be; return 0 if all is, else 1.

    Raises:
        SyncError: it cannot be read at all.
    """
    settings, output = current_settings(), Output(json=as_json)
    name = shown_url(settings.state_url)
    with existing_database(settings.state_url, upgrades=False) as engine:
        found = None if engine is None else examine(engine)
    if found is None:
        output.document({"state_db": name, "schema": None, "entries": 0, "runs": 0, "findings": []})
        output.note(f"there is no state DB at {name} yet: the first run makes it")
        return ExitCode.DONE
    return _show(output, name, found)


def _show(output: Output, name: str, found: Examination) -> int:
    output.document(
        {"state_db": name, "schema": found.schema, "entries": found.entries, "runs": found.runs, "findings": found.findings}
    )
    looked_at = f"{name}: schema {found.schema or 'none'}, {found.entries:,} entries, {found.runs:,} runs"
    if not found.findings:
        output.note(f"{looked_at}: all is as it must be")
        return ExitCode.DONE
    rows = [(one.check, one.feed, one.which, one.problem) for one in found.findings]
    output.table(f"{looked_at}: {len(rows):,} finding{'s' * (len(rows) != 1)}", _COLUMNS, rows)
    output.note(_WHAT_HELPS)
    return ExitCode.ATTENTION
