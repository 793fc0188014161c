"""`eventsync prune`: deletes history older than some days; never ledger entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from pydantic_core import PydanticCustomError

    from mappings.errors import ConfigError
    from mappings.strict import parse_duration
    from pipelines.cli.output.console import Output, document_from
    from pipelines.clock import now
    from pipelines.run.outcome import ExitCode
    from pipelines.settings import current_settings
    from state.database import shown_url
    from state.opening import existing_database
    from state.prune import Pruned
    from state.prune import prune as prune_state


def prune(
    older_than: Annotated[str, typer.Option("--older-than", metavar="AGE", help="For example 90d, 26w; at least 1d.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count; take out nothing.")] = False,
    as_json: AsJson = False,
) -> int:
    """Delete old history: raw cells of old problems, accounts of old runs, old answers, ended backfills.

    For example:

        # What would go
        eventsync prune --older-than 90d --dry-run
        # Once a month, by cron
        eventsync prune --older-than 90d

    Nothing that protects against a duplicate is touched: every row keeps its entry, its key, its body, its event id and what
    a person decided. What a feed has on its list stays, however old, and so do the runs that its brakes learn from. Runs may
    be at work meanwhile. Exit codes: 0 done, 2 and 6 as for `run`; cut short or not, it can be started again at any time.
    """
    settings, output = current_settings(), Output(json=as_json)
    try:
        age = parse_duration(older_than)
        before = now() - age
    except (PydanticCustomError, OverflowError) as error:
        raise ConfigError(f"--older-than {older_than}: that is no age", hint="for example 90d, 26w, 36h") from error
    if age < _LEAST:
        raise ConfigError(f"--older-than {older_than}: less than a day", hint="what is so young may be under way: 1d at least")
    name = shown_url(settings.state_url)
    with existing_database(settings.state_url) as engine, output.progress("taking out") as bar:
        found = Pruned() if engine is None else prune_state(engine, before, bar.advance, is_dry=dry_run)
    removed = document_from(PrunedCounts, found)
    kept = KeptCounts(problems=found.standing_problems, runs=found.telling_runs, backfills=found.open_backfills)
    output.document(Pruning(state_db=name, before=before, is_dry=dry_run, removed=removed, kept=kept))
    if engine is None:
        output.note(f"there is no state DB at {name} yet: the first run makes it")
        return ExitCode.DONE
    columns = ("what", "would be taken out" if dry_run else "taken out", "stays, though as old", "because")
    output.table(f"{name}: older than {before:%Y-%m-%d %H:%M} UTC", columns, _lines(removed, kept))
    if not dry_run and any(removed.values()):
        output.note(_ROOM["sqlite" if settings.state_kind == "sqlite" else "postgresql"])
    return ExitCode.DONE


class PrunedCounts(TypedDict):
    """How many went: raw cells of old problems, accounts of old runs, answers of delivered rows, backfills that are done or
    cancelled, and undelivered notices that something is over.
    """

    problems: int
    runs: int
    answers: int
    backfills: int
    notices: int


class KeptCounts(TypedDict):
    """How many stayed though as old: on a feed's present list, needed by its next run or its brakes, with slices left."""

    problems: int
    runs: int
    backfills: int


class Pruning(TypedDict):
    """What was taken out that is older than `before`, or would be (`is_dry`)."""

    state_db: str
    before: datetime
    is_dry: bool
    removed: PrunedCounts
    kept: KeptCounts


_LEAST = timedelta(days=1)
_WHAT = {
    "problems": ("problem rows, with their raw cells", "they are on their feed's present list"),
    "runs": ("accounts of runs", "the last ones, those under way, and whole reads that the brakes learn from"),
    "answers": ("answers of delivered rows", ""),
    "backfills": ("backfills that are done or cancelled", "slices of theirs are left"),
    "notices": ("notices of what is over, undelivered", ""),
}
"""What may go, and why some of it stays though as old."""
_ROOM = {
    "sqlite": "the room is used again by later rows; `VACUUM` in the sqlite3 shell gives it back to the disk",
    "postgresql": "autovacuum makes the room free for later rows; `VACUUM FULL` on these tables gives it back to the disk",
}


def _lines(removed: Mapping[str, Any], kept: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    for name, (what, why) in _WHAT.items():
        stays = kept.get(name, "")
        yield what, removed[name], stays, why if stays else ""
