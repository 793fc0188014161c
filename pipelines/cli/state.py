"""`eventsync state`: the state DB as such, one verb for each thing that is done to the whole of it.

What a verb does stands in a module of its own.
"""

from __future__ import annotations

from pipelines.cli.flags import AsJson


def verify(as_json: AsJson = False) -> int:
    """Look at the whole state DB: its file, its tables, every entry of the ledger, the accounts of every run.

    For example:

        # All of it
        eventsync state verify
        # For a script, before a backup
        eventsync state verify --json

    Keys are made anew from namespace, feed and row key, bodies compared with their fingerprints; no event id may stand
    twice. Changes nothing. Exit codes: 0 all is as it must be, 1 not all (each finding is listed), 2 and 6 as for `run`.
    """
    from pipelines.cli.verifying import show_findings  # noqa: PLC0415  # keeps `--help` fast

    return show_findings(as_json=as_json)


def compact(as_json: AsJson = False) -> int:
    """Make the state DB smaller: pack the bodies of delivered rows, and give the room back.

    For example:

        # Once in a while, or by cron at night
        eventsync state compact
        # What it came to, for a script
        eventsync state compact --json

    Everything reads as before, and what may still be sent is left as it is, byte for byte. Runs may be at work meanwhile. At
    the end SQLite writes its file anew: that takes as much disk again for a moment, and runs that write then wait for up to
    30 s. Exit codes: 0 done, 2 and 6 as for `run`; cut short or not, it can be started again at any time.
    """
    from pipelines.cli.compacting import show_compaction  # noqa: PLC0415  # keeps `--help` fast

    return show_compaction(as_json=as_json)
