"""A feed whose source is read by what changed: from where a run reads, what it must not lose, and when it begins anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from file_desks import CHANGES, Desk, Feed
from unit.state.story import stories, told
from unit.state.world import DESTINATION, FEED, World, answer

from connectors.sources.contract import SourceUnavailableError
from mappings.delivery import Refusal
from pipelines.run.options import RunOptions
from pipelines.run.stage import Staged
from state.enums import ProblemKind
from state.ledger.accounts import ReadKind
from state.ledger.choices import Instruction, Option
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries

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


OPTIONS = {
    "full": NOW_FULL,
    "drafts": RunOptions(status="draft"),
    "accepting": RunOptions(accept=("rejected",)),
}


def read(desk: Desk, step: str) -> Staged:
    """Change rows (`a:title`, `a:` to be rejected, `-a` deleted, `later`: they lie behind the bookmark), and run once.

    `ends=2`: the source is at its limit after two rows.
    """
    options, feed = RunOptions(), desk
    ends_after: int | None = None
    for word in step.split():
        key, colon, title = word.partition(":")
        if colon:
            desk.place.edit(key, f"{key} {title}" if title else "")
        elif word[0] == "-":
            desk.place.delete(word[1:])
        elif word == "later":
            desk.place.now += 1
        elif word.startswith("ends="):
            ends_after = int(word.removeprefix("ends="))
        elif word.startswith("keys="):
            options = RunOptions(keys=tuple(word.removeprefix("keys=")))
        else:
            options = OPTIONS.get(word, options)
            feed = strictly(desk) if word in {"accepting", "strictly"} else feed
    return feed.stage(options, ends_after=ends_after)


def listed(desk: Desk) -> list[str]:
    """The rows that people are shown as rejected; the count of those that wait says the same."""
    books = LedgerQueries(desk.world.engine)
    rows = [str(problem.row_key) for problem in books.every_problem(FeedScope(DESTINATION, FEED), ProblemKind.REJECTED)]
    assert books.status()[0].waiting.get("rejected", 0) == len(rows)
    return sorted(rows)


@stories(
    """
a deleted row without an event is as if it had not come
    e:x | -e => gone 1, withdrawn 1 => moves, open
    e:x | refused | e:y | -e => gone 1, withdrawn 1 => moves, open
what is rejected stays listed until it is read again or gone
    a: b: c:x | d: => rejected 1, drifted 1 => moves, open, rejected a b d
    a: b: c:x | d: | a:x -b => rejected 1, drifted 1, gone 1, vanished 1 => moves, open, rejected d
    a: b: c:x | d: | a:x -b | keys=c => drifted 1 => open, rejected d
    a: b: c:x | d: | a:x -b | d:x full => drifted 3 => whole, moves, open
a brake leaves the bookmark where it was, and nothing is lost
    full strictly | e:x f: -a strictly => rejected 1, unchanged 1, new 1, gone 1, vanished 1 => closed, rejected f
    full strictly | e:x f: -a strictly | strictly => rejected 1, unchanged 2, gone 1, vanished 1, waiting 1 => closed, rejected f
    full strictly | e:x f: -a strictly | f:x strictly => unchanged 2, new 1, gone 1, vanished 1, waiting 1 => moves, open
    full strictly | e:x f: -a accepting => rejected 1, unchanged 1, new 1, gone 1, vanished 1 => closed, rejected f
a run for some rows or for drafts moves nothing
    e:x keys=e => new 1 => open
    e:x drafts => unchanged 1, new 1 => open
    e:x drafts | later => unchanged 1, new 1, restaged 1 => moves, open
rows picked by hand that a brake stops wait for a read that has all that waits
    e:x strictly | b: f:x strictly keys=bf => rejected 1, new 1 => closed, rejected b
    e:x strictly | b: f:x strictly keys=bf | b:x later strictly => unchanged 2, drifted 1, waiting 1 => moves, open
