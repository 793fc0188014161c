"""What a person said and what waits for one stays with its row: baselines, ignored changes, removed events."""

from __future__ import annotations

import pytest
from sqlalchemy import update
from unit.state.books import CANCELLED, delivered, put
from unit.state.world import World, answer, row

from mappings.delivery import Blocked, Conflict, Receipt, Refusal, Uncertain, Unconfirmed, Verdict
from mappings.outcome import MappedRow
from mappings.reasons import Reason, ReasonCode
from state.database import writing
from state.enums import Decision, DriftKind, EntryState
from state.ledger.accounts import ReadAccount, StagePolicy
from state.tables import EARLIER

A, B, C = row("a", "first"), row("a", "second"), row("a", "third")
WARNED = (Reason(ReasonCode.TOO_LONG, "title", "TITLE", "a long title", "write a shorter one"),)


def apply_by_hand(world: World, change: MappedRow) -> None:
    baseline = {"baseline_body": change.body, "baseline_fingerprint": change.fingerprint}
    put(world, "a", **baseline, drift_body=None, drift_fingerprint=None, drift_kind=None)


def ignore(world: World, change: MappedRow) -> None:
    put(world, "a", decision="ignore", ignored_fingerprint=change.fingerprint)


def test_a_change_after_one_that_was_applied_is_drafted_beside_the_event_as_the_service_shows_it(world: World) -> None:
    drafting = StagePolicy(on_change="create_draft_again")
    delivered(world, A)
    world.stage([B])
    apply_by_hand(world, B)
    assert world.stage([C], policy=drafting).redrafted == 1
    assert world.stage([B], policy=drafting).account.new == 0
    assert (world.known("a").state, world.known("a").shown) == (EntryState.DELIVERED, B.body)


@pytest.mark.parametrize("state", ["conflict", "uncertain"])
def test_an_ignored_row_is_listed_again_once_it_changes_at_its_source(world: World, state: str) -> None:
    delivered(world, A)
    put(world, "a", state=state, event_id=None)
    ignore(world, A)
    world.stage([A])
    assert world.known("a").is_set_aside
    world.stage([B])
    assert not world.known("a").is_set_aside


def test_a_row_that_comes_back_is_listed_again_unless_it_asks_for_what_was_ignored(world: World) -> None:
    delivered(world, A)
    world.stage([B])
    ignore(world, B)
    put(world, "a", vanished_at=world.clock())
    world.stage([B])
    assert (world.known("a").vanished_at, world.known("a").is_set_aside) == (None, True)


@pytest.mark.parametrize("says", [A, B])
def test_a_row_that_comes_back_after_its_event_was_removed_is_listed_as_returned(world: World, says: MappedRow) -> None:
    delivered(world, A)
    put(world, "a", removed_at=world.clock(), vanished_at=world.clock(), decision="removed")
    assert world.stage([says]).account == ReadAccount(read=1, drifted=1)
    entry = world.known("a")
    assert (entry.drift_kind, entry.drift_body, entry.vanished_at) == (DriftKind.RETURNED, says.body, None)
    assert world.stage([says]).account.drifted == 1


def test_a_row_that_is_cancelled_after_its_event_was_removed_waits_for_nobody(world: World) -> None:
    delivered(world, A)
    put(world, "a", removed_at=world.clock(), decision="removed")
    world.stage([A])
    assert world.stage([CANCELLED]).account == ReadAccount(read=1, unchanged=1)
    assert world.known("a").drift_kind is None


def test_an_event_removed_while_a_draft_of_its_row_waits_stays_removed_when_the_draft_is_withdrawn(world: World) -> None:
    delivered(world, A)
    world.stage([B], policy=StagePolicy(on_change="create_draft_again"))
    with writing(world.engine) as connection:
        connection.execute(update(EARLIER).values(removed_at=world.clock()))
    world.stage([])
    assert world.known("a").state is EntryState.DELIVERED
    assert world.known("a").removed_at is not None


@pytest.mark.parametrize(
    ("verdict", "new"),
    [
        (Refusal(answer(400)), 1),
        (Blocked(answer(403)), 1),
        (Blocked(answer(403), is_unanswered=True), 0),
        (Uncertain(answer(503)), 0),
        (Conflict(answer(409)), 0),
        (Unconfirmed(answer(409)), 0),
        (Receipt(7, answer(201)), 0),
    ],
)
def test_another_body_takes_the_place_of_the_one_sent_only_where_nothing_was_created(
    world: World, verdict: Verdict, new: int
) -> None:
    world.stage([A])
    world.publish(verdict)
    account = world.stage([A]).account
    assert account.unchanged + account.still_refused == 1
    account = world.stage([B]).account
    assert (account.new, account.drifted) == (new, 1 - new)


def test_a_held_row_that_a_person_releases_is_sent(world: World) -> None:
    delivered(world, row("old", twin="jazz"))
    world.stage([row("old", twin="jazz"), row("new", twin="jazz")])
    put(world, "new", decision=Decision.RELEASE.value)
    assert world.stage([row("old", twin="jazz"), row("new", twin="jazz")]).account == ReadAccount(read=2, unchanged=1, new=1)
