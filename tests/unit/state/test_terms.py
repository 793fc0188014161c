"""What a feed asks about changes, vanished rows and copies, and what one run asks of all its rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import select
from unit.state.books import BOOK, delivered
from unit.state.world import World, answer, body_of, row

from mappings.delivery import Refusal, Uncertain
from mappings.event import as_draft
from mappings.outcome import Cover, MappedRow
from state.enums import EntryState, Waiting
from state.ledger.accounts import ReadAccount, StagePolicy, StageReport
from state.queries import LedgerQueries, RowFilter
from state.tables import EARLIER

IGNORING = StagePolicy(on_change="ignore", on_vanish="ignore")
DRAFTING = StagePolicy(on_change="create_draft_again")
DRAFTS_ONLY = StagePolicy(drafts_only=True)


def earlier_events(world: World) -> list[int]:
    with world.engine.connect() as connection:
        return list(connection.execute(select(EARLIER.c.event_id).order_by(EARLIER.c.replaced_at)).scalars())


# changes and vanished rows that a feed ignores


@pytest.mark.parametrize("times", [1, 2])
def test_an_ignored_change_is_counted_once_and_not_listed(world: World, times: int) -> None:
    delivered(world, row("a", "first"), row("b"))
    report = world.stage([*[row("a", "second")] * times, row("b")], policy=IGNORING)
    assert report.account == ReadAccount(read=times + 1, drifted=1, unchanged=1, duplicate=times - 1)
    assert LedgerQueries(world.engine).rows(BOOK, RowFilter(waiting=Waiting.DRIFT)) == ()
    assert LedgerQueries(world.engine).status()[0].drifted == 0


def test_a_change_that_was_listed_is_listed_no_more_once_the_feed_ignores_changes_and_again_when_it_reports_them(
    world: World,
) -> None:
    delivered(world, row("a", "first"))
    for terms, is_listed in ((StagePolicy(), True), (IGNORING, False), (IGNORING, False), (StagePolicy(), True)):
        world.stage([row("a", "second")], policy=terms)
        assert (world.known("a").drift_body is not None) is is_listed


def test_an_ignored_row_that_vanished_is_neither_marked_nor_listed(world: World) -> None:
    delivered(world, row("a"), row("b"))
    assert world.stage([row("a")], policy=IGNORING).vanished == 0
    assert world.known("b").vanished_at is None
    assert world.stage([row("a")]).vanished == 1


# changes that are drafted again


def test_a_changed_event_is_drafted_once_as_a_new_event_and_the_earlier_one_stays_on_record(world: World) -> None:
    delivered(world, row("a", "first"))
    before = world.known("a")
    assert world.stage([row("a", "second")], policy=DRAFTING).account == ReadAccount(read=1, new=1)
    assert world.publish().delivered == 1
    after = world.known("a")
    assert (after.state, after.body) == (EntryState.DELIVERED, body_of("second", status="draft"))
    assert after.key != before.key
    assert earlier_events(world) == [before.event_id]
    for _ in range(2):
        assert world.stage([row("a", "second")], policy=DRAFTING).account == ReadAccount(read=1, unchanged=1)
    assert world.publish().new == 0


def test_each_change_has_a_key_of_its_own_also_after_the_ledger_is_lost(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    delivered(world, row("a", "first"))
    keys = []
    for title in ("second", "third"):
        world.stage([row("a", title)], policy=DRAFTING)
        keys.append(world.known("a").key)
        world.publish()
    other = World(f"sqlite:///{tmp_path_factory.mktemp('other') / 'state.db'}")
    delivered(other, row("a", "second"))  # what the source says when the ledger begins anew
    other.stage([row("a", "third")], policy=DRAFTING)
    assert other.known("a").key == keys[1]
    other.stage([row("a", "second")], policy=DRAFTING)
    assert len(set(keys)) == 2
    other.engine.dispose()


def test_a_row_that_goes_back_before_its_draft_was_sent_is_as_delivered_as_it_was(world: World) -> None:
    delivered(world, row("a", "first"))
    before = world.known("a")
    world.stage([row("a", "second")], policy=DRAFTING)
    assert world.stage([row("a", "first")], policy=DRAFTING).account == ReadAccount(read=1, unchanged=1)
    after = world.known("a")
    assert (after.state, after.key, after.event_id, after.body) == (before.state, before.key, before.event_id, before.body)
    assert earlier_events(world) == []
    assert world.publish().new == 0


@pytest.mark.parametrize("verdict", [Refusal(answer(400)), None])
def test_a_row_that_goes_back_is_never_drafted_as_what_an_earlier_event_says(world: World, verdict: Refusal | None) -> None:
    delivered(world, row("a", "first"))
    world.stage([row("a", "second")], policy=DRAFTING)
    world.publish(*([verdict] if verdict else []))
    for _ in range(2):
        account = world.stage([row("a", "first")], policy=DRAFTING).account
        assert account.new == 0
    assert world.known("a").state is EntryState.DELIVERED
    assert (world.known("a").drift_body is None) is (verdict is not None)


def test_a_draft_that_was_sent_without_an_answer_keeps_its_body_until_it_is_answered(world: World) -> None:
    delivered(world, row("a", "first"))
    world.stage([row("a", "second")], policy=DRAFTING)
    world.publish(Uncertain(answer(0)))
    key = world.known("a").key
    assert world.stage([row("a", "third")], policy=DRAFTING).account.drifted == 1
    world.publish()
    assert world.known("a").key == key
    assert world.stage([row("a", "third")], policy=DRAFTING).account.new == 1
    assert len(earlier_events(world)) == 2


def test_a_draft_never_sent_takes_the_rows_next_words_under_its_key(world: World) -> None:
    delivered(world, row("a", "first"))
    world.stage([row("a", "second")], policy=DRAFTING)
    key = world.known("a").key
    assert world.stage([row("a", "third")], policy=DRAFTING).restaged == 1
    assert (world.known("a").key, world.known("a").body) == (key, body_of("third", status="draft"))


@pytest.mark.parametrize(("before", "after"), [("draft", "published"), ("published", "draft")])
def test_a_change_of_nothing_but_the_status_is_reported_and_not_drafted(world: World, before: str, after: str) -> None:
    delivered(world, row("a", "same", status=before))
    assert world.stage([row("a", "same", status=after)], policy=DRAFTING).account.drifted == 1


def test_another_image_is_a_change_worth_a_draft(world: World) -> None:
    delivered(world, row("a", "same"))
    assert world.stage([row("a", "same", cover=Cover("https://img.example/b.jpg", "omit"))], policy=DRAFTING).account.new == 1


@pytest.mark.parametrize("rows", [[], [row("a", "second"), row("a", "third")]], ids=["vanished", "claimed twice"])
def test_a_draft_that_is_withdrawn_leaves_the_delivered_event(world: World, rows: Sequence[MappedRow]) -> None:
    delivered(world, row("a", "first"))
    before = world.known("a")
    world.stage([row("a", "second")], policy=DRAFTING)
    world.stage(rows, policy=DRAFTING)
    after = world.known("a")
    assert (after.state, after.event_id, after.body, after.key) == (before.state, before.event_id, before.body, before.key)
    assert (after.vanished_at is not None) is (not rows)


def test_a_crash_between_staging_and_sending_makes_no_second_draft(world: World) -> None:
    delivered(world, row("a", "first"))
    world.stage([row("a", "second")], policy=DRAFTING)
    key = world.known("a").key
    world.crash()
    assert world.stage([row("a", "second")], policy=DRAFTING).account.unchanged == 1
    assert world.known("a").key == key
    assert world.publish().delivered == 1
    assert world.stage([row("a", "second")], policy=DRAFTING).account.unchanged == 1


# runs that send drafts only


def test_a_run_of_drafts_pins_drafts_and_takes_what_is_delivered_for_unchanged(world: World) -> None:
    delivered(world, row("a"))
    report = world.stage([row("a"), row("b"), row("b")], policy=DRAFTS_ONLY)
    assert report.account == ReadAccount(read=3, unchanged=1, new=1, duplicate=1)
    assert (world.known("a").drift_body, world.known("b").body) == (None, as_draft(row("b").body))


def test_a_run_of_drafts_sends_what_was_staged_before_as_drafts_too(world: World) -> None:
    world.stage([row("a")])
    world.stage([row("a")], policy=DRAFTS_ONLY)
    assert world.known("a").body == as_draft(row("a").body)


# what brakes look at


def braked(world: World, *rows: MappedRow, accepted: tuple[str, ...] = ()) -> StageReport:
    return world.stage(rows, brakes=["new"], policy=StagePolicy(accepted=accepted))


def test_rows_behind_a_brake_are_as_new_to_the_next_read_as_they_were(world: World) -> None:
    delivered(world, row("a"))
    assert (braked(world, row("a"), row("b")).waiting, braked(world, row("a"), row("b")).waiting) == (0, 1)
    report = world.stage([row("a"), row("b")])
    assert (report.waiting, report.known_before) == (1, 1)
    assert world.stage([row("a"), row("b")]).waiting == 0


def test_rows_that_a_limit_left_behind_an_open_gate_are_known(world: World) -> None:
    world.stage([row("a"), row("b")])
    world.outbox(limit=1)
    assert world.stage([row("a"), row("b")]).known_before == 2


def test_what_a_stopped_read_misses_is_not_marked_as_vanished(world: World) -> None:
    delivered(world, row("a"), row("b"))
    assert [braked(world, row("a")).vanished for _ in range(2)] == [1, 1]
    assert world.known("b").vanished_at is None
    assert braked(world, row("a"), accepted=("new",)).vanished == 1
    assert world.known("b").vanished_at is not None


def test_what_a_person_accepts_for_one_run_opens_the_gate_for_that_run_alone(world: World) -> None:
    report = braked(world, row("a"), row("b"), accepted=("new",))
    assert (report.brakes, report.accepted) == ((), ("new",))
    assert (world.ledger.gate().is_open, world.ledger.gate().brakes) == (False, ("new",))
    assert world.ledger.open_gate("run 1").is_open
    assert world.ledger.gate().brakes == ("new",)
    assert braked(world, row("a"), row("b")).waiting == 2


def test_a_partial_read_adds_its_brakes_to_those_that_stand(world: World) -> None:
    world.stage([row("a"), row("b")], brakes=["rejected"])
    world.stage([row("a")], is_whole=False, brakes=["new"])
    assert world.ledger.gate().brakes == ("rejected", "new")
