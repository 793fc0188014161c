"""Rows that are gone, left out or over, and what a person said: which have vanished, and what stays with its row."""

from __future__ import annotations

import pytest
from sqlalchemy import update
from unit.state.books import BOOK, CANCELLED, OVER, TO_COME, column, delivered, event, put
from unit.state.world import START, World, answer, row

from mappings.delivery import Blocked, Conflict, Receipt, Refusal, Uncertain, Unconfirmed, Verdict
from mappings.outcome import MappedRow, RowLocation, Skipped
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey
from state.database import writing
from state.enums import Decision, DriftKind, EntryState, Waiting
from state.ledger.accounts import ReadAccount, ReadKind, StagePolicy, StageReport
from state.queries import LedgerQueries, RowFilter
from state.tables import EARLIER

STAYS, LASTS = row("stays"), event("stays", TO_COME)


def left_out(key: str) -> Skipped:
    return Skipped(RowLocation("agenda.csv:9"), "online only", RowKey(key), rule=2)


@pytest.mark.parametrize(
    ("verdict", "vanished"),
    [
        (Conflict(answer(409)), 1),
        (Uncertain(answer(503)), 1),
        (Refusal(answer(400)), 0),
        (Blocked(answer(403)), 0),
        (Blocked(answer(403), is_unanswered=True), 1),
    ],
)
def test_only_a_row_that_may_have_an_event_vanishes(world: World, verdict: Verdict, vanished: int) -> None:
    world.stage([row("a"), STAYS])
    world.publish(verdict)
    assert world.stage([STAYS]).vanished == vanished
    assert world.ledger.standing().counts.get(Waiting.VANISHED.value, 0) == vanished
    assert world.stage([STAYS]).vanished == 0


def test_a_row_that_a_rule_leaves_out_has_vanished_by_that_rule(world: World) -> None:
    delivered(world, row("a"), STAYS)
    report = world.stage([left_out("a"), STAYS])
    assert (report.vanished, report.account.filtered) == (1, 1)
    assert column(world, "a", "vanished_by") == "rule 2: online only"
    assert world.stage([left_out("a"), STAYS]).vanished == 0
    world.stage([row("a"), STAYS])
    assert column(world, "a", "vanished_by") == ""


def test_a_row_that_a_rule_leaves_out_after_its_event_is_past(world: World) -> None:
    delivered(world, event("a", OVER), STAYS)
    report = world.stage([left_out("a"), STAYS])
    assert (report.vanished, report.past) == (0, 1)


def test_three_rows_that_a_rule_leaves_out_are_counted_by_rule(world: World) -> None:
    rows = [row(key) for key in "abcde"]
    world.stage([*rows, event("f", OVER)])
    world.publish()
    report = world.stage([*(left_out(key) for key in "abcf"), *rows[3:]])
    assert (report.left_out, report.to_come) == ({"rule 2: online only": 3}, 5)


def test_rows_picked_by_hand_make_nothing_vanish(world: World) -> None:
    delivered(world, row("a"), STAYS)
    report = world.stage([left_out("a")], is_whole=False, policy=StagePolicy(kind=ReadKind.CHOSEN))
    assert (report.vanished, column(world, "a", "vanished_at")) == (0, None)


def test_an_ignored_row_is_listed_again_when_it_vanishes(world: World) -> None:
    delivered(world, row("a"), STAYS)
    put(world, "a", decision="ignore")
    assert world.stage([STAYS]).vanished == 1
    assert column(world, "a", "decision") is None


def test_a_removed_event_whose_row_came_back_and_is_gone_again_is_on_no_list(world: World) -> None:
    delivered(world, row("a"), STAYS)
    world.stage([STAYS])
    put(world, "a", removed_at=START)
    world.stage([row("a"), STAYS])
    assert column(world, "a", "drift_kind") == "returned"
    report = world.stage([STAYS])
    assert (report.vanished, report.past, column(world, "a", "drift_kind")) == (0, 0, None)


def pruned(world: World, *gone: MappedRow) -> StageReport:
    """Deliver these rows beside one that stays, then read the source without them."""
    delivered(world, LASTS, *gone)
    return world.stage([LASTS])


@pytest.mark.parametrize(
    ("start", "end", "vanished", "past"),
    [(OVER, "", 0, 1), (TO_COME, "", 1, 0), (OVER, TO_COME, 1, 0), (OVER, OVER, 0, 1), ("2026-02-01T20:00:00Z", "", 0, 1)],
)
def test_a_row_whose_event_is_over_is_past_and_any_other_has_vanished(
    world: World, start: str, end: str, vanished: int, past: int
) -> None:
    report = pruned(world, event("a", start, end))
    assert (report.vanished, report.past, report.past_rows) == (vanished, past, past)
    (status,) = LedgerQueries(world.engine).status()
    assert (status.vanished, status.waiting.get("vanished", 0)) == (vanished, vanished)
    assert len(LedgerQueries(world.engine).rows(BOOK, RowFilter(waiting=Waiting.VANISHED))) == vanished


def test_a_row_that_is_past_is_counted_once_and_comes_back_as_known_as_it_was(world: World) -> None:
    pruned(world, event("a", OVER))
    assert world.stage([LASTS]).past == 0
    back = world.stage([LASTS, event("a", OVER)])
    assert (back.account.unchanged, back.account.new) == (2, 0)
    assert world.stage([LASTS]).past == 1


def test_a_row_that_was_moved_to_a_later_day_and_then_taken_away_is_over_with_the_event_that_was_delivered(world: World) -> None:
    delivered(world, LASTS, event("a", OVER))
    assert world.stage([LASTS, event("a", TO_COME)]).account.drifted == 1
    report = world.stage([LASTS])
    assert (report.vanished, report.past) == (0, 1)


def test_a_read_that_a_brake_stops_marks_nothing_as_past(world: World) -> None:
    delivered(world, LASTS, event("a", OVER))
    stopped = world.stage([LASTS], brakes=("shrink",))
    assert stopped.past == 1
    assert world.stage([LASTS]).past == 1


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
