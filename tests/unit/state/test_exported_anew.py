"""A file exported anew: the rows that are as they were are counted, and only the others read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from file_desks import Desk, Feed, write_rows
from unit.state.world import World

from connectors.sources.contract import Reading, Source
from mappings.outcome import SourceRow
from state.ledger.choices import SetAside

ROWS = [(key, title, "", "x", "") for key, title in zip("abcdef", ("one", "two", "three", "four", "five", "six"), strict=True)]


@dataclass(frozen=True)
class Watched:
    """A source that tells which rows were made."""

    source: Source
    places: list[str] = field(default_factory=list)

    @contextmanager
    def read(self) -> Iterator[Reading]:
        with self.source.read() as reading:
            yield replace(reading, rows=map(self._told, reading.rows))

    def _told(self, row: SourceRow) -> SourceRow:
        self.places.append(row.origin.place)
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


def made_of(desk: Desk, rows: list[tuple[str, str, str, str, str]]) -> set[str]:
    """Export these rows, run once, and return the places of the rows that were made."""
    write_rows(desk.folder, rows)
    return made(desk)


def made(desk: Desk) -> set[str]:
    watched: list[Watched] = []

    def watch(source: Source) -> Source:
        watched.append(Watched(source))
        return watched[-1]

    desk.watch = watch
    account = desk.stage().report.account
    assert account.imbalance() == 0
    return set(watched[0].places)


def test_only_rows_that_differ_are_made_and_they_keep_their_numbers(desk: Desk) -> None:
    assert made_of(desk, [*ROWS[:3], ("d", "other", "", "x", ""), *ROWS[4:]]) == {"rows.csv:5"}


def test_rows_in_another_order_are_as_they_were(desk: Desk) -> None:
    assert made_of(desk, [*ROWS[3:], ("g", "new", "", "x", ""), *ROWS[:3]]) == {"rows.csv:5"}
    assert made_of(desk, ROWS[::-1]) == set()


def test_a_row_that_is_gone_has_vanished_though_no_row_was_made(desk: Desk) -> None:
    write_rows(desk.folder, ROWS[1:])
    report = desk.stage().report
    assert (report.account.unchanged, report.vanished) == (5, 1)


def test_rows_that_swap_what_they_say_are_both_read(desk: Desk) -> None:
    rows = [("a", "two", "", "x", ""), ("b", "one", "", "x", ""), *ROWS[2:]]
    assert made_of(desk, rows) == {"rows.csv:2", "rows.csv:3"}


@pytest.mark.parametrize(("place", "drifted"), [(0, 1), (6, 0)])
def test_a_row_that_claims_the_key_of_an_unchanged_one_is_compared_with_it_in_the_order_of_the_file(
    desk: Desk, place: int, drifted: int
) -> None:
    rows = list(ROWS)
    rows.insert(place, ("c", "claims it", "", "x", ""))
    write_rows(desk.folder, rows)
    account = desk.stage().report.account
    assert (account.drifted, account.rejected, account.unchanged) == (drifted, 1, 6 - drifted)


def test_a_row_that_stands_twice_is_a_duplicate(desk: Desk) -> None:
    write_rows(desk.folder, [*ROWS, ROWS[0]])
    account = desk.stage().report.account
    assert (account.unchanged, account.duplicate) == (6, 1)


def test_a_decision_of_a_person_has_every_row_read_again(desk: Desk) -> None:
    write_rows(desk.folder, [("a", "other", "", "x", ""), *ROWS[1:]])
    desk.stage()
    desk.decide("a", SetAside())
    assert len(made_of(desk, [*ROWS[1:], ("a", "other", "", "x", "")])) == len(ROWS)


def test_rows_are_all_read_again_when_columns_stand_in_another_order(desk: Desk) -> None:
    text = (desk.folder / "rows.csv").read_text(encoding="utf-8")
    (desk.folder / "rows.csv").write_text(text.replace("DAYS,NOTE", "NOTE,DAYS"), encoding="utf-8")
    assert len(made(desk)) == len(ROWS)


def test_rows_are_all_read_where_their_numbers_are_part_of_their_events(world: World, tmp_path: Path) -> None:
    desk = delivered(world, tmp_path, Feed(more="{meta: row, do: [to_text]}"))
    assert len(made_of(desk, ROWS[::-1])) == len(ROWS)


@pytest.mark.parametrize("raw", ['g,"open,,,\n', 'g,5" x,"open,,,\n'])
def test_a_quote_that_is_never_closed_is_refused_as_ever(desk: Desk, raw: str) -> None:
    with (desk.folder / "rows.csv").open("a", encoding="utf-8") as file:
        file.write(raw)
    with pytest.raises(Exception, match="never closed"):
        desk.stage()


def test_a_stray_quote_glues_no_rows_together(desk: Desk) -> None:
    rows = [*ROWS[:2], ("g", "pipe", "", "x", ""), *ROWS[2:], ("h", "pipe", "", "y", "")]
    write_rows(desk.folder, rows)
    file = desk.folder / "rows.csv"
    file.write_text(file.read_text(encoding="utf-8").replace("pipe", '5" pipe'), encoding="utf-8")
    account = desk.stage().report.account
    assert (account.read, account.unchanged, account.new) == (8, 6, 2)


def test_rows_after_cells_of_several_lines_keep_their_numbers(desk: Desk) -> None:
    rows = [("g", "two\nlines", "", "x", ""), *ROWS[:2], ("h", "new", "", "x", ""), *ROWS[2:]]
    assert made_of(desk, rows) == {"rows.csv:2", "rows.csv:6"}
    assert made_of(desk, rows[::-1]) == {"rows.csv:6", "rows.csv:9"}
