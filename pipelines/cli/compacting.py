"""The command `state compact` at work: the state DB made smaller, and by how much told.

What is packed is `state.compacting`'s.
"""

from __future__ import annotations

from dataclasses import asdict

from pipelines.cli.output import Output
from pipelines.run.outcome import ExitCode
from pipelines.settings import current_settings
from state.archive.compacting import Compaction, compact
from state.database import existing_database, shown_url

_MB = 1_000_000
_COLUMNS = ("bodies packed", "MB less in bodies", "MB before", "MB after")


def show_compaction(*, as_json: bool) -> int:
    """Compact the state DB and tell what it came to; return 0.

    Raises:
        SyncError: it cannot be read or written.
    """
    settings, output = current_settings(), Output(json=as_json)
    name = shown_url(settings.state_url)
    with existing_database(settings.state_url) as engine, output.progress("packing bodies") as bar:
        done = Compaction(0, 0, 0, 0) if engine is None else compact(engine, bar.advance)
    output.document({"state_db": name, **asdict(done)})
    if engine is None:
        output.note(f"there is no state DB at {name} yet: the first run makes it")
        return ExitCode.DONE
    sizes = (f"{size / _MB:,.1f}" for size in (done.spared, done.before, done.after))
    output.table(name, _COLUMNS, [(done.packed, *sizes)])
    return ExitCode.DONE
