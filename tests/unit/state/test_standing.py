"""What waits for a person, by one definition for counts and lists; since when; and when a feed was last done."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from ledger_tables import damage_run
from unit.state.books import BOOK, CANCELLED, OVER, TO_COME, delivered, event, problems, resolve
from unit.state.story import WARNED, play, stories
from unit.state.world import DESTINATION, FEED, START, World, receipt, rejection, row

from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey
from state.enums import ProblemKind, Waiting
from state.ledger.accounts import HeldRow, PublishAccount, ReadAccount, ReadKind, StagePolicy, StageReport
from state.ledger.choices import Instruction, Option
from state.ledger.outbox import Settled
from state.ledger.standing import OpenRows
from state.queries import LedgerQueries, RowFilter, last_came, last_done


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


@stories(
    """
an event that may be there waits until it is ignored or over, also if its row is gone
    a | conflict => conflict 1
    a | conflict | nothing => conflict 1, vanished 1
    a | conflict | --ignore a =>
    a | conflict | 2000 days =>
    a | uncertain => uncertain 1
    a | uncertain | nothing => uncertain 1, vanished 1
    a | uncertain | --ignore a =>
    a | uncertain | 2000 days =>
    a | unconfirmed => delivered_unconfirmed 1
    a | unconfirmed | nothing => delivered_unconfirmed 1, vanished 1
    a | unconfirmed | nothing | --removed a =>
    a | unconfirmed | --ignore a =>
    a | unconfirmed | 2000 days =>
a row without an event waits as long as it is in its source
    a | refused => refused 1
    a | refused | nothing =>
    a | refused | --ignore a =>
    a | refused | 2000 days =>
    a | refused | a:A | nothing =>
    a | blocked => blocked 1
    a | blocked | nothing =>
    a | blocked | --ignore a =>
    a | blocked | 2000 days =>
    b~x | sent | a~x b~x => held 1
    b~x | sent | a~x b~x | b~x =>
    b~x | sent | a~x b~x | --ignore a =>
    b~x | sent | a~x b~x | 2000 days =>
a difference waits until it is applied, ignored or over
    a | sent | a:A => drift 1
    a | sent | a:A | --applied a =>
    a | sent | a:A | --ignore a =>
    a | sent | a:A | 2000 days =>
    a:A/draft | sent | a:A => drift 1
    a:A/draft | sent | a:A | 2000 days =>
    a | sent | #a => drift 1
    a | sent | #a | --removed a =>
    a | sent | #a | --ignore a =>
    a | sent | #a | 2000 days =>
what was removed waits if its row is back, until that is gone again
    a | sent | #a | --removed a | a => drift 1
    a | sent | #a | --removed a | a | nothing =>
    a | sent | #a | --removed a | a | --ignore a =>
    a | sent | #a | --removed a | a | 2000 days =>
an event whose row has vanished waits until it is removed, ignored or over, or the row is back
    a | sent | nothing => vanished 1
    a | sent | ?a => vanished 1
    a | sent | nothing | a =>
    a | sent | nothing | --removed a =>
    a | sent | nothing | --ignore a =>
    a | sent | nothing | 2000 days =>
""",
    names=("story", "counts"),
)
def test_a_row_waits_as_long_as_there_is_something_to_do(world: World, story: str, counts: str) -> None:
    play(world, story)
    assert ", ".join(f"{kind} {count}" for kind, count in sorted(waiting(world).items())) == counts
    standing = world.ledger.standing()
    assert standing.rows == {kind: OpenRows(1, (RowKey("a"),)) for kind in standing.rows}
    assert [*standing.drifts] == ([world.known("a").drift_kind] if Waiting.DRIFT in standing.rows else [])


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_row_whose_event_is_over_waits_if_it_asks_for_a_later_one(world: World, *, is_removed: bool) -> None:
    delivered(world, event("a", OVER), row("b"))
    if is_removed:
        world.stage([CANCELLED, row("b")])
        resolve(world, "a", Instruction(Option.REMOVED))
    for start, waits in ((TO_COME, {Waiting.DRIFT: 1}), ("2026-02-03T20:00:00+01:00", {}), (TO_COME, {Waiting.DRIFT: 1})):
        world.stage([event("a", start), row("b")])
        assert waiting(world) == waits
    world.stage([event("a", OVER), row("b")])
    assert waiting(world) == {}
    world.stage([row("b")])
    assert waiting(world) == {}
    world.stage([event("a", TO_COME), row("b")])
    assert waiting(world) == {Waiting.DRIFT: 1}


def test_a_row_that_a_fault_of_ours_rejected_stands_until_a_read_maps_it(world: World) -> None:
    reason = Reason(ReasonCode.INTERNAL_ERROR, "", "", "", "please report it")
    faulty = (replace(rejection("a"), reasons=(reason,)), replace(rejection(place="agenda.csv:7"), reasons=(reason,)))
    world.stage([row("b"), rejection("c"), *faulty])
    assert world.ledger.standing().faults == OpenRows(2, (RowKey("a"), RowKey("agenda.csv:7")))
    world.stage([rejection("d")], is_whole=False, policy=StagePolicy(kind=ReadKind.INCREMENTAL))
    assert world.ledger.standing().faults.count == 2
    world.stage([row("a"), row("b"), rejection("c")])
    assert world.ledger.standing().faults == OpenRows()


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


def test_what_version_0_2_has_stored_of_a_run_is_read_without_what_is_gone(world: World) -> None:
    world.stage([row("a")])
    account = {"read": 3, "new": 1, "held": 1, "rejected": 1}
    held = [{"origin": "agenda.csv:3", "row_key": "b", "twin_key": "a", "feed": "", "namespace": ""}]
    report = {"run_id": "run-1", "is_whole": True, "account": account, "held": held, "vanished": 2, "redrafted": 1}
    waited = {"held": {"count": 1, "first": ["b"]}, "earlier": {"count": 2, "first": ["a"]}}
    damage_run(world.engine, "run-1", stage_report=json.dumps(report), standing=json.dumps(waited))
    (run,) = books(world).runs()
    assert run.standing == {Waiting.HELD: OpenRows(1, (RowKey("b"),))}
    expected: dict[str, Any] = {
        "account": ReadAccount(**account),
        "held": (HeldRow("agenda.csv:3", RowKey("b"), RowKey("a")),),
        "vanished": 2,
    }
    assert run.stage_report == StageReport(run_id="run-1", is_whole=True, **expected)


def test_a_held_row_is_listed_until_a_person_ignores_it(world: World) -> None:
    play(world, "a | sent | a b~a")
    assert listed(world, Waiting.HELD) == problems(world, ProblemKind.HELD) == ["b"]
    play(world, "--ignore b")
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


def test_what_is_delivered_has_another_version_once_an_event_has_come_changed_or_gone(world: World) -> None:
    found = [books(world).delivered(BOOK, "run-0", 2)]
    for story in ("a:A b c | sent", "a:A b c | sent", "a:B c | sent", "--applied a", "--removed b"):
        play(world, story)
        found.append(books(world).delivered(BOOK, f"run-{world.runs}", 2))
    is_new = [before.version != after.version for before, after in pairwise(found)]
    assert is_new == [True, False, False, True, True]
    assert [len(each.event_ids) for each in found] == [0, 2, 0, 0, 0, 0]
