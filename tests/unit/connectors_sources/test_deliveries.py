"""Files that come one after another: each read once, again when it changed, not while it is being written."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.connectors_sources.reading import SPEC, Waits

from connectors.sources.catalogue import open_source
from connectors.sources.contract import BadSourceError, Ending, Source, SourceRefusedError, SourceUnavailableError
from connectors.sources.files.choice import FoundFile
from connectors.sources.files.source import file_digest

NOW = Waits().at
HOUR = 3_600.0


def put(folder: Path, name: str, text: str, age_s: float = HOUR) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, "utf-8")
    os.utime(folder / name, (NOW - age_s, NOW - age_s))


def source_of(folder: Path, since: str = "", waits: Waits | None = None, **spec: Any) -> Source:
    parsed = SPEC.validate_python({"kind": "csv", "path": "in/agenda-*.csv", "files": "new", **spec})
    return open_source(parsed, folder, frozenset({"id"}), since=since, clock=(waits or Waits()).clockwork)


def read(folder: Path, since: str = "", waits: Waits | None = None, **spec: Any) -> tuple[list[str], Ending]:
    with source_of(folder, since, waits, **spec).read() as reading:
        assert not reading.is_whole or spec
        return [row.cells["id"] for row in reading.rows], reading.ending()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 2):
        put(tmp_path / "in", f"agenda-{number}.csv", f"id\n{number}\n")
    return tmp_path


def test_each_file_is_read_once(folder: Path) -> None:
    rows, first = read(folder)
    assert (rows, first.notices) == (["1", "2"], ("files read: agenda-1.csv, agenda-2.csv",))
    rows, second = read(folder, first.cursor)
    assert (rows, second) == ([], Ending(first.cursor, ("no new file has come",)))
    put(folder / "in", "agenda-3.csv", "id\n3\n")
    assert read(folder, second.cursor)[0] == ["3"]


def test_behind_a_file_that_changed_the_later_ones_are_read_again_so_that_the_later_word_comes_last(folder: Path) -> None:
    _, ending = read(folder)
    put(folder / "in", "agenda-1.csv", "id\n1\n1b\n")
    assert read(folder, ending.cursor)[0] == ["1", "1b", "2"]


def test_a_file_that_went_away_is_forgotten_and_none_left_is_a_quiet_day(folder: Path) -> None:
    _, ending = read(folder)
    for path in (folder / "in").iterdir():
        path.unlink()
    rows, quiet = read(folder, ending.cursor)
    assert (rows, len(quiet.cursor) < len(ending.cursor)) == ([], True)
    assert read(folder, quiet.cursor)[0] == []


def test_no_file_at_first_and_no_folder_ever_are_mistakes(tmp_path: Path) -> None:
    for said in ("there is no folder", "no file matches"):
        with pytest.raises(SourceRefusedError, match=said):
            read(tmp_path)
        (tmp_path / "in").mkdir(exist_ok=True)


def test_a_cursor_of_another_kind_means_nothing_and_our_own_names_no_files_and_stays_small(folder: Path) -> None:
    assert read(folder, "what another program wrote")[0] == ["1", "2"]
    for number in range(100):
        put(folder / "in", f"agenda-for-anna-{number}.csv", "id\n")
    cursor = read(folder)[1].cursor
    assert "anna" not in cursor
    assert len(cursor) < 102 * 12 + 20


def test_the_cursor_covers_only_files_all_of_whose_rows_were_given(folder: Path) -> None:
    with source_of(folder).read() as reading:
        assert [next(reading.rows).cells["id"], next(reading.rows).cells["id"]] == ["1", "2"]
        halfway = reading.ending().cursor
    assert read(folder, halfway)[0] == ["2"]


def test_one_broken_file_gives_no_cursor_and_is_named(folder: Path) -> None:
    put(folder / "in", "agenda-3.csv", "")
    with pytest.raises(BadSourceError, match=r"agenda-3\.csv"):
        read(folder)


def test_a_file_that_somebody_is_writing_is_not_there_yet(folder: Path) -> None:
    put(folder / "in", "agenda-3.csv", "id\n3\n", age_s=5.0)
    waits = Waits()
    rows, ending = read(folder, waits=waits, settle="30s")
    assert (rows, waits.slept) == (["1", "2"], [])
    assert ending.notices[1] == ("agenda-3.csv is still being written: it changed less than 30 s ago; it is left for a later run")
    assert read(folder, ending.cursor, waits=Waits(at=NOW + 60), settle="30s")[0] == ["3"]


def test_files_read_together_are_not_read_while_one_of_them_is_being_written(folder: Path) -> None:
    put(folder / "in", "agenda-3.csv", "id\n3\n", age_s=5.0)
    waits = Waits()
    assert len(read(folder, waits=waits, settle="30s", files="all")[0]) == 3
    assert waits.slept == [30.0]

    class Writing(Waits):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            put(folder / "in", "agenda-3.csv", "id\n3\n4\n", age_s=-seconds)

    with pytest.raises(SourceUnavailableError, match=r"agenda-3\.csv is still being written") as caught:
        read(folder, waits=Writing(), settle="30s", files="all")
    assert "nothing was read" in caught.value.hint


def test_a_file_from_the_future_is_looked_at_twice(folder: Path) -> None:
    put(folder / "in", "agenda-3.csv", "id\n3\n", age_s=-HOUR)
    waits = Waits()
    assert (read(folder, waits=waits, settle="30s")[0], waits.slept) == (["1", "2", "3"], [30.0])


def test_a_single_file_may_be_a_delivery_that_is_overwritten(folder: Path) -> None:
    _, ending = read(folder, path="in/agenda-1.csv")
    assert read(folder, ending.cursor, path="in/agenda-1.csv")[0] == []
    put(folder / "in", "agenda-1.csv", "id\n7\n")
    assert read(folder, ending.cursor, path="in/agenda-1.csv")[0] == ["7"]


def test_days_are_those_of_the_zone_and_files_stand_in_their_order(tmp_path: Path) -> None:
    """Waits().at is 2027-01-15 08:00 UTC: in Honolulu it is still the day before."""
    for day in ("13012027", "14012027", "15012027", "01022026"):
        put(tmp_path / "in", f"a-{day}.csv", f"id\n{day}\n")
    path = "in/a-{date:%d%m%Y}.csv"
    assert read(tmp_path, path=path)[0] == ["13012027", "14012027", "15012027"]
    assert read(tmp_path, path=path, days={"zone": "Pacific/Honolulu"})[0] == ["13012027", "14012027"]
    assert read(tmp_path, path=path, days={"back": "1"})[0] == ["14012027", "15012027"]
    assert read(tmp_path, path=path, files="newest")[0] == ["15012027"]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        *(("in/*/events.csv", "{day}/events.csv:2"), ("in/*/*/events.csv", "{day}/a/events.csv:2")),
        *((f"in/{{date:%Y-%m-%d}}/{name}", "{day}/events.csv:2") for name in ("events.csv", "a/*.csv")),
    ],
)
def test_a_row_s_place_is_that_of_no_other_delivery(tmp_path: Path, path: str, place: str) -> None:
    """Rejected rows without a key stay listed by their place: a later file of the same name must not take them off."""
    cursor = ""
    for day in ("2027-01-14", "2027-01-15"):
        put(tmp_path / "in" / day / ("a" if path.count("/") > 2 else "."), "events.csv", f"id\n{day}\n")
        with source_of(tmp_path, cursor, path=path).read() as reading:
            assert [row.location.place for row in reading.rows] == [place.format(day=day)]
            cursor = reading.ending().cursor


def test_a_day_without_a_folder_is_one_on_which_nothing_came_but_not_all_of_them(tmp_path: Path) -> None:
    path = "in/{date:%Y-%m-%d}/*.csv"
    put(tmp_path / "in" / "2027-01-14", "events.csv", "id\n1\n")
    rows, ending = read(tmp_path, path=path)
    assert (rows, read(tmp_path, ending.cursor, path=path)[0]) == (["1"], [])
    (tmp_path / "in").rename(tmp_path / "unmounted")
    with pytest.raises(SourceRefusedError, match="there is no folder"):
        read(tmp_path, ending.cursor, path=path)


def test_two_files_of_one_name_are_two_though_their_server_calls_both_versions_the_same() -> None:
    monday, tuesday = (FoundFile(f"https://host/{day}/a.csv", "a.csv", "ETag=v1", day=date(2027, 1, day)) for day in (14, 15))
    assert file_digest(monday) != file_digest(tuesday)


@given(steps=st.lists(st.tuples(st.sampled_from(["put", "remove", "read"]), st.integers(1, 4)), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_comes_and_goes_the_last_word_on_every_row_is_read(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """A row's last word is that of the last file by name that holds it, among the files that were there at a reading."""
    folder = tmp_path_factory.mktemp("deliveries")
    put(folder / "in", "agenda-0.csv", "id,text\nx,0\n")
    cursor, heard, age = "", "", HOUR
    for action, number in [*steps, ("read", 0)]:
        path = folder / "in" / f"agenda-{number}.csv"
        if action == "put":
            age -= 1.0
            put(folder / "in", path.name, f"id,text\nx,{age}\n", age_s=age)
        elif action == "remove":
            path.unlink(missing_ok=True)
        else:
            with source_of(folder, cursor or "files.1:").read() as reading:
                heard = ([row.cells["text"] for row in reading.rows] or [heard])[-1]
                cursor = reading.ending().cursor
    last = max((folder / "in").iterdir(), default=None)
    removed = any(action == "remove" for action, _ in steps)
    assert removed or last is None or heard == last.read_text().split(",")[-1].strip()
