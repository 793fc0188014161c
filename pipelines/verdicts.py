"""From the accounts of a drain to the run's outcome: what a person still has to look at.

Errors become outcomes in `outcomes`; here a drain that ended by itself, or stopped for a cause, is judged.
"""

from __future__ import annotations

import shlex

from mappings.errors import SyncError
from mappings.schema import FeedMapping
from pipelines.outcomes import ExitCode, Outcome, outcome_of
from pipelines.sync import Published
from state.accounts import PublishAccount
from state.standing import Standing

NAMED = 3
"""So many rows are named in the message of a run; `eventsync rows` has all of them."""


def outcome_of_publish(published: Published, mapping: FeedMapping) -> Outcome:
    """Judge a finished drain: its cause if it stopped early, else what it leaves for a person, and what earlier ones left.

    What nobody has decided on makes every run one that needs attention, until somebody does or sets it aside; rows that
    are delivered under an unknown id are only told.
    """
    if isinstance(published.cause, SyncError):
        return outcome_of(published.cause)
    open_points = _open_points(published, mapping)
    if open_points:
        hint = " ".join(filter(None, (_who_decides(published.standing, mapping), f"see `eventsync rows {mapping.feed}`")))
        return Outcome("needs attention", ExitCode.ATTENTION, "; ".join(open_points), hint)
    standing = _about_unconfirmed(published.standing, mapping)
    told = filter(None, (_about_refused(published.account, mapping), _about_covers(published, mapping), standing))
    return Outcome("done", ExitCode.DONE, "\n".join(told))


def _open_points(published: Published, mapping: FeedMapping) -> list[str]:
    account, standing = published.account, published.standing
    uncertain = standing.uncertain.count if standing.forgotten.count else account.uncertain
    points = []
    if account.conflict or standing.conflict.count:
        rows = standing.conflict if standing.conflict.count else account.conflict
        points.append(f"{rows} in conflict: the service says that their keys were used for something else")
    if standing.forgotten.count:
        points.append(f"{standing.forgotten} uncertain for so long that the service may have forgotten their keys")
    if account.blocked:
        points.append(f"{account.blocked} blocked: this key may not publish into their channel")
    if uncertain:
        points.append(f"{uncertain} uncertain: no usable answer; they are sent again with the same key")
    if account.refused and _is_beyond(account, mapping):
        points.append(f"{account.refused} refused by the service, more than the feed allows")
    return points


def _who_decides(standing: Standing, mapping: FeedMapping) -> str:
    """Return the commands that help, where a person has to decide."""
    if not standing.conflict.count and not standing.forgotten.count:
        return ""
    first = (standing.conflict.first + standing.forgotten.first)[0]
    return (
        f"`eventsync reconcile {mapping.feed}` looks for them in the service's list;"
        f" `eventsync resolve {mapping.feed} {shlex.quote(first)} --event-id N` (or --resend, or --ignore) decides;"
    )


def _about_unconfirmed(standing: Standing, mapping: FeedMapping) -> str:
    if not standing.unconfirmed.count:
        return ""
    return f"{standing.unconfirmed} delivered under an id that is not known: `eventsync reconcile {mapping.feed}` looks it up"


def _about_refused(account: PublishAccount, mapping: FeedMapping) -> str:
    if not account.refused:
        return ""
    return f"{account.refused} refused by the service, within what the feed allows: `eventsync rows {mapping.feed}` tells why"


def _about_covers(published: Published, mapping: FeedMapping) -> str:
    problems = published.cover_problems
    if not problems:
        return ""
    first = "; ".join(f"row {one.row_key}: {one.url}: {one.reason}" for one in problems[:NAMED])
    return f"{len(problems)} cover images could not be used: {first} (all: `eventsync rows {mapping.feed} --state warning`)"


def _is_beyond(account: PublishAccount, mapping: FeedMapping) -> bool:
    limits = mapping.publish.brakes
    owed = account.new + account.carried_over
    return (
        limits.rejected is not None and account.refused >= limits.rejected_at_least and account.refused / owed > limits.rejected
    )
