"""`eventsync retry`: makes refused and blocked rows pending again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, OneFeed

if IS_WORKING:
    from mappings.row_key import typed_keys
    from pipelines.cli.output.console import Output
    from pipelines.cli.state_reader import open_feed_session
    from state.ledger.decisions import LeftAlone


def retry(
    feed: OneFeed,
    keys: Annotated[str | None, typer.Option(metavar="K,...", help="Only these row keys; `\\,` is a comma in a key.")] = None,
    as_json: AsJson = False,
) -> int:
    """Make refused and blocked rows pending again; the next run sends them.

    For example:

        # All of them, after the service was repaired
        eventsync retry lisbon-agenda
        # Two of them
        eventsync retry lisbon-agenda --keys A-17,A-18

    A row is sent with the same body and idempotency key first. If it is refused again, the service may have repeated its stored
    answer: the row is then sent under its next key, once per retry. This is safe, because a refusal creates no event. Pending
    and blocked rows need no retry: the next run sends them. If the service keeps repeating a stored denial of access,
    `eventsync resolve FEED KEY --resend` sends them under their next key. Rows that have left the source are not retried;
    ignored rows only if named. Exit codes: 0 done, 2 no such feed or row, 4 a run holds the feed.
    """
    output = Output(is_json=as_json)
    with open_feed_session(feed) as session:
        named = None if keys is None else session.find(typed_keys(keys))
        row_keys = None if named is None else [row.row_key for row in named]
        with session.deciding("retry") as decisions:
            retried = decisions.retry(row_keys=row_keys)
    name, left_alone = session.scope.feed, retried.left_alone
    counts = RetriedCounts(refused=retried.refused, blocked=retried.blocked)
    count, send = retried.refused + retried.blocked, f"eventsync run {name} --publish-only"
    output.document(Retry(feed=name, retried=counts, left_alone=left_alone, to_send=send if count else None))
    kinds = " and ".join(f"{number:,} {kind}" for kind, number in counts.items() if number)
    again = f"{kinds} row{'s' * (count != 1)} to be sent again by the next run; to send now: `{send}`"
    output.note(f"{name}: {again if count else 'no row to retry'}")
    if left_alone:
        output.table(f"{name}: not retried", ({"row key": one.row_key, "why not": one.because} for one in left_alone))
    return 0


class RetriedCounts(TypedDict):
    """How many rows are pending again, by their earlier state."""

    refused: int
    blocked: int


class Retry(TypedDict):
    """Which rows will be sent again, which named rows will not, and the command that sends now (null if there are none)."""

    feed: str
    retried: RetriedCounts
    left_alone: Sequence[LeftAlone]
    to_send: str | None
