"""How a backfill lets others in between two slices: who waits for a feed says so, and a backfill looks.

The lease itself knows no queue; it is `state.lease`'s.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from mappings.row_key import FeedName
from state.notes import ServiceNotes

BACKFILL = "backfill"
SCHEDULE = "schedule"
"""Who launches runs that meet each other, as their holders' names end."""
PATIENCE_S = 2.0
"""How often a patient run asks again for a feed that another run holds."""
_LATELY = timedelta(seconds=2.5 * PATIENCE_S)


def is_of(holder: str, launched_by: str) -> bool:
    """Whether the holder of a lease is a run that was launched so."""
    return holder.endswith(f"launched by {launched_by}")


def comes_between(holder: str, held_by: str) -> bool:
    """Whether a run waits for another one though nobody has asked it to: a scheduled one for a slice of a backfill."""
    return is_of(holder, SCHEDULE) and is_of(held_by, BACKFILL)


def say_waiting(notes: ServiceNotes, feed: FeedName, holder: str, at: datetime) -> None:
    """Say that somebody waits for the feed; another slice of a backfill is nobody to give way to."""
    if not is_of(holder, BACKFILL):
        notes.write(_note_of(feed), at.isoformat())


def is_awaited(notes: ServiceNotes, feed: FeedName, at: datetime) -> bool:
    """Whether somebody said so a moment ago."""
    said = notes.read(_note_of(feed))
    return said is not None and abs(at - datetime.fromisoformat(said)) < _LATELY


def _note_of(feed: FeedName) -> str:
    return f"waited for: {feed}"
