"""A file exported anew: the rows that are as they were are counted, and only the others mapped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest
from file_desks import COLUMNS, Desk, Feed, write_rows
from unit.state.world import World

from mappings.compiler.mapper import RowMapper
from mappings.outcome import RowOutcome, SourceRow
from state.ledger.choices import Instruction, Option

ROWS = [(key, title, "", "x", "") for key, title in zip("abcdef", ("one", "two", "three", "four", "five", "six"), strict=True)]


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
def desk(world: World, tmp_path: Path) -> Desk:
    """A feed of six rows, all delivered."""
    return delivered(world, tmp_path, Feed())


def delivered(world: World, folder: Path, feed: Feed) -> Desk:
    write_rows(folder, ROWS)
    desk = Desk(world, folder, feed=feed)
    desk.stage()
    desk.publish()
    return desk


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


def test_only_rows_that_differ_are_mapped_and_they_keep_their_numbers(desk: Desk) -> None:
    assert mapped_of(desk, [*ROWS[:3], ("d", "other", "", "x", ""), *ROWS[4:]]) == {"rows.csv:5"}


def test_rows_in_another_order_are_as_they_were(desk: Desk) -> None:
    assert mapped_of(desk, [*ROWS[3:], ("g", "new", "", "x", ""), *ROWS[:3]]) == {"rows.csv:5"}
    assert mapped_of(desk, ROWS[::-1]) == set()


def test_rows_that_swap_what_they_say_are_both_mapped(desk: Desk) -> None:
    rows = [("a", "two", "", "x", ""), ("b", "one", "", "x", ""), *ROWS[2:]]
    assert mapped_of(desk, rows) == {"rows.csv:2", "rows.csv:3"}


def test_a_decision_of_a_person_has_every_row_mapped_again(desk: Desk) -> None:
    write_rows(desk.folder, [("a", "other", "", "x", ""), *ROWS[1:]])
    desk.stage()
    desk.decide("a", Instruction(Option.IGNORE))
    assert len(mapped_of(desk, [*ROWS[1:], ("a", "other", "", "x", "")])) == len(ROWS)


def test_columns_in_another_order_change_no_row(desk: Desk) -> None:
    lines = (",".join(row[::-1]) + "\n" for row in [COLUMNS, *ROWS])
    (desk.folder / "rows.csv").write_text("".join(lines), encoding="utf-8")
    assert mapped(desk) == set()


def test_rows_are_all_mapped_where_their_numbers_are_part_of_their_events(world: World, tmp_path: Path) -> None:
    desk = delivered(world, tmp_path, Feed(more="{meta: row, do: [to_text]}"))
    assert len(mapped_of(desk, ROWS[::-1])) == len(ROWS)


def test_rows_after_cells_of_several_lines_keep_their_numbers(desk: Desk) -> None:
    rows = [("g", "two\nlines", "", "x", ""), *ROWS[:2], ("h", "new", "", "x", ""), *ROWS[2:]]
    assert mapped_of(desk, rows) == {"rows.csv:2", "rows.csv:6"}
    assert mapped_of(desk, rows[::-1]) == {"rows.csv:6", "rows.csv:9"}
