"""A file that is as it was, or was exported anew: known again without its rows, and read where they may say something else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest
from file_desks import BRAKES, COLUMNS, Cells, Desk, Feed, write_rows
from unit.state.story import stories, told
from unit.state.world import World

from mappings.compiler.mapper import RowMapper
from mappings.outcome import RowOutcome, SourceRow
from pipelines.run.options import RunOptions
from state.ledger.choices import Instruction, Option

THREE = "a b c:"
"""Two rows that are delivered, and one that is rejected."""
SIX = "a b c d e f"
AS_EVER, ANOTHER = RunOptions(), Feed(more="{from: NOTE, on_empty: omit}")


def rows(text: str) -> list[Cells]:
    """Return rows from words: `a`, `a:title`, `a:title/state`; by default the title is the key."""
    words = (word.partition(":") for word in text.split())
    said = ((key, *(rest.partition("/") if colon else (key, "", ""))) for key, colon, rest in words)
    return [(key, title.replace("_", "\n"), state, "x" * bool(title), "") for key, title, _, state in said]


def delivered(world: World, folder: Path, text: str = THREE, feed: Feed | None = None) -> Desk:
    write_rows(folder, rows(text))
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


def seen_again_later(desk: Desk) -> None:
    desk.world.clock.turn(hours=20)
    assert is_passed_over(desk)
    desk.world.clock.turn(hours=5)


@pytest.mark.parametrize(
    ("happens", "options"),
    [
        pytest.param(lambda desk: setattr(desk, "feed", ANOTHER), AS_EVER, id="another mapping"),
        pytest.param(lambda desk: setattr(desk, "channels", {"city": 8}), AS_EVER, id="another list of channels"),
        pytest.param(lambda desk: desk.world.clock.turn(hours=24), AS_EVER, id="a day has passed"),
        pytest.param(seen_again_later, AS_EVER, id="a day has passed since its rows were read"),
        pytest.param(lambda desk: desk.world.clock.turn(hours=-1), AS_EVER, id="the clock was set back"),
        pytest.param(lambda desk: desk.stage_and_break(), AS_EVER, id="a run was killed"),
        pytest.param(lambda desk: desk.stage(RunOptions(keys=("a",))), AS_EVER, id="rows were picked"),
        pytest.param(lambda desk: desk.stage(RunOptions(status="draft")), AS_EVER, id="drafts were staged"),
        pytest.param(lambda desk: desk.retry(), AS_EVER, id="a person sends rows again"),
        pytest.param(id, RunOptions(full=True), id="a full read is asked for"),
        pytest.param(id, RunOptions(status="draft"), id="drafts are asked for"),
        pytest.param(id, RunOptions(keys=("a",)), id="rows are asked for"),
    ],
)
def test_rows_are_read_again_where_they_may_come_to_something_else(
    desk: Desk, happens: Callable[[Desk], object], options: RunOptions
) -> None:
    assert is_passed_over(desk)
    happens(desk)
    assert not is_passed_over(desk, options)


FEEDS = {
    "usual": Feed(),
    "cancelling": Feed(rows="{cancelled: {column: STATE, equals: off}}"),
}


@stories(
    """
what is owed goes out without reading rows that say so already
    a b c: | = | send | = => rejected 1, unchanged 2 (passed over); rejected 1, unchanged 2 (passed over)
    a b c: | block | = | send | = => rejected 1, unchanged 2 (passed over); rejected 1, unchanged 2 (passed over)
    a b c: | lose | = | send | = => rejected 1, unchanged 2 (passed over); rejected 1, unchanged 2 (passed over)
rows are read while something is owed that they do not say
    a b c: | block | a: b c: | = => rejected 2, unchanged 1; rejected 2, unchanged 1
rows are read again where what became of them may have changed
    cancelling a b c: | block | a:a/off b c: | send | = => filtered 1, rejected 1, unchanged 1; rejected 1, unchanged 1, drifted 1
    cancelling a:a/off a b | send | = | = => unchanged 2, drifted 1; unchanged 2, drifted 1
    b | a a:x b:a | send | = => rejected 2, new 1, restaged 1; rejected 1, held 1, unchanged 1
    a b c: | lose | a:x b c: | refuse | = => rejected 1, unchanged 1, drifted 1; rejected 1, unchanged 1, drifted 1
rows that dispute a key are passed over once nothing is owed
    a a:x b | send | = | = => rejected 2, unchanged 1; rejected 2, unchanged 1 (passed over)
