"""What is kept of backfills: slices that are begun, left, taken over from the dead, done or cancelled; on either database."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine

from mappings.row_key import FeedName
from state.backfills import BackfillRecord, Backfills, BackfillState, SliceEnd, SliceState
from state.ledger.ledger import Ledger
from state.queries import LedgerQueries

HERE, FEED = "https://events.example#default", FeedName("agenda")
DAYS = [("2031-05-01", "2031-05-01"), ("2031-05-02", "2031-05-02")]
DONE = SliceEnd(SliceState.DONE, "run-1", 0, counts={"new": 3})
STOPPED = SliceEnd(SliceState.LEFT, "run-1", 6, "the service is away")


def now() -> datetime:
    return datetime(2031, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def ours(engine: Engine) -> Backfills:
    made = Backfills(engine, HERE, FEED, now)
    made.open("b1", "{}", DAYS)
    return made


def states(record: BackfillRecord) -> list[str]:
    return [one.state.value for one in record.slices]


def test_a_backfill_is_done_with_the_last_of_its_slices(ours: Backfills) -> None:
    assert ours.begin_slice("b1", 1, "me")
    assert ours.one("b1").is_at_work
    assert ours.end_slice("b1", 1, "me", DONE)
    assert (ours.one("b1").state, [one.number for one in ours.one("b1").left]) == (BackfillState.OPEN, [2])
    assert not ours.begin_slice("b1", 1, "again")
    assert ours.begin_slice("b1", 2, "me")
    assert ours.end_slice("b1", 2, "me", DONE)
    done = ours.one("b1")
    assert (done.state, done.left, dict(done.slices[0].counts)) == (BackfillState.DONE, (), {"new": 3})
    assert not ours.begin_slice("b1", 2, "late")


def test_a_slice_that_was_stopped_is_left_with_the_reason(ours: Backfills) -> None:
    ours.begin_slice("b1", 1, "me")
    ours.end_slice("b1", 1, "me", STOPPED)
    first = ours.one("b1").left[0]
    assert (first.number, first.exit_code, first.message, first.run_id) == (1, 6, "the service is away", "run-1")


def test_who_takes_over_from_the_dead_is_not_overruled_by_one_that_comes_back(ours: Backfills) -> None:
    ours.begin_slice("b1", 1, "the dead")
    assert ours.begin_slice("b1", 1, "the living")
    assert not ours.end_slice("b1", 1, "the dead", STOPPED)
    assert ours.end_slice("b1", 1, "the living", DONE)
    assert states(ours.one("b1")) == ["done", "left"]


def test_a_cancelled_backfill_keeps_what_is_done_and_begins_nothing_more(ours: Backfills) -> None:
    ours.begin_slice("b1", 1, "me")
    ours.end_slice("b1", 1, "me", DONE)
    ours.begin_slice("b1", 2, "me")
    assert ours.cancel("b1") == 1
    assert not ours.end_slice("b1", 2, "me", DONE)
    assert not ours.begin_slice("b1", 2, "me")
    assert states(ours.one("b1")) == ["done", "cancelled"]
    assert (ours.one("b1").state, ours.cancel("b1")) == (BackfillState.CANCELLED, 0)


def test_the_youngest_comes_first_and_other_feeds_have_their_own(engine: Engine, ours: Backfills) -> None:
    ours.open("b2", "{}", DAYS)
    assert [one.backfill_id for one in ours.all()] == ["b2", "b1"]
    assert Backfills(engine, HERE, FeedName("other"), now).all() == ()


def test_a_feeds_status_counts_the_slices_that_are_left(engine: Engine, ours: Backfills) -> None:
    Ledger(engine, HERE, FEED, namespace="tests", now=now).begin_run("run-1", launched_by="a test")
    ours.begin_slice("b1", 1, "me")
    (status,) = LedgerQueries(engine).status(feed=FEED)
    assert status.slices_left == 2
    ours.cancel("b1")
    (status,) = LedgerQueries(engine).status(feed=FEED)
    assert status.slices_left == 0
