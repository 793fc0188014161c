"""What people were told: each cause once, its end once, whatever is told at the same time, on SQLite and on PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from unit.state.world import Clock

from mappings.row_key import FeedName
from state.database import open_database
from state.notes import CLAIM_S, NoticesSent

HERE, FEED, OPS = "https://events.example#default", FeedName("agenda"), "ops"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sent(engine: Engine, clock: Clock) -> NoticesSent:
    return NoticesSent(engine, HERE, clock)


def tell(sent: NoticesSent) -> list[tuple[str, bool]]:
    """Tell all that is due: which causes, and whether it was their end."""
    claimed = sent.claim(FEED, OPS)
    sent.settle(claimed)
    return [(one.cause, one.is_over) for one in claimed]


def test_a_cause_is_told_once_and_then_its_end(sent: NoticesSent) -> None:
    sent.note(FEED, OPS, {"brake": "3 of 40 rows rejected"})
    assert tell(sent) == [("brake", False)]
    sent.note(FEED, OPS, {"brake": "4 of 40 rows rejected"})
    assert tell(sent) == []
    sent.note(FEED, OPS, {})
    assert tell(sent) == [("brake", True)]
    assert sent.all() == ()
    sent.note(FEED, OPS, {"brake": "again"})
    assert tell(sent) == [("brake", False)]


def test_what_ends_before_it_was_told_is_never_told(sent: NoticesSent) -> None:
    sent.note(FEED, OPS, {"away": "the service does not answer"})
    sent.note(FEED, OPS, {})
    assert (tell(sent), sent.all()) == ([], ())


def test_what_comes_back_before_its_end_was_told_has_never_ended(sent: NoticesSent) -> None:
    sent.note(FEED, OPS, {"away": "the service does not answer"})
    tell(sent)
    sent.note(FEED, OPS, {})
    assert sent.unfinished() == {FEED}
    sent.note(FEED, OPS, {"away": "the service does not answer"})
    assert (tell(sent), sent.unfinished()) == ([], frozenset())


def test_what_could_not_be_told_stays_due_in_its_latest_words(sent: NoticesSent) -> None:
    sent.note(FEED, OPS, {"rejected": "3 rows"})
    sent.release(sent.claim(FEED, OPS))
    assert sent.unfinished() == {FEED}
    sent.note(FEED, OPS, {"rejected": "5 rows"})
    assert [one.words for one in sent.claim(FEED, OPS)] == ["5 rows"]


def test_a_claim_is_nobody_elses_until_its_time_is_over(sent: NoticesSent, clock: Clock) -> None:
    sent.note(FEED, OPS, {"brake": "3 of 40 rows rejected"})
    assert len(sent.claim(FEED, OPS)) == 1
    assert sent.claim(FEED, OPS) == ()
    clock.turn(seconds=CLAIM_S)
    assert len(sent.claim(FEED, OPS)) == 1


def test_what_ends_while_it_is_told_is_over_afterwards(sent: NoticesSent) -> None:
    sent.note(FEED, OPS, {"away": "the service does not answer"})
    claimed = sent.claim(FEED, OPS)
    sent.note(FEED, OPS, {})
    sent.settle(claimed)
    sent.note(FEED, OPS, {})
    assert tell(sent) == [("away", True)]


def test_what_comes_back_while_its_end_is_told_is_told_again(sent: NoticesSent) -> None:
    sent.note(FEED, OPS, {"away": "the service does not answer"})
    tell(sent)
    sent.note(FEED, OPS, {})
    claimed = sent.claim(FEED, OPS)
    sent.note(FEED, OPS, {"away": "the service does not answer again"})
    sent.settle(claimed)
    assert tell(sent) == [("away", False)]


def test_each_recipient_feed_and_destination_is_told_apart(engine: Engine, sent: NoticesSent, clock: Clock) -> None:
    elsewhere = NoticesSent(engine, "https://rehearsal.example#default", clock)
    sent.note(FEED, OPS, {"brake": "here"})
    sent.note(FEED, "all", {"brake": "here"})
    sent.note(FeedName("crm"), OPS, {"brake": "there"})
    elsewhere.note(FEED, OPS, {"brake": "at the rehearsal"})
    assert tell(sent) == [("brake", False)]
    assert [(one.feed, one.recipient) for one in sent.all() if one.is_due] == [("agenda", "all"), ("crm", "ops")]
    assert elsewhere.unfinished() == {FEED}


def test_who_is_not_told_any_more_is_forgotten(sent: NoticesSent) -> None:
    sent.note(FEED, OPS, {"brake": "3 of 40 rows rejected"})
    sent.note(FEED, "all", {"brake": "3 of 40 rows rejected"})
    sent.forget_others(FEED, {"all"})
    assert [one.recipient for one in sent.all()] == ["all"]
    sent.forget_others(FEED, ())
    assert sent.all() == ()


def test_of_several_who_tell_at_once_one_does(engine: Engine, clock: Clock) -> None:
    together = Barrier(4)

    def one_of_four(_number: int) -> int:
        sent, told = NoticesSent(engine, HERE, clock), 0
        for number in range(6):
            together.wait(30)
            sent.note(FEED, OPS, {f"cause {number}": "words", **{f"cause {before}": "words" for before in range(number)}})
            claimed = sent.claim(FEED, OPS)
            told += len(claimed)
            sent.settle(claimed)
        return told

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(one_of_four, range(4))) == 6


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(days=st.lists(st.tuples(st.sets(st.sampled_from(["brake", "away", "rejected"])), st.booleans()), max_size=12))
def test_who_hears_of_it_now_and_then_always_knows_what_was_last_told(tmp_path: Path, days: list[tuple[set[str], bool]]) -> None:
    """However causes come and go, and whichever messages get through: at the end, what was heard adds up to what there is."""
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}")
    try:
        sent = NoticesSent(engine, HERE, Clock())
        sent.forget_others(FEED, ())
        believed = set[str]()
        for causes, gets_through in [*days, (days[-1][0] if days else set(), True)]:
            sent.note(FEED, OPS, dict.fromkeys(causes, "words"))
            claimed = sent.claim(FEED, OPS)
            if not gets_through:
                sent.release(claimed)
                continue
            sent.settle(claimed)
            new, over = ({one.cause for one in claimed if one.is_over is is_over} for is_over in (False, True))
            assert not new & believed
            assert over <= believed
            believed = (believed | new) - over
            assert believed == causes
    finally:
        engine.dispose()


def test_a_claim_of_a_clock_that_was_set_back_since_is_over(sent: NoticesSent, clock: Clock) -> None:
    sent.note(FEED, OPS, {"brake": "3 of 40 rows rejected"})
    assert len(sent.claim(FEED, OPS)) == 1
    clock.turn(days=-1)
    assert len(sent.claim(FEED, OPS)) == 1
