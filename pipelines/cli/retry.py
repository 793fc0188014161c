"""`eventsync retry`: makes refused and blocked rows pending again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, OneFeed

if IS_WORKING:
    from mappings.errors import ConfigError
    from mappings.reasons import did_you_mean
    from pipelines.cli.output.console import Output
    from pipelines.cli.state_reader import open_feed_session, typed_key
    from state.ledger.decisions import RETRIABLE, LeftAlone


def retry(
    feed: OneFeed,
    keys: Annotated[str | None, typer.Option(metavar="K,...", help="Only these row keys.")] = None,
    state: Annotated[str | None, typer.Option(metavar="S", help="Only rows in this state: refused or blocked.")] = None,
    as_json: AsJson = False,
) -> int:
    """Let rows go out again that were turned away; the next run sends them.

    For example:

        # All of them, the service being mended
        eventsync retry lisbon-agenda
        # Two of them
        eventsync retry lisbon-agenda --keys A-17,A-18
        # Once a channel may be used again
        eventsync retry lisbon-agenda --state blocked

    Each goes out with the same body and under the same key first. If a refused row is refused again, it may be the stored
    answer that is repeated, and it goes out under its next key, once for each retry: nothing was created under the first.
    Rows that are pending, or blocked, need no word: the next run sends them. Where the service only repeats a denial
    of access that it has stored, `eventsync resolve FEED KEY --resend` lets them go out under their next key.
    Rows that the source no longer asks for are left alone, and so are rows that were set aside, unless they are named.
    Exit codes: 0 done, 2 no such feed or row, 4 a run holds the feed.
    """
    output = Output(json=as_json)
    known = {one.value: one for one in RETRIABLE}
    if state is not None and state not in known:
        hint = did_you_mean(state, known) or f"there are {', '.join(known)}; other rows are decided on with `eventsync resolve`"
        raise ConfigError(f"--state {state}: rows in this state are not retried", hint=hint)
    with open_feed_session(feed) as session:
        named = None if keys is None else session.find(filter(None, map(typed_key, keys.split(","))))
        row_keys = None if named is None else [row.row_key for row in named]
        with session.deciding("retry") as decisions:
            retried = decisions.retry(RETRIABLE if state is None else (known[state],), row_keys)
    name, left_alone = session.scope.feed, retried.left_alone
    counts = RetriedCounts(refused=retried.refused, blocked=retried.blocked)
    count, send = retried.refused + retried.blocked, f"eventsync run {name} --publish-only"
    output.document(Retry(feed=name, retried=counts, left_alone=left_alone, to_send=send if count else None))
    kinds = " and ".join(f"{number:,} {kind}" for kind, number in counts.items() if number)
    if count:
        output.note(f"{name}: {kinds} row{'s' * (count != 1)} to be sent again", f"the next run sends them; at once: `{send}`")
    else:
        output.note(f"{name}: no row to retry")
    if left_alone:
        output.table(
            f"{name}: left alone", ("row key", "left alone, because"), [(one.row_key, one.because) for one in left_alone]
        )
    return 0


class RetriedCounts(TypedDict):
    """How many rows are pending again, by the state that they were in."""

    refused: int
    blocked: int


class Retry(TypedDict):
    """What is to be sent again, what of the rows named is not, and the command that sends at once, null where nothing is."""

    feed: str
    retried: RetriedCounts
    left_alone: Sequence[LeftAlone]
    to_send: str | None
