"""From the accounts of a drain to the run's outcome: what a person still has to look at.

Errors become outcomes in `outcomes`; here a drain that ended by itself, or stopped for a cause, is judged.
"""

from __future__ import annotations

from mappings.errors import SyncError
from mappings.schema import FeedMapping
from pipelines.outcomes import ExitCode, Outcome, outcome_of
from pipelines.sync import Published
from state.accounts import PublishAccount


def outcome_of_publish(published: Published, mapping: FeedMapping) -> Outcome:
    """Judge a finished drain: its cause if it stopped early, else what the accounts leave for a person."""
    if isinstance(published.cause, SyncError):
        return outcome_of(published.cause)
    open_points = _open_points(published.account, mapping)
    if open_points:
        hint = f"see `eventsync rows {mapping.feed}`"
        return Outcome("needs attention", ExitCode.ATTENTION, "; ".join(open_points), hint)
    return Outcome("done", ExitCode.DONE, _about_covers(published))


def _open_points(account: PublishAccount, mapping: FeedMapping) -> list[str]:
    points = []
    if account.conflict:
        points.append(f"{account.conflict} in conflict: the service says that their keys were used for something else")
    if account.blocked:
        points.append(f"{account.blocked} blocked: this key may not publish into their channel")
    if account.uncertain:
        points.append(f"{account.uncertain} uncertain: no usable answer; they are sent again with the same key")
    if account.refused and _is_beyond(account, mapping):
        points.append(f"{account.refused} refused by the service, more than the feed allows")
    return points


def _about_covers(published: Published) -> str:
    problems = published.cover_problems
    return (
        f"{len(problems)} cover images could not be used, the first: {problems[0].url}: {problems[0].reason}" if problems else ""
    )


def _is_beyond(account: PublishAccount, mapping: FeedMapping) -> bool:
    limits = mapping.publish.brakes
    owed = account.new + account.carried_over
    return (
        limits.rejected is not None and account.refused >= limits.rejected_at_least and account.refused / owed > limits.rejected
    )
