"""`eventsync prune`: the past made shorter. What may be taken out is `state.pruning`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.flags import AsJson


def prune(
    older_than: Annotated[str, typer.Option("--older-than", metavar="AGE", help="For example 90d, 26w; at least 1d.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count; take out nothing.")] = False,
    as_json: AsJson = False,
) -> int:
    """Take out what only tells of the past: raw cells of old problems, accounts of old runs, old answers, ended backfills.

    For example:

        # What would go
        eventsync prune --older-than 90d --dry-run
        # Once a month, by cron
        eventsync prune --older-than 90d

    Nothing that protects against a duplicate is touched: every row keeps its entry, its key, its body, its event id and what
    a person decided. What a feed has on its list stays, however old, and so do the runs that its brakes learn from. Runs may
    be at work meanwhile. Exit codes: 0 done, 2 and 6 as for `run`; cut short or not, it can be started again at any time.
    """
    from pipelines.cli.pruning import show_pruning  # noqa: PLC0415  # keeps `--help` fast

    return show_pruning(older_than, is_dry=dry_run, as_json=as_json)
