"""Rows that are gone from their source, or that a rule leaves out: which of them have vanished."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sqlalchemy import select, update
from unit.state.world import START, World, answer, rejection, row

from mappings.delivery import Blocked, Conflict, Refusal, Uncertain, Verdict
from mappings.outcome import MappedRow, RowLocation, Skipped
from mappings.row_key import RowKey, fingerprint
from state.database import reading, writing
from state.enums import Waiting
from state.ledger.reads import ReadKind, StagePolicy
from state.tables import ENTRY

STAYS = row("stays")


def column(world: World, key: str, name: str) -> object:
    with reading(world.engine) as connection:
        return connection.execute(select(ENTRY.c[name]).where(ENTRY.c.row_key == key)).scalar_one()


def decided(world: World, key: str, **columns: object) -> None:
    with writing(world.engine) as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == key).values(**columns))


def left_out(key: str) -> Skipped:
    return Skipped(RowLocation("agenda.csv:9"), "online only", RowKey(key), rule=2)


def over(key: str) -> MappedRow:
    """A row whose event is over."""
    plain = row(key)
    body = json.dumps(json.loads(plain.body) | {"startAt": "2026-02-01T20:00:00+01:00"}).encode()
    return replace(plain, body=body, fingerprint=fingerprint(body, ""))


@pytest.mark.parametrize(
    ("verdict", "vanished"),
    [
        (Conflict(answer(409)), 1),
        (Uncertain(answer(503)), 1),
        (Refusal(answer(400)), 0),
        (Blocked(answer(403)), 0),
    ],
)
def test_only_a_row_that_may_have_an_event_vanishes(world: World, verdict: Verdict, vanished: int) -> None:
    world.stage([row("a"), STAYS])
    world.publish(verdict)
    assert world.stage([STAYS]).vanished == vanished
    assert world.stage([STAYS]).vanished == 0


def test_a_blocked_row_with_an_unanswered_attempt_is_listed_once_it_vanishes(world: World) -> None:
    world.stage([row("a"), STAYS])
    world.publish(Blocked(answer(403), is_unanswered=True))
    assert world.stage([STAYS]).vanished == 1
    assert world.ledger.standing().counts == {Waiting.VANISHED.value: 1}


def test_a_row_that_a_rule_leaves_out_has_vanished_by_that_rule(world: World) -> None:
    world.stage([row("a"), STAYS])
    world.publish()
    report = world.stage([left_out("a"), STAYS])
    assert (report.vanished, report.account.filtered) == (1, 1)
    assert column(world, "a", "vanished_by") == "rule 2: online only"
    assert world.stage([left_out("a"), STAYS]).vanished == 0
    world.stage([row("a"), STAYS])
    assert column(world, "a", "vanished_by") == ""


def test_a_row_that_a_rule_leaves_out_after_its_event_is_past(world: World) -> None:
    world.stage([over("a"), STAYS])
    world.publish()
    report = world.stage([left_out("a"), STAYS])
    assert (report.vanished, report.past) == (0, 1)


def test_three_rows_that_a_rule_leaves_out_are_counted_by_rule(world: World) -> None:
    rows = [row(key) for key in "abcde"]
    world.stage([*rows, over("f")])
    world.publish()
    report = world.stage([*(left_out(key) for key in "abcf"), *rows[3:]])
    assert (report.left_out, report.to_come) == ({"rule 2: online only": 3}, 5)


def test_rows_picked_by_hand_make_nothing_vanish(world: World) -> None:
    world.stage([row("a"), STAYS])
    world.publish()
    report = world.stage([left_out("a")], is_whole=False, policy=StagePolicy(kind=ReadKind.CHOSEN))
    assert (report.vanished, column(world, "a", "vanished_at")) == (0, None)


def test_a_row_that_cannot_be_used_is_not_gone(world: World) -> None:
    world.stage([row("a"), STAYS])
    world.publish()
    report = world.stage([rejection("a"), STAYS])
    assert (report.vanished, report.past) == (0, 0)


def test_an_ignored_row_is_listed_again_when_it_vanishes(world: World) -> None:
    world.stage([row("a"), STAYS])
    world.publish()
    decided(world, "a", decision="ignore")
    assert world.stage([STAYS]).vanished == 1
    assert column(world, "a", "decision") is None


def test_a_removed_event_whose_row_came_back_and_is_gone_again_is_on_no_list(world: World) -> None:
    world.stage([row("a"), STAYS])
    world.publish()
    world.stage([STAYS])
    decided(world, "a", removed_at=START)
    world.stage([row("a"), STAYS])
    assert column(world, "a", "drift_kind") == "returned"
    report = world.stage([STAYS])
    assert (report.vanished, report.past, column(world, "a", "drift_kind")) == (0, 0, None)