a read that has not met all that waits lets nothing out, and the next is full
    e:x f:x | b: strictly keys=b | b:x => unchanged 1, drifted 1 => blind, moves, closed
    e:x f:x | b: strictly keys=b | b:x | later => unchanged 5, drifted 1 => whole, moves, open
a source at its limit goes on in the next run, and nothing has vanished meanwhile
    e:x f:x full ends=2 => unchanged 2 => moves, open
    e:x f:x full ends=2 | again => unchanged 3, new 2 => moves, open
few changed rows are no source that has shrunk
    full strictly | strictly => unchanged 1 => open
    full strictly | -a -b -c strictly => unchanged 1, gone 3, vanished 3 => moves, open
    full strictly | -a -b -c strictly | e:x full strictly => unchanged 1, new 1 => whole, moves, open
""",
    names=("story", "numbers", "state"),
)
def test_a_run_onward_comes_to_what_its_source_says_and_its_brakes_let_pass(
    desk: Desk, story: str, numbers: str, state: str
) -> None:
    for step in map(str.strip, story.split("|")):
        if step == "refused":
            desk.world.publish(Refusal(answer(400)))
            continue
        before = desk.world.ledger.bookmark()
        staged = read(desk, step)
    report = staged.report
    assert any("the next run reads the source in full" in notice for notice in staged.notices) is report.is_blind
    words = (
        "whole" * report.is_whole,
        "blind" * report.is_blind,
        "moves" * (desk.world.ledger.bookmark().cursor != before.cursor),
        "open" if desk.world.ledger.gate().is_open else "closed",
        f"rejected {' '.join(listed(desk))}".strip() * bool(listed(desk)),
    )
    assert (told(report), ", ".join(filter(None, words))) == (numbers, state)


def test_a_full_run_that_was_killed_is_followed_by_a_full_one(desk: Desk) -> None:
    with pytest.raises(SourceUnavailableError):
        desk.stage(NOW_FULL, breaks_after=2)
    staged = desk.stage()
    assert staged.report.is_whole
    assert staged.notices == ("read in full: rows that an earlier read staged or held must be compared again",)
    assert desk.plan().kind is ReadKind.INCREMENTAL


def test_a_held_row_that_a_person_releases_need_not_be_read_again(desk: Desk) -> None:
    desk.place.edit("e", "a one")
    assert desk.stage().report.account.held == 1
    desk.place.now += 1  # the row lies behind the bookmark by now
    desk.stage()
    assert desk.stage().report.account.read == 0
    desk.decide("e", Instruction(Option.RELEASE))
    report = desk.stage().report
    assert (report.account.new, report.is_whole) == (0, False)
    assert desk.world.states()["e"] == "pending"


@pytest.mark.parametrize("hours", [25, 23.9])
def test_a_run_reads_all_once_a_day_and_says_why(desk: Desk, hours: float) -> None:
    desk.world.clock.turn(hours=hours)
    desk.world.crash()
    staged = desk.stage()
    assert (staged.report.is_whole, staged.notices) == (True, ("read in full: the last full read is about 1 day old",))
    assert desk.stage().notices == ()


def test_a_feed_whose_events_come_of_several_rows_is_always_read_whole(world: World, tmp_path: Path) -> None:
    desk = Desk(world, tmp_path, feed=replace(CHANGED, rows="{duplicates: {keep: last}}"))
    for staged in (desk.stage(), desk.stage()):
        assert (staged.report.is_whole, staged.notices) == (True, ())


def test_a_source_that_has_lost_its_place_and_begins_anew_is_believed(desk: Desk) -> None:
    desk.place.bin.clear()
    del desk.place.rows["a"]
    before = desk.world.clock()
    desk.wait(2)
    report = desk.stage(loses_place=True).report
    assert (report.is_whole, report.vanished) == (True, 1)
    full_read_at = desk.world.ledger.bookmark().full_read_at
    assert full_read_at is not None
    assert full_read_at > before


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
    assert world.known("old-1").vanished_at is None
