"""What a person decides, on a real state DB: rows that go out again, rows that are settled, rows that are set aside."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update
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
from state.database import reading, writing
from state.enums import Decision, DriftKind, EntryState, ProblemKind, Waiting
from state.holders import LeaseLostError
from state.ledger.choices import (
    Apply,
    Change,
    Choice,
    NoChange,
    NotPossibleError,
    Release,
    Remove,
    Resend,
    SameAs,
    SetAside,
    TakeBack,
    TakeEvent,
)
from state.ledger.decisions import Decisions, EventTakenError, Found, LeftAlone, Resolved
from state.ledger.entries import duplicate_digest_of
from state.ledger.ledger import Ledger
from state.ledger.outbox import Settled
from state.ledger.reads import StagePolicy
from state.ledger.standing import FeedScope, OpenRows
from state.queries import LedgerQueries, RowFilter
from state.tables import ENTRY

ANN = "ann@desk"
BOOK = FeedScope(DESTINATION, FEED)
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
    assert isinstance(resolved(world, "a", Resend()).outcome, NoChange)
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
    assert isinstance(resolved(world, "a", TakeEvent(11)).outcome, NoChange)
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
    assert isinstance(resolved(world, "a", Resend()).outcome, NoChange)
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
    assert isinstance(resolved(world, "a", SetAside()).outcome, NoChange)
    assert world.outbox().settle_and_claim([], 9) == []
    (status,) = LedgerQueries(world.engine).status()
    assert (world.known("a").state, dict(status.waiting), status.set_aside) == (before, {}, 1)
    waiting = RowFilter(waiting=Waiting(before))
    assert LedgerQueries(world.engine).rows(BOOK, waiting) == ()

    resolved(world, "a", TakeBack())
    assert [one.row_key for one in LedgerQueries(world.engine).rows(BOOK, waiting)] == ["a"]
    assert world.known("a").decision is None
    assert isinstance(resolved(world, "a", TakeBack()).outcome, NoChange)


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
    (status,) = LedgerQueries(world.engine).status()
    assert dict(status.waiting) == {"refused": 1}


def test_drift_handled_by_hand_is_set_aside_until_the_source_changes_again(world: World) -> None:
    ended(world, Receipt(7, answer(201)))
    assert world.stage([row("a", "edited")]).account.drifted == 1
    resolved(world, "a", SetAside())
    account = world.stage([row("a", "edited")]).account
    assert (account.unchanged, account.drifted) == (1, 0)
    assert LedgerQueries(world.engine).rows(BOOK, RowFilter(waiting=Waiting.DRIFT)) == ()
    assert world.stage([row("a", "edited again")]).account.drifted == 1
    assert len(LedgerQueries(world.engine).rows(BOOK, RowFilter(waiting=Waiting.DRIFT))) == 1


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


def test_a_drift_that_was_applied_by_hand_is_the_baseline_and_going_back_is_drift_again(world: World) -> None:
    delivered(world, "A", "B")
    resolved(world, "a", Apply())
    entry = world.known("a")
    assert (entry.drift_kind, json.loads(entry.shown)["title"], entry.decision) == (None, "B", Decision.APPLIED)
    assert isinstance(resolved(world, "a", Apply()).outcome, NoChange)
    assert world.stage([event("a", "B")]).account.unchanged == 1
    assert world.stage([event("a", "A")]).account.drifted == 1
    assert (drift_of(world), sent(world)) == ("A", [])


def test_what_was_shown_is_applied_and_not_what_a_later_read_finds(world: World) -> None:
    delivered(world, "A", "B")
    resolved(world, "a", Apply())
    world.stage([event("a", "C")])
    assert (json.loads(world.known("a").shown)["title"], drift_of(world)) == ("B", "C")


def test_a_draft_that_was_published_by_hand_is_applied(world: World) -> None:
    world.stage([event("a", status="draft")])
    world.publish()
    world.stage([event("a")])
    assert world.known("a").drift_kind is DriftKind.TO_PUBLISH
    resolved(world, "a", Apply())
    assert world.stage([event("a")]).account.unchanged == 1


def test_a_copy_of_the_applied_baseline_is_held_and_one_of_the_delivered_body_is_not(world: World) -> None:
    delivered(world, "A", "B")
    resolved(world, "a", Apply())
    world.stage([event("x", "A"), event("y", "B")])
    assert world.states() == {"a": "delivered", "x": "pending", "y": "held"}


def test_a_cancelled_event_cannot_be_applied_but_removed(world: World) -> None:
    delivered(world, "A")
    world.stage([cancelled("a")])
    with pytest.raises(NotPossibleError, match="cancelled") as told:
        resolved(world, "a", Apply())
    assert "--removed" in told.value.hint
    outcome = resolved(world, "a", Remove()).outcome
    assert isinstance(outcome, Change)
    assert outcome.removed == (world.known("a").event_id,)
    world.stage([cancelled("a")])
    assert not is_listed(world, "a")


def test_undo_of_applied_keeps_what_the_source_asks_for_now_as_drift_against_the_old_baseline(world: World) -> None:
    delivered(world, "A", "B")
    before = columns(world)
    resolved(world, "a", Apply())
    resolved(world, "a", TakeBack())
    assert columns(world) == before
    for now, drift in (("C", "C"), ("A", None)):
        world.stage([event("a", "B")])
        resolved(world, "a", Apply())
        world.stage([event("a", now)])
        resolved(world, "a", TakeBack())
        assert (json.loads(world.known("a").shown)["title"], drift_of(world)) == ("A", drift)


def test_undo_of_applied_lists_an_ignored_change_only_if_it_is_another_one_now(world: World) -> None:
    delivered(world, "A", "B")
    resolved(world, "a", SetAside())
    resolved(world, "a", Apply())
    resolved(world, "a", TakeBack())
    assert (drift_of(world), is_listed(world, "a")) == ("B", False)
    resolved(world, "a", Apply())
    world.stage([event("a", "C")])
    resolved(world, "a", TakeBack())
    assert (drift_of(world), is_listed(world, "a")) == ("C", True)


def test_an_ignored_change_stays_ignored_when_the_row_goes_back_and_forth(world: World) -> None:
    delivered(world, "A", "B")
    resolved(world, "a", SetAside())
    for title in ("A", "B", "A", "B"):
        world.stage([event("a", title)])
        assert not is_listed(world, "a"), title
    world.stage([event("a", "C")])
    assert is_listed(world, "a")


def test_undo_of_an_ignored_change_lists_it_again_when_the_row_returns_to_it(world: World) -> None:
    delivered(world, "A", "B")
    resolved(world, "a", SetAside())
    world.stage([event("a", "C")])
    resolved(world, "a", TakeBack())
    world.stage([event("a", "B")])
    assert is_listed(world, "a")


def test_what_a_read_ignores_once_more_is_listed_again_by_undo_whatever_was_decided_since(world: World) -> None:
    delivered(world, "A", "B")
    resolved(world, "a", SetAside())
    world.stage([event("a", "C")])
    resolved(world, "a", SetAside())
    resolved(world, "a", TakeBack())
    world.stage([])
    resolved(world, "a", Remove())
    resolved(world, "a", TakeBack())
    world.stage([event("a", "B")])
    assert not is_listed(world, "a")
    resolved(world, "a", TakeBack())
    world.stage([event("a", "B")])
    assert is_listed(world, "a")


def test_a_warning_alone_can_be_ignored_until_the_row_changes(world: World) -> None:
    warning = (Reason(ReasonCode.REQUIRED, "description", "TEXT", "", "write more"),)
    books = LedgerQueries(world.engine)
    world.stage([replace(event("a"), warnings=warning)])
    world.publish()
    assert [one.row_key for one in books.problems(BOOK, ProblemKind.WARNING)] == ["a"]
    resolved(world, "a", SetAside())
    world.stage([replace(event("a"), warnings=warning)])
    assert books.problems(BOOK, ProblemKind.WARNING) == ()
    resolved(world, "a", TakeBack())
    assert [one.row_key for one in books.problems(BOOK, ProblemKind.WARNING)] == ["a"]
    resolved(world, "a", SetAside())
    world.stage([replace(event("a", "Other"), warnings=warning)])
    assert [one.row_key for one in books.problems(BOOK, ProblemKind.WARNING)] == ["a"]


def test_a_row_without_warnings_or_drift_has_nothing_to_ignore(world: World) -> None:
    delivered(world, "A")
    assert isinstance(resolved(world, "a", SetAside()).outcome, NoChange)


def test_undo_of_an_ignored_row_that_was_pending_makes_it_pending_again(world: World) -> None:
    world.stage([event("a")])
    world.outbox().settle_and_claim([], 1)
    world.crash()
    before = columns(world)
    resolved(world, "a", SetAside())
    assert world.states() == {"a": "uncertain"}
    resolved(world, "a", TakeBack())
    assert columns(world) == before


def test_a_held_row_is_released_and_sent_once(world: World) -> None:
    held(world)
    resolved(world, "n2", Release())
    assert isinstance(resolved(world, "n2", Release()).outcome, NoChange)
    (intent,) = sent(world)
    assert intent.key == idempotency_key("tests", FEED, RowKey("n2"))
    world.crash()
    world.publish()
    assert (world.states(), sent(world)) == ({"a2": "delivered", "n2": "delivered"}, [])
    with pytest.raises(NotPossibleError, match="sent since"):
        resolved(world, "n2", TakeBack())


def test_a_release_is_taken_back_while_nothing_was_sent_and_the_row_is_held_again(world: World) -> None:
    held(world)
    before = columns(world)
    resolved(world, "n2", Release())
    resolved(world, "n2", TakeBack())
    assert columns(world) == before
    resolved(world, "n2", Release())
    world.stage([event("n2", "Blues")])
    resolved(world, "n2", TakeBack())
    assert (world.known("n2").state, json.loads(world.known("n2").body)["title"]) == (EntryState.HELD, "Blues")
    assert sent(world) == []


def test_a_released_row_is_marked_so_that_a_copy_of_it_is_held(world: World) -> None:
    held(world)
    resolved(world, "n2", Release())
    resolved(world, "n2", TakeBack())
    world.stage([event("n2", "Blues")])
    resolved(world, "n2", Release())
    world.stage([event("n2", "Blues"), event("n3", "Blues")])
    assert (world.states()["n2"], world.states()["n3"]) == ("pending", "held")


def test_a_held_row_that_an_upgrade_made_is_sent_after_the_next_read_once_it_is_released(world: World) -> None:
    held(world)
    with writing(world.engine) as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == "n2").values(body=b"", fingerprint="", row_digest=b""))
    resolved(world, "n2", Release())
    assert (world.states()["n2"], sent(world)) == ("held", [])
    world.stage([event("n2")])
    assert [intent.key for intent in sent(world)] == [idempotency_key("tests", FEED, RowKey("n2"))]


def test_an_ignored_held_row_is_not_sent_and_not_listed(world: World) -> None:
    held(world)
    resolved(world, "n2", SetAside())
    assert world.stage([event("n2")]).account.held == 1
    assert (world.states()["n2"], sent(world)) == ("held", [])
    assert LedgerQueries(world.engine).problems(BOOK, ProblemKind.HELD) == ()
    resolved(world, "n2", TakeBack())
    world.stage([event("n2")])
    assert len(LedgerQueries(world.engine).problems(BOOK, ProblemKind.HELD)) == 1


def test_the_event_of_the_candidate_moves_to_the_held_row_and_nothing_is_sent(world: World) -> None:
    held(world)
    event_id = world.known("a2").event_id
    outcome = resolved(world, "n2", SameAs()).outcome
    assert isinstance(outcome, Change)
    assert str(outcome.adopted) == "a2"
    old, new = world.known("a2"), world.known("n2")
    assert (new.state, new.event_id, new.decision, new.drift_kind) == (EntryState.DELIVERED, event_id, Decision.SAME_AS, None)
    assert (old.state, old.event_id, old.candidate_id) == (EntryState.SUPERSEDED, None, new.entry_id)
    assert old.key == idempotency_key("tests", FEED, RowKey("a2"), revision=1)
    assert isinstance(resolved(world, "n2", SameAs()).outcome, NoChange)
    assert isinstance(resolved(world, "n2", SameAs(RowKey("a2"))).outcome, NoChange)
    account = world.stage([event("n2")]).account
    assert (account.unchanged, account.held, sent(world)) == (1, 0, [])
    assert not is_listed(world, "a2")
    assert event_id is not None
    assert LedgerQueries(world.engine).owners(DESTINATION, [event_id]) == {event_id: "row n2 of agenda"}


def test_a_later_edit_of_an_adopted_event_is_drift_of_it(world: World) -> None:
    held(world)
    resolved(world, "n2", SameAs())
    assert world.stage([event("n2", "Blues")]).account.drifted == 1
    assert (drift_of(world, "n2"), sent(world)) == ("Blues", [])


def test_what_the_held_row_asks_for_is_drift_against_the_baseline_that_it_takes_over(world: World) -> None:
    delivered(world, "A", "Jazz")
    resolved(world, "a", Apply())
    world.stage([event("n2", description="Tonight")])
    resolved(world, "n2", SameAs())
    entry = world.known("n2")
    assert json.loads(entry.shown) == json.loads(event("a", "Jazz").body)
    assert entry.drift_kind is DriftKind.EDITED
    assert entry.drift_body == event("n2", description="Tonight").body
    world.stage([event("x")])
    assert world.states()["x"] == "held", "the adopted event is in the index of duplicates"


def test_the_row_whose_event_was_adopted_is_held_when_it_returns_and_goes_out_under_its_next_key(world: World) -> None:
    held(world)
    resolved(world, "n2", SameAs())
    world.stage([event("n2"), event("a2")])
    assert world.states() == {"a2": "held", "n2": "delivered"}
    assert world.known("a2").candidate_id == world.known("n2").entry_id
    resolved(world, "a2", Release())
    assert [intent.key for intent in sent(world)] == [idempotency_key("tests", FEED, RowKey("a2"), revision=1)]


def test_undo_of_an_adoption_restores_both_entries(world: World) -> None:
    held(world)
    before = columns(world)
    resolved(world, "n2", SameAs())
    resolved(world, "n2", TakeBack())
    assert columns(world) == before


def test_undo_of_an_adoption_holds_the_row_with_what_it_asks_for_now(world: World) -> None:
    held(world)
    resolved(world, "n2", SameAs())
    world.stage([event("n2", "Blues")])
    resolved(world, "n2", TakeBack())
    assert (world.known("n2").state, json.loads(world.known("n2").body)["title"]) == (EntryState.HELD, "Blues")


def test_an_adoption_stands_once_the_old_row_is_back_or_the_event_was_decided_on(world: World) -> None:
    held(world)
    resolved(world, "n2", SameAs())
    world.stage([event("n2", "Blues")])
    resolved(world, "n2", Apply())
    resolved(world, "n2", TakeBack())
    with pytest.raises(NotPossibleError, match="cannot be taken back"):
        resolved(world, "n2", TakeBack())


def test_an_adoption_cannot_be_taken_back_once_the_old_row_is_in_its_source_again(world: World) -> None:
    held(world)
    resolved(world, "n2", SameAs())
    world.stage([event("n2"), event("a2")])
    with pytest.raises(NotPossibleError, match="a2 is back in its source"):
        resolved(world, "n2", TakeBack())


def test_a_row_takes_over_the_event_of_the_key_that_a_person_names(world: World) -> None:
    world.stage([event("a2"), event("b2", "Blues")])
    world.publish()
    world.stage([event("n2")])
    resolved(world, "n2", SameAs(RowKey("b2")))
    assert world.states() == {"a2": "delivered", "b2": "superseded", "n2": "delivered"}
    assert drift_of(world, "n2") == "Jazz"
    with pytest.raises(NotPossibleError, match="there is no row nothing"):
        resolved(world, "a2", SameAs(RowKey("nothing")))


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (None, "run"),
        (REFUSED, "--release"),
        (Blocked(answer(403)), "run"),
        (Uncertain(answer(503)), "reconcile"),
        (Conflict(answer(409)), "reconcile"),
    ],
)
def test_an_entry_without_an_event_has_none_to_give_up(world: World, verdict: Verdict | None, said: str) -> None:
    world.stage([event("a2")])
    world.publish()
    world.stage([event("a2"), event("n2"), event("c2", "Other")])
    if verdict is not None:
        world.publish(verdict)
    with pytest.raises(NotPossibleError) as told:
        resolved(world, "n2", SameAs(RowKey("c2")))
    assert said in told.value.hint
    assert world.states()["n2"] == "held"


def test_of_an_unconfirmed_event_the_held_row_is_unconfirmed(world: World) -> None:
    world.stage([event("a2")])
    world.publish(Unconfirmed(answer(409)))
    world.stage([event("n2")])
    resolved(world, "n2", SameAs())
    assert world.states() == {"a2": "superseded", "n2": "delivered_unconfirmed"}


def test_two_rows_cannot_take_over_one_event_and_neither_does(world: World) -> None:
    world.stage([event("a2")])
    world.publish()
    world.stage([event("n2"), event("n3")])
    with pytest.raises(NotPossibleError, match="cannot become 2 rows"):
        decisions(world).resolve_all([RowKey("n2"), RowKey("n3")], SameAs())
    assert world.states() == {"a2": "delivered", "n2": "held", "n3": "held"}


def test_an_event_of_another_feed_is_taken_over_under_the_leases_of_both(world: World) -> None:
    world.stage([event("a2")])
    world.publish()
    other = Ledger(
        world.engine, DESTINATION, FeedName("other"), namespace="tests", now=world.clock, lease_clock=world.clock.lease_clock
    )
    with other.acquire_lease("test") as lease:
        other.begin_run("r", launched_by="a test")
        stage = other.open_stage("r", is_whole=True, fence=lease.token)
        stage.write([event("n2")])
        stage.close(lambda _report: ())
        with pytest.raises(LeaseLostError):
            other.open_decisions(ANN, lease.token).resolve(RowKey("n2"), SameAs())
        before = columns(world)
        door = other.open_decisions(ANN, lease.token, [world.lease])
        assert door.resolve(RowKey("n2"), SameAs()) is not None
        assert world.states() == {"a2": "superseded", "n2": "delivered"}
        assert world.known("a2").key == idempotency_key("tests", FEED, RowKey("a2"), revision=1)
        assert door.resolve(RowKey("n2"), TakeBack()) is not None
        assert columns(world) == before


def test_a_vanished_event_that_was_removed_is_off_the_list_and_returns_under_the_next_key_on_a_persons_word(world: World) -> None:
    delivered(world, "A")
    world.stage([])
    event_id = world.known("a").event_id
    outcome = resolved(world, "a", Remove()).outcome
    assert isinstance(outcome, Change)
    assert outcome.removed == (event_id,)
    assert world.known("a").removed_at == world.clock()
    assert isinstance(resolved(world, "a", Remove()).outcome, NoChange)
    with pytest.raises(NotPossibleError, match="source does not ask for it"):
        resolved(world, "a", Resend())
    world.stage([event("a", "A")])
    assert world.known("a").drift_kind is DriftKind.RETURNED
    resolved(world, "a", Resend())
    (intent,) = sent(world)
    assert (intent.key, intent.body) == (idempotency_key("tests", FEED, RowKey("a"), revision=1), event("a", "A").body)
    world.crash()
    world.publish()
    entry = world.known("a")
    assert (entry.state, entry.removed_at, entry.drift_kind) == (EntryState.DELIVERED, None, None)
    assert sent(world) == []


def test_undo_of_removed_restores_what_was_listed(world: World) -> None:
    delivered(world, "A")
    world.stage([])
    before = columns(world)
    resolved(world, "a", Remove())
    resolved(world, "a", TakeBack())
    assert columns(world) == before


def test_undo_of_removed_keeps_a_change_of_the_row_that_came_back_as_drift(world: World) -> None:
    delivered(world, "A")
    world.stage([])
    resolved(world, "a", Remove())
    world.stage([event("a", "B")])
    resolved(world, "a", TakeBack())
    assert (world.known("a").drift_kind, drift_of(world)) == (DriftKind.EDITED, "B")
    world.stage([])
    resolved(world, "a", Remove())
    world.stage([event("a", "A")])
    resolved(world, "a", TakeBack())
    assert (world.known("a").drift_kind, world.known("a").removed_at) == (None, None)


def test_a_row_that_comes_back_after_its_removal_can_be_ignored(world: World) -> None:
    delivered(world, "A")
    world.stage([])
    resolved(world, "a", Remove())
    world.stage([event("a", "A")])
    with pytest.raises(NotPossibleError, match="removed by hand"):
        resolved(world, "a", Apply())
    resolved(world, "a", SetAside())
    world.stage([event("a", "A")])
    assert not is_listed(world, "a")


def test_undo_of_the_new_creation_of_a_removed_event_lists_the_row_again(world: World) -> None:
    delivered(world, "A")
    world.stage([])
    resolved(world, "a", Remove())
    world.stage([event("a", "B")])
    before = columns(world)
    resolved(world, "a", Resend())
    resolved(world, "a", TakeBack())
    assert columns(world) == before


DRAFTING = StagePolicy(on_change="create_draft_again")


def redrafted(world: World) -> int:
    """Row a, whose change was delivered as a draft of its own; return the id of its earlier event."""
    delivered(world, "A")
    world.stage([event("a", "B")], policy=DRAFTING)
    world.publish(Receipt(2_000, answer(201)))
    (earlier,) = world.known("a").earlier_event_ids
    return earlier


def test_only_earlier_events_are_removed_where_the_row_is_in_its_source(world: World) -> None:
    earlier = redrafted(world)
    with pytest.raises(NotPossibleError, match="only earlier events"):
        resolved(world, "a", SetAside())
    outcome = resolved(world, "a", Remove()).outcome
    assert isinstance(outcome, Change)
    assert outcome.removed == (earlier,)
    entry = world.known("a")
    assert (entry.earlier_event_ids, entry.removed_at, entry.event_id) == ((), None, 2_000)
    resolved(world, "a", TakeBack())
    assert (world.known("a").earlier_event_ids, world.known("a").decision) == ((earlier,), None)


def test_the_event_and_its_earlier_ones_are_removed_where_the_row_has_vanished(world: World) -> None:
    earlier = redrafted(world)
    world.stage([], policy=DRAFTING)
    outcome = resolved(world, "a", Remove()).outcome
    assert isinstance(outcome, Change)
    assert outcome.removed == (earlier, 2_000)
    resolved(world, "a", TakeBack())
    assert (world.known("a").earlier_event_ids, world.known("a").removed_at) == ((earlier,), None)


def test_earlier_events_are_removed_while_the_draft_that_follows_them_waits_to_be_sent(world: World) -> None:
    delivered(world, "A")
    world.stage([event("a", "B")], policy=DRAFTING)
    resolved(world, "a", Remove())
    assert world.known("a").earlier_event_ids == ()
    assert len(sent(world)) == 1


def test_a_named_event_is_taken_back(world: World) -> None:
    ended(world, Conflict(answer(409)))
    before = columns(world)
    resolved(world, "a", TakeEvent(11))
    resolved(world, "a", TakeBack())
    assert columns(world) == before


@pytest.mark.parametrize("verdict", [Conflict(answer(409)), Unconfirmed(answer(409)), REFUSED, Blocked(answer(404))])
def test_a_resend_is_taken_back_while_nothing_was_sent(world: World, verdict: Verdict) -> None:
    ended(world, verdict)
    before = columns(world)
    resolved(world, "a", Resend())
    resolved(world, "a", TakeBack())
    assert columns(world) == before
    resolved(world, "a", Resend())
    assert len(sent(world)) == 1
    with pytest.raises(NotPossibleError, match="sent since"):
        resolved(world, "a", TakeBack())


def test_undo_of_a_resend_keeps_the_body_that_was_sent_and_lists_the_change_as_drift(world: World) -> None:
    world.stage([event("a", "A")])
    world.publish(Conflict(answer(409)))
    before = world.known("a").body
    resolved(world, "a", Resend())
    world.stage([event("a", "B")])
    resolved(world, "a", TakeBack())
    entry = world.known("a")
    assert (entry.state, entry.body, drift_of(world)) == (EntryState.CONFLICT, before, "B")


def test_several_rows_are_decided_all_or_none_with_all_problems_in_one_error(world: World) -> None:
    world.stage([event("a", "A"), event("b", "B"), event("c", "C")])
    world.publish()
    world.stage([event("a", "A2"), event("b", "B"), cancelled("c")])
    before = columns(world)
    with pytest.raises(NotPossibleError, match="cancelled c"):
        decisions(world).resolve_all([RowKey("a"), RowKey("c")], Apply())
    assert columns(world) == before
    done = decisions(world).resolve_all([RowKey("a"), RowKey("b")], Apply())
    assert [isinstance(one.outcome, Change) for one in done] == [True, False]


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
