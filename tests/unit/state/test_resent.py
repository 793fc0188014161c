"""Rows that were sent again after an attempt without an answer: marked, counted, listed; and how long ago that attempt was."""

from __future__ import annotations

import pytest
from unit.state.books import BOOK
from unit.state.world import World, answer, row

from mappings.delivery import Blocked, Postponed, Receipt, Refusal, Uncertain, Verdict
from mappings.errors import TransientError
from state.queries import LedgerQueries, RowFilter

PAUSED = TransientError("come back later")


def _resent(world: World) -> list[tuple[str, int]]:
    rows = LedgerQueries(world.engine).every_row(BOOK, RowFilter(is_resent=True))
    return [(row.row_key, row.copies) for row in rows]


def test_a_row_that_was_sent_again_is_counted_and_stays_listed(world: World) -> None:
    world.stage([row("a"), row("b")])
    account = world.publish(Receipt(1001, answer(201), attempts=2, copies=2))
    assert (account.delivered, account.resent) == (2, 1)
    assert account.imbalance() == 0
    assert _resent(world) == [("a", 2)]
    world.stage([row("a", title="Another title"), row("b")])
    assert world.publish().resent == 0
    assert _resent(world) == [("a", 2)]


def test_a_row_that_ends_uncertain_after_being_sent_again_counts_once_in_each_run(world: World) -> None:
    world.stage([row("a")])
    for copies in (6, 12):
        assert world.publish(Uncertain(answer(0), attempts=6, copies=6)).resent == 1
        assert _resent(world) == [("a", copies)]


@pytest.mark.parametrize(
    "verdict",
    [Postponed(answer(401), PAUSED, is_unanswered=True), Blocked(answer(403), is_unanswered=True)],
    ids=["postponed", "blocked"],
)
def test_an_attempt_without_an_answer_stays_on_record_whatever_came_after_it(world: World, verdict: Verdict) -> None:
    world.stage([row("a")])
    world.publish(verdict)
    assert world.known("a").unanswered_at is not None
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert intent.is_unanswered
    assert intent.refused_request_id == ""


def test_an_intent_knows_how_long_ago_its_first_unanswered_attempt_began(world: World) -> None:
    world.stage([row("a")])
    (first,) = world.outbox().settle_and_claim([], 1)
    assert (first.is_unanswered, first.unanswered_s) == (False, 0.0)
    world.crash()
    (second,) = world.outbox().settle_and_claim([], 1)
    assert second.is_unanswered
    assert second.unanswered_s == pytest.approx(301, abs=2)
    assert second.quiet_s == pytest.approx(301, abs=2)
    world.crash()
    (third,) = world.outbox().settle_and_claim([], 1)
    assert third.unanswered_s == pytest.approx(602, abs=4)
    assert third.quiet_s == pytest.approx(301, abs=2)


def test_an_uncertain_row_knows_how_long_it_was_left_alone(world: World) -> None:
    world.stage([row("a")])
    world.publish(Uncertain(answer(0)))
    world.clock.turn(hours=2)
    (again,) = world.outbox().settle_and_claim([], 1)
    assert again.quiet_s >= 7200
    assert again.unanswered_s >= 7200


def test_attempts_are_counted_over_runs_and_kills_before_they_leave(world: World) -> None:
    world.stage([row("a")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    outbox.begin_again(intent)
    assert world.known("a").copies == 2
    world.crash()
    assert world.publish(Uncertain(answer(0), attempts=3, copies=3)).resent == 1
    assert world.known("a").copies == 5
    world.publish()
    assert world.known("a").copies == 6


def test_an_attempt_that_certainly_created_nothing_is_taken_back(world: World) -> None:
    world.stage([row("a"), row("b")])
    assert world.publish(Refusal(answer(400)), Postponed(answer(0), PAUSED, attempts=0)).resent == 0
    assert [world.known(key).copies for key in "ab"] == [0, 0]
    assert _resent(world) == []


def test_a_row_that_only_met_limits_waits_for_no_person_however_long_ago_that_was(world: World) -> None:
    world.stage([row("a")])
    world.publish(Postponed(answer(429), PAUSED, attempts=0, is_limited=True))
    world.stage([row("a", title="Another title")])
    world.clock.turn(days=3)
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert (intent.is_unanswered, intent.is_limited, intent.unanswered_s) == (True, True, 0.0)
    assert b"Title of a" in intent.body, "a retry is the same request"
    world.crash()
    (again,) = world.outbox().settle_and_claim([], 1)
    assert (again.is_limited, again.unanswered_s) == (False, pytest.approx(301, abs=2))
