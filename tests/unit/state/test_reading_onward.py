"""A feed whose source is read by what changed: from where a run reads, what it must not lose, and when it begins anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from file_desks import CHANGES, DAYS, Desk, Feed
from sqlalchemy import update
from unit.state.world import DESTINATION, FEED, World, answer

from connectors.sources.contract import SourceUnavailableError
from mappings.delivery import Refusal
from pipelines.run.options import RunOptions
from state.database import writing
from state.enums import ProblemKind
from state.ledger.accounts import ReadKind
from state.ledger.choices import Instruction, Option
from state.ledger.gate import GateClosedError
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries
from state.tables import ENTRY

STRICT = '{rejected: "1%", rejected_at_least: 1, shrink: "50%", new: off}'
CHANGED = Feed(kind=CHANGES)
NOW_FULL = RunOptions(full=True)


def strictly(desk: Desk) -> Desk:
    """The same feed under brakes that one bad row trips."""
    return replace(desk, feed=replace(desk.feed, brakes=STRICT))


@pytest.fixture
def desk(world: World, tmp_path: Path) -> Desk:
    """A feed with four rows, read whole and delivered."""
    desk = Desk(world, tmp_path, feed=CHANGED)
    for ref in "abcd":
        desk.place.edit(ref, f"{ref} one")
    desk.stage()
    world.publish()
    return desk


def listed(desk: Desk) -> list[str]:
    """The rows that people are shown as rejected; the count of those that wait says the same."""
    books = LedgerQueries(desk.world.engine)
    rows = [str(problem.row_key) for problem in books.every_problem(FeedScope(DESTINATION, FEED), ProblemKind.REJECTED)]
    assert books.status()[0].waiting.get("rejected", 0) == len(rows)
    return rows


def are_vanished(desk: Desk, *keys: str) -> list[bool]:
    return [desk.world.known(key).vanished_at is not None for key in keys]


@pytest.mark.parametrize(("is_refused", "state"), [(False, None), (True, "refused")], ids=["staged", "refused and mended"])
def test_a_deleted_row_without_an_event_is_as_if_it_had_not_come(desk: Desk, is_refused: bool, state: str | None) -> None:
    desk.place.edit("e", "e one")
    desk.stage()
    if is_refused:
        desk.world.publish(Refusal(answer(400)))
        desk.place.edit("e", "e two")
        desk.stage()
    desk.place.delete("e")
    report = desk.stage().report
    assert (report.account.gone, report.vanished, report.withdrawn) == (1, 0, True)
    assert desk.world.states().get("e") == state


def test_events_that_their_row_no_longer_names_have_vanished_and_all_of_a_deleted_row(world: World, tmp_path: Path) -> None:
    desk = Desk(world, tmp_path, feed=replace(CHANGED, rows=DAYS))
    desk.place.edit("a", "a one", "x y")
    desk.place.edit("ab", "ab one", "x")
    desk.stage()
    world.publish()
    desk.place.edit("a", "a one", "x")
    desk.stage()
    assert are_vanished(desk, "a|x", "a|y", "ab|x") == [False, True, False]
    desk.place.delete("a")
    assert desk.stage().report.vanished == 1
    assert are_vanished(desk, "a|x", "a|y", "ab|x") == [True, True, False]


def test_rejected_rows_stay_listed_until_they_are_read_again_or_gone(desk: Desk) -> None:
    desk.place.edit("a", "")
    desk.place.edit("b", "")
    desk.place.edit("c", "c one")
    desk.stage()
    desk.place.edit("d", "")
    report = desk.stage().report
    assert (report.account.rejected, report.standing) == (1, 2)
    assert sorted(listed(desk)) == ["a", "b", "d"]
    desk.place.edit("a", "a two")
    desk.place.delete("b")
    report = desk.stage().report
    assert (report.account.rejected, report.standing) == (1, 0)  # the last row that changed before is read once more
    assert listed(desk) == ["d"]
    desk.stage(RunOptions(keys=("c",)))
    assert listed(desk) == ["d"]
    desk.place.edit("d", "d one")
    desk.stage(NOW_FULL)
    assert listed(desk) == []


def test_a_full_run_that_was_killed_is_followed_by_a_full_one(desk: Desk) -> None:
    with pytest.raises(SourceUnavailableError):
        desk.stage(NOW_FULL, breaks_after=2)
    staged = desk.stage()
    assert staged.report.is_whole
    assert staged.notices == ("read whole: what an earlier read has staged or held waits to be judged",)
    assert desk.plan().kind is ReadKind.INCREMENTAL


def test_a_brake_leaves_the_bookmark_where_it_was_and_nothing_is_lost_or_let_out_unjudged(desk: Desk) -> None:
    strict = strictly(desk)
    assert strict.stage(NOW_FULL).report.brakes == ()
    before = desk.world.ledger.bookmark()
    desk.place.edit("e", "e one")
    desk.place.edit("f", "")
    desk.place.delete("a")
    for _ in range(2):
        assert strict.stage().report.brakes == ("rejected",)
        assert desk.world.ledger.bookmark() == before
        assert are_vanished(desk, "a") == [False]
        with pytest.raises(GateClosedError):
            desk.world.publish()
    desk.place.edit("f", "f one")
    assert strict.stage().report.brakes == ()
    assert are_vanished(desk, "a") == [True]
    assert desk.world.publish().delivered == 2
    before = desk.world.ledger.bookmark()
    desk.place.edit("g", "")
    assert strict.stage(RunOptions(accept=("rejected",))).report.accepted == ("rejected",)
    assert desk.world.ledger.bookmark() == before, "what a person lets pass once is read again by the next run"


@pytest.mark.parametrize("options", [RunOptions(keys=("e",)), RunOptions(status="draft")], ids=["keys", "drafts"])
def test_a_run_for_some_rows_or_for_drafts_moves_nothing(desk: Desk, options: RunOptions) -> None:
    before = desk.world.ledger.bookmark()
    desk.place.edit("e", "e one")
    assert desk.stage(options).report.account.new == 1
    assert desk.world.ledger.bookmark() == before
    desk.stage()
    assert desk.world.known("e").body.count(b'"published"') == 1


def test_rows_picked_by_hand_that_a_brake_stops_wait_for_a_full_read(desk: Desk) -> None:
    strict = strictly(desk)
    desk.place.edit("e", "e one")
    strict.stage()
    desk.place.edit("b", "")
    desk.place.edit("f", "f one")
    assert strict.stage(RunOptions(keys=("b", "f"))).report.brakes == ("rejected",)
    desk.place.edit("b", "b one")
    desk.place.now += 1
    strict.stage()  # hears of all that waits: the bookmark has not moved meanwhile
    assert desk.world.ledger.gate().is_open


def test_a_read_that_has_not_heard_of_all_that_waits_lets_nothing_out_and_the_next_is_full(desk: Desk) -> None:
    for ref in "ef":
        desk.place.edit(ref, f"{ref} one")
    desk.stage()
    strict = strictly(desk)
    desk.place.edit("b", "")
    assert strict.stage(RunOptions(keys=("b",))).report.brakes == ("rejected",)
    desk.place.edit("b", "b one")
    staged = desk.stage()
    assert staged.report.is_blind
    assert any("the next run reads the source whole" in notice for notice in staged.notices)
    assert not desk.world.ledger.gate().is_open
    assert desk.stage().report.is_whole
    assert desk.world.ledger.gate().is_open


@pytest.mark.parametrize("is_of_earlier_version", [False, True])
def test_a_held_row_that_a_person_releases_is_read_again_only_where_an_upgrade_left_its_body_out(
    desk: Desk, is_of_earlier_version: bool
) -> None:
    desk.place.edit("e", "a one")
    assert desk.stage().report.account.held == 1
    desk.place.now += 1  # the row lies behind the bookmark by now
    desk.stage()
    assert desk.stage().report.account.read == 0
    if is_of_earlier_version:
        with writing(desk.world.engine) as connection:
            connection.execute(update(ENTRY).where(ENTRY.c.row_key == "e").values(body=b"", fingerprint="", row_digest=b""))
    desk.decide("e", Instruction(Option.RELEASE))
    report = desk.stage().report
    assert (report.account.new, report.is_whole) == (int(is_of_earlier_version), is_of_earlier_version)
    assert desk.world.states()["e"] == "pending"


@pytest.mark.parametrize("hours", [25, 23.9])
def test_a_run_reads_all_once_a_day_and_says_why(desk: Desk, hours: float) -> None:
    desk.world.clock.turn(hours=hours)
    desk.world.crash()
    staged = desk.stage()
    assert (staged.report.is_whole, staged.notices) == (True, ("read whole: the last whole read is 1 day old, or nearly so",))
    assert desk.stage().notices == ()


def test_a_feed_whose_events_come_of_several_rows_is_always_read_whole(world: World, tmp_path: Path) -> None:
    desk = Desk(world, tmp_path, feed=replace(CHANGED, rows="{duplicates: {keep: last}}"))
    desk.place.edit("a", "a one")
    desk.stage()
    staged = desk.stage()
    assert (staged.report.is_whole, staged.notices) == (True, ())


def test_a_source_at_its_limit_goes_on_in_the_next_run_and_nothing_has_vanished_meanwhile(desk: Desk) -> None:
    for ref in "ef":
        desk.place.edit(ref, f"{ref} one")
    staged = desk.stage(NOW_FULL, ends_after=2)
    assert (staged.report.is_whole, staged.report.vanished) == (False, 0)
    assert staged.notices == ("read whole: asked for", "the day's requests are used up")
    assert desk.stage().report.account.new == 2
    assert desk.plan().kind is ReadKind.INCREMENTAL


def test_a_source_that_has_lost_its_place_and_begins_anew_is_believed(desk: Desk) -> None:
    desk.place.bin.clear()
    del desk.place.rows["a"]
    before = desk.world.clock()
    desk.world.clock.turn(hours=2)
    desk.world.crash()
    report = desk.stage(loses_place=True).report
    assert (report.is_whole, report.vanished) == (True, 1)
    full_read_at = desk.world.ledger.bookmark().full_read_at
    assert full_read_at is not None
    assert full_read_at > before


def test_few_changed_rows_are_no_source_that_has_shrunk(desk: Desk) -> None:
    strict = strictly(desk)
    strict.stage(NOW_FULL)
    assert strict.stage().report.brakes == ()
    for ref in "abc":
        desk.place.delete(ref)
    assert strict.stage().report.brakes == ()
    desk.place.edit("e", "e one")
    staged = strict.stage(NOW_FULL)
    assert staged.report.brakes == ()  # 2 of the 4 that were there: exactly the half
    assert staged.report.last_whole_read == 4


def test_new_rows_that_take_the_place_of_deleted_ones_stop_a_read_of_changes_too(world: World, tmp_path: Path) -> None:
    desk = Desk(world, tmp_path, feed=replace(CHANGED, brakes='{rejected: off, shrink: off, new: "50%"}'))
    for number in range(30):
        desk.place.edit(f"old-{number}", f"Evening {number}")
    desk.stage()
    world.publish()
    for number in range(30):
        desk.place.delete(f"old-{number}")
        desk.place.edit(f"new-{number}", f"Night {number}")
    report = desk.stage().report
    assert (report.account.gone, report.account.new, report.brakes) == (30, 30, ("new",))
    assert are_vanished(desk, "old-1") == [False]
