"""Who gives way to whom, where a backfill and other runs meet at one feed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from empty_books import lay_out

from mappings.row_key import FeedName
from pipelines.run.backfill import is_awaited, note_waiting, waits_by_itself
from state.database import open_database
from state.notes import ServiceNotes

NOW = datetime(2031, 6, 1, 12, tzinfo=UTC)
FEED, OTHER = FeedName("town-hall"), FeedName("harbour")
SCHEDULED, SLICE, BY_HAND = (f"run 7, launched by {one}" for one in ("schedule", "backfill", "cli"))


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[ServiceNotes]:
    engine = open_database(f"sqlite:///{lay_out(tmp_path / 'state.db')}")
    yield ServiceNotes(engine, "https://events.example#default", lambda: NOW)
    engine.dispose()


def test_only_a_scheduled_run_waits_unasked_and_only_for_a_slice_of_a_backfill() -> None:
    meetings = [(ours, theirs) for ours in (SCHEDULED, SLICE, BY_HAND) for theirs in (SCHEDULED, SLICE, BY_HAND)]
    assert [pair for pair in meetings if waits_by_itself(*pair)] == [(SCHEDULED, SLICE)]


def test_a_backfill_gives_way_to_whoever_said_so_a_moment_ago_at_its_feed(notes: ServiceNotes) -> None:
    assert not is_awaited(notes, FEED, NOW)
    note_waiting(notes, FEED, BY_HAND, NOW)
    assert is_awaited(notes, FEED, NOW + timedelta(seconds=3))
    assert not is_awaited(notes, FEED, NOW + timedelta(seconds=30))
    assert not is_awaited(notes, OTHER, NOW)


def test_a_backfill_never_gives_way_to_its_own_next_slice(notes: ServiceNotes) -> None:
    note_waiting(notes, FEED, SLICE, NOW)
    assert not is_awaited(notes, FEED, NOW)
