"""What a person decides, on a real state DB: rows that go out again, rows that are settled, rows that are set aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from unit.state.world import DESTINATION, FEED, World, answer, row, skipped

from connectors.errors import KeyRefusedError
from mappings.delivery import (
    Blocked,
    Conflict,
    Denial,
    Intent,
    Postponed,
    Receipt,
    Refusal,
    Superseded,
    Uncertain,
    Unconfirmed,
    Verdict,
)
from mappings.outcome import MappedRow, Skipped
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import FeedName, RowKey, fingerprint, idempotency_key
from state.database import reading
from state.enums import Decision, DriftKind, EntryState, ProblemKind, Waiting
from state.errors import LeaseLostError
from state.ledger.accounts import StagePolicy
from state.ledger.choices import Change, Instruction, NoChange, NotPossibleError, Option
from state.ledger.decisions import Decisions, EventTakenError, Found, LeftAlone
from state.ledger.entries import duplicate_digest_of
from state.ledger.outbox import Settled
from state.ledger.standing import FeedScope, OpenRows
from state.queries import LedgerQueries, RowFilter
from state.tables import ENTRY

ANN = "ann@desk"
BOOK = FeedScope(DESTINATION, FEED)
REFUSED = Refusal(answer(400, "req-1"))
DENIED = Postponed(answer(401), KeyRefusedError("the key is revoked"))


def decisions(world: World) -> Decisions:
    return Decisions(world.ledger.fence("", world.lease.token), ANN)


def decide(world: World, key: str, choice: Instruction) -> Change | NoChange:
    (found,) = decisions(world).resolve([RowKey(key)], choice)
    return found.outcome


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


def test_only_the_states_and_rows_asked_for_are_retried_and_once(world: World) -> None:
    world.stage([row(key) for key in "abcd"])
    world.publish(REFUSED, REFUSED, Blocked(answer(404)))
    assert decisions(world).retry([EntryState.BLOCKED]).blocked == 1
    retried = decisions(world).retry(row_keys=[RowKey("b"), RowKey("d")])
    assert (retried.refused, retried.left_alone) == (1, (LeftAlone(RowKey("d"), "it is delivered"),))
    assert world.states() == {"a": "refused", "b": "pending", "c": "pending", "d": "delivered"}
    for refused in (1, 0):
        again = decisions(world).retry()
        assert (again.refused, again.blocked) == (refused, 0)


@pytest.mark.parametrize("row_keys", [None, [RowKey("a")]])
def test_a_retry_says_of_a_row_turned_away_with_the_key_what_lets_it_out(world: World, row_keys: list[RowKey] | None) -> None:
    ended(world, DENIED)
    before = world.known("a")
    (left_alone,) = decisions(world).retry(row_keys=row_keys).left_alone
    assert left_alone.row_key == "a"
    assert left_alone.because.startswith("it is pending: the next run sends it; if the service only repeats a denial")
    assert "--resend" in left_alone.because
    assert world.known("a") == before


@pytest.mark.parametrize("verdict", [DENIED, Blocked(answer(403)), Blocked(answer(404))])
def test_letting_a_denied_row_out_under_its_next_key_names_the_risk_once(world: World, verdict: Verdict) -> None:
    ended(world, verdict)
    change = decide(world, "a", Instruction(Option.RESEND))
    assert isinstance(change, Change)
    assert "there will be two" in change.risk
    assert isinstance(decide(world, "a", Instruction(Option.RESEND)), NoChange)
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert intent.denial == Denial(verdict.answer.request_id, is_resent=True)
    world.crash()
    world.publish(Superseded(answer(verdict.answer.status, "req-2")), verdict)
    entry = world.known("a")
    assert (entry.state, entry.revision) == (EntryState.CONFLICT, 0), "an attempt is unaccounted for"


def test_a_denied_row_goes_on_under_its_next_key_once_for_each_resend(world: World) -> None:
    ended(world, DENIED)
    decide(world, "a", Instruction(Option.RESEND))
    world.publish(Superseded(answer(401, "req-2")), DENIED)
    entry = world.known("a")
    assert (entry.state, entry.revision, entry.decision) == (EntryState.PENDING, 1, Decision.RETRIED)
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


@pytest.mark.parametrize("is_corrected", [True, False], ids=["corrected at its source", "retried, sent and cut off"])
def test_a_refusal_moves_no_row_to_another_key_without_a_persons_word_or_after_a_cut(world: World, is_corrected: bool) -> None:
    ended(world, REFUSED)
    if is_corrected:
        world.stage([row("a", "corrected")])
    else:
        decisions(world).retry()
        world.outbox().settle_and_claim([], 1)
        world.crash()
    world.publish(Refusal(answer(400, "req-2")))
    assert (world.known("a").state, world.known("a").revision) == (EntryState.REFUSED, 0)


@pytest.mark.parametrize("is_retried", [True, False])
def test_a_blocked_row_keeps_its_key_and_is_not_superseded_by_a_409(world: World, is_retried: bool) -> None:
    ended(world, Blocked(answer(403, "req-1")))
    if is_retried:
        decisions(world).retry()
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert (intent.denial, intent.refused_request_id) == (Denial("req-1"), "")


@pytest.mark.parametrize("verdict", [Conflict(answer(409)), Unconfirmed(answer(409)), REFUSED, Uncertain(answer(503))])
def test_a_row_is_delivered_as_the_event_that_a_person_names(world: World, verdict: Verdict) -> None:
    ended(world, verdict)
    before = world.known("a").state.value.replace("_", " ")
    decide(world, "a", Instruction(Option.EVENT_ID, event_id=4711))
    entry = world.known("a")
    assert (entry.state, entry.event_id, entry.unanswered_at) == (EntryState.DELIVERED, 4711, None)
    assert (entry.decision, entry.decided_by, entry.decided_at) == (Decision.EVENT_ID, ANN, world.clock())
    assert entry.answer is not None
    assert entry.answer.message == f"{ANN} said that it is event 4711; it was {before}"
    assert world.outbox().settle_and_claim([], 9) == []


def test_an_event_id_said_twice_is_kept_once_and_a_slip_can_be_corrected_whatever_was_decided_since(world: World) -> None:
    ended(world, Conflict(answer(409)))
    decide(world, "a", Instruction(Option.EVENT_ID, event_id=11))
    assert isinstance(decide(world, "a", Instruction(Option.EVENT_ID, event_id=11)), NoChange)
    decide(world, "a", Instruction(Option.EVENT_ID, event_id=12))
    assert world.known("a").event_id == 12
    world.stage([row("a", "another title")])
    decide(world, "a", Instruction(Option.IGNORE))
    decide(world, "a", Instruction(Option.EVENT_ID, event_id=13))
    assert (world.known("a").event_id, world.known("a").decision) == (13, Decision.EVENT_ID)


@pytest.mark.parametrize(
    ("is_delivered", "choice", "because"),
    [
        pytest.param(
            True, Instruction(Option.EVENT_ID, event_id=8), "by the service's own answer", id="an id that the service gave"
        ),
        pytest.param(True, Instruction(Option.RESEND), "a second one", id="a second event of a delivered row"),
        pytest.param(False, Instruction(Option.IGNORE), "the next run sends it", id="a row that waits to be sent"),
    ],
)
def test_what_cannot_be_decided_says_why(world: World, is_delivered: bool, choice: Instruction, because: str) -> None:
    world.stage([row("a")])
    if is_delivered:
        world.publish()
    with pytest.raises(NotPossibleError, match=because):
        decide(world, "a", choice)


def another_feed(world: World) -> World:
    """A feed beside this one in the same state DB."""
    world.neighbours.append(World(world.url, world.clock, FeedName("other")))
    return world.neighbours[-1]


def test_one_event_belongs_to_one_row_of_a_destination_whatever_the_feed(world: World) -> None:
    world.stage([row("a"), row("b")])
    world.publish(Conflict(answer(409)), Receipt(7, answer(201)))
    with pytest.raises(EventTakenError, match="event 7 is row b of agenda already"):
        decide(world, "a", Instruction(Option.EVENT_ID, event_id=7))
    other = another_feed(world)
    other.stage([row("x")])
    with pytest.raises(EventTakenError):
        decide(other, "x", Instruction(Option.EVENT_ID, event_id=7))
    assert world.known("a").state is EntryState.CONFLICT


def test_a_forgotten_row_is_resent_as_it_was_and_from_then_on_the_services_memory_counts_anew(world: World) -> None:
    forgotten(world)
    before = world.known("a")
    change = decide(world, "a", Instruction(Option.RESEND))
    assert isinstance(change, Change)
    assert "there will be two" in change.risk
    assert isinstance(decide(world, "a", Instruction(Option.RESEND)), NoChange)
    world.clock.turn(days=6)  # the feed's next run is a week away
    world.crash()
    (intent,) = world.outbox().settle_and_claim([], 9)
    assert (intent.key, intent.body, intent.is_unanswered) == (before.key, before.body, True)
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
    outcome = decide(world, "a", Instruction(Option.RESEND))
    assert isinstance(outcome, Change)
    assert outcome.is_next_revision
    (intent,) = world.outbox().settle_and_claim([], 9)
    assert intent.key == idempotency_key("tests", FEED, RowKey("a"), revision=1) != before.key
    assert (intent.body, intent.is_unanswered, intent.refused_request_id) == (before.body, False, "")


def test_a_row_that_is_resent_under_the_next_key_says_what_the_source_says_now(world: World) -> None:
    ended(world, Conflict(answer(409)))
    world.stage([row("a", "edited")])
    decide(world, "a", Instruction(Option.RESEND))
    world.stage([row("a", "edited")])
    (intent,) = world.outbox().settle_and_claim([], 9)
    assert b"edited" in intent.body
    assert world.known("a").drift_kind is None


def test_resending_a_refused_row_is_a_retry(world: World) -> None:
    ended(world, REFUSED)
    decide(world, "a", Instruction(Option.RESEND))
    assert (world.known("a").state, world.known("a").decision) == (EntryState.PENDING, Decision.RETRY)


@pytest.mark.parametrize("verdict", [Conflict(answer(409)), REFUSED, Blocked(answer(404)), Uncertain(answer(503))])
def test_a_row_set_aside_stays_as_it_is_unlisted_and_unsent_until_that_is_taken_back(world: World, verdict: Verdict) -> None:
    ended(world, verdict)
    before = world.known("a").state
    decide(world, "a", Instruction(Option.IGNORE))
    assert isinstance(decide(world, "a", Instruction(Option.IGNORE)), NoChange)
    assert world.outbox().settle_and_claim([], 9) == []
    (status,) = LedgerQueries(world.engine).status()
    assert (world.known("a").state, dict(status.waiting), status.set_aside) == (before, {}, 1)
    waiting = RowFilter(waiting=Waiting(before))
    assert LedgerQueries(world.engine).rows(BOOK, waiting) == ()

    decide(world, "a", Instruction(Option.UNDO))
    assert [one.row_key for one in LedgerQueries(world.engine).rows(BOOK, waiting)] == ["a"]
    assert world.known("a").decision is None
    assert isinstance(decide(world, "a", Instruction(Option.UNDO)), NoChange)


def test_a_refused_row_set_aside_is_a_new_matter_once_it_is_corrected(world: World) -> None:
    ended(world, REFUSED)
    decide(world, "a", Instruction(Option.IGNORE))
    assert decisions(world).retry().refused == 0
    world.stage([row("a", "corrected")])
    assert world.known("a").decision is None
    world.publish(Refusal(answer(400, "req-2")))
    (status,) = LedgerQueries(world.engine).status()
    assert dict(status.waiting) == {"refused": 1}


def event(key: str, title: str = "Jazz", **more: Any) -> MappedRow:
    """A row with a whole payload: rows of one title look like copies of each other."""
    place = {"approxLocation": {"city": {"placeId": "lis"}}, "channelId": 7}
    body = json.dumps({"status": "published", "title": title, "startAt": "2030-05-01T20:00:00+02:00", **place, **more}).encode()
    return replace(row(key, title), body=body, fingerprint=fingerprint(body, ""), duplicate_digest=duplicate_digest_of(body))


def held(world: World) -> None:
    """Row a2 is delivered and gone from its source, row n2 takes its place and is held."""
    world.stage([event("a2")])
    world.publish()
    world.stage([event("n2")])
    assert world.known("n2").state is EntryState.HELD


def vanished(world: World) -> None:
    """Row a, delivered and gone from its source."""
    delivered(world, "A")
    world.stage([])


def returned(world: World) -> None:
    """Row a, whose event was removed by hand, is in its source again and asks for something else."""
    vanished(world)
    decide(world, "a", Instruction(Option.REMOVED))
    world.stage([event("a", "B")])


def cut_off(world: World) -> None:
    """Row a, sent without an answer."""
    world.stage([event("a")])
    world.outbox().settle_and_claim([], 1)
    world.crash()


def delivered(world: World, *titles: str) -> None:
    """Row a, delivered with the first of these titles and edited to each of the others."""
    world.stage([event("a", titles[0])])
    world.publish()
    for title in titles[1:]:
        world.stage([event("a", title)])


def cancelled(key: str) -> Skipped:
    return replace(skipped(key), is_cancelled=True)


def sent(world: World) -> list[Intent]:
    world.clock.turn(minutes=5)
    return world.outbox().settle_and_claim([], 9)


def drift_of(world: World, key: str = "a") -> str | None:
    body = world.known(key).drift_body
    return None if body is None else str(json.loads(body)["title"])


def is_listed(world: World, key: str) -> bool:
    """Whether an entry is drifted or vanished, and nobody has ignored it."""
    which = (RowFilter(waiting=Waiting.DRIFT), RowFilter(waiting=Waiting.VANISHED))
    return any(one.row_key == key for each in which for one in LedgerQueries(world.engine).rows(BOOK, each))


def columns(world: World) -> dict[str, dict[str, Any]]:
    """All that matters of all entries, by key."""
    with reading(world.engine) as connection:
        rows = connection.execute(select(ENTRY)).all()
    left_out = {"updated_at", "row_digest", "undo"}
    return {row.row_key: {name: value for name, value in row._asdict().items() if name not in left_out} for row in rows}


def after(verdict: Verdict) -> Callable[[World], None]:
    return lambda world: ended(world, verdict)


@pytest.mark.parametrize(
    ("arrange", "key", "choice"),
    [
        pytest.param(lambda world: delivered(world, "A", "B"), "a", Instruction(Option.APPLIED), id="a change applied by hand"),
        pytest.param(after(Conflict(answer(409))), "a", Instruction(Option.EVENT_ID, event_id=11), id="the event of a conflict"),
        pytest.param(after(Conflict(answer(409))), "a", Instruction(Option.RESEND), id="a conflict sent under the next key"),
        pytest.param(
            after(Unconfirmed(answer(409))), "a", Instruction(Option.RESEND), id="an unconfirmed row under the next key"
        ),
        pytest.param(after(REFUSED), "a", Instruction(Option.RESEND), id="a refused row sent again"),
        pytest.param(after(Blocked(answer(404))), "a", Instruction(Option.RESEND), id="a blocked row sent again"),
        pytest.param(after(DENIED), "a", Instruction(Option.RESEND), id="a denied row sent again"),
        pytest.param(forgotten, "a", Instruction(Option.RESEND), id="a forgotten row sent again"),
        pytest.param(cut_off, "a", Instruction(Option.IGNORE), id="an unanswered row set aside"),
        pytest.param(held, "n2", Instruction(Option.RELEASE), id="a held row released"),
        pytest.param(held, "n2", Instruction(Option.SAME_AS), id="an event adopted"),
        pytest.param(vanished, "a", Instruction(Option.REMOVED), id="the event of a vanished row removed"),
        pytest.param(returned, "a", Instruction(Option.RESEND), id="a removed event created again"),
    ],
)
def test_a_decision_that_is_taken_back_leaves_all_as_it_was(
    world: World, arrange: Callable[[World], None], key: str, choice: Instruction
) -> None:
    arrange(world)
    before = columns(world)
    assert isinstance(decide(world, key, choice), Change)
    decide(world, key, Instruction(Option.UNDO))
    assert columns(world) == before


@pytest.mark.parametrize(
    ("arrange", "key", "choice"),
    [
        pytest.param(held, "n2", Instruction(Option.RELEASE), id="a held row released"),
        pytest.param(after(Conflict(answer(409))), "a", Instruction(Option.RESEND), id="a conflict"),
        pytest.param(after(Unconfirmed(answer(409))), "a", Instruction(Option.RESEND), id="an unconfirmed row"),
        pytest.param(after(REFUSED), "a", Instruction(Option.RESEND), id="a refused row"),
        pytest.param(after(Blocked(answer(404))), "a", Instruction(Option.RESEND), id="a blocked row"),
    ],
)
def test_a_release_and_a_resend_are_done_once_and_stand_once_the_row_was_sent(
    world: World, arrange: Callable[[World], None], key: str, choice: Instruction
) -> None:
    arrange(world)
    decide(world, key, choice)
    assert isinstance(decide(world, key, choice), NoChange)
    assert [intent.row_key for intent in sent(world)] == [key]
    with pytest.raises(NotPossibleError, match="sent since"):
        decide(world, key, Instruction(Option.UNDO))


def test_a_drift_that_was_applied_by_hand_is_the_baseline_and_going_back_is_drift_again(world: World) -> None:
    delivered(world, "A", "B")
    decide(world, "a", Instruction(Option.APPLIED))
    entry = world.known("a")
    assert (entry.drift_kind, json.loads(entry.shown)["title"], entry.decision) == (None, "B", Decision.APPLIED)
    assert isinstance(decide(world, "a", Instruction(Option.APPLIED)), NoChange)
    assert world.stage([event("a", "B")]).account.unchanged == 1
    assert world.stage([event("a", "A")]).account.drifted == 1
    assert (drift_of(world), sent(world)) == ("A", [])


def test_a_draft_that_was_published_by_hand_is_applied(world: World) -> None:
    world.stage([event("a", status="draft")])
    world.publish()
    world.stage([event("a")])
    assert world.known("a").drift_kind is DriftKind.TO_PUBLISH
    decide(world, "a", Instruction(Option.APPLIED))
    assert world.stage([event("a")]).account.unchanged == 1


def test_a_copy_of_the_applied_baseline_is_held_and_one_of_the_delivered_body_is_not(world: World) -> None:
    delivered(world, "A", "B")
    decide(world, "a", Instruction(Option.APPLIED))
    world.stage([event("x", "A"), event("y", "B")])
    assert world.states() == {"a": "delivered", "x": "pending", "y": "held"}


def test_a_cancelled_event_cannot_be_applied_but_removed(world: World) -> None:
    delivered(world, "A")
    world.stage([cancelled("a")])
    with pytest.raises(NotPossibleError, match="cancelled") as caught:
        decide(world, "a", Instruction(Option.APPLIED))
    assert "--removed" in caught.value.hint
    outcome = decide(world, "a", Instruction(Option.REMOVED))
    assert isinstance(outcome, Change)
    assert outcome.removed == (world.known("a").event_id,)
    world.stage([cancelled("a")])
    assert not is_listed(world, "a")


@pytest.mark.parametrize(("now", "drift"), [("C", "C"), ("A", None)])
def test_undo_of_applied_keeps_what_the_source_asks_for_now_as_drift_against_the_old_baseline(
    world: World, now: str, drift: str | None
) -> None:
    delivered(world, "A", "B")
    decide(world, "a", Instruction(Option.APPLIED))
    world.stage([event("a", now)])
    assert (json.loads(world.known("a").shown)["title"], drift_of(world)) == ("B", now)
    decide(world, "a", Instruction(Option.UNDO))
    assert (json.loads(world.known("a").shown)["title"], drift_of(world)) == ("A", drift)


def test_undo_of_applied_lists_an_ignored_change_only_if_it_is_another_one_now(world: World) -> None:
    delivered(world, "A", "B")
    decide(world, "a", Instruction(Option.IGNORE))
    decide(world, "a", Instruction(Option.APPLIED))
    decide(world, "a", Instruction(Option.UNDO))
    assert (drift_of(world), is_listed(world, "a")) == ("B", False)
    decide(world, "a", Instruction(Option.APPLIED))
    world.stage([event("a", "C")])
    decide(world, "a", Instruction(Option.UNDO))
    assert (drift_of(world), is_listed(world, "a")) == ("C", True)


def test_an_ignored_change_stays_ignored_when_the_row_goes_back_and_forth_until_it_changes_otherwise(world: World) -> None:
    delivered(world, "A", "B")
    decide(world, "a", Instruction(Option.IGNORE))
    account = world.stage([event("a", "B")]).account
    assert (account.unchanged, account.drifted) == (1, 0)
    for title in ("A", "B", "A", "B"):
        world.stage([event("a", title)])
        assert not is_listed(world, "a"), title
    assert world.stage([event("a", "C")]).account.drifted == 1
    assert is_listed(world, "a")
    assert world.stage([event("a", "B")]).account.drifted == 1
    assert not is_listed(world, "a")


def test_what_a_read_ignores_once_more_is_listed_again_by_undo_whatever_was_decided_since(world: World) -> None:
    delivered(world, "A", "B")
    decide(world, "a", Instruction(Option.IGNORE))
    world.stage([event("a", "C")])
    decide(world, "a", Instruction(Option.IGNORE))
    decide(world, "a", Instruction(Option.UNDO))
    world.stage([])
    decide(world, "a", Instruction(Option.REMOVED))
    decide(world, "a", Instruction(Option.UNDO))
    world.stage([event("a", "B")])
    assert not is_listed(world, "a")
    decide(world, "a", Instruction(Option.UNDO))
    world.stage([event("a", "B")])
    assert is_listed(world, "a")


def test_a_warning_alone_can_be_ignored_until_the_row_changes(world: World) -> None:
    warning = (Reason(ReasonCode.REQUIRED, "description", "TEXT", "", "write more"),)
    books = LedgerQueries(world.engine)
    world.stage([replace(event("a"), warnings=warning)])
    world.publish()
    assert [one.row_key for one in books.problems(BOOK, ProblemKind.WARNING)] == ["a"]
    decide(world, "a", Instruction(Option.IGNORE))
    world.stage([replace(event("a"), warnings=warning)])
    assert books.problems(BOOK, ProblemKind.WARNING) == ()
    decide(world, "a", Instruction(Option.UNDO))
    assert [one.row_key for one in books.problems(BOOK, ProblemKind.WARNING)] == ["a"]
    decide(world, "a", Instruction(Option.IGNORE))
    world.stage([replace(event("a", "Other"), warnings=warning)])
    assert [one.row_key for one in books.problems(BOOK, ProblemKind.WARNING)] == ["a"]


def test_a_row_without_warnings_or_drift_has_nothing_to_ignore(world: World) -> None:
    delivered(world, "A")
    assert isinstance(decide(world, "a", Instruction(Option.IGNORE)), NoChange)


@pytest.mark.parametrize("choice", [Instruction(Option.RELEASE), Instruction(Option.SAME_AS)])
def test_a_held_row_whose_decision_is_taken_back_is_held_with_what_it_asks_for_now(world: World, choice: Instruction) -> None:
    held(world)
    decide(world, "n2", choice)
    world.stage([event("n2", "Blues")])
    decide(world, "n2", Instruction(Option.UNDO))
    assert (world.known("n2").state, json.loads(world.known("n2").body)["title"]) == (EntryState.HELD, "Blues")
    assert sent(world) == []
    decide(world, "n2", Instruction(Option.RELEASE))
    world.stage([event("n2", "Blues"), event("n3", "Blues")])
    assert (world.states()["n2"], world.states()["n3"]) == ("pending", "held"), "a copy of what it asks for now is held"


def test_a_released_row_is_marked_so_that_a_copy_of_it_is_held(world: World) -> None:
    held(world)
    decide(world, "n2", Instruction(Option.RELEASE))
    decide(world, "n2", Instruction(Option.UNDO))
    world.stage([event("n2", "Blues")])
    decide(world, "n2", Instruction(Option.RELEASE))
    world.stage([event("n2", "Blues"), event("n3", "Blues")])
    assert (world.states()["n2"], world.states()["n3"]) == ("pending", "held")


def test_the_event_of_the_candidate_moves_to_the_held_row_and_nothing_is_sent(world: World) -> None:
    held(world)
    event_id = world.known("a2").event_id
    outcome = decide(world, "n2", Instruction(Option.SAME_AS))
    assert isinstance(outcome, Change)
    assert str(outcome.adopted) == "a2"
    old, new = world.known("a2"), world.known("n2")
    assert (new.state, new.event_id, new.decision, new.drift_kind) == (EntryState.DELIVERED, event_id, Decision.SAME_AS, None)
    assert (old.state, old.event_id, old.candidate_id) == (EntryState.SUPERSEDED, None, new.entry_id)
    assert old.key == idempotency_key("tests", FEED, RowKey("a2"), revision=1)
    assert isinstance(decide(world, "n2", Instruction(Option.SAME_AS)), NoChange)
    assert isinstance(decide(world, "n2", Instruction(Option.SAME_AS, RowKey("a2"))), NoChange)
    account = world.stage([event("n2")]).account
    assert (account.unchanged, account.held, sent(world)) == (1, 0, [])
    assert not is_listed(world, "a2")
    assert event_id is not None
    assert LedgerQueries(world.engine).owners(DESTINATION, [event_id]) == {event_id: "row n2 of agenda"}


def test_what_the_held_row_asks_for_is_drift_against_the_baseline_that_it_takes_over(world: World) -> None:
    delivered(world, "A", "Jazz")
    decide(world, "a", Instruction(Option.APPLIED))
    world.stage([event("n2", description="Tonight")])
    decide(world, "n2", Instruction(Option.SAME_AS))
    entry = world.known("n2")
    assert json.loads(entry.shown) == json.loads(event("a", "Jazz").body)
    assert entry.drift_kind is DriftKind.EDITED
    assert entry.drift_body == event("n2", description="Tonight").body
    world.stage([event("x")])
    assert world.states()["x"] == "held", "the adopted event is in the index of duplicates"


def test_the_row_whose_event_was_adopted_is_held_when_it_returns_and_goes_out_under_its_next_key(world: World) -> None:
    held(world)
    decide(world, "n2", Instruction(Option.SAME_AS))
    world.stage([event("n2"), event("a2")])
    assert world.states() == {"a2": "held", "n2": "delivered"}
    assert world.known("a2").candidate_id == world.known("n2").entry_id
    with pytest.raises(NotPossibleError, match="a2 is back in its source"):
        decide(world, "n2", Instruction(Option.UNDO))
    decide(world, "a2", Instruction(Option.RELEASE))
    assert [intent.key for intent in sent(world)] == [idempotency_key("tests", FEED, RowKey("a2"), revision=1)]


def test_an_adoption_stands_once_the_event_was_decided_on(world: World) -> None:
    held(world)
    decide(world, "n2", Instruction(Option.SAME_AS))
    assert world.stage([event("n2", "Blues")]).account.drifted == 1
    assert (drift_of(world, "n2"), sent(world)) == ("Blues", [])
    decide(world, "n2", Instruction(Option.APPLIED))
    decide(world, "n2", Instruction(Option.UNDO))
    with pytest.raises(NotPossibleError, match="cannot be taken back"):
        decide(world, "n2", Instruction(Option.UNDO))


def test_a_row_takes_over_the_event_of_the_key_that_a_person_names(world: World) -> None:
    world.stage([event("a2"), event("b2", "Blues")])
    world.publish()
    world.stage([event("n2")])
    decide(world, "n2", Instruction(Option.SAME_AS, RowKey("b2")))
    assert world.states() == {"a2": "delivered", "b2": "superseded", "n2": "delivered"}
    assert drift_of(world, "n2") == "Jazz"
    with pytest.raises(NotPossibleError, match="there is no row nothing"):
        decide(world, "a2", Instruction(Option.SAME_AS, RowKey("nothing")))


@pytest.mark.parametrize(
    ("verdict", "hint"),
    [
        (None, "run"),
        (REFUSED, "--release"),
        (Blocked(answer(403)), "run"),
        (Uncertain(answer(503)), "reconcile"),
        (Conflict(answer(409)), "reconcile"),
    ],
)
def test_an_entry_without_an_event_has_none_to_give_up(world: World, verdict: Verdict | None, hint: str) -> None:
    world.stage([event("a2")])
    world.publish()
    world.stage([event("a2"), event("n2"), event("c2", "Other")])
    if verdict is not None:
        world.publish(verdict)
    with pytest.raises(NotPossibleError) as caught:
        decide(world, "n2", Instruction(Option.SAME_AS, RowKey("c2")))
    assert hint in caught.value.hint
    assert world.states()["n2"] == "held"


def test_of_an_unconfirmed_event_the_held_row_is_unconfirmed(world: World) -> None:
    world.stage([event("a2")])
    world.publish(Unconfirmed(answer(409)))
    world.stage([event("n2")])
    decide(world, "n2", Instruction(Option.SAME_AS))
    assert world.states() == {"a2": "superseded", "n2": "delivered_unconfirmed"}


def test_two_rows_cannot_take_over_one_event_and_neither_does(world: World) -> None:
    world.stage([event("a2")])
    world.publish()
    world.stage([event("n2"), event("n3")])
    with pytest.raises(NotPossibleError, match="cannot become 2 rows"):
        decisions(world).resolve([RowKey("n2"), RowKey("n3")], Instruction(Option.SAME_AS))
    assert world.states() == {"a2": "delivered", "n2": "held", "n3": "held"}


def test_an_event_of_another_feed_is_taken_over_under_the_leases_of_both(world: World) -> None:
    world.stage([event("a2")])
    world.publish()
    other = another_feed(world)
    other.stage([event("n2")])
    with pytest.raises(LeaseLostError):
        decide(other, "n2", Instruction(Option.SAME_AS))
    before = columns(world)
    of_both = Decisions(other.ledger.fence("", other.lease.token), ANN, [world.lease])
    of_both.resolve([RowKey("n2")], Instruction(Option.SAME_AS))
    assert world.states() == {"a2": "superseded", "n2": "delivered"}
    assert world.known("a2").key == idempotency_key("tests", FEED, RowKey("a2"), revision=1)
    of_both.resolve([RowKey("n2")], Instruction(Option.UNDO))
    assert columns(world) == before


def test_a_removed_event_is_created_again_under_the_next_key_and_only_where_its_source_asks_for_it(world: World) -> None:
    vanished(world)
    decide(world, "a", Instruction(Option.REMOVED))
    assert world.known("a").removed_at == world.clock()
    assert isinstance(decide(world, "a", Instruction(Option.REMOVED)), NoChange)
    with pytest.raises(NotPossibleError, match="source does not ask for it"):
        decide(world, "a", Instruction(Option.RESEND))
    world.stage([event("a", "A")])
    assert world.known("a").drift_kind is DriftKind.RETURNED
    decide(world, "a", Instruction(Option.RESEND))
    (intent,) = sent(world)
    assert (intent.key, intent.body) == (idempotency_key("tests", FEED, RowKey("a"), revision=1), event("a", "A").body)


def test_undo_of_removed_keeps_a_change_of_the_row_that_came_back_as_drift(world: World) -> None:
    delivered(world, "A")
    world.stage([])
    decide(world, "a", Instruction(Option.REMOVED))
    world.stage([event("a", "B")])
    decide(world, "a", Instruction(Option.UNDO))
    assert (world.known("a").drift_kind, drift_of(world)) == (DriftKind.EDITED, "B")
    world.stage([])
    decide(world, "a", Instruction(Option.REMOVED))
    world.stage([event("a", "A")])
    decide(world, "a", Instruction(Option.UNDO))
    assert (world.known("a").drift_kind, world.known("a").removed_at) == (None, None)


def test_a_row_that_comes_back_after_its_removal_can_be_ignored(world: World) -> None:
    delivered(world, "A")
    world.stage([])
    decide(world, "a", Instruction(Option.REMOVED))
    world.stage([event("a", "A")])
    with pytest.raises(NotPossibleError, match="removed by hand"):
        decide(world, "a", Instruction(Option.APPLIED))
    decide(world, "a", Instruction(Option.IGNORE))
    world.stage([event("a", "A")])
    assert not is_listed(world, "a")


DRAFTING = StagePolicy(on_change="create_draft_again")


def redrafted(world: World) -> int:
    """Row a, whose change was delivered as a draft of its own; return the id of its earlier event."""
    delivered(world, "A")
    world.stage([event("a", "B")], policy=DRAFTING)
    world.publish(Receipt(2_000, answer(201)))
    (earlier,) = world.known("a").earlier_event_ids
    return earlier


@pytest.mark.parametrize("is_gone", [False, True], ids=["the row is in its source", "the row has vanished"])
def test_only_earlier_events_are_removed_unless_the_row_has_vanished(world: World, is_gone: bool) -> None:
    earlier = redrafted(world)
    if is_gone:
        world.stage([], policy=DRAFTING)
    else:
        with pytest.raises(NotPossibleError, match="only earlier events"):
            decide(world, "a", Instruction(Option.IGNORE))
    change = decide(world, "a", Instruction(Option.REMOVED))
    assert isinstance(change, Change)
    assert change.removed == ((earlier, 2_000) if is_gone else (earlier,))
    entry = world.known("a")
    assert (entry.earlier_event_ids, entry.removed_at is not None, entry.event_id) == ((), is_gone, 2_000)
    decide(world, "a", Instruction(Option.UNDO))
    entry = world.known("a")
    assert (entry.earlier_event_ids, entry.decision, entry.removed_at) == ((earlier,), None, None)


def test_earlier_events_are_removed_while_the_draft_that_follows_them_waits_to_be_sent(world: World) -> None:
    delivered(world, "A")
    world.stage([event("a", "B")], policy=DRAFTING)
    decide(world, "a", Instruction(Option.REMOVED))
    assert world.known("a").earlier_event_ids == ()
    assert len(sent(world)) == 1


def test_undo_of_a_resend_keeps_the_body_that_was_sent_and_lists_the_change_as_drift(world: World) -> None:
    world.stage([event("a", "A")])
    world.publish(Conflict(answer(409)))
    before = world.known("a").body
    decide(world, "a", Instruction(Option.RESEND))
    world.stage([event("a", "B")])
    decide(world, "a", Instruction(Option.UNDO))
    entry = world.known("a")
    assert (entry.state, entry.body, drift_of(world)) == (EntryState.CONFLICT, before, "B")


def test_several_rows_are_decided_all_or_none_with_all_problems_in_one_error(world: World) -> None:
    world.stage([event("a", "A"), event("b", "B"), event("c", "C")])
    world.publish()
    world.stage([event("a", "A2"), event("b", "B"), cancelled("c")])
    before = columns(world)
    with pytest.raises(NotPossibleError, match="cancelled c"):
        decisions(world).resolve([RowKey("a"), RowKey("c")], Instruction(Option.APPLIED))
    assert columns(world) == before
    done = decisions(world).resolve([RowKey("a"), RowKey("b")], Instruction(Option.APPLIED))
    assert [isinstance(one.outcome, Change) for one in done] == [True, False]


def test_uncertain_rows_stand_beside_those_whose_keys_may_be_forgotten(world: World) -> None:
    ended(world, Uncertain(answer(503)))
    assert world.outbox().standing().forgotten.count == 0
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
    decide(world, "b", Instruction(Option.RESEND))
    found = [
        Found(entries[key].entry_id, 0, number, "title and start agree")
        for key, number in zip("abcd", range(11, 15), strict=True)
    ]
    found[2] = replace(found[2], event_id=14)
    assert decisions(world).record_found(found) == (found[0],)
    assert (world.known("a").state, world.known("a").event_id) == (EntryState.DELIVERED, 11)
    assert world.known("a").decision is Decision.RECONCILED
    assert world.states() == {"a": "delivered", "b": "pending", "c": "conflict", "d": "delivered"}
