"""What waits for a person, by one definition for counts and lists; since when; and when a feed was last done."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from unit.state.books import BOOK, delivered, problems, put
from unit.state.story import WARNED, play
from unit.state.world import DESTINATION, FEED, START, World, receipt, rejection, row

from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey
from state.enums import EntryState, ProblemKind, Waiting
from state.ledger.accounts import PublishAccount, ReadKind, StagePolicy
from state.ledger.outbox import Settled
from state.ledger.standing import OpenRows
from state.queries import LedgerQueries, RowFilter, last_came, last_done

NEXT_YEAR = START + timedelta(days=365)
WITHOUT_EVENT = (Waiting.REFUSED, Waiting.BLOCKED, Waiting.HELD)


def books(world: World) -> LedgerQueries:
    return LedgerQueries(world.engine, world.clock)


def listed(world: World, kind: Waiting) -> list[str]:
    return [record.row_key for record in books(world).every_row(BOOK, RowFilter(waiting=kind))]


def waiting(world: World) -> dict[str, int]:
    """The counts, which `status` and the run's record have from one definition, and the lists beside them."""
    counts = dict(books(world).status()[0].waiting)
    assert counts == world.ledger.standing().counts
    for kind in Waiting:
        assert len(listed(world, kind)) == counts.get(kind, 0)
    return counts


ENDS: dict[str, object] = {"decision": "ignore", **dict.fromkeys(("ends_at", "removed_at", "vanished_at", "past_at"), START)}
ONCE_IT_IS_THERE = "decision ends_at removed_at"
ONLY_IN_ITS_SOURCE = "decision ends_at removed_at vanished_at past_at"
NOTHING_THERE = {"event_id": None}
DRIFTED = {"drift_fingerprint": "x", "drift_kind": "edited"}


@pytest.mark.parametrize(
    ("kind", "columns", "ends"),
    [
        *((kind, {"state": kind.value}, ONCE_IT_IS_THERE) for kind in (Waiting.CONFLICT, Waiting.UNCERTAIN, Waiting.UNCONFIRMED)),
        *((kind, {"state": kind.value} | NOTHING_THERE, ONLY_IN_ITS_SOURCE) for kind in WITHOUT_EVENT),
        *((Waiting.DRIFT, DRIFTED | {"drift_kind": kind}, ONCE_IT_IS_THERE) for kind in ("edited", "to_publish", "cancelled")),
        (Waiting.DRIFT, DRIFTED | {"drift_kind": "returned", "removed_at": START}, "decision ends_at vanished_at past_at"),
        (Waiting.VANISHED, {"vanished_at": START}, ONCE_IT_IS_THERE),
    ],
)
def test_a_row_waits_until_it_is_ignored_or_over_and_as_long_as_there_is_something_to_do(
    world: World, kind: Waiting, columns: dict[str, Any], ends: str
) -> None:
    delivered(world, row("a"), row("b"))
    usual = dict.fromkeys(ENDS) | {"ends_at": NEXT_YEAR} | columns
    put(world, "a", **usual)
    assert waiting(world) == {kind: 1}
    assert world.ledger.standing().rows == {kind: OpenRows(1, (RowKey("a"),))}
    assert [*world.ledger.standing().drifts] == [drift for name, drift in columns.items() if name == "drift_kind"]
    for name, value in ENDS.items():
        put(world, "a", **{name: value})
        assert world.ledger.standing().counts.get(kind, 0) == (name not in ends.split()), name
        put(world, "a", **usual)


def test_a_refused_row_that_was_taken_back_waits_no_longer(world: World) -> None:
    delivered(world, row("a"))
    put(world, "a", state="refused", event_id=None, fingerprint="")
    assert waiting(world) == {}


def test_a_row_that_a_fault_of_ours_rejected_stands_until_a_read_maps_it(world: World) -> None:
    reason = Reason(ReasonCode.INTERNAL_ERROR, "", "", "", "please report it")
    faulty = (replace(rejection("a"), reasons=(reason,)), replace(rejection(place="agenda.csv:7"), reasons=(reason,)))
    world.stage([row("b"), rejection("c"), *faulty])
    assert world.ledger.standing().faults == OpenRows(2, (RowKey("a"), RowKey("agenda.csv:7")))
    world.stage([rejection("d")], is_whole=False, policy=StagePolicy(kind=ReadKind.INCREMENTAL))
    assert world.ledger.standing().faults.count == 2
    world.stage([row("a"), row("b"), rejection("c")])
    assert world.ledger.standing().faults == OpenRows()


