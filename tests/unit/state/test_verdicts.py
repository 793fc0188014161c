"""What answers lead to: states, keys, attempts that were sent again, and failures that the service only repeats."""

from __future__ import annotations

from dataclasses import replace

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

POSTPONED = Postponed(answer(401), TransientError("key refused"))


def claim(*, was_unanswered: bool = False, refused: str = "", denied: str = "", is_retry: bool = False) -> Claim:
    return Claim(
        id=1,
        row_key=RowKey("a"),
        idempotency_key=IdempotencyKey("es1-a"),
        body=b"{}",
        channel_id=5,
        revision=0,
        unanswered_at=START if was_unanswered else None,
        refused_request_id=refused,
        cover_url=None,
        cover_on_error=None,
        decision="retry" if is_retry else None,
        updated_at=START,
        answer=None,
        denied_request_id=denied,
        copies=0,
        is_limited=False,
    )


@pytest.mark.parametrize(
    ("verdict", "state", "proves_nothing_earlier"),
    [
        (Receipt(5, answer(201)), EntryState.DELIVERED, False),
        (Unconfirmed(answer(409)), EntryState.DELIVERED_UNCONFIRMED, False),
        (Refusal(answer(400)), EntryState.REFUSED, False),
        (Blocked(answer(403)), EntryState.BLOCKED, True),
        (Conflict(answer(409)), EntryState.CONFLICT, True),
        (POSTPONED, EntryState.PENDING, True),
    ],
)
def test_each_verdict_has_its_state_and_only_a_definitive_one_settles_an_earlier_unanswered_attempt(
    verdict: Verdict, state: EntryState, proves_nothing_earlier: bool
) -> None:
    fresh, again = effect_of(verdict, claim()), effect_of(verdict, claim(was_unanswered=True))
    assert (fresh.state, again.state) == (state, state)
    assert (fresh.keeps_unanswered, again.keeps_unanswered) == (False, proves_nothing_earlier)


@pytest.mark.parametrize("was_unanswered", [False, True])
def test_an_uncertain_row_stays_unanswered(was_unanswered: bool) -> None:
    effect = effect_of(Uncertain(answer(503)), claim(was_unanswered=was_unanswered))
    assert (effect.state, effect.keeps_unanswered) == (EntryState.UNCERTAIN, True)


def test_a_refusal_is_remembered_by_its_request_id_if_there_was_a_request() -> None:
    assert effect_of(Refusal(answer(400, "req-9")), claim()).refused_request_id == "req-9"
    assert effect_of(Refusal(answer(413, "")), claim()).refused_request_id
    assert effect_of(Refusal(answer(0, ""), attempts=0), claim()).refused_request_id == ""


@pytest.mark.parametrize("verdict", [Blocked(answer(403, "req-9")), Blocked(answer(404, "req-9")), POSTPONED])
def test_denied_access_is_remembered_by_its_request_id_and_is_no_refusal_to_go_by(verdict: Verdict) -> None:
    effect = effect_of(verdict, claim(denied="req-8"))
    assert (effect.refused_request_id, effect.denied_request_id) == ("", verdict.answer.request_id)


@pytest.mark.parametrize("denied", ["", "req-8"])
def test_a_row_that_was_held_up_without_a_request_has_no_denial_of_its_own(denied: str) -> None:
    assert effect_of(replace(POSTPONED, attempts=0), claim(denied=denied)).denied_request_id == denied


REFUSED, DENIED = claim(refused="req-1"), claim(denied="req-9")


@pytest.mark.parametrize(
    ("status", "request_id", "before"),
    [
        pytest.param(403, "req-9", DENIED, id="the very denial"),
        pytest.param(403, "req-9", DENIED._replace(unanswered_at=START), id="the very denial, whatever went unanswered"),
        pytest.param(401, "req-10", DENIED._replace(decision="retry"), id="a denial anew, at a person's risk"),
        pytest.param(409, "req-x", REFUSED, id="a corrected row"),
        pytest.param(400, "req-1", REFUSED._replace(unanswered_at=START), id="the very refusal, whatever went unanswered"),
    ],
)
def test_a_row_goes_on_under_the_next_key_where_it_is_sure_that_nothing_was_created(
    status: int, request_id: str, before: Claim
) -> None:
    effect = effect_of(Superseded(answer(status, request_id)), before)
    assert (effect.state, effect.is_next_revision) == (EntryState.PENDING, True)
    assert (effect.refused_request_id, effect.denied_request_id) == ("", "")


@pytest.mark.parametrize(
    ("status", "request_id", "before"),
    [
        pytest.param(401, "req-10", DENIED, id="a denial anew"),
        pytest.param(401, "req-10", DENIED._replace(decision="retry", unanswered_at=START), id="one attempt went unanswered"),
        pytest.param(409, "req-x", DENIED._replace(decision="retry"), id="a denial explains no 409"),
        pytest.param(409, "req-x", claim(), id="never refused"),
        pytest.param(409, "req-2", REFUSED._replace(unanswered_at=START), id="a bare 409 may mean the unanswered attempt"),
    ],
)
def test_an_answer_for_another_body_is_a_conflict_where_nothing_explains_it(status: int, request_id: str, before: Claim) -> None:
    assert effect_of(Superseded(answer(status, request_id)), before).state is EntryState.CONFLICT


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


KEPT = answer(500, "req-1")


def failed(world: World, last: Answer = KEPT) -> None:
    """One row that the service failed at, that failed again in the same way, and that a person lets be sent again."""
    world.stage([row("a")])
    for _ in range(2):
        world.publish(Uncertain(last))
        assert (world.known("a").state, world.known("a").revision) == (EntryState.UNCERTAIN, 0)
    resolve(world, "a", Instruction(Option.RESEND))


def test_a_row_whose_kept_failure_is_repeated_after_a_persons_word_goes_out_under_its_next_key(world: World) -> None:
    failed(world)
    account = world.publish(Uncertain(KEPT), Receipt(7, answer(201)))
    entry = world.known("a")
    assert (account.delivered, account.uncertain, entry.state, entry.event_id) == (1, 0, EntryState.DELIVERED, 7)
    assert (entry.revision, entry.key) == (1, idempotency_key("tests", FEED, RowKey("a"), revision=1))


def test_one_word_of_a_person_is_good_for_one_next_key(world: World) -> None:
    failed(world)
    account = world.publish(Uncertain(KEPT), Uncertain(KEPT))
    entry = world.known("a")
    assert (account.uncertain, entry.revision, entry.decision) == (1, 1, Decision.RESENT)
    resolve(world, "a", Instruction(Option.RESEND))
    world.publish(Uncertain(KEPT), Receipt(7, answer(201)))
    assert (world.known("a").state, world.known("a").revision) == (EntryState.DELIVERED, 2)


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
