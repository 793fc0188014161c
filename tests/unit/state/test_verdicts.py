"""What answers lead to: states, keys, attempts that were sent again, and failures that the service only repeats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.state.books import BOOK, resolve
from unit.state.world import FEED, START, World, answer, row

from mappings.delivery import Answer, Blocked, Conflict, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import TransientError
from mappings.row_key import IdempotencyKey, RowKey, idempotency_key
from state.enums import Decision, EntryState
from state.ledger.choices import Change, Instruction, Option, decide
from state.ledger.outbox import Claim, effect_of
from state.queries import LedgerQueries, RowFilter

PAUSED = TransientError("come back later")
POSTPONED = Postponed(answer(401), PAUSED)
LIMITED = Postponed(answer(429), PAUSED, attempts=0, is_limited=True)
CLAIM = Claim(
    *(1, RowKey("a"), IdempotencyKey("es1-a"), b"{}", 5, 0, None, "", None, None, None, START, None, "", 0), is_limited=False
)
"""A row that is sent for the first time."""
BEFORE: dict[str, dict[str, Any]] = {
    "fresh": {},
    "unanswered": {"unanswered_at": START},
    "limited": {"unanswered_at": START, "is_limited": True},
    "retried": {"decision": "retry"},
    "refused": {"refused_request_id": "req-1"},
    "denied": {"denied_request_id": "req-9"},
}
NEXT_KEY = "pending, next key"


@pytest.mark.parametrize(
    ("before", "verdict", "comes_to"),
    [
        ("fresh", Receipt(5, answer(201)), "delivered"),
        ("unanswered", Receipt(5, answer(201)), "delivered"),
        ("fresh", Unconfirmed(answer(409)), "delivered_unconfirmed"),
        ("unanswered", Unconfirmed(answer(409)), "delivered_unconfirmed"),
        ("fresh", Refusal(answer(400, "req-9")), "refused, by req-9"),
        ("unanswered", Refusal(answer(400)), "refused, by req-x"),
        ("fresh", Refusal(answer(413, "")), "refused, by unnamed"),
        ("fresh", Refusal(answer(0, ""), attempts=0), "refused"),
        ("fresh", Blocked(answer(403)), "blocked, denied by req-x"),
        ("unanswered", Blocked(answer(403)), "blocked, denied by req-x, unanswered"),
        ("fresh", Blocked(answer(403), is_unanswered=True), "blocked, denied by req-x, unanswered"),
        ("fresh", replace(POSTPONED, is_unanswered=True), "pending, denied by req-x, unanswered"),
        ("denied", Blocked(answer(404, "req-10")), "blocked, denied by req-10"),
        ("fresh", Conflict(answer(409)), "conflict"),
        ("unanswered", Conflict(answer(409)), "conflict, unanswered"),
        ("fresh", POSTPONED, "pending, denied by req-x"),
        ("unanswered", POSTPONED, "pending, denied by req-x, unanswered"),
        ("denied", POSTPONED, "pending, denied by req-x"),
        ("fresh", replace(POSTPONED, attempts=0), "pending"),
        ("denied", replace(POSTPONED, attempts=0), "pending, denied by req-9"),
        ("limited", POSTPONED, "pending, denied by req-x, unanswered, all by 429"),
        ("unanswered", LIMITED, "pending, unanswered"),
        ("fresh", LIMITED, "pending, unanswered, all by 429"),
        ("limited", Conflict(answer(409)), "conflict, unanswered, all by 429"),
        ("fresh", Uncertain(answer(503)), "uncertain, unanswered"),
        ("unanswered", Uncertain(answer(503)), "uncertain, unanswered"),
        # the very denial, the very refusal, a denial anew at a person's risk, a corrected row
        ("denied", Superseded(answer(403, "req-9")), NEXT_KEY),
        ("denied unanswered", Superseded(answer(403, "req-9")), NEXT_KEY),
        ("refused unanswered", Superseded(answer(400, "req-1")), NEXT_KEY),
        ("denied retried", Superseded(answer(401, "req-10")), NEXT_KEY),
        ("refused", Superseded(answer(409, "req-x")), NEXT_KEY),
        # a denial anew, one attempt went unanswered, a denial explains no 409, never refused, a bare 409 may mean the attempt
        ("denied", Superseded(answer(401, "req-10")), "conflict, denied by req-9"),
        ("denied retried unanswered", Superseded(answer(401, "req-10")), "conflict, denied by req-9, unanswered"),
        ("denied retried", Superseded(answer(409, "req-x")), "conflict, denied by req-9"),
        ("fresh", Superseded(answer(409, "req-x")), "conflict"),
        ("refused unanswered", Superseded(answer(409, "req-2")), "conflict, by req-1, unanswered"),
    ],
    ids=str,
)
def test_an_answer_comes_to_what_it_proves_of_this_attempt_and_of_earlier_ones(
    before: str, verdict: Verdict, comes_to: str
) -> None:
    effect = effect_of(verdict, CLAIM._replace(**{name: each for word in before.split() for name, each in BEFORE[word].items()}))
    words = (
        effect.state.value,
        "next key" * effect.is_next_revision,
        f"by {effect.refused_request_id}" * bool(effect.refused_request_id),
        f"denied by {effect.denied_request_id}" * bool(effect.denied_request_id),
        "unanswered" * effect.keeps_unanswered,
        "all by 429" * effect.is_limited,
    )
    assert ", ".join(filter(None, words)) == comes_to


def _resent(world: World) -> list[tuple[str, int]]:
    rows = LedgerQueries(world.engine).every_row(BOOK, RowFilter(is_resent=True))
    return [(row.row_key, row.copies) for row in rows]


def test_a_row_that_was_sent_again_is_counted_and_stays_listed(world: World) -> None:
    world.stage([row("a"), row("b")])
    account = world.publish(Receipt(1001, answer(201), attempts=2, copies=2))
    assert (account.delivered, account.resent, account.imbalance()) == (2, 1, 0)
    assert _resent(world) == [("a", 2)]
    world.stage([row("a", title="Another title"), row("b")])
    assert world.publish().resent == 0
    assert _resent(world) == [("a", 2)]


def test_a_row_that_ends_uncertain_after_being_sent_again_counts_once_in_each_run(world: World) -> None:
    world.stage([row("a")])
    for copies in (6, 12):
        assert world.publish(Uncertain(answer(0), attempts=6, copies=6)).resent == 1
        assert _resent(world) == [("a", copies)]


def test_an_intent_knows_how_long_ago_its_unanswered_attempts_began_and_nothing_was_sent(world: World) -> None:
    world.stage([row("a")])
    for unanswered_s, quiet_s in ((0.0, 0.0), (301.0, 301.0), (602.0, 301.0)):
        (intent,) = world.outbox().settle_and_claim([], 1)
        assert (intent.is_unanswered, intent.unanswered_s) == (unanswered_s > 0, pytest.approx(unanswered_s, abs=4))
        assert intent.quiet_s == pytest.approx(quiet_s, abs=2)
        world.crash()
    world.publish(Uncertain(answer(0)))
    world.clock.turn(hours=2)
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert 7_200 <= intent.quiet_s < intent.unanswered_s


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
    world.publish(LIMITED)
    world.stage([row("a", title="Another title")])
    world.clock.turn(days=3)
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert (intent.is_unanswered, intent.is_limited, intent.unanswered_s) == (True, True, 0.0)
    assert b"Title of a" in intent.body, "a retry is the same request"
    world.crash()
    (again,) = world.outbox().settle_and_claim([], 1)
    assert (again.is_limited, again.unanswered_s) == (False, pytest.approx(301, abs=2))


KEPT = answer(500, "req-1")


def failed(world: World, last: Answer = KEPT) -> None:
    """One row that the service failed at, that failed again in the same way, and that a person lets be sent again."""
    world.stage([row("a")])
    for _ in range(2):
        world.publish(Uncertain(last))
        assert (world.known("a").state, world.known("a").revision) == (EntryState.UNCERTAIN, 0)
    resolve(world, "a", Instruction(Option.RESEND))


def test_one_word_of_a_person_after_a_kept_failure_is_good_for_one_next_key(world: World) -> None:
    failed(world)
    account = world.publish(Uncertain(KEPT), Uncertain(KEPT))
    entry = world.known("a")
    assert (account.uncertain, entry.revision, entry.decision) == (1, 1, Decision.RESENT)
    assert entry.key == idempotency_key("tests", FEED, RowKey("a"), revision=1)
    resolve(world, "a", Instruction(Option.RESEND))
    account = world.publish(Uncertain(KEPT), Receipt(7, answer(201)))
    entry = world.known("a")
    assert (account.delivered, account.uncertain, entry.state, entry.event_id) == (1, 0, EntryState.DELIVERED, 7)
    assert entry.revision == 2


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        pytest.param(KEPT, Uncertain(answer(500, "req-2")), id="another failure, which may be of this very attempt"),
        pytest.param(answer(500, ""), Uncertain(answer(500, "")), id="no request id to know it by"),
        pytest.param(answer(201, "req-1"), Uncertain(answer(201, "req-1")), id="a success that did not tell its id"),
        pytest.param(KEPT, Uncertain(KEPT, attempts=0), id="nothing was asked"),
    ],
)
def test_the_key_stays_where_nothing_shows_that_the_failure_is_a_kept_one(world: World, last: Answer, verdict: Verdict) -> None:
    failed(world, last)
    world.publish(verdict)
    assert (world.known("a").state, world.known("a").revision) == (EntryState.UNCERTAIN, 0)


@pytest.mark.parametrize(("last", "is_named"), [(KEPT, True), (answer(0), False)], ids=["a failure", "no answer"])
def test_before_a_failed_row_goes_out_again_its_next_key_is_named(world: World, last: Answer, *, is_named: bool) -> None:
    world.stage([row("a")])
    world.publish(Uncertain(last))
    change = decide(world.known("a"), Instruction(Option.RESEND))
    assert isinstance(change, Change)
    assert ("under the next one" in change.risk) is is_named
