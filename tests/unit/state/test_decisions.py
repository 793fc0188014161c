"""What a person decides, on a real state DB: rows that go out again, rows that are settled, rows that are set aside."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.state.world import DESTINATION, FEED, World, answer, row

from connectors.errors import KeyRefusedError
from mappings.delivery import Blocked, Conflict, Denial, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.identity import idempotency_key
from mappings.vocabulary import FeedName, RowKey
from state.books import Books
from state.deciding import AsItIs, Change, Choice, NotPossibleError, Resend, SetAside, TakeBack, TakeEvent
from state.decisions import Decisions, EventTakenError, Found, Resolved
from state.ledger import Ledger
from state.outbox import Settled
from state.standing import OpenRows
from state.turned_away import LeftAlone
from state.views import Book, RowFilter
from state.words import Decision, EntryState, ProblemKind, Waiting

ANN = "ann@desk"
BOOK = Book(DESTINATION, FEED)
REFUSED = Refusal(answer(400, "req-1"))


def decisions(world: World) -> Decisions:
    return world.ledger.open_decisions(ANN, world.lease.token)


def resolved(world: World, key: str, choice: Choice) -> Resolved:
    found = decisions(world).resolve(RowKey(key), choice)
    assert found is not None
    return found


def ended(world: World, verdict: Verdict, key: str = "a") -> None:
    """One row, whose only request has ended in this verdict."""
    world.stage([row(key)])
    world.publish(verdict)


def forgotten(world: World) -> None:
    """One row that was sent and never answered, so long ago that its key may be forgotten."""
    world.stage([row("a")])
    world.outbox().settle_and_claim([], 1)
    world.clock.turn(hours=25)
    world.crash()
    world.outbox()
    assert world.states() == {"a": "uncertain"}


def test_a_retried_row_goes_out_again_as_the_very_same_request(world: World) -> None:
    world.stage([row("a")])
    outbox = world.outbox()
    (before,) = outbox.settle_and_claim([], 1)
    outbox.settle_and_claim([Settled(before, REFUSED)], 0)
    assert decisions(world).retry().refused == 1
    assert world.known("a").decision is Decision.RETRY
    assert world.known("a").decided_by == ANN
    (after,) = world.outbox().settle_and_claim([], 1)
    assert after == replace(before, refused_request_id="req-1")


def test_a_retry_counts_rows_by_the_state_they_were_in_and_said_twice_is_done_once(world: World) -> None:
    world.stage([row("a"), row("b"), row("c")])
    world.publish(REFUSED, Blocked(answer(404)))
    retried = decisions(world).retry()
    assert (retried.refused, retried.blocked) == (1, 1)
    again = decisions(world).retry()
    assert (again.refused, again.blocked) == (0, 0)


def test_only_the_states_and_rows_asked_for_are_retried(world: World) -> None:
    world.stage([row(key) for key in "abcd"])
    world.publish(REFUSED, REFUSED, Blocked(answer(404)))
    assert decisions(world).retry([EntryState.BLOCKED]).blocked == 1
    retried = decisions(world).retry(row_keys=[RowKey("b"), RowKey("d")])
    assert (retried.refused, retried.left_alone) == (1, (LeftAlone(RowKey("d"), "it is delivered"),))
    assert world.states() == {"a": "refused", "b": "pending", "c": "pending", "d": "delivered"}


@pytest.mark.parametrize("row_keys", [None, [RowKey("a")]])
def test_a_retry_tells_of_a_row_turned_away_with_the_key_what_lets_it_out(world: World, row_keys: list[RowKey] | None) -> None:
    ended(world, Postponed(answer(401), KeyRefusedError("the key is revoked")))
    before = world.known("a")
    (told,) = decisions(world).retry(row_keys=row_keys).left_alone
    assert told.row_key == "a"
    assert told.because.startswith("it is pending: the next run sends it; if the service only repeats a denial")
    assert "--resend" in told.because
    assert world.known("a") == before


@pytest.mark.parametrize(
    "verdict", [Postponed(answer(401), KeyRefusedError("revoked")), Blocked(answer(403)), Blocked(answer(404))]
)
def test_a_person_who_lets_a_denied_row_out_under_its_next_key_is_told_of_the_risk_once(world: World, verdict: Verdict) -> None:
    ended(world, verdict)
    change = resolved(world, "a", Resend()).outcome
    assert isinstance(change, Change)
    assert "there will be two" in change.risk
    assert isinstance(resolved(world, "a", Resend()).outcome, AsItIs)
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert intent.denial == Denial(verdict.answer.request_id, is_resent=True)
    world.crash()
    world.publish(Superseded(answer(verdict.answer.status, "req-2")), verdict)
    entry = world.known("a")
    assert (entry.state, entry.revision) == (EntryState.CONFLICT, 0), "an attempt is unaccounted for"


def test_a_denied_row_goes_on_under_its_next_key_once_for_each_resend(world: World) -> None:
    denied = Postponed(answer(401), KeyRefusedError("the key is revoked"))
    ended(world, denied)
    resolved(world, "a", Resend())
    world.publish(Superseded(answer(401, "req-2")), denied)
    entry = world.known("a")
    assert (entry.state, entry.revision, entry.decision) == (EntryState.PENDING, 1, Decision.RETRIED)
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert intent.denial == Denial("req-x")


def test_a_resend_of_a_denied_row_can_be_taken_back(world: World) -> None:
    ended(world, Postponed(answer(401), KeyRefusedError("the key is revoked")))
    resolved(world, "a", Resend())
    resolved(world, "a", TakeBack())
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert intent.denial == Denial("req-x")


def test_rows_that_the_source_no_longer_asks_for_are_not_retried(world: World) -> None:
    ended(world, REFUSED)
    world.stage([])
    assert decisions(world).retry().refused == 0
    named = decisions(world).retry(row_keys=[RowKey("a")])
    assert named.left_alone == (LeftAlone(RowKey("a"), "the source no longer asks for it"),)


def test_a_stored_refusal_told_anew_under_another_request_id_leads_to_the_next_key_once(world: World) -> None:
    ended(world, REFUSED)
    decisions(world).retry()
    account = world.publish(Refusal(answer(400, "req-2")), Refusal(answer(400, "req-3")))
    entry = world.known("a")
    assert (account.refused, entry.state, entry.revision, entry.decision) == (1, EntryState.REFUSED, 1, Decision.RETRIED)
    assert world.outbox().settle_and_claim([], 9) == []


def test_without_a_persons_word_a_refusal_of_the_corrected_row_stays_one(world: World) -> None:
    ended(world, REFUSED)
    world.stage([row("a", "corrected")])
    world.publish(Refusal(answer(400, "req-2")))
    assert (world.known("a").state, world.known("a").revision) == (EntryState.REFUSED, 0)


def test_a_retry_of_a_blocked_row_takes_no_risk_and_keeps_its_key(world: World) -> None:
    ended(world, Blocked(answer(403, "req-1")))
    decisions(world).retry()
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert intent.denial == Denial("req-1")
    world.crash()


def test_a_row_whose_channel_was_denied_is_not_superseded_by_a_409(world: World) -> None:
    ended(world, Blocked(answer(403, "req-1")))
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert intent.refused_request_id == ""


def test_a_retried_row_that_was_cut_off_is_not_moved_to_another_key_by_a_refusal(world: World) -> None:
    ended(world, REFUSED)
    decisions(world).retry()
    world.outbox().settle_and_claim([], 1)
    world.crash()
    world.publish(Refusal(answer(400, "req-2")))
    assert (world.known("a").state, world.known("a").revision) == (EntryState.REFUSED, 0)


@pytest.mark.parametrize("verdict", [Conflict(answer(409)), Unconfirmed(answer(409)), REFUSED, Uncertain(answer(503))])
def test_a_row_is_delivered_as_the_event_that_a_person_names(world: World, verdict: Verdict) -> None:
    ended(world, verdict)
    before = world.known("a").state.value.replace("_", " ")
    resolved(world, "a", TakeEvent(4711))
    entry = world.known("a")
    assert (entry.state, entry.event_id, entry.unanswered_at) == (EntryState.DELIVERED, 4711, None)
    assert (entry.decision, entry.decided_by, entry.decided_at) == (Decision.EVENT_ID, ANN, world.clock())
    assert entry.answer is not None
    assert entry.answer.message == f"{ANN} said that it is event 4711; it was {before}"
    assert world.outbox().settle_and_claim([], 9) == []


def test_an_event_id_said_twice_is_kept_once_and_a_slip_can_be_corrected(world: World) -> None:
    ended(world, Conflict(answer(409)))
    resolved(world, "a", TakeEvent(11))
    assert isinstance(resolved(world, "a", TakeEvent(11)).outcome, AsItIs)
    resolved(world, "a", TakeEvent(12))
    assert world.known("a").event_id == 12


def test_a_slip_can_be_corrected_whatever_was_decided_about_the_row_since(world: World) -> None:
    ended(world, Conflict(answer(409)))
    resolved(world, "a", TakeEvent(11))
    world.stage([row("a", "another title")])
    resolved(world, "a", SetAside())
    resolved(world, "a", TakeEvent(12))
    assert (world.known("a").event_id, world.known("a").decision) == (12, Decision.EVENT_ID)


def test_an_id_that_the_service_told_is_not_overruled(world: World) -> None:
    ended(world, Receipt(7, answer(201)))
    with pytest.raises(NotPossibleError, match="by the service's own answer"):
        resolved(world, "a", TakeEvent(8))


def test_one_event_belongs_to_one_row_of_a_destination_whatever_the_feed(world: World) -> None:
    world.stage([row("a"), row("b")])
    world.publish(Conflict(answer(409)), Receipt(7, answer(201)))
    with pytest.raises(EventTakenError, match="event 7 is row b of agenda already"):
        resolved(world, "a", TakeEvent(7))
    other = Ledger(world.engine, DESTINATION, FeedName("other"), namespace="tests", now=world.clock)
    with other.acquire_lease("test") as lease:
        other.begin_run("r", launched_by="a test")
        stage = other.open_stage("r", is_whole=True, fence=lease.token)
        stage.write([row("x")])
        stage.close(lambda _report: ())
        with pytest.raises(EventTakenError):
            other.open_decisions(ANN, lease.token).resolve(RowKey("x"), TakeEvent(7))
    assert world.known("a").state is EntryState.CONFLICT


def test_a_forgotten_row_is_resent_as_it_was_on_a_persons_word(world: World) -> None:
    forgotten(world)
    before = world.known("a")
    outcome = resolved(world, "a", Resend()).outcome
    assert isinstance(outcome, Change)
    assert "there will be two" in outcome.risk
    assert isinstance(resolved(world, "a", Resend()).outcome, AsItIs)
    world.clock.turn(days=6)  # the feed's next run is a week away
    world.crash()
    (intent,) = world.outbox().settle_and_claim([], 9)
    assert (intent.key, intent.body, intent.is_unanswered) == (before.key, before.body, True)


def test_from_a_resent_attempt_on_the_services_memory_counts_anew(world: World) -> None:
    forgotten(world)
    resolved(world, "a", Resend())
    assert len(world.outbox().settle_and_claim([], 9)) == 1
    assert world.known("a").decision is Decision.RESENT
    world.clock.turn(hours=23)
    world.crash()
    assert len(world.outbox().settle_and_claim([], 9)) == 1
    world.clock.turn(hours=2)
    world.crash()
    assert world.outbox().settle_and_claim([], 9) == []
    assert world.known("a").state is EntryState.UNCERTAIN


@pytest.mark.parametrize("verdict", [Conflict(answer(409)), Unconfirmed(answer(409)), Superseded(answer(409))])
def test_a_row_whose_key_is_used_is_resent_under_the_next_one(world: World, verdict: Verdict) -> None:
    ended(world, verdict)
    before = world.known("a")
    outcome = resolved(world, "a", Resend()).outcome
    assert isinstance(outcome, Change)
    assert outcome.is_next_revision
    (intent,) = world.outbox().settle_and_claim([], 9)
    assert intent.key == idempotency_key("tests", FEED, RowKey("a"), revision=1) != before.key
    assert (intent.body, intent.is_unanswered, intent.refused_request_id) == (before.body, False, "")


def test_a_row_that_is_resent_under_the_next_key_says_what_the_source_says_now(world: World) -> None:
    ended(world, Conflict(answer(409)))
    world.stage([row("a", "edited")])
    resolved(world, "a", Resend())
    world.stage([row("a", "edited")])
    (intent,) = world.outbox().settle_and_claim([], 9)
    assert b"edited" in intent.body
    assert world.known("a").drift_kind is None


def test_resending_a_refused_row_is_a_retry_and_a_delivered_one_is_never_sent_twice(world: World) -> None:
    world.stage([row("a"), row("b")])
    world.publish(REFUSED)
    resolved(world, "a", Resend())
    assert (world.known("a").state, world.known("a").decision) == (EntryState.PENDING, Decision.RETRY)
    with pytest.raises(NotPossibleError, match="a second one"):
        resolved(world, "b", Resend())


@pytest.mark.parametrize("verdict", [Conflict(answer(409)), REFUSED, Blocked(answer(404)), Uncertain(answer(503))])
def test_a_row_set_aside_stays_as_it_is_unlisted_and_unsent_until_that_is_taken_back(world: World, verdict: Verdict) -> None:
    ended(world, verdict)
    before = world.known("a").state
    resolved(world, "a", SetAside())
    assert isinstance(resolved(world, "a", SetAside()).outcome, AsItIs)
    assert world.outbox().settle_and_claim([], 9) == []
    (status,) = Books(world.engine).status()
    assert (world.known("a").state, dict(status.waiting), status.set_aside) == (before, {}, 1)
    waiting = RowFilter(waiting=Waiting(before))
    assert Books(world.engine).rows(BOOK, waiting) == ()

    resolved(world, "a", TakeBack())
    assert [one.row_key for one in Books(world.engine).rows(BOOK, waiting)] == ["a"]
    assert world.known("a").decision is None
    assert isinstance(resolved(world, "a", TakeBack()).outcome, AsItIs)


def test_a_resend_that_no_run_has_acted_on_can_be_taken_back(world: World) -> None:
    forgotten(world)
    resolved(world, "a", Resend())
    resolved(world, "a", TakeBack())
    assert world.known("a").state is EntryState.UNCERTAIN
    assert world.outbox().settle_and_claim([], 9) == []


def test_a_row_that_waits_for_nobody_cannot_be_set_aside(world: World) -> None:
    world.stage([row("a")])
    with pytest.raises(NotPossibleError, match="the next run sends it"):
        resolved(world, "a", SetAside())


def test_a_refused_row_set_aside_is_a_new_matter_once_it_is_corrected(world: World) -> None:
    ended(world, REFUSED)
    resolved(world, "a", SetAside())
    assert decisions(world).retry().refused == 0
    world.stage([row("a", "corrected")])
    assert world.known("a").decision is None
    world.publish(Refusal(answer(400, "req-2")))
    (status,) = Books(world.engine).status()
    assert dict(status.waiting) == {"refused": 1}


def test_drift_handled_by_hand_is_set_aside_until_the_source_changes_again(world: World) -> None:
    ended(world, Receipt(7, answer(201)))
    assert world.stage([row("a", "edited")]).account.drifted == 1
    resolved(world, "a", SetAside())
    account = world.stage([row("a", "edited")]).account
    assert (account.unchanged, account.drifted) == (1, 0)
    assert Books(world.engine).rows(BOOK, RowFilter(waiting=Waiting.DRIFT)) == ()
    assert world.stage([row("a", "edited again")]).account.drifted == 1
    assert len(Books(world.engine).rows(BOOK, RowFilter(waiting=Waiting.DRIFT))) == 1


def test_a_held_row_is_released_set_aside_or_held_again(world: World) -> None:
    books = Books(world.engine)
    world.stage([row("a", twin="same")])
    world.publish()
    world.stage([row("a", twin="same"), row("b", twin="same")])
    assert [one.row_key for one in books.problems(BOOK, ProblemKind.HELD)] == ["b"]
    assert decisions(world).release(RowKey("b"), SetAside()) == "ignore"
    assert books.problems(BOOK, ProblemKind.HELD) == ()
    assert books.status()[0].waiting == {}
    assert decisions(world).release(RowKey("b"), Resend()) == "resend"
    assert decisions(world).release(RowKey("b"), TakeBack()) == ""
    assert len(books.problems(BOOK, ProblemKind.HELD)) == 1
    with pytest.raises(NotPossibleError, match="likely copy"):
        decisions(world).release(RowKey("b"), TakeEvent(7))


def test_what_waits_for_a_person_is_counted_run_after_run_until_it_is_decided(world: World) -> None:
    world.stage([row(key) for key in "abc"])
    world.publish(Conflict(answer(409)), Unconfirmed(answer(409)))
    for _ in range(2):
        standing = world.outbox().standing()
        assert standing.conflict == OpenRows(1, (RowKey("a"),))
        assert standing.unconfirmed == OpenRows(1, (RowKey("b"),))
    resolved(world, "a", SetAside())
    resolved(world, "b", TakeEvent(9))
    standing = world.outbox().standing()
    assert (standing.conflict.count, standing.unconfirmed.count) == (0, 0)


def test_uncertain_rows_stand_only_once_their_key_may_be_forgotten(world: World) -> None:
    ended(world, Uncertain(answer(503)))
    assert world.outbox().standing().forgotten.count == 0
    world.clock.turn(hours=25)
    world.crash()
    assert world.outbox().standing().forgotten == OpenRows(1, (RowKey("a"),))


def test_rows_that_end_uncertain_stand_beside_those_whose_keys_may_be_forgotten(world: World) -> None:
    ended(world, Uncertain(answer(503)))
    world.clock.turn(hours=25)
    world.crash()
    world.stage([row("a"), row("b")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 8)
    outbox.settle_and_claim([Settled(intent, Uncertain(answer(503)))], 0)
    standing = outbox.standing()
    assert (standing.uncertain, standing.forgotten) == (OpenRows(1, (RowKey("b"),)), OpenRows(1, (RowKey("a"),)))


def test_what_a_list_has_shown_is_written_unless_the_entry_has_moved_on(world: World) -> None:
    world.stage([row(key) for key in "abcd"])
    world.publish(Unconfirmed(answer(409)), Conflict(answer(409)), Conflict(answer(409)), Receipt(14, answer(201)))
    entries = {key: world.known(key) for key in "abcd"}
    resolved(world, "b", Resend())
    found = [
        Found(entries[key].entry_id, 0, number, "title and start agree")
        for key, number in zip("abcd", range(11, 15), strict=True)
    ]
    found[2] = replace(found[2], event_id=14)
    assert decisions(world).record_found(found) == (found[0],)
    assert (world.known("a").state, world.known("a").event_id) == (EntryState.DELIVERED, 11)
    assert world.known("a").decision is Decision.RECONCILED
    assert world.states() == {"a": "delivered", "b": "pending", "c": "conflict", "d": "delivered"}
