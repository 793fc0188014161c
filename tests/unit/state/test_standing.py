"""What waits for a person: one definition for counts and lists, by the columns of the ledger."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import insert, select, update
from unit.state.world import DESTINATION, FEED, START, World, answer, no_brakes, receipt, row

from mappings.delivery import Blocked, Conflict, Refusal, Uncertain, Unconfirmed, Verdict
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey
from state.database import reading, writing
from state.enums import DriftKind, EntryState, ProblemKind, Waiting
from state.ledger.outbox import Settled
from state.ledger.reads import DEFAULT_POLICY
from state.ledger.standing import FeedScope, OpenRows
from state.queries import LedgerQueries, RowFilter
from state.tables import EARLIER, ENTRY, PROBLEM

BOOK = FeedScope(DESTINATION, FEED)
NEXT_YEAR = START + timedelta(days=365)
WARNING = (Reason(ReasonCode.REQUIRED, "coverImage", "PICTURE", "", "it could not be fetched"),)


def change(world: World, key: str, **columns: object) -> None:
    """Set columns of an entry, as a decision or a read does."""
    with writing(world.engine) as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == key).values(**columns))


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


def delivered(world: World, *keys: str) -> None:
    world.stage([row(key) for key in keys])
    world.publish()


VERDICTS = {
    Waiting.CONFLICT: Conflict(answer(409)),
    Waiting.BLOCKED: Blocked(answer(403)),
    Waiting.UNCERTAIN: Uncertain(answer(503)),
    Waiting.REFUSED: Refusal(answer(400)),
    Waiting.UNCONFIRMED: Unconfirmed(answer(409)),
}


@pytest.mark.parametrize(("kind", "verdict"), VERDICTS.items(), ids=str)
def test_an_entry_waits_by_its_state_until_it_is_ignored_removed_or_over(world: World, kind: Waiting, verdict: Verdict) -> None:
    world.stage([row("a"), row("b")])
    world.publish(verdict)
    assert waiting(world) == {kind: 1}
    assert world.ledger.standing().rows == {kind: OpenRows(1, (RowKey("a"),))}
    change(world, "a", decision="ignore")
    assert waiting(world) == {}
    change(world, "a", decision=None, ends_at=NEXT_YEAR)
    assert waiting(world) == {kind: 1}
    change(world, "a", ends_at=world.clock())
    assert waiting(world) == {}
    change(world, "a", ends_at=None, removed_at=world.clock())
    assert waiting(world) == {}


@pytest.mark.parametrize("kind", [Waiting.REFUSED, Waiting.BLOCKED, Waiting.HELD])
def test_a_row_of_which_nothing_was_created_waits_only_while_its_source_has_it(world: World, kind: Waiting) -> None:
    delivered(world, "a")
    change(world, "a", state=kind.value, event_id=None)
    assert waiting(world) == {kind: 1}
    change(world, "a", vanished_at=world.clock())
    assert waiting(world) == {}
    change(world, "a", vanished_at=None, past_at=world.clock())
    assert waiting(world) == {}


def test_a_refused_row_that_was_taken_back_waits_no_longer(world: World) -> None:
    delivered(world, "a")
    change(world, "a", state="refused", event_id=None, fingerprint="")
    assert waiting(world) == {}


def test_a_superseded_entry_is_on_no_list(world: World) -> None:
    delivered(world, "a")
    change(world, "a", state="superseded", event_id=None, vanished_at=world.clock())
    assert waiting(world) == {}


@pytest.mark.parametrize("kind", [kind for kind in DriftKind if kind is not DriftKind.RETURNED])
def test_drift_waits_until_its_event_is_removed_or_over(world: World, kind: DriftKind) -> None:
    delivered(world, "a")
    change(world, "a", drift_kind=kind.value, drift_fingerprint="x")
    assert waiting(world) == {Waiting.DRIFT: 1}
    assert world.ledger.standing().drifts == {kind: 1}
    change(world, "a", removed_at=world.clock())
    assert waiting(world) == {}
    change(world, "a", removed_at=None, ends_at=world.clock())
    assert waiting(world) == {}


def test_a_removed_event_whose_row_is_back_waits_while_the_row_is_in_its_source(world: World) -> None:
    delivered(world, "a")
    change(world, "a", removed_at=world.clock(), drift_kind="returned", drift_fingerprint="x")
    assert waiting(world) == {Waiting.DRIFT: 1}
    status = books(world).status()[0]
    assert (status.drifted, status.returned) == (1, 1)
    change(world, "a", vanished_at=world.clock())
    assert waiting(world) == {}


@pytest.mark.parametrize("state", EntryState)
def test_a_vanished_row_waits_where_an_event_is_or_may_be_there(world: World, state: EntryState) -> None:
    delivered(world, "a")
    is_out = state is EntryState.DELIVERED
    change(world, "a", state=state.value, vanished_at=world.clock(), event_id=1 if is_out else None, unanswered_at=None)
    may_be_there = {EntryState.DELIVERED, EntryState.DELIVERED_UNCONFIRMED, EntryState.UNCERTAIN, EntryState.CONFLICT}
    assert (listed(world, Waiting.VANISHED) == ["a"]) is (state in may_be_there)
    if state is EntryState.PENDING:
        change(world, "a", unanswered_at=world.clock())
        assert listed(world, Waiting.VANISHED) == ["a"]


def test_an_entry_may_wait_for_several_reasons(world: World) -> None:
    delivered(world, "a")
    change(world, "a", drift_kind="cancelled", drift_fingerprint="cancelled", vanished_at=world.clock())
    assert waiting(world) == {Waiting.DRIFT: 1, Waiting.VANISHED: 1}


def earlier(world: World, key: str, event_id: int, **columns: object) -> None:
    with writing(world.engine) as connection:
        entry = connection.execute(select(ENTRY).where(ENTRY.c.row_key == key)).one()
        kept = ("idempotency_key", "body", "fingerprint", "row_digest", "twin_digest", "channel_id", "attempts", "sent_run")
        ids = {"entry_id": entry.id, "revision": event_id, "event_id": event_id}
        values = {name: getattr(entry, name) for name in kept} | ids
        connection.execute(insert(EARLIER).values(**values | {"replaced_at": world.clock(), "is_let_out": True} | columns))


def test_an_earlier_event_waits_by_its_own_end_until_it_is_removed(world: World) -> None:
    delivered(world, "a", "b", "c")
    earlier(world, "a", 12)
    earlier(world, "b", 13, removed_at=world.clock())
    earlier(world, "c", 14, ends_at=world.clock())
    change(world, "a", ends_at=world.clock())
    assert listed(world, Waiting.EARLIER) == ["a"]
    assert world.known("a").earlier_event_ids == (12,)
    change(world, "a", decision="ignore")
    assert waiting(world) == {}


def test_an_earlier_event_waits_only_once_its_draft_may_be_out(world: World) -> None:
    delivered(world, "a")
    earlier(world, "a", 12, is_let_out=False)
    change(world, "a", state="pending", attempts=0)
    assert listed(world, Waiting.EARLIER) == []
    change(world, "a", attempts=1)
    assert listed(world, Waiting.EARLIER) == ["a"]


def test_a_warning_stands_in_every_later_read_of_an_unchanged_row_until_it_is_ignored(world: World) -> None:
    rows = [row("a", warnings=WARNING), row("b")]
    world.stage(rows)
    world.publish()
    for _ in range(2):
        world.stage(rows)
        assert waiting(world) == {Waiting.WARNING: 1}
        (problem,) = books(world).problems(BOOK, ProblemKind.WARNING)
        assert (problem.row_key, problem.cells["REF"]) == ("a", "a")
    change(world, "a", decision="ignore")
    assert waiting(world) == {}
    assert books(world).problems(BOOK, ProblemKind.WARNING) == ()


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
    delivered(world, "a")
    world.stage([row("b", twin="a")])
    assert listed(world, Waiting.HELD) == ["b"]
    (problem,) = books(world).problems(BOOK, ProblemKind.HELD)
    assert (problem.row_key, problem.cells["REF"]) == ("b", "b")
    assert str(books(world).candidates(BOOK, [RowKey("b")])[RowKey("b")]) == "a"
    assert str(world.known("b").candidate) == "a"
    change(world, "b", decision="ignore")
    assert books(world).problems(BOOK, ProblemKind.HELD) == ()
    with reading(world.engine) as connection:
        assert connection.execute(select(PROBLEM.c.kind)).scalars().all() == ["held"]


def test_refused_rows_are_measured_against_the_rows_that_the_last_whole_read_asked_for(world: World) -> None:
    rows = [row(key) for key in "abcde"]
    world.stage(rows)
    world.publish(Refusal(answer(400)))
    assert world.ledger.standing().asked == 5
    world.stage(rows[:4])
    assert world.ledger.standing().asked == 4
    world.stage(rows[:2], is_whole=False)
    assert world.ledger.standing().asked == 4  # those that are known and not gone


def test_the_shortcut_of_an_unchanged_source_counts_refused_rows_as_still_refused(world: World) -> None:
    world.stage([row(key) for key in "abc"], stamp="1")
    world.publish(Refusal(answer(400)), Refusal(answer(400)))
    run = world.run()
    report = world.ledger.repeat_read(run, world.lease.token, DEFAULT_POLICY, "1", "1", no_brakes)
    assert report is not None
    assert (report.account.still_refused, report.account.unchanged, report.account.new) == (2, 1, 0)
