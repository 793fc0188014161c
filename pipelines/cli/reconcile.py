"""`eventsync reconcile`: rows without an event id are looked for in the service's list. How is `reconcile_report`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.flags import AsJson, OneFeed


def reconcile(
    feed: OneFeed,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look and tell; record nothing.")] = False,
    as_json: AsJson = False,
) -> int:
    """Look for a feed's unconfirmed, uncertain and conflicting rows in the service's list of events.

    For example:

        # See what it would find
        eventsync reconcile lisbon-agenda --dry-run
        # Record what is beyond doubt
        eventsync reconcile lisbon-agenda

    The list (GET /events) is read whole and compared with what was sent and with what the source asks for now. A row
    is delivered as an event that agrees with it in title and start, differs in nothing that the list shows, and can
    be no other row's. Anything less is shown with the command that decides, and never taken by itself. Sending a row
    again is suggested only where no event of the list can be its own. The key needs a scope for reading events. Exit
    codes: 0 every row was found, 1 some were not, 2 configuration, 3 the key may not read events, 4 a run holds the
    feed, 6 the service is unavailable.
    """
    from pipelines.cli.reconcile_report import reconcile_feed  # noqa: PLC0415  # keeps `--help` fast

    return reconcile_feed(feed, is_dry=dry_run, as_json=as_json)
