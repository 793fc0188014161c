"""`eventsync retry`: rows that were turned away are sent again. What happens to them is `retrying`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.flags import AsJson, OneFeed


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
    from pipelines.cli.retrying import retry_rows  # noqa: PLC0415  # keeps `--help` fast

    return retry_rows(feed, keys, state, as_json=as_json)