@pytest.mark.parametrize("state", EntryState)
def test_a_vanished_row_waits_where_an_event_is_or_may_be_there(world: World, state: EntryState) -> None:
    delivered(world, row("a"))
    is_out = state is EntryState.DELIVERED
    put(world, "a", state=state.value, vanished_at=world.clock(), event_id=1 if is_out else None, unanswered_at=None)
    may_be_there = {EntryState.DELIVERED, EntryState.DELIVERED_UNCONFIRMED, EntryState.UNCERTAIN, EntryState.CONFLICT}
    assert (listed(world, Waiting.VANISHED) == ["a"]) is (state in may_be_there)
    if state is EntryState.PENDING:
        put(world, "a", unanswered_at=world.clock())
        assert listed(world, Waiting.VANISHED) == ["a"]


def test_a_picture_that_was_missing_when_the_event_was_sent_is_a_warning_until_the_row_changes(world: World) -> None:
    world.stage([row("a")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    pinned = outbox.pin(intent, intent.body, missing=WARNED[0])
    outbox.settle_and_claim([Settled(pinned, receipt(pinned))], 0)
    for _ in range(2):
        world.stage([row("a")])
        assert waiting(world) == {Waiting.WARNING: 1}
    world.stage([row("a", "Another title")])
    assert waiting(world) == {Waiting.DRIFT: 1}


def test_a_held_row_is_listed_until_a_person_ignores_it(world: World) -> None:
    play(world, "a | sent | a b~a")
    assert listed(world, Waiting.HELD) == problems(world, ProblemKind.HELD) == ["b"]
    put(world, "b", decision="ignore")
    assert listed(world, Waiting.HELD) == problems(world, ProblemKind.HELD) == []


def test_refused_rows_are_measured_against_the_rows_that_the_last_whole_read_asked_for(world: World) -> None:
    for story, asked in (("a b c d e | refused", 5), ("a b c d", 4), ("part a b", 4)):  # those that are known and not gone
        play(world, story)
        assert world.ledger.standing().asked == asked


def test_a_row_that_only_moved_in_its_file_is_met_since_it_was_first_met(world: World) -> None:
    world.stage([rejection("a", "agenda.csv:2"), rejection("", "agenda.csv:3")])
    world.clock.turn(days=3)
    world.stage([rejection("a", "agenda.csv:9"), rejection("b", "agenda.csv:10"), rejection("", "agenda.csv:11")])
    books = LedgerQueries(world.engine)
    problems = books.problems(BOOK, ProblemKind.REJECTED)
    met = books.first_met(problems)
    days = {problem.origin: (met[problem.problem_id] - START).days for problem in problems}
    assert days == {"agenda.csv:9": 0, "agenda.csv:10": 3, "agenda.csv:11": 3}
    assert books.first_met(()) == {}


def test_a_feed_was_last_done_when_nothing_was_left_to_look_at_and_came_last_whatever_came_of_it(world: World) -> None:
    def known(destination: str = DESTINATION) -> tuple[datetime | None, datetime | None]:
        came = last_came(world.engine, destination, {4}, "backfill").get(FEED)
        return last_done(world.engine, destination).get(BOOK), came

    assert known() == (None, None)
    for name, exit_code, account, is_done, has_come in (
        ("earlier", 0, PublishAccount(), True, True),
        ("done", 0, PublishAccount(new=1, delivered=1), True, True),
        ("needs attention", 1, PublishAccount(new=1, refused=1), False, True),
        ("staged only", 0, None, False, True),
        ("turned away", 4, None, False, False),
    ):
        done, came = known()
        world.ledger.begin_run(name, launched_by="a test")
        world.clock.turn(minutes=1)
        world.ledger.finish_run(name, outcome="ended", exit_code=exit_code, message="", publish_account=account)
        assert known() == (world.clock() if is_done else done, world.clock() if has_come else came), name
    before = known()
    world.ledger.begin_run("a slice", launched_by="backfill")
    assert known() == before
    world.clock.turn(minutes=1)
    world.ledger.begin_run("at work", launched_by="a test")
    assert known() == (before[0], world.clock())
    assert last_done(world.engine) == {BOOK: before[0]}
    assert known("https://elsewhere.example#default") == (None, None)
