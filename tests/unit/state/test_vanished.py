"""Rows that are gone from their source, that a rule leaves out or whose events are over: which of them have vanished."""

from __future__ import annotations

import pytest
from unit.state.books import BOOK, OVER, TO_COME, column, delivered, event, put
from unit.state.world import START, World, answer, row

from mappings.delivery import Blocked, Conflict, Refusal, Uncertain, Verdict
from mappings.outcome import MappedRow, RowLocation, Skipped
from mappings.row_key import RowKey
from state.enums import Waiting
from state.ledger.accounts import ReadKind, StagePolicy, StageReport
from state.queries import LedgerQueries, RowFilter

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
    assert len(LedgerQueries(world.engine).rows(BOOK, RowFilter(is_vanished=True))) == vanished


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
