"""What every kind of source promises, asked of each kind in the same words."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import psutil
import pytest

from connectors.sources.catalogue import open_source
from connectors.sources.contract import (
    Access,
    BadSourceError,
    Clock,
    Ending,
    MissingColumnsError,
    RepeatedColumnsError,
    Source,
    SourceRefusedError,
)
from mappings.errors import SyncError
from mappings.outcome import SourceRow
from mappings.spec.source import SourceSpec

Grid = Sequence[Sequence[str]]


class Stand(Protocol):
    """The place of the rows of one kind for one test: a folder, or a local service that answers as the real one does."""

    base: Path
    """The folder of the mapping file that a relative path would start from."""
    place: str
    """What a message about this source as a whole must name, so that a person knows which one is meant."""
    access: Access
    environment: Mapping[str, str]
    secrets: Sequence[str]
    port: int
    """Where the service listens on loopback, 0 if there is none: no connection to it may be left open."""

    def put(self, grid: Grid) -> SourceSpec:
        """Make the place hold exactly these rows; none at all, not even columns, if the grid is empty.

        The first line has the columns' names. A second call means that a person edited: a row is known by its first cell.
        """
        ...

    def take_away(self) -> None:
        """Take the whole place away (the file, the sheet, the object), or our leave to see it."""
        ...

    def break_off(self) -> None:
        """Let what is there end in the middle of a row from now on, however often it is asked for."""
        ...


@dataclass(frozen=True)
class Kind:
    """A kind of source.

    `first` is the number of the first row, None where numbers count something else (lines of records of any length).
    `is_grid`: columns have names of their own, which may stand twice, be padded or be wanted by their position.
    `ends_at_filled`: blank rows below the last filled one are none. `is_measured`: this process holds the source's memory
    only, and not that of the service which answers it as well. `knows_versions`: its cursor says that nothing at all has
    changed, and it then gives no rows. `is_dear`: to open it takes so long that few examples must do.
    """

    name: str
    stand: Callable[[Path], AbstractContextManager[Stand]]
    accepts: Callable[[str], bool] = lambda _: True
    first: int | None = 2
    is_grid: bool = True
    ends_at_filled: bool = False
    is_incremental: bool = False
    is_measured: bool = True
    knows_versions: bool = False
    is_dear: bool = False


def opened(stand: Stand, grid: Grid, columns: frozenset[str] = frozenset(), *, since: str = "") -> Source:
    """Put a grid where the source finds it, and return the source."""
    return open_source(stand.put(grid), stand.base, columns, access=stand.access, since=since, clock=in_no_time())


def in_no_time() -> Clock:
    """Return a clock on which every wait is over at once: sources insist on services that stumble for minutes."""
    waited: list[float] = []
    return Clock(
        now=lambda: time.time() + sum(waited),
        clock_s=lambda: time.monotonic() + sum(waited),
        sleep=waited.append,
        chance=lambda: 0.5,
    )


HOSTILE = [
    " padded ", "\u00a0", "line one\nline two", "a\r\nb", "a\rb", 'say "hi"', "a,b;c\td|e", "02134", "1e5", "12,50", "NA",
    "nan", "TRUE", "no", "=1+1", "-5", "\ufeffmark", "Łódź", "上海", "💃🏽", "\u2028", "\x0b\x85", "\\", "'", "#3", "null",
]  # fmt: skip
"""Texts that other importers change."""


@contextmanager
def open_stand(kind: Kind, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    """Open the place of one test; temporary files of the source lie beside it, so that what is left behind is seen."""
    (folder / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    (folder / "place").mkdir()
    with kind.stand(folder / "place") as found:
        yield found


def _rows(source: Source) -> list[SourceRow]:
    return _read(source)[0]


def _read(source: Source) -> tuple[list[SourceRow], bool, Ending]:
    with source.read() as reading:
        rows = list(reading.rows)
        return rows, reading.is_whole, reading.ending()


def _left_open(stand: Stand) -> list[str]:
    """What this process still has open of the source: files below the test's folder, connections to its service."""
    own = psutil.Process()
    files = [file.path for file in own.open_files() if file.path.startswith(str(stand.base.parent))]
    pairs = [pair for pair in own.net_connections("tcp") if stand.port and stand.port in pair.raddr[1:]]
    return files + [f"port {stand.port}" for pair in pairs if pair.status == psutil.CONN_ESTABLISHED]


def _left_behind(stand: Stand) -> list[Path]:
    return list((stand.base.parent / "temporary").iterdir())


