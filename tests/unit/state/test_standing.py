"""What waits for a person, by one definition for counts and lists; since when; and when a feed was last done."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select
from unit.state.books import BOOK, delivered, problems, put
from unit.state.story import play
from unit.state.world import DESTINATION, FEED, START, World, answer, no_brakes, receipt, rejection, row

from mappings.delivery import Refusal
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey
from state.database import writing
from state.enums import EntryState, ProblemKind, Waiting
from state.ledger.accounts import DEFAULT_POLICY, PublishAccount
from state.ledger.gate import repeat_read
from state.ledger.outbox import Settled
from state.ledger.standing import OpenRows
from state.queries import LedgerQueries, RowFilter, last_came, last_done
from state.tables import EARLIER, ENTRY

NEXT_YEAR = START + timedelta(days=365)
WITHOUT_EVENT = (Waiting.REFUSED, Waiting.BLOCKED, Waiting.HELD)
WARNING = (Reason(ReasonCode.REQUIRED, "coverImage", "PICTURE", "", "it could not be fetched"),)


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


def earlier(world: World, key: str, event_id: int, **columns: object) -> None:
    with writing(world.engine) as connection:
        entry = connection.execute(select(ENTRY).where(ENTRY.c.row_key == key)).one()
        kept = ("idempotency_key", "body", "fingerprint", "row_digest", "twin_digest", "channel_id", "attempts", "sent_run")
        ids = {"entry_id": entry.id, "revision": event_id, "event_id": event_id}
        values = {name: getattr(entry, name) for name in kept} | ids
        connection.execute(insert(EARLIER).values(**values | {"replaced_at": world.clock(), "is_let_out": True} | columns))


def test_an_earlier_event_waits_by_its_own_end_until_it_is_removed_once_its_draft_may_be_out(world: World) -> None:
    delivered(world, row("a"), row("b"), row("c"), row("d"))
    earlier(world, "a", 12)
    earlier(world, "b", 13, removed_at=world.clock())
    earlier(world, "c", 14, ends_at=world.clock())
    earlier(world, "d", 15, is_let_out=False)
    put(world, "a", ends_at=world.clock())
    put(world, "d", state="pending", attempts=0)
    assert listed(world, Waiting.EARLIER) == ["a"]
    assert world.known("a").earlier_event_ids == (12,)
    put(world, "d", attempts=1)
    assert listed(world, Waiting.EARLIER) == ["a", "d"]
    for key in "ad":
        put(world, key, decision="ignore")
    assert waiting(world) == {}


def test_a_picture_that_was_missing_when_the_event_was_sent_is_a_warning_until_the_row_changes(world: World) -> None:
    world.stage([row("a")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    pinned = outbox.pin(intent, intent.body, missing=WARNING[0])
    outbox.settle_and_claim([Settled(pinned, receipt(pinned))], 0)
    for _ in range(2):
        world.stage([row("a")])
        assert waiting(world) == {Waiting.WARNING: 1}
    world.stage([row("a", "Another title")])
    assert waiting(world) == {Waiting.DRIFT: 1}


def test_a_held_row_is_listed_with_its_cells_and_the_entry_that_it_resembles(world: World) -> None:
    delivered(world, row("a"))
    report = world.stage([row("b", twin="a", place="agenda.csv:7")])
    assert [(one.row_key, one.twin_key) for one in report.held] == [("b", "a")]
    assert listed(world, Waiting.HELD) == ["b"]
    (problem,) = books(world).problems(BOOK, ProblemKind.HELD)
    assert (problem.row_key, problem.origin, problem.cells["REF"]) == ("b", "agenda.csv:7", "b")
    assert problem.reasons[0].code is ReasonCode.TWIN
    assert str(problem.candidate) == str(world.known("b").candidate) == "a"
    put(world, "b", decision="ignore")
    assert problems(world, ProblemKind.HELD) == []


def test_refused_rows_are_measured_against_the_rows_that_the_last_whole_read_asked_for(world: World) -> None:
    for story, asked in (("a b c d e | refused", 5), ("a b c d", 4), ("part a b", 4)):  # those that are known and not gone
        play(world, story)
        assert world.ledger.standing().asked == asked


def test_the_shortcut_of_an_unchanged_source_counts_refused_rows_as_still_refused(world: World) -> None:
    world.stage([row(key) for key in "abc"], stamp="1")
    world.publish(Refusal(answer(400)), Refusal(answer(400)))
    run = world.run()
    report = repeat_read(world.ledger.fence(run, world.lease.token), DEFAULT_POLICY, "1", "1", no_brakes)
    assert report is not None
    assert (report.account.still_refused, report.account.unchanged, report.account.new) == (2, 1, 0)


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


def test_a_row_that_is_unusable_now_names_its_event(world: World) -> None:
    delivered(world, row("a"))
    world.stage([rejection("a"), rejection("b")])
    event_id = world.known("a").event_id
    assert [problem.event_id for problem in books(world).problems(BOOK, ProblemKind.REJECTED)] == [event_id, None]


def ends(world: World, run_id: str, exit_code: int, account: PublishAccount | None = None) -> None:
    world.ledger.begin_run(run_id, launched_by="a test")
    world.clock.turn(minutes=1)
    world.ledger.finish_run(run_id, outcome="ended", exit_code=exit_code, message="", publish_account=account)


def test_a_feed_was_last_done_when_its_latest_run_that_published_and_left_nothing_to_look_at_ended(world: World) -> None:
    assert last_done(world.engine) == {}
    ends(world, "earlier", 0, PublishAccount())
    ends(world, "done", 0, PublishAccount(new=1, delivered=1))
    at = world.clock.instant
    ends(world, "needs attention", 1, PublishAccount(new=1, refused=1))
    ends(world, "staged only", 0)
    world.ledger.begin_run("at work", launched_by="a test")
    assert last_done(world.engine) == last_done(world.engine, DESTINATION) == {BOOK: at}
    assert last_done(world.engine, "https://elsewhere.example#default") == {}


def test_a_feed_came_when_its_latest_run_ended_or_began(world: World) -> None:
    assert last_came(world.engine, DESTINATION, {4}, "backfill") == {}
    ends(world, "braked", 5)
    at = world.clock.instant
    ends(world, "held", 4)
    world.ledger.begin_run("a slice", launched_by="backfill")
    assert last_came(world.engine, DESTINATION, {4}, "backfill") == {FEED: at}
    world.clock.turn(minutes=1)
    world.ledger.begin_run("at work", launched_by="a test")
    assert last_came(world.engine, DESTINATION, {4}, "backfill") == {FEED: world.clock.instant}
    assert last_came(world.engine, "https://elsewhere.example#default", {4}, "backfill") == {}
