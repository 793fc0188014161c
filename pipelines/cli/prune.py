"""`eventsync prune`: deletes history older than some days; never ledger entries."""

from __future__ import annotations

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
    from state.archive.prune import Pruned
    from state.archive.prune import prune as prune_state
    from state.database import existing_database, shown_url


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
    before = parse_age(older_than, now())
    name = shown_url(settings.state_url)
    with existing_database(settings.state_url) as engine, output.progress("taking out") as bar:
        found = Pruned() if engine is None else prune_state(engine, before, bar.advance, is_dry=dry_run)
    went = PrunedCounts(
        problems=found.problems,
        runs=found.runs,
        answers=found.answers,
        backfills=found.backfills,
        notices=found.notices,
    )
    stayed = KeptCounts(problems=found.standing_problems, runs=found.telling_runs, backfills=found.open_backfills)
    output.document(Pruning(state_db=name, before=before, is_dry=dry_run, removed=went, kept=stayed))
    if engine is None:
        output.note(f"there is no state DB at {name} yet: the first run makes it")
        return ExitCode.DONE
    output.table(f"{name}: older than {before:%Y-%m-%d %H:%M} UTC", _columns(is_dry=dry_run), _lines(found))
    if not dry_run and any(went.values()):
        output.note(_room(settings.state_kind))
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


_COLUMNS = ("what", "", "stays, though as old", "because")
_LEAST = timedelta(days=1)


def parse_age(text: str, today: datetime) -> datetime:
    """Return the instant that was so long ago, for `90d` or `26w`.

    Raises:
        ConfigError: it is no age, less than a day, or longer than the calendar.
    """
    try:
        age = parse_duration(text)
        before = today - age
    except (PydanticCustomError, OverflowError) as error:
        raise ConfigError(f"--older-than {text}: that is no age", hint="for example 90d, 26w, 36h") from error
    if age < _LEAST:
        raise ConfigError(f"--older-than {text}: less than a day", hint="what is so young may be under way: 1d at least")
    return before


def _columns(*, is_dry: bool) -> tuple[str, ...]:
    what, _, *rest = _COLUMNS
    return what, "would be taken out" if is_dry else "taken out", *rest


def _lines(found: Pruned) -> list[tuple[object, ...]]:
    listed = "they are on their feed's present list"
    left = "slices of theirs are left"
    asked = "the last ones, those under way, and whole reads that the brakes learn from"
    return [
        (
            "problem rows, with their raw cells",
            found.problems,
            found.standing_problems,
            listed if found.standing_problems else "",
        ),
        ("accounts of runs", found.runs, found.telling_runs, asked if found.telling_runs else ""),
        ("answers of delivered rows", found.answers, "", ""),
        ("backfills that are done or cancelled", found.backfills, found.open_backfills, left if found.open_backfills else ""),
        ("notices of what is over, unheard", found.notices, "", ""),
    ]


def _room(kind: str) -> str:
    if kind == "sqlite":
        return "the room is used again by later rows; `VACUUM` in the sqlite3 shell gives it back to the disk"
    return "autovacuum makes the room free for later rows; `VACUUM FULL` on these tables gives it back to the disk"