""",
    names=("story", "numbers"),
)
def test_a_file_is_passed_over_only_where_its_rows_say_nothing_new(
    world: World, tmp_path: Path, story: str, numbers: str
) -> None:
    feed, _, steps = story.partition(" ") if story.split(maxsplit=1)[0] in FEEDS else ("usual", "", story)
    desk, reads = Desk(world, tmp_path, feed=FEEDS[feed]), []
    for step in map(str.strip, steps.split("|")):
        if step in {"send", "block", "lose", "refuse"}:
            desk.publish([step])
            continue
        if step != "=":
            write_rows(tmp_path, rows(step))
        staged = desk.stage()
        reads.append(told(staged.report) + " (passed over)" * bool(staged.notices))
    assert "; ".join(reads[-2:]) == numbers


def test_a_feed_with_a_window_is_read_in_every_run(world: World, tmp_path: Path) -> None:
    assert not is_passed_over(delivered(world, tmp_path, feed=Feed(rows="{window: {past: skip}}")))


def test_the_day_of_the_run_is_asked_for_in_its_zone(world: World, tmp_path: Path) -> None:
    desk = delivered(world, tmp_path, feed=Feed(more="{meta: run_date, zone: Asia/Tokyo, do: [to_text]}"))
    desk.world.clock.turn(hours=2)
    assert is_passed_over(desk)
    desk.world.clock.turn(hours=1)  # midnight in Tokyo
    assert desk.stage().report.account.drifted == 3


def test_what_a_brake_has_stopped_is_read_again(world: World, tmp_path: Path) -> None:
    desk = delivered(world, tmp_path, feed=Feed(brakes=BRAKES))
    write_rows(tmp_path, [])
    assert [bool(desk.stage().stopping) for _ in range(2)] == [True, True]
    write_rows(tmp_path, rows(THREE))
    assert [is_passed_over(desk) for _ in range(2)] == [False, True]


def test_a_change_that_a_person_has_set_aside_is_looked_at_in_every_run_and_every_row_is_mapped(
    world: World, tmp_path: Path
) -> None:
    desk = delivered(world, tmp_path, SIX)
    write_rows(tmp_path, rows("a:other b c d e f"))
    assert desk.stage().report.account.drifted == 1
    assert is_passed_over(desk)
    desk.decide("a", Instruction(Option.IGNORE))
    assert len(mapped(desk, "b c d e f a:other")) == 6
    assert desk.stage().report.account.drifted == 0
    assert not is_passed_over(desk)


@dataclass(frozen=True)
class Watched(RowMapper):
    """A mapper that records where the rows stand that it maps."""

    places: list[str] = field(default_factory=list)

    def over(self, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
        return RowMapper.over(self, map(self._noted, rows))

    def _noted(self, row: SourceRow) -> SourceRow:
        self.places.append(row.location.place.removeprefix("rows.csv:"))
        return row


def mapped(desk: Desk, text: str = "") -> set[str]:
    """Export these rows, run once, and return the numbers of the rows that were mapped."""
    if text:
        write_rows(desk.folder, rows(text))
    watched: list[Watched] = []

    def watch(mapper: RowMapper) -> RowMapper:
        watched.append(Watched(**{each.name: getattr(mapper, each.name) for each in fields(mapper)}))
        return watched[-1]

    desk.watch = watch
    assert desk.stage().report.account.imbalance() == 0
    return set(watched[0].places)


@pytest.mark.parametrize(
    ("exports", "numbers"),
    [
        pytest.param(["a b c d:other e f"], "5", id="a row that differs"),
        pytest.param(["d e f g a b c"], "5", id="a new row among rows in another order"),
        pytest.param(["f e d c b a"], "", id="another order"),
        pytest.param(["a:b b:a c d e f"], "2 3", id="rows that swap what they say"),
        pytest.param(["g:two_lines a b h c d e f"], "2 6", id="rows after a cell of two lines"),
        pytest.param(["g:two_lines a b h c d e f", "f e d c h b a g:two_lines"], "6 9", id="a cell of two lines that moves"),
    ],
)
def test_only_rows_that_differ_are_mapped_and_they_keep_their_numbers(
    world: World, tmp_path: Path, exports: list[str], numbers: str
) -> None:
    six = delivered(world, tmp_path, SIX)
    assert {one.partition(" ")[0] for one in [mapped(six, text) for text in exports][-1]} == set(numbers.split())


def test_columns_in_another_order_change_no_row(world: World, tmp_path: Path) -> None:
    six = delivered(world, tmp_path, SIX)
    lines = (",".join(row[::-1]) + "\n" for row in [COLUMNS, *rows(SIX)])
    (tmp_path / "rows.csv").write_text("".join(lines), encoding="utf-8")
    assert mapped(six) == set()


def test_rows_are_all_mapped_where_their_numbers_are_part_of_their_events(world: World, tmp_path: Path) -> None:
    six = delivered(world, tmp_path, SIX, Feed(more="{meta: row, do: [to_text]}"))
    assert len(mapped(six, SIX[::-1])) == 6
