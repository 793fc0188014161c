"""Rows that leave their source once their events are over: partners prune what is past, and nobody has to hear of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from unit.state.world import DESTINATION, FEED, World, row

from mappings.outcome import MappedRow
from mappings.row_key import fingerprint
from state.ledger.accounts import StageReport
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries, RowFilter

OVER, TO_COME = "2026-02-01T20:00:00+01:00", "2026-08-01T20:00:00+02:00"


def event(key: str, start: str, end: str = "") -> MappedRow:
    times = {"startAt": start} | ({"endAt": end} if end else {})
    plain = row(key)
    body = json.dumps(json.loads(plain.body) | times).encode()
    return replace(plain, body=body, fingerprint=fingerprint(body, ""), row_digest=body)


def pruned(world: World, *gone: MappedRow) -> StageReport:
    """Deliver these rows beside one that stays, then read the source without them."""
    world.stage([event("stays", TO_COME), *gone])
    world.publish()
    return world.stage([event("stays", TO_COME)])


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
    assert len(LedgerQueries(world.engine).rows(FeedScope(DESTINATION, FEED), RowFilter(is_vanished=True))) == vanished


def test_a_row_that_is_past_is_counted_once_and_comes_back_as_known_as_it_was(world: World) -> None:
    pruned(world, event("a", OVER))
    assert world.stage([event("stays", TO_COME)]).past == 0
    back = world.stage([event("stays", TO_COME), event("a", OVER)])
    assert (back.account.unchanged, back.account.new) == (2, 0)
    assert world.stage([event("stays", TO_COME)]).past == 1


def test_a_row_that_was_moved_to_a_later_day_and_then_taken_away_is_over_with_the_event_that_was_delivered(world: World) -> None:
    world.stage([event("stays", TO_COME), event("a", OVER)])
    world.publish()
    assert world.stage([event("stays", TO_COME), event("a", TO_COME)]).account.drifted == 1
    report = world.stage([event("stays", TO_COME)])
    assert (report.vanished, report.past) == (0, 1)


def test_a_row_that_was_never_delivered_is_withdrawn_as_ever(world: World) -> None:
    world.stage([event("stays", TO_COME), event("a", OVER)])
    report = world.stage([event("stays", TO_COME)])
    assert (report.withdrawn, report.vanished, report.past) == (1, 0, 0)


def test_a_read_that_a_brake_stops_marks_nothing_as_past(world: World) -> None:
    world.stage([event("stays", TO_COME), event("a", OVER)])
    world.publish()
    stopped = world.stage([event("stays", TO_COME)], brakes=("shrink",))
    assert stopped.past == 1
    assert world.stage([event("stays", TO_COME)]).past == 1
