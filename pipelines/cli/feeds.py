"""`eventsync feeds`: which feeds there are. What is told of each is `feed_list`'s."""

from __future__ import annotations

from pipelines.cli.flags import AsJson


def feeds(as_json: AsJson = False) -> int:
    """List the feeds: where their rows come from, when they run, how the last run ended, where their rows stand.

    For example:

        # What is there
        eventsync feeds
        # The names alone, for a script
        eventsync feeds --json | jq -r '.feeds[].feed'

    Needs neither a key nor a service; broken mapping files are listed too. Exit code 0.
    """
    from pipelines.cli.feed_list import list_feeds  # noqa: PLC0415  # keeps `--help` fast

    return list_feeds(as_json=as_json)
