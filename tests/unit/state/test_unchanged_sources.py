"""A file that is as it was, or was exported anew: known again without its rows, and read where they may say something else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import pytest
from file_desks import BRAKES, COLUMNS, Cells, Desk, Feed, write_rows
from unit.state.world import World

from connectors.sources.contract import Clock
from connectors.sources.files.choice import take_snapshot
from mappings.compiler.mapper import RowMapper
from mappings.outcome import RowOutcome, SourceRow
from pipelines.run.options import RunOptions
from state.ledger.choices import Instruction, Option

ROWS = [("a", "one", "", "x", ""), ("b", "two", "", "x", ""), ("c", "", "", "", "")]
CANCELLED = Feed(rows="{cancelled: {column: STATE, equals: off}}")


def delivered(world: World, folder: Path, feed: Feed | None = None, rows: Sequence[Cells] = ROWS) -> Desk:
    """A feed whose rows were delivered; two of `ROWS`, whose third is rejected."""
    write_rows(folder, rows)
    desk = Desk(world, folder, feed=feed or Feed())
    desk.stage()
    desk.publish()
    return desk


@pytest.fixture
def desk(world: World, tmp_path: Path) -> Desk:
    return delivered(world, tmp_path)


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
    (desk.folder / "rows.csv").unlink()
    assert take_snapshot(spec, desk.folder) is None
    assert (young.is_settled, old.is_settled) == (False, True)
    assert young.stamp == old.stamp


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


NOW_OFF, CHANGED = [("a", "one", "off", "x", ""), *ROWS[1:]], [("a", "changed", "", "x", ""), *ROWS[1:]]
DRAFTING = Feed(on_change="create_draft_again")


def only(title: str) -> list[tuple[str, str, str, str, str]]:
    return [("a", title, "", "x", "")]


@pytest.mark.parametrize(
    ("feed", "story", "expected"),
    [
        pytest.param(
            CANCELLED,
            [(ROWS, ["block"]), (NOW_OFF, []), (NOW_OFF, None)],
            {"drifted": [0, 0, 1]},
            id="called off before its event was let in",
        ),
        pytest.param(
            CANCELLED,
            [([NOW_OFF[0], ROWS[0]], []), ([NOW_OFF[0], ROWS[0]], None), ([NOW_OFF[0], ROWS[0]], None)],
            {"filtered": [1, 0, 0], "drifted": [0, 1, 1]},
            id="called off and asked for",
        ),
        pytest.param(
            DRAFTING,
            [(only("one"), []), (only("two"), []), (only("three"), None), (only("one"), None), (only("one"), None)],
            {"unchanged": [0, 0, 0, 1, 0], "drifted": [0, 0, 0, 0, 1]},
            id="a draft was taken back for an earlier event",
        ),
        pytest.param(
            Feed(),
            [([ROWS[1]], None)] + [([*only("one"), *only("other"), ("b", "one", "", "x", "")], []) for _ in range(2)],
            {"rejected": [0, 2, 1], "held": [0, 0, 1]},
            id="a disputed key, compared with what was staged behind it",
        ),
        pytest.param(
            Feed(),
            [(ROWS, ["lose"]), (CHANGED, ["refuse"]), (CHANGED, None)],
            {"drifted": [0, 1, 0], "new": [2, 0, 1]},
            id="a changed row was refused after all",
        ),
    ],
)
def test_rows_are_read_again_where_what_became_of_them_may_have_changed(
    world: World,
    tmp_path: Path,
    feed: Feed,
    story: list[tuple[list[tuple[str, str, str, str, str]], list[str] | None]],
    expected: dict[str, list[int]],
) -> None:
    desk = Desk(world, tmp_path, feed=feed)
    accounts, written = [], None
    for rows, words in story:
        if rows != written:
            write_rows(tmp_path, rows)
        written = rows
        accounts.append(desk.stage().report.account)
        if words is not None:
            desk.publish(words)
    assert {name: [getattr(account, name) for account in accounts] for name in expected} == expected


def test_a_feed_with_a_window_is_read_in_every_run(world: World, tmp_path: Path) -> None:
    assert not is_passed_over(delivered(world, tmp_path, Feed(rows="{window: {past: skip}}")))


def test_the_day_of_the_run_is_asked_for_in_its_zone(world: World, tmp_path: Path) -> None:
    desk = delivered(world, tmp_path, Feed(more="{meta: run_date, zone: Asia/Tokyo, do: [to_text]}"))
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


def test_rows_that_dispute_a_key_are_passed_over_once_nothing_is_owed(world: World, tmp_path: Path) -> None:
    write_rows(tmp_path, [("a", "one", "", "x", ""), ("a", "other", "", "x", ""), ("b", "two", "", "x", "")])
    desk = Desk(world, tmp_path)
    desk.stage()
    desk.publish()
    assert not is_passed_over(desk)
    assert is_passed_over(desk)


def test_a_change_that_a_person_has_set_aside_is_looked_at_in_every_run(desk: Desk) -> None:
    write_rows(desk.folder, [("a", "changed", "", "x", ""), *ROWS[1:]])
    assert desk.stage().report.account.drifted == 1
    assert is_passed_over(desk)
    desk.decide("a", Instruction(Option.IGNORE))
    assert desk.stage().report.account.drifted == 0
    assert not is_passed_over(desk)


SIX = [(key, title, "", "x", "") for key, title in zip("abcdef", ("one", "two", "three", "four", "five", "six"), strict=True)]


@dataclass(frozen=True)
class Watched(RowMapper):
    """A mapper that records where the rows stand that it maps."""

    places: list[str] = field(default_factory=list)

    def over(self, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
        return RowMapper.over(self, map(self._noted, rows))

    def _noted(self, row: SourceRow) -> SourceRow:
        self.places.append(row.location.place)
        return row


@pytest.fixture
def six(world: World, tmp_path: Path) -> Desk:
    """A feed of six rows, all delivered."""
    return delivered(world, tmp_path, rows=SIX)


def mapped_of(desk: Desk, rows: list[tuple[str, str, str, str, str]]) -> set[str]:
    """Export these rows, run once, and return the places of the rows that were mapped."""
    write_rows(desk.folder, rows)
    return mapped(desk)


def mapped(desk: Desk) -> set[str]:
    watched: list[Watched] = []

    def watch(mapper: RowMapper) -> RowMapper:
        watched.append(Watched(**{each.name: getattr(mapper, each.name) for each in fields(mapper)}))
        return watched[-1]

    desk.watch = watch
    account = desk.stage().report.account
    assert account.imbalance() == 0
    return set(watched[0].places)


def test_only_rows_that_differ_are_mapped_and_they_keep_their_numbers(six: Desk) -> None:
    assert mapped_of(six, [*SIX[:3], ("d", "other", "", "x", ""), *SIX[4:]]) == {"rows.csv:5"}


def test_rows_in_another_order_are_as_they_were(six: Desk) -> None:
    assert mapped_of(six, [*SIX[3:], ("g", "new", "", "x", ""), *SIX[:3]]) == {"rows.csv:5"}
    assert mapped_of(six, SIX[::-1]) == set()


def test_rows_that_swap_what_they_say_are_both_mapped(six: Desk) -> None:
    rows = [("a", "two", "", "x", ""), ("b", "one", "", "x", ""), *SIX[2:]]
    assert mapped_of(six, rows) == {"rows.csv:2", "rows.csv:3"}


def test_a_decision_of_a_person_has_every_row_mapped_again(six: Desk) -> None:
    write_rows(six.folder, [("a", "other", "", "x", ""), *SIX[1:]])
    six.stage()
    six.decide("a", Instruction(Option.IGNORE))
    assert len(mapped_of(six, [*SIX[1:], ("a", "other", "", "x", "")])) == len(SIX)


def test_columns_in_another_order_change_no_row(six: Desk) -> None:
    lines = (",".join(row[::-1]) + "\n" for row in [COLUMNS, *SIX])
    (six.folder / "rows.csv").write_text("".join(lines), encoding="utf-8")
    assert mapped(six) == set()


def test_rows_are_all_mapped_where_their_numbers_are_part_of_their_events(world: World, tmp_path: Path) -> None:
    six = delivered(world, tmp_path, Feed(more="{meta: row, do: [to_text]}"), SIX)
    assert len(mapped_of(six, SIX[::-1])) == len(SIX)


def test_rows_after_cells_of_several_lines_keep_their_numbers(six: Desk) -> None:
    rows = [("g", "two\nlines", "", "x", ""), *SIX[:2], ("h", "new", "", "x", ""), *SIX[2:]]
    assert mapped_of(six, rows) == {"rows.csv:2", "rows.csv:6"}
    assert mapped_of(six, rows[::-1]) == {"rows.csv:6", "rows.csv:9"}
