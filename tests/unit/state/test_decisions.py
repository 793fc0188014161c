"""What a person decides, on a real state DB: rows that go out again, rows that are settled, rows that are set aside."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from unit.state.books import BOOK, CANCELLED, evening, play, problems
from unit.state.world import DESTINATION, FEED, World, answer, row

from mappings.delivery import (
    Blocked,
    Conflict,
    Denial,
    Intent,
    Receipt,
    Refusal,
    Uncertain,
    Unconfirmed,
    Verdict,
)
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import FeedName, RowKey, idempotency_key
from state.database import reading
from state.enums import Decision, DriftKind, EntryState, ProblemKind, Waiting
from state.errors import LeaseLostError
from state.ledger.accounts import StagePolicy
from state.ledger.choices import Change, Instruction, NoChange, NotPossibleError, Option
from state.ledger.decisions import Decisions, EventTakenError, Found, LeftAlone
from state.ledger.outbox import Settled
from state.ledger.standing import OpenRows
from state.queries import LedgerQueries, RowFilter
from state.tables import ENTRY

ANN = "ann@desk"
REFUSED = Refusal(answer(400, "req-1"))
CONFLICT, UNCONFIRMED, UNCERTAIN = Conflict(answer(409)), Unconfirmed(answer(409)), Uncertain(answer(503))
RESEND, IGNORE, APPLIED, REMOVED = map(Instruction, (Option.RESEND, Option.IGNORE, Option.APPLIED, Option.REMOVED))
SAME_AS, RELEASE, UNDO = map(Instruction, (Option.SAME_AS, Option.RELEASE, Option.UNDO))


def is_event(event_id: int) -> Instruction:
    return Instruction(Option.EVENT_ID, event_id=event_id)


def next_key_of(key: str) -> str:
    return idempotency_key("tests", FEED, RowKey(key), revision=1)


def decisions(world: World) -> Decisions:
    return Decisions(world.ledger.fence("", world.lease.token), ANN)


def decide(world: World, key: str, choice: Instruction) -> Change | NoChange:
    (found,) = decisions(world).resolve([RowKey(key)], choice)
    return found.outcome


def risk_of(world: World, key: str, choice: Instruction) -> str:
    """Decide twice, of which the second changes nothing; return the risk that the first names."""
    change = decide(world, key, choice)
    assert isinstance(change, Change)
    assert isinstance(decide(world, key, choice), NoChange)
    return change.risk


def ended(world: World, verdict: Verdict) -> None:
    """One row, whose only request has ended in this verdict."""
    world.stage([row("a")])
    world.publish(verdict)


def test_a_retried_row_goes_out_again_as_the_very_same_request(world: World) -> None:
    world.stage([row("a")])
    outbox = world.outbox()
    (before,) = outbox.settle_and_claim([], 1)
    outbox.settle_and_claim([Settled(before, REFUSED)], 0)
    assert decisions(world).retry().refused == 1
    assert (world.known("a").decision, world.known("a").decided_by) == (Decision.RETRY, ANN)
    assert world.outbox().settle_and_claim([], 1) == [replace(before, refused_request_id="req-1")]


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


@pytest.mark.parametrize(
    ("story", "because"),
    [
        ("A sent", "it is delivered"),
        ("A refused gone", "the source no longer asks for it"),
        ("A denied", "it is pending: the next run sends it; if the service only repeats a denial that it has stored: "),
    ],
)
def test_a_retry_says_of_a_row_why_it_is_left_alone(world: World, story: str, because: str) -> None:
    play(world, story)
    (left_alone,) = decisions(world).retry(row_keys=[RowKey("a")]).left_alone
    assert left_alone.because == because + "`eventsync resolve FEED KEY --resend`" * because.endswith(": ")
    assert (decisions(world).retry().refused, world.outbox().account().carried_over) == (0, int(story == "A denied"))


def test_a_stored_refusal_under_another_request_id_leads_to_the_next_key_once(world: World) -> None:
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
def test_a_blocked_row_keeps_its_key_and_no_risk_is_taken_for_it(world: World, is_retried: bool) -> None:
    play(world, "A blocked")
    if is_retried:
        decisions(world).retry()
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert (intent.denial, intent.refused_request_id) == (Denial("req-x"), "")


def another_feed(world: World) -> World:
    """A feed beside this one in the same state DB."""
    world.neighbours.append(World(world.url, world.clock, FeedName("other")))
    return world.neighbours[-1]


def test_one_event_belongs_to_one_row_of_a_destination_whatever_the_feed(world: World) -> None:
    world.stage([row("a"), row("b")])
    world.publish(CONFLICT, Receipt(7, answer(201)))
    other = another_feed(world)
    other.stage([row("x")])
    for each, key in ((world, "a"), (other, "x")):
        with pytest.raises(EventTakenError, match="event 7 is row b of agenda already"):
            decide(each, key, is_event(7))
    assert world.known("a").state is EntryState.CONFLICT


def test_a_forgotten_row_is_resent_as_it_was_and_from_then_on_the_services_memory_counts_anew(world: World) -> None:
    play(world, "A cut later")
    before = world.known("a")
    assert "there will be two" in risk_of(world, "a", RESEND)
    world.clock.turn(days=6)  # the feed's next run is a week away
    world.crash()
    (intent,) = world.outbox().settle_and_claim([], 9)
    assert (intent.key, intent.body, intent.is_unanswered) == (before.key, before.body, True)
    assert world.known("a").decision is Decision.RESENT
    for hours, owed in ((23, 1), (2, 0)):
        world.clock.turn(hours=hours)
        world.crash()
        assert len(world.outbox().settle_and_claim([], 9)) == owed
    assert world.known("a").state is EntryState.UNCERTAIN


@pytest.mark.parametrize("end", ["conflict", "unconfirmed"])
def test_a_row_whose_key_is_used_is_resent_under_the_next_one_as_its_source_has_it_now(world: World, end: str) -> None:
    play(world, f"A {end} B resend B")
    (intent,) = world.outbox().settle_and_claim([], 9)
    assert (intent.key, intent.body) == (next_key_of("a"), evening("a", "B").body)
    assert (intent.is_unanswered, intent.refused_request_id, world.known("a").drift_kind) == (False, "", None)


def test_a_refused_row_set_aside_is_a_new_matter_once_it_is_corrected(world: World) -> None:
    play(world, "A refused ignore")
    assert decisions(world).retry().refused == 0
    play(world, "corrected")
    assert world.known("a").decision is None
    world.publish(Refusal(answer(400, "req-2")))
    (status,) = LedgerQueries(world.engine).status()
    assert dict(status.waiting) == {"refused": 1}


def held(world: World) -> None:
    """Row a2 is delivered and gone from its source, row n2 takes its place and is held."""
    world.stage([evening("a2")])
    world.publish()
    world.stage([evening("n2")])
    assert world.known("n2").state is EntryState.HELD


def sent(world: World) -> list[Intent]:
    world.clock.turn(minutes=5)
    return world.outbox().settle_and_claim([], 9)


def drift_of(world: World, key: str = "a") -> str | None:
    body = world.known(key).drift_body
    return None if body is None else str(json.loads(body)["title"])


def is_listed(world: World, key: str) -> bool:
    """Whether an entry is drifted or vanished, and a person has not ignored it."""
    which = (RowFilter(waiting=Waiting.DRIFT), RowFilter(waiting=Waiting.VANISHED))
    return any(one.row_key == key for each in which for one in LedgerQueries(world.engine).rows(BOOK, each))


def columns(world: World) -> dict[str, dict[str, Any]]:
    """All that matters of all entries, by key."""
    with reading(world.engine) as connection:
        rows = connection.execute(select(ENTRY)).all()
    left_out = {"updated_at", "row_digest", "undo"}
    return {row.row_key: {name: value for name, value in row._asdict().items() if name not in left_out} for row in rows}


@pytest.mark.parametrize(
    ("story", "key", "choice", "stands_once_sent"),
    [
        pytest.param("A sent B", "a", APPLIED, False, id="a change applied by hand"),
        pytest.param("A conflict", "a", is_event(11), False, id="the event of a conflict"),
        pytest.param("A conflict", "a", RESEND, True, id="a conflict sent under the next key"),
        pytest.param("A unconfirmed", "a", RESEND, True, id="an unconfirmed row under the next key"),
        pytest.param("A refused", "a", RESEND, True, id="a refused row sent again"),
        pytest.param("A blocked", "a", RESEND, True, id="a blocked row sent again"),
        pytest.param("A denied", "a", RESEND, False, id="a denied row sent again"),
        pytest.param("A cut later", "a", RESEND, False, id="a forgotten row sent again"),
        pytest.param("A cut", "a", IGNORE, False, id="an unanswered row set aside"),
        pytest.param("held", "n2", RELEASE, True, id="a held row released"),
        pytest.param("held", "n2", SAME_AS, False, id="an event adopted"),
        pytest.param("A sent gone", "a", REMOVED, False, id="the event of a vanished row removed"),
        pytest.param("A sent gone removed B", "a", RESEND, False, id="a removed event created again"),
    ],
)
def test_a_decision_that_is_taken_back_leaves_all_as_it_was_and_one_that_was_acted_on_stands(
    world: World, story: str, key: str, choice: Instruction, stands_once_sent: bool
) -> None:
    held(world) if story == "held" else play(world, story)
    before = columns(world)
    assert isinstance(decide(world, key, choice), Change)
    decide(world, key, UNDO)
    assert columns(world) == before
    if stands_once_sent:
        risk_of(world, key, choice)
        assert [intent.row_key for intent in sent(world)] == [key]
        with pytest.raises(NotPossibleError, match="sent since"):
            decide(world, key, UNDO)


@pytest.mark.parametrize(
    ("story", "shown", "drift", "listed"),
    [
        pytest.param("A sent B applied", "B", None, False, id="what was applied by hand is the baseline"),
        pytest.param("A sent B applied B", "B", None, False, id="and is no drift in the next read"),
        pytest.param("A sent B applied A", "B", "A", True, id="and going back is drift again"),
        pytest.param("A sent B applied C undo", "A", "C", True, id="undo keeps what the source asks for now as drift"),
        pytest.param("A sent B applied A undo", "A", None, False, id="undo finds no drift where the source went back"),
        pytest.param("A sent B ignore applied undo", "A", "B", False, id="undo keeps an ignored change ignored"),
        pytest.param("A sent B ignore applied C undo", "A", "C", True, id="undo lists a change that is another one now"),
        pytest.param("A sent B ignore B", "A", "B", False, id="an ignored change stays ignored"),
        pytest.param("A sent B ignore A", "A", None, False, id="an ignored change that went back is none"),
        pytest.param("A sent B ignore A B A B", "A", "B", False, id="a row that goes back and forth stays ignored"),
        pytest.param("A sent B ignore A B C", "A", "C", True, id="until it changes otherwise"),
        pytest.param("A sent B ignore C B", "A", "B", False, id="and comes back to what was ignored"),
        pytest.param("A sent B ignore C ignore undo gone removed undo B", "A", "B", False, id="a read ignores once more"),
        pytest.param("A sent B ignore C ignore undo gone removed undo B undo B", "A", "B", True, id="until that is undone"),
        pytest.param("A sent cancelled removed cancelled", "A", None, False, id="the event of a cancelled row is removed"),
        pytest.param("A sent gone removed A", "A", "A", True, id="a row is back after its event was removed"),
        pytest.param("A sent gone removed A ignore A", "A", "A", False, id="and can be ignored"),
        pytest.param("A sent gone removed B undo", "A", "B", True, id="undo of removed keeps the change of a row that is back"),
        pytest.param("A sent gone removed A undo", "A", None, False, id="undo of removed finds a row that is back as it was"),
        pytest.param("A conflict resend B undo", "A", "B", True, id="undo of a resend keeps the body that was sent"),
    ],
)
def test_what_is_shown_and_listed_of_a_row_follows_its_source_and_a_persons_decisions(
    world: World, story: str, shown: str, drift: str | None, listed: bool
) -> None:
    report = play(world, story)
    entry = world.known("a")
    assert (json.loads(entry.shown)["title"], drift_of(world), is_listed(world, "a")) == (shown, drift, listed)
    if not story.endswith(("undo", "applied")):
        assert report is not None
        assert (report.account.drifted if listed else 1, report.account.unchanged if drift is None else 1) == (1, 1)
    assert (entry.removed_at is not None) is (" removed" in story and "undo" not in story)
    assert sent(world) == []


def test_a_copy_of_the_applied_baseline_is_held_and_one_of_the_delivered_body_is_not(world: World) -> None:
    world.stage([evening("a", "A")])
    world.publish()
    world.stage([evening("a", "B")])
    decide(world, "a", APPLIED)
    world.stage([evening("x", "A"), evening("y", "B")])
    assert world.states() == {"a": "delivered", "x": "pending", "y": "held"}


def test_a_warning_alone_can_be_ignored_until_the_row_changes(world: World) -> None:
    reason = Reason(ReasonCode.REQUIRED, "description", "TEXT", "", "write more")
    warned, edited = (replace(evening("a", title), warnings=(reason,)) for title in "AB")
    world.stage([warned])
    world.publish()
    decide(world, "a", IGNORE)
    world.stage([warned])
    assert problems(world, ProblemKind.WARNING) == []
    decide(world, "a", UNDO)
    assert problems(world, ProblemKind.WARNING) == ["a"]
    decide(world, "a", IGNORE)
    world.stage([edited])
    assert problems(world, ProblemKind.WARNING) == ["a"]


@pytest.mark.parametrize("choice", [RELEASE, SAME_AS])
def test_a_held_row_whose_decision_is_taken_back_is_held_with_what_it_asks_for_now(world: World, choice: Instruction) -> None:
    held(world)
    decide(world, "n2", choice)
    world.stage([evening("n2", "Blues")])
    decide(world, "n2", UNDO)
    assert (world.known("n2").state, json.loads(world.known("n2").body)["title"]) == (EntryState.HELD, "Blues")
    assert sent(world) == []
    decide(world, "n2", RELEASE)
    world.stage([evening("n2", "Blues"), evening("n3", "Blues")])
    assert (world.states()["n2"], world.states()["n3"]) == ("pending", "held"), "a copy of what it asks for now is held"


def test_the_event_of_the_candidate_moves_to_the_held_row_and_nothing_is_sent(world: World) -> None:
    held(world)
    event_id = world.known("a2").event_id
    outcome = decide(world, "n2", SAME_AS)
    assert isinstance(outcome, Change)
    assert str(outcome.adopted) == "a2"
    old, new = world.known("a2"), world.known("n2")
    assert (new.state, new.event_id, new.decision, new.drift_kind) == (EntryState.DELIVERED, event_id, Decision.SAME_AS, None)
    assert (old.state, old.event_id, old.candidate_id) == (EntryState.SUPERSEDED, None, new.entry_id)
    assert old.key == next_key_of("a2")
    for again in (SAME_AS, replace(SAME_AS, row_key=RowKey("a2"))):
        assert isinstance(decide(world, "n2", again), NoChange)
    account = world.stage([evening("n2")]).account
    assert (account.unchanged, account.held, sent(world), is_listed(world, "a2")) == (1, 0, [], False)
    assert event_id is not None
    assert LedgerQueries(world.engine).owners(DESTINATION, [event_id]) == {event_id: "row n2 of agenda"}


def test_what_the_held_row_asks_for_is_drift_against_the_baseline_that_it_takes_over(world: World) -> None:
    world.stage([evening("a", "A")])
    world.publish()
    world.stage([evening("a")])
    decide(world, "a", APPLIED)
    world.stage([evening("n2", description="Tonight")])
    decide(world, "n2", SAME_AS)
    entry = world.known("n2")
    assert json.loads(entry.shown) == json.loads(evening("a").body)
    assert (entry.drift_kind, entry.drift_body) == (DriftKind.EDITED, evening("n2", description="Tonight").body)
    world.stage([evening("x")])
    assert world.states()["x"] == "held", "the adopted event is in the index of duplicates"


def test_the_row_whose_event_was_adopted_is_held_when_it_returns_and_goes_out_under_its_next_key(world: World) -> None:
    held(world)
    decide(world, "n2", SAME_AS)
    world.stage([evening("n2"), evening("a2")])
    assert world.states() == {"a2": "held", "n2": "delivered"}
    assert world.known("a2").candidate_id == world.known("n2").entry_id
    with pytest.raises(NotPossibleError, match="a2 is back in its source"):
        decide(world, "n2", UNDO)
    decide(world, "a2", RELEASE)
    assert [intent.key for intent in sent(world)] == [next_key_of("a2")]


def test_an_adoption_stands_once_the_event_was_decided_on(world: World) -> None:
    held(world)
    decide(world, "n2", SAME_AS)
    assert world.stage([evening("n2", "Blues")]).account.drifted == 1
    assert (drift_of(world, "n2"), sent(world)) == ("Blues", [])
    decide(world, "n2", APPLIED)
    decide(world, "n2", UNDO)
    with pytest.raises(NotPossibleError, match="cannot be taken back"):
        decide(world, "n2", UNDO)


def test_a_row_takes_over_the_event_of_the_key_that_a_person_names_confirmed_or_not(world: World) -> None:
    world.stage([evening("b2", "Blues"), evening("a2")])
    world.publish(UNCONFIRMED)
    world.stage([evening("n2")])
    decide(world, "n2", replace(SAME_AS, row_key=RowKey("b2")))
    assert world.states() == {"a2": "delivered", "b2": "superseded", "n2": "delivered_unconfirmed"}
    assert drift_of(world, "n2") == "Jazz"
    with pytest.raises(NotPossibleError, match="there is no row x"):
        decide(world, "a2", replace(SAME_AS, row_key=RowKey("x")))


@pytest.mark.parametrize(
    ("verdict", "hint"),
    [(None, "run"), (REFUSED, "--release"), (Blocked(answer(403)), "run"), (UNCERTAIN, "reconcile"), (CONFLICT, "reconcile")],
)
def test_an_entry_without_an_event_has_none_to_give_up(world: World, verdict: Verdict | None, hint: str) -> None:
    world.stage([evening("a2")])
    world.publish()
    world.stage([evening("a2"), evening("n2"), evening("c2", "Other")])
    if verdict is not None:
        world.publish(verdict)
    with pytest.raises(NotPossibleError) as caught:
        decide(world, "n2", replace(SAME_AS, row_key=RowKey("c2")))
    assert (hint in caught.value.hint, world.states()["n2"]) == (True, "held")


def test_two_rows_cannot_take_over_one_event_and_neither_does(world: World) -> None:
    world.stage([evening("a2")])
    world.publish()
    world.stage([evening("n2"), evening("n3")])
    with pytest.raises(NotPossibleError, match="cannot become 2 rows"):
        decisions(world).resolve([RowKey("n2"), RowKey("n3")], SAME_AS)
    assert world.states() == {"a2": "delivered", "n2": "held", "n3": "held"}


def test_an_event_of_another_feed_is_taken_over_under_the_leases_of_both(world: World) -> None:
    world.stage([evening("a2")])
    world.publish()
    other = another_feed(world)
    other.stage([evening("n2")])
    with pytest.raises(LeaseLostError):
        decide(other, "n2", SAME_AS)
    before = columns(world)
    of_both = Decisions(other.ledger.fence("", other.lease.token), ANN, [world.lease])
    of_both.resolve([RowKey("n2")], SAME_AS)
    assert world.states() == {"a2": "superseded", "n2": "delivered"}
    assert world.known("a2").key == next_key_of("a2")
    of_both.resolve([RowKey("n2")], UNDO)
    assert columns(world) == before


def test_a_removed_event_is_created_again_under_the_next_key(world: World) -> None:
    play(world, "A sent gone")
    assert risk_of(world, "a", REMOVED) == ""
    assert world.known("a").removed_at == world.clock()
    play(world, "A")
    assert world.known("a").drift_kind is DriftKind.RETURNED
    play(world, "resend A")
    (intent,) = sent(world)
    assert (intent.key, intent.body) == (next_key_of("a"), evening("a", "A").body)


DRAFTING = StagePolicy(on_change="create_draft_again")


@pytest.mark.parametrize("is_gone", [False, True], ids=["the row is in its source", "the row has vanished"])
def test_only_earlier_events_are_removed_unless_the_row_has_vanished(world: World, is_gone: bool) -> None:
    play(world, "A sent B", DRAFTING)
    world.publish(Receipt(2_000, answer(201)))
    (earlier,) = world.known("a").earlier_event_ids
    if is_gone:
        play(world, "gone", DRAFTING)
    else:
        with pytest.raises(NotPossibleError, match="only earlier events"):
            decide(world, "a", IGNORE)
    change = decide(world, "a", REMOVED)
    assert isinstance(change, Change)
    assert change.removed == ((earlier, 2_000) if is_gone else (earlier,))
    entry = world.known("a")
    assert (entry.earlier_event_ids, entry.removed_at is not None, entry.event_id) == ((), is_gone, 2_000)
    decide(world, "a", UNDO)
    entry = world.known("a")
    assert (entry.earlier_event_ids, entry.decision, entry.removed_at) == ((earlier,), None, None)


def test_earlier_events_are_removed_while_the_draft_that_follows_them_waits_to_be_sent(world: World) -> None:
    play(world, "A sent B removed", DRAFTING)
    assert world.known("a").earlier_event_ids == ()
    assert len(sent(world)) == 1


def test_several_rows_are_decided_all_or_none_with_all_problems_in_one_error(world: World) -> None:
    world.stage([evening("c", "A"), evening("b", "B"), evening("a", "C")])
    world.publish()
    world.stage([evening("c", "A2"), evening("b", "B"), CANCELLED])
    before = columns(world)
    with pytest.raises(NotPossibleError, match="cancelled a"):
        decisions(world).resolve([RowKey("c"), RowKey("a")], APPLIED)
    assert columns(world) == before
    done = decisions(world).resolve([RowKey("c"), RowKey("b")], APPLIED)
    assert [isinstance(one.outcome, Change) for one in done] == [True, False]


def test_uncertain_rows_stand_beside_those_whose_keys_may_be_forgotten(world: World) -> None:
    ended(world, UNCERTAIN)
    assert world.outbox().standing().forgotten.count == 0
    world.clock.turn(hours=25)
    world.crash()
    world.stage([row("a"), row("b")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 8)
    outbox.settle_and_claim([Settled(intent, UNCERTAIN)], 0)
    standing = outbox.standing()
    assert (standing.uncertain, standing.forgotten) == (OpenRows(1, (RowKey("b"),)), OpenRows(1, (RowKey("a"),)))


def test_what_a_list_has_shown_is_written_unless_the_entry_has_moved_on(world: World) -> None:
    world.stage([row(key) for key in "abcd"])
    world.publish(UNCONFIRMED, CONFLICT, CONFLICT, Receipt(14, answer(201)))
    ids = [world.known(key).entry_id for key in "abcd"]
    decide(world, "b", RESEND)
    found = [Found(entry, 0, event_id, "title and start agree") for entry, event_id in zip(ids, (11, 12, 14, 14), strict=True)]
    assert decisions(world).record_found(found) == (found[0],)
    entry = world.known("a")
    assert (entry.state, entry.event_id, entry.decision) == (EntryState.DELIVERED, 11, Decision.RECONCILED)
    assert world.states() == {"a": "delivered", "b": "pending", "c": "conflict", "d": "delivered"}
