"""A file that is as it was: known again without a row of it, and read all the same where a row may come to something else."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from file_desks import BRAKES, Desk, Feed, write_rows
from unit.state.world import World

from connectors.sources.contract import Clock
from connectors.sources.files.choice import take_snapshot
from pipelines.run.options import RunOptions
from state.ledger.choices import SetAside

ROWS = [("a", "one", "", "x", ""), ("b", "two", "", "x", ""), ("c", "", "", "", "")]
CANCELLED = Feed(rows="{cancelled: {column: STATE, equals: off}}")


@pytest.fixture
def desk(world: World, tmp_path: Path) -> Desk:
    """A feed of two rows that were delivered and one that is rejected."""
    write_rows(tmp_path, ROWS)
    desk = Desk(world, tmp_path)
    desk.stage()
    desk.publish()
    return desk


def is_passed_over(desk: Desk, options: RunOptions | None = None) -> bool:
    """Run once; whether the file was taken as it was."""
    return any(notice.startswith("unchanged since") for notice in desk.stage(options).notices)


def test_a_file_that_is_as_it_was_is_accounted_for_without_its_rows(desk: Desk) -> None:
    staged = desk.stage()
    account = staged.report.account
    assert (account.read, account.unchanged, account.new, account.rejected) == (3, 2, 0, 1)
    assert staged.notices == ("unchanged since it was read 2026-03-01 12:00 UTC",)
    assert len(staged.report.rejections) == 1
    assert not staged.stopping
    assert desk.world.ledger.gate().is_open


def test_a_file_that_was_written_anew_with_the_same_bytes_is_as_it_was(desk: Desk) -> None:
    write_rows(desk.folder, ROWS)
    os.utime(desk.folder / "rows.csv", (0, 0))
    assert is_passed_over(desk)


def test_one_byte_is_a_change_though_the_size_is_the_same(desk: Desk) -> None:
    write_rows(desk.folder, [("a", "onf", "", "x", ""), *ROWS[1:]])
    staged = desk.stage()
    assert (staged.report.account.drifted, staged.notices) == (1, ())


def test_the_stamp_of_a_file_proves_something_once_it_has_not_changed_for_a_minute(desk: Desk) -> None:
    spec = desk.feed.parsed(desk.folder).source
    young = take_snapshot(spec, desk.folder)
    changed_at = (desk.folder / "rows.csv").stat().st_ctime
    old = take_snapshot(spec, desk.folder, Clock(now=lambda: changed_at + 61))
    assert young is not None
    assert old is not None
    assert (young.is_settled, old.is_settled) == (False, True)
    assert young.stamp == old.stamp


def test_a_file_that_is_not_there_is_told_of_as_ever(desk: Desk) -> None:
    (desk.folder / "rows.csv").unlink()
    assert take_snapshot(desk.feed.parsed(desk.folder).source, desk.folder) is None


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda desk: setattr(desk, "feed", Feed(more="{from: NOTE, on_empty: omit}")), id="another mapping"),
        pytest.param(lambda desk: setattr(desk, "channels", {"city": 8}), id="another list of channels"),
        pytest.param(lambda desk: desk.world.clock.turn(hours=24), id="a day has passed"),
        pytest.param(lambda desk: desk.stage_and_break(), id="a run was killed"),
        pytest.param(lambda desk: desk.stage(RunOptions(keys=("a",))), id="rows were picked"),
        pytest.param(lambda desk: desk.stage(RunOptions(status="draft")), id="drafts were staged"),
        pytest.param(lambda desk: desk.retry(), id="a person sends rows again"),
    ],
)
def test_rows_are_read_again_where_they_may_come_to_something_else(desk: Desk, happens: Callable[[Desk], None]) -> None:
    happens(desk)
    assert not is_passed_over(desk)


@pytest.mark.parametrize("options", [RunOptions(full=True), RunOptions(status="draft"), RunOptions(keys=("a",))], ids=str)
def test_a_run_that_is_asked_for_rows_reads_them(desk: Desk, options: RunOptions) -> None:
    assert not is_passed_over(desk, options)


@pytest.mark.parametrize("words", [[], ["block"], ["lose"]], ids=["pending", "blocked", "uncertain"])
def test_a_run_goes_on_with_what_is_owed_without_reading_rows_that_say_so_already(
    world: World, tmp_path: Path, words: list[str]
) -> None:
    write_rows(tmp_path, ROWS)
    desk = Desk(world, tmp_path)
    desk.stage()
    desk.publish(words) if words else None
    assert is_passed_over(desk)
    desk.publish()
    assert is_passed_over(desk)


def test_rows_are_read_while_something_is_owed_that_they_do_not_say(world: World, tmp_path: Path) -> None:
    write_rows(tmp_path, ROWS)
    desk = Desk(world, tmp_path)
    desk.stage()
    desk.publish(["block"])
    write_rows(tmp_path, [("a", "", "", "", ""), *ROWS[1:]])
    desk.stage()
    assert desk.world.states()["a"] == "blocked"
    assert not is_passed_over(desk)


def test_what_was_called_off_before_its_event_was_let_in_has_drifted(world: World, tmp_path: Path) -> None:
    write_rows(tmp_path, ROWS)
    desk = Desk(world, tmp_path, feed=CANCELLED)
    desk.stage()
    desk.publish(["block"])
    write_rows(tmp_path, [("a", "one", "off", "x", ""), *ROWS[1:]])
    desk.stage()
    desk.publish()  # access is back
    assert desk.world.states()["a"] == "delivered"
    assert desk.stage().report.account.drifted == 1


def test_a_feed_with_a_window_is_read_in_every_run(world: World, tmp_path: Path) -> None:
    write_rows(tmp_path, ROWS)
    desk = Desk(world, tmp_path, feed=Feed(rows="{window: {past: skip}}"))
    desk.stage()
    desk.publish()
    assert not is_passed_over(desk)


def test_the_day_of_the_run_is_asked_for_in_its_zone(world: World, tmp_path: Path) -> None:
    write_rows(tmp_path, ROWS)
    desk = Desk(world, tmp_path, feed=Feed(more="{meta: run_date, zone: Asia/Tokyo, do: [to_text]}"))
    desk.stage()
    desk.publish()
    desk.world.clock.turn(hours=2)
    assert is_passed_over(desk)
    desk.world.clock.turn(hours=1)  # midnight in Tokyo
    assert desk.stage().report.account.drifted == 3


def test_what_a_brake_has_stopped_is_read_again(desk: Desk) -> None:
    desk.feed = replace(desk.feed, brakes=BRAKES)
    write_rows(desk.folder, [])
    assert desk.stage().stopping
    assert desk.stage().stopping
    write_rows(desk.folder, ROWS)
    assert not is_passed_over(desk)
    assert is_passed_over(desk)


def test_a_row_that_is_called_off_and_asked_for_is_looked_at_until_it_is_out(world: World, tmp_path: Path) -> None:
    write_rows(tmp_path, [("a", "one", "off", "x", ""), ("a", "one", "", "x", "")])
    desk = Desk(world, tmp_path, feed=CANCELLED)
    assert desk.stage().report.account.filtered == 1
    desk.publish()
    assert desk.stage().report.account.drifted == 1
    assert desk.stage().report.account.drifted == 1


def test_a_draft_that_is_taken_back_for_an_earlier_event_has_its_row_read_again(world: World, tmp_path: Path) -> None:
    desk = Desk(world, tmp_path, feed=Feed(on_change="create_draft_again"))
    for title in ("one", "two", "three"):
        desk.publish()
        write_rows(tmp_path, [("a", title, "", "x", "")])
        desk.stage()
    write_rows(tmp_path, [("a", "one", "", "x", "")])
    assert desk.stage().report.account.unchanged == 1
    assert desk.stage().report.account.drifted == 1


def test_rows_that_dispute_a_key_are_compared_with_what_was_staged_behind_them(world: World, tmp_path: Path) -> None:
    write_rows(tmp_path, [("b", "two", "", "x", "")])
    desk = Desk(world, tmp_path)
    desk.stage()
    write_rows(tmp_path, [("a", "one", "", "x", ""), ("a", "other", "", "x", ""), ("b", "one", "", "x", "")])
    assert desk.stage().report.account.rejected == 2
    desk.publish()
    assert desk.stage().report.account.held == 1


def test_rows_that_dispute_a_key_are_passed_over_once_nothing_is_owed(world: World, tmp_path: Path) -> None:
    write_rows(tmp_path, [("a", "one", "", "x", ""), ("a", "other", "", "x", ""), ("b", "two", "", "x", "")])
    desk = Desk(world, tmp_path)
    desk.stage()
    desk.publish()
    assert not is_passed_over(desk)
    assert is_passed_over(desk)


def test_a_changed_row_that_is_refused_after_all_is_sent_as_it_is_now(world: World, tmp_path: Path) -> None:
    write_rows(tmp_path, ROWS)
    desk = Desk(world, tmp_path)
    desk.stage()
    desk.publish(["lose"])
    write_rows(tmp_path, [("a", "changed", "", "x", ""), *ROWS[1:]])
    assert desk.stage().report.account.drifted == 1
    desk.publish(["refuse"])
    assert desk.world.states()["a"] == "refused"
    assert desk.stage().report.account.new == 1


def test_a_change_that_a_person_has_set_aside_is_looked_at_in_every_run(desk: Desk) -> None:
    write_rows(desk.folder, [("a", "changed", "", "x", ""), *ROWS[1:]])
    assert desk.stage().report.account.drifted == 1
    assert is_passed_over(desk)
    desk.decide("a", SetAside())
    assert desk.stage().report.account.drifted == 0
    assert not is_passed_over(desk)
