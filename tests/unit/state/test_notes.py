"""Notes beside the ledger: about a service, a run, images, a rate limit, what people heard and backfills; on either database."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import TypeVar

import pytest
from sqlalchemy import Engine
from unit.state.world import START, Clock

from mappings.row_key import FeedName
from state.backfills import Backfills, BackfillState, SliceEnd, SliceState
from state.ledger.ledger import Ledger
from state.notes import KnownAddress, MediaMemory, NoticesSent, ServiceNotes, SharedRate, add_notices
from state.queries import LedgerQueries
from state.tables import UtcTime

HERE, ELSEWHERE, FEED, OPS = "https://events.example#default", "https://rehearsal.example#default", FeedName("agenda"), "ops"
IMAGE = "https://img.example/a"
now = Clock()
T = TypeVar("T")


def four_at_once(work: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, range(1, 5)))


def test_a_note_is_read_as_it_was_last_written_and_only_at_its_destination(engine: Engine) -> None:
    notes = ServiceNotes(engine, HERE, now)
    assert notes.read("contract") is None
    notes.write("contract", "first")
    notes.write("contract", "łast")
    assert (notes.read("contract"), notes.read("classifications")) == ("łast", None)
    assert ServiceNotes(engine, ELSEWHERE, now).read("contract") is None


def test_of_several_writers_at_once_one_stands_and_none_fails(engine: Engine) -> None:
    notes, images, together = ServiceNotes(engine, HERE, now), MediaMemory(engine, HERE), Barrier(4)

    def write(writer: int) -> None:
        for number in range(6):
            together.wait(30)
            notes.write(f"note {number}", str(writer))
            images.remember(IMAGE, b"digest", writer, etag="", seen_at=START)

    four_at_once(write)
    assert {notes.read(f"note {number}") for number in range(6)} <= {"1", "2", "3", "4"}
    assert images.known_content(b"digest") in {1, 2, 3, 4}


def test_a_runs_notices_are_kept_in_order_and_each_once(engine: Engine) -> None:
    ledger = Ledger(engine, HERE, FEED, namespace="tests", now=now)
    add_notices(engine, HERE, FEED, "run-1", ["no run of that name has begun"])
    for notices in (["the list changed"], ["the page changed", "the list changed"]):
        ledger.begin_run("run-1", launched_by="a test")
        add_notices(engine, HERE, FEED, "run-1", notices)
    run = LedgerQueries(engine).run(HERE, FEED, "run-1")
    assert run is not None
    assert run.notices == ("the list changed", "the page changed")


def test_an_image_is_known_by_content_and_by_what_lay_at_its_address_last(engine: Engine) -> None:
    memory = MediaMemory(engine, HERE)
    assert (memory.known_content(b"old"), memory.known_address(IMAGE)) == (None, None)
    memory.remember(IMAGE, b"old", 17, etag='"v1"', seen_at=START)
    assert memory.known_address(IMAGE) == KnownAddress(b"old", '"v1"', START)
    memory.remember(IMAGE, b"new", 18, etag="", seen_at=START)
    assert memory.known_address(IMAGE) == KnownAddress(b"new", "", START)
    assert (memory.known_content(b"old"), memory.known_content(b"new")) == (17, 18)
    assert MediaMemory(engine, ELSEWHERE).known_content(b"old") is None


def test_stored_times_sort_as_text_and_one_without_a_zone_is_never_stored(engine: Engine) -> None:
    whole, later = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, 0, 0, 0, 1, tzinfo=UTC)
    stored = [str(UtcTime().process_bind_param(each, engine.dialect)) for each in (whole, later)]
    assert stored == sorted(stored)
    assert [UtcTime().process_result_value(each, engine.dialect) for each in stored] == [whole, later]
    with pytest.raises(ValueError, match="without a zone"):
        UtcTime().process_bind_param(datetime(2026, 3, 1), engine.dialect)  # noqa: DTZ001 # the mistake under test


def shared(engine: Engine, clock: Clock = now, route: str = "POST /events") -> SharedRate:
    return SharedRate(engine, "https://events.example 1a2b", route, clock)


def read(rate: SharedRate) -> tuple[str, float]:
    found = list[tuple[str, float]]()
    rate.exchange(lambda text, age_s: found.append((text, age_s)))
    return found[-1]


def test_what_one_worker_has_learned_of_a_route_the_others_read_with_its_age(engine: Engine, clock: Clock) -> None:
    assert read(shared(engine, clock)) == ("", 0.0)
    for text in ("begun", "learned"):
        shared(engine, clock).exchange(lambda _text, _age_s, new=text: new)
    clock.turn(seconds=5)
    text, age_s = read(shared(engine, clock))
    assert (text, read(shared(engine, route="POST /media"))[0]) == ("learned", "")
    assert age_s >= 0.0 if engine.dialect.name == "postgresql" else age_s == 5.0


def test_changes_at_the_same_time_lose_nothing(engine: Engine) -> None:
    together = Barrier(4)

    def work(_worker: int) -> None:
        for _ in range(20):
            shared(engine).exchange(add)

    def add(text: str, _age_s: float) -> str:
        if not text:  # all four begin with the same one
            together.wait(30)
        return text + "x"

    four_at_once(work)
    assert len(read(shared(engine))[0]) == 80


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_a_recipient_was_told_of_a_feed_is_kept_apart_and_replaced(engine: Engine, clock: Clock) -> None:
    sent, elsewhere = NoticesSent(engine, HERE, clock), NoticesSent(engine, ELSEWHERE, clock)
    crm = FeedName("crm")
    for notices, feed, recipient in ((sent, FEED, OPS), (sent, FEED, "all"), (sent, crm, OPS), (elsewhere, FEED, OPS)):
        notices.replace(feed, recipient, ["brake", "away"])
    for causes in (["away", "rejected"], []):
        sent.replace(FEED, OPS, causes)
        assert sent.causes().get((FEED, OPS), frozenset()) == set(causes)
    sent.forget_others(FEED, [OPS])
    assert sent.causes() == {(crm, OPS): {"brake", "away"}}
    assert elsewhere.causes() == {(FEED, OPS): {"brake", "away"}}


DAYS = [("2031-05-01", "2031-05-01"), ("2031-05-02", "2031-05-02")]
DONE = SliceEnd(SliceState.DONE, "run-1", 0, counts={"new": 3})
STOPPED = SliceEnd(SliceState.LEFT, "run-1", 6, "the service is away")


@pytest.fixture
def ours(engine: Engine) -> Backfills:
    made = Backfills(engine, HERE, FEED, now)
    made.open("b1", "{}", DAYS)
    return made


def slices_left(engine: Engine) -> int:
    (status,) = LedgerQueries(engine).status(feed=FEED)
    return status.slices_left


def test_a_slice_is_left_with_the_reason_until_it_is_done_and_a_run_that_comes_back_from_the_dead_overrules_nothing(
    ours: Backfills,
) -> None:
    ours.begin_slice("b1", 1, "the dead")
    assert ours.begin_slice("b1", 1, "the living")
    assert not ours.end_slice("b1", 1, "the dead", DONE)
    assert ours.one("b1").is_at_work
    assert ours.end_slice("b1", 1, "the living", STOPPED)
    first = ours.one("b1").left[0]
    assert (first.number, first.exit_code, first.message, first.run_id) == (1, 6, "the service is away", "run-1")
    for number in (2, 1):
        assert ours.begin_slice("b1", number, "me")
        assert ours.end_slice("b1", number, "me", DONE)
        assert not ours.begin_slice("b1", number, "again")
    done = ours.one("b1")
    assert (done.state, done.left, dict(done.slices[0].counts)) == (BackfillState.DONE, (), {"new": 3})


def test_a_cancelled_backfill_keeps_what_is_done_and_begins_nothing_more(engine: Engine, ours: Backfills) -> None:
    Ledger(engine, HERE, FEED, namespace="tests", now=now).begin_run("run-1", launched_by="a test")
    ours.begin_slice("b1", 1, "me")
    assert slices_left(engine) == 2
    ours.end_slice("b1", 1, "me", DONE)
    ours.begin_slice("b1", 2, "me")
    assert (slices_left(engine), ours.cancel("b1"), slices_left(engine)) == (1, 1, 0)
    assert not ours.end_slice("b1", 2, "me", DONE)
    assert not ours.begin_slice("b1", 2, "me")
    assert [one.state for one in ours.one("b1").slices] == ["done", "cancelled"]
    assert (ours.one("b1").state, ours.cancel("b1")) == (BackfillState.CANCELLED, 0)


def test_the_youngest_comes_first_and_other_feeds_have_their_own(engine: Engine, ours: Backfills) -> None:
    ours.open("b2", "{}", DAYS)
    assert [one.backfill_id for one in ours.all()] == ["b2", "b1"]
    assert Backfills(engine, HERE, FeedName("other"), now).all() == ()
