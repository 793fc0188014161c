"""`eventsync prune`: deletes old history; never ledger entries."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from pydantic_core import PydanticCustomError

    from mappings.errors import ConfigError
    from mappings.strict import parse_duration
    from pipelines.cli.output.console import Output
    from pipelines.clock import now
    from pipelines.run.outcome import ExitCode
    from pipelines.settings import current_settings
    from state.database import shown_url
    from state.opening import existing_database
    from state.prune import KeptCounts, PrunedCounts
    from state.prune import prune as prune_state


def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Delete what is older than this: 90d, 26w; at least 1d.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; delete nothing.")] = False,
    as_json: AsJson = False,
) -> int:
    """Delete old history: raw cells of problem rows, accounts of runs, answers of the service, ended backfills.

    For example:

        # What would be deleted
        eventsync prune --older-than 90d --dry-run
        # Once a month, by cron
        eventsync prune --older-than 90d

    Ledger entries, which prevent duplicates, are never deleted: every row keeps its key, body, event id and decisions. Also kept,
    however old: problems on a feed's current list, and runs that its brakes compare with. Runs may work meanwhile. Exit codes:
    0 done, 2 and 6 as for `run`. It can be interrupted and started again at any time.
    """
    settings, output = current_settings(), Output(is_json=as_json)
    try:
        age = parse_duration(older_than)
        before = now() - age
    except (PydanticCustomError, OverflowError) as error:
        raise ConfigError(f"--older-than {older_than}: not an age", hint="write it like 90d, 26w or 36h") from error
    if age < _LEAST:
        raise ConfigError(
            f"--older-than {older_than}: less than a day", hint="use at least 1d: younger rows may still be in progress"
        )
    name = shown_url(settings.state_url)
    with existing_database(settings.state_url) as engine, output.progress("deleting") as bar:
        removed, kept = (
            (PrunedCounts(), KeptCounts()) if engine is None else prune_state(engine, before, bar.advance, is_dry=dry_run)
        )
    output.document(Pruning(state_db=name, before=before, is_dry=dry_run, removed=removed, kept=kept))
    if engine is None:
        output.note(f"there is no state DB at {name} yet: the first run creates it")
        return ExitCode.DONE
    deleted = "would be deleted" if dry_run else "deleted"
    output.table(f"{name}: older than {before:%Y-%m-%d %H:%M} UTC", _lines(removed, kept, deleted))
    if not dry_run and removed != PrunedCounts():
        output.note(_ROOM["sqlite" if settings.state_kind == "sqlite" else "postgresql"])
    return ExitCode.DONE


class Pruning(TypedDict):
    """What older than `before` was deleted, or would be deleted (`is_dry`)."""

    state_db: str
    before: datetime
    is_dry: bool
    removed: PrunedCounts
    kept: KeptCounts


_LEAST = timedelta(days=1)
_WHAT = {
    "problems": ("problem rows, with their raw cells", "they are on their feed's current list"),
    "runs": ("accounts of runs", "the last ones, unfinished ones, and full reads that the brakes compare with"),
    "answers": ("answers of delivered rows", ""),
    "backfills": ("backfills that are done or cancelled", "open ones have slices left"),
}
"""What is deleted, and why some of it is kept though old."""
_ROOM = {
    "sqlite": "later rows reuse the space; `VACUUM` in the sqlite3 shell returns it to the disk",
    "postgresql": "autovacuum frees the space for later rows; `VACUUM FULL` on these tables returns it to the disk",
}


def _lines(removed: PrunedCounts, kept: KeptCounts, deleted: str) -> Iterator[dict[str, object]]:
    for name, (what, why) in _WHAT.items():
        stays = getattr(kept, name, "")
        yield {"what": what, deleted: getattr(removed, name), "kept, though old": stays, "why kept": why if stays else ""}