def _assert_no_secret_in(stand: Stand, error: SyncError, source: Source, caplog: pytest.LogCaptureFixture) -> None:
    """Look at all that might be printed: the error with its causes, the source itself, the log down to its details."""
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    said = " ".join([*(f"{one!r} {one}" for one in causes), error.hint, repr(source), caplog.text])
    assert not [secret for secret in stand.secrets if secret in said]


class _Contract:
    """A suite for `source_kind`, or for each kind that a test module hands in as the parameter `kind`."""

    source_kind: ClassVar[Kind]

    @pytest.fixture
    def kind(self, request: pytest.FixtureRequest) -> Kind:
        found: Kind = request.param if hasattr(request, "param") else self.source_kind
        return found

    @pytest.fixture
    def stand(self, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
        with open_stand(kind, tmp_path, monkeypatch) as found:
            yield found


class SourceContract(_Contract):
    """What every kind promises."""

    def test_cells_are_the_text_that_stands_there(self, kind: Kind, stand: Stand) -> None:
        cells = [cell for cell in HOSTILE if kind.accepts(cell)]
        grid = [["ref", "text"], *[[str(number), cell] for number, cell in enumerate(cells)]]
        rows = _rows(opened(stand, grid, frozenset({"ref", "text"})))
        assert {row.cells["ref"]: row.cells["text"] for row in rows} == {str(number): cell for number, cell in enumerate(cells)}
        assert len(rows) == len(cells)
        assert not any(row.problems or row.is_gone for row in rows)

    def test_a_source_with_a_header_only_has_no_rows_and_is_whole(self, stand: Stand) -> None:
        rows, is_whole, _ = _read(opened(stand, [["ref"]]))
        assert (rows, is_whole) == ([], True)

    def test_blank_rows_are_rows(self, kind: Kind, stand: Stand) -> None:
        rows = _rows(opened(stand, [["ref", "text"], ["1", "x"], ["", ""], ["2", "y"]], frozenset({"ref"})))
        assert [row.cells["ref"] for row in rows] == ["1", "", "2"]
        if kind.first is not None:
            assert [row.location.number for row in rows] == list(range(kind.first, kind.first + 3))

    def test_every_row_has_a_place_of_its_own_that_a_person_can_open(self, stand: Stand) -> None:
        rows = _rows(opened(stand, [["ref"], *[[str(number)] for number in range(50)]]))
        assert len({row.location.place for row in rows}) == 50
        assert all(row.location.place.strip() for row in rows)
        assert all(str(row.location.number) in row.location.place for row in rows if row.location.number)

    def test_missing_columns_are_named_all_at_once_before_any_row(self, stand: Stand) -> None:
        source = opened(stand, [["ref", "titel", "ort"], ["1", "x", "y"]], frozenset({"ref", "title", "start"}))
        with pytest.raises(MissingColumnsError) as caught, source.read():
            pytest.fail("the block was entered")
        assert caught.value.missing == ("start", "title")
        assert caught.value.nearest["title"].casefold() == "titel"
        assert '"titel"' in str(caught.value).casefold()
        assert '"ort"' in caught.value.hint.casefold()

    def test_equal_content_gives_equal_rows_and_an_equal_stamp_and_an_edit_another(self, stand: Stand) -> None:
        source = opened(stand, [["ref"], ["1"]])
        with source.read() as first:
            rows = list(first.rows)
        with source.read() as second:
            assert list(second.rows) == rows
        stand.put([["ref"], ["1"], ["2"]])
        with source.read() as third:
            assert first.stamp == second.stamp
            assert third.stamp != first.stamp or not first.stamp

    def test_a_reading_left_early_or_late_closes_what_it_opened_and_leaves_no_file(self, kind: Kind, stand: Stand) -> None:
        source = opened(stand, [["ref"], *[[f"x{number}"] for number in range(20_000 if kind.is_measured else 3_000)]])
        with source.read() as reading:
            next(reading.rows)
            assert _left_open(stand) or not kind.is_measured
        assert (_left_open(stand), _left_behind(stand)) == ([], [])
        _rows(opened(stand, [["ref"], ["1"], ["2"]]))
        assert (_left_open(stand), _left_behind(stand)) == ([], [])

    def test_an_absent_source_is_refused_and_not_empty(self, stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
        source = opened(stand, [["ref"]])
        stand.take_away()
        with caplog.at_level(logging.DEBUG), pytest.raises(SourceRefusedError) as caught, source.read():
            pytest.fail("the block was entered")
        assert stand.place in f"{caught.value} {caught.value.hint}"
        _assert_no_secret_in(stand, caught.value, source, caplog)
        assert not _left_open(stand)

    def test_a_source_without_a_header_is_bad_and_not_empty(self, stand: Stand) -> None:
        with pytest.raises(BadSourceError), opened(stand, []).read():
            pytest.fail("the block was entered")

    def test_a_source_cut_in_the_middle_fails_and_never_just_ends(self, stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
        source = opened(stand, [["ref", "text"], ["1", "x"], ["2", "long " * 20_000]], frozenset({"ref", "text"}))
        stand.break_off()
        with caplog.at_level(logging.DEBUG), pytest.raises(SyncError) as caught:
            _rows(source)
        assert caught.value.hint
        _assert_no_secret_in(stand, caught.value, source, caplog)
        assert not _left_open(stand)
        assert not _left_behind(stand)


class GridContract(_Contract):
    """What a kind with rows and columns promises besides."""

    def test_columns_stand_in_the_order_of_the_source(self, stand: Stand) -> None:
        with opened(stand, [["b", " a ", "c"], ["1", "2", "3"]]).read() as reading:
            assert reading.columns == ("b", "a", "c")
            assert [dict(row.cells) for row in reading.rows] == [{"b": "1", "a": "2", "c": "3"}]

    def test_columns_are_spelt_as_the_mapping_spells_them(self, stand: Stand) -> None:
        source = opened(stand, [["START  date", "Title", "note"], ["1", "2", "3"]], frozenset({"Start Date", "title"}))
        with source.read() as reading:
            assert reading.columns == ("Start Date", "title", "note")
            assert (next(reading.rows).cells["Start Date"], reading.headers["title"]) == ("1", "Title")

    def test_a_reading_with_two_columns_for_one_name_stops_unless_the_name_is_not_used(self, stand: Stand) -> None:
        for first, second in (("title", "title"), ("Tit le", " TITLE ")):
            grid = [["ref", first, second], ["1", "internal", "Jazz"]]
            with pytest.raises(RepeatedColumnsError) as caught, opened(stand, grid, frozenset({"ref", "title"})).read():
                pytest.fail("the block was entered")
            shown = [
                f'"{text.strip()}" (#{place}, column {letter})' for text, place, letter in ((first, 2, "B"), (second, 3, "C"))
            ]
            assert caught.value.columns == {"title": shown}
            assert [row.cells["ref"] for row in _rows(opened(stand, grid, frozenset({"ref"})))] == ["1"]
            assert [row.cells["#C"] for row in _rows(opened(stand, grid, frozenset({"#C"})))] == ["Jazz"]


class IncrementalContract(_Contract):
    """What a kind with cursors promises besides; `Stand.put` returns a spec that reads by cursor."""

    def test_a_later_reading_gives_what_changed_since_and_says_what_is_gone(self, stand: Stand) -> None:
        first = [["ref", "text"], ["1", "stays"], ["2", "edited"], ["3", "deleted"]]
        columns = frozenset({"ref", "text"})
        rows, is_whole, ending = _read(opened(stand, first, columns))
        assert (len(rows), is_whole, bool(ending.cursor)) == (3, True, True)
        second = [["ref", "text"], ["1", "stays"], ["2", "otherwise"], ["4", "new"]]
        rows, is_whole, ending = _read(opened(stand, second, columns, since=ending.cursor))
        assert not is_whole
        said = {row.cells["ref"]: row.cells["text"] for row in rows if not row.is_gone}
        assert {"2": "otherwise", "4": "new"}.items() <= said.items() <= {"1": "stays", "2": "otherwise", "4": "new"}.items()
        assert [row.cells["ref"] for row in rows if row.is_gone] == ["3"]
        assert not [secret for secret in stand.secrets if secret in ending.cursor]

    def test_a_reading_of_nothing_new_keeps_a_cursor_to_go_on_from(self, stand: Stand) -> None:
        grid = [["ref", "text"], ["1", "stays"]]
        columns = frozenset({"ref", "text"})
        _, _, first = _read(opened(stand, grid, columns))
        _, _, second = _read(opened(stand, grid, columns, since=first.cursor))
        assert second.cursor
        rows, is_whole, _ = _read(opened(stand, [*grid, ["2", "late"]], columns, since=second.cursor))
        assert not is_whole
        assert "2" in {row.cells["ref"] for row in rows}

    def test_a_cursor_that_means_nothing_to_the_source_leads_to_a_whole_reading(self, stand: Stand) -> None:
        source = opened(stand, [["ref", "text"], ["1", "stays"]], frozenset({"ref", "text"}), since="what another program wrote")
        rows, is_whole, ending = _read(source)
        assert (len(rows), is_whole, bool(ending.cursor)) == (1, True, True)
