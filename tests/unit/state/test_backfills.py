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


def slices_left(engine: Engine) -> int:
    (status,) = LedgerQueries(engine).status(feed=FEED)
    return status.slices_left


def test_a_stopped_slice_is_left_with_the_reason_and_a_backfill_is_done_with_its_last(ours: Backfills) -> None:
    for number, end in ((1, STOPPED), (2, DONE), (1, DONE)):
        assert ours.begin_slice("b1", number, "me")
        assert ours.one("b1").is_at_work
        assert ours.end_slice("b1", number, "me", end)
        if end is STOPPED:
            first = ours.one("b1").left[0]
            assert (first.number, first.exit_code, first.message, first.run_id) == (1, 6, "the service is away", "run-1")
    done = ours.one("b1")
    assert (done.state, done.left, dict(done.slices[0].counts)) == (BackfillState.DONE, (), {"new": 3})
    assert not ours.begin_slice("b1", 2, "late")


def test_a_run_that_comes_back_from_the_dead_overrules_nothing(ours: Backfills) -> None:
    ours.begin_slice("b1", 1, "the dead")
    assert ours.begin_slice("b1", 1, "the living")
    assert not ours.end_slice("b1", 1, "the dead", STOPPED)
    assert ours.end_slice("b1", 1, "the living", DONE)
    assert not ours.begin_slice("b1", 1, "again")
    assert states(ours.one("b1")) == ["done", "left"]


def test_a_cancelled_backfill_keeps_what_is_done_and_begins_nothing_more(engine: Engine, ours: Backfills) -> None:
    Ledger(engine, HERE, FEED, namespace="tests", now=now).begin_run("run-1", launched_by="a test")
    ours.begin_slice("b1", 1, "me")
    assert slices_left(engine) == 2
    ours.end_slice("b1", 1, "me", DONE)
    ours.begin_slice("b1", 2, "me")
    assert (slices_left(engine), ours.cancel("b1"), slices_left(engine)) == (1, 1, 0)
    assert not ours.end_slice("b1", 2, "me", DONE)
    assert not ours.begin_slice("b1", 2, "me")
    assert states(ours.one("b1")) == ["done", "cancelled"]
    assert (ours.one("b1").state, ours.cancel("b1")) == (BackfillState.CANCELLED, 0)


def test_the_youngest_comes_first_and_other_feeds_have_their_own(engine: Engine, ours: Backfills) -> None:
    ours.open("b2", "{}", DAYS)
    assert [one.backfill_id for one in ours.all()] == ["b2", "b1"]
    assert Backfills(engine, HERE, FeedName("other"), now).all() == ()
