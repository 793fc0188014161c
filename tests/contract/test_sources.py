"""What every kind of source promises, asked of each in the same words, also by a feed that is staged through kills and failures.

`source_kinds` says how a kind is added.
"""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from contract.every_kind import INCREMENTAL_KINDS, KINDS, VERSIONED_KINDS
from contract.killed_read import DESTINATION, Killer, SourceToRead
from contract.sheet_kinds import SHEET_KINDS, SheetStand
from empty_books import lay_out
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.sources.catalogue import open_source
from connectors.sources.contract import Ending, Source
from eventsync.testing import Grid, GridContract, IncrementalContract, Kind, SourceContract, Stand, open_stand, opened
from mappings.errors import SyncError
from mappings.outcome import SourceRow
from mappings.row_key import FeedName
from pipelines.run.options import RunOptions
from pipelines.run.stage import CHUNK_ROWS
from state.database import StateDb
from state.ledger.standing import FeedScope, RowRecord
from state.opening import open_database
from state.queries import LedgerQueries, RowFilter

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    found = request.param
    assert isinstance(found, Kind)
    return found


@pytest.fixture
def stand(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    with open_stand(kind, tmp_path, monkeypatch) as found:
        yield found


FAMILIES = list({(kind.stand.__module__ + kind.stand.__qualname__, kind.is_incremental): kind for kind in KINDS[::-1]}.values())
"""One kind for each way of coming by rows: where they stand, and whether it can go on."""


def every(kinds: Sequence[Kind]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name, indirect=True)


def quick(kinds: Sequence[Kind]) -> list[Kind]:
    return [kind for kind in kinds if not kind.is_dear]


every_kind, every_versioned, every_incremental = every(KINDS), every(VERSIONED_KINDS), every(INCREMENTAL_KINDS)


@every_kind
class TestEveryKind(SourceContract):
    """Asked as the authors of plug-ins ask it."""


@every([kind for kind in KINDS if kind.is_grid])
class TestGrids(GridContract):
    """Likewise."""


@every_incremental
class TestCursors(IncrementalContract):
    """Likewise."""


def _read(source: Source) -> tuple[list[SourceRow], bool, Ending]:
    with source.read() as reading:
        rows = list(reading.rows)
        return rows, reading.is_whole, reading.ending()


def _to_the_last_filled(grid: list[list[str]]) -> list[list[str]]:
    filled = [number for number, cells in enumerate(grid, start=1) if any(cells)]
    return grid[: max(filled, default=0)]


@every(quick(KINDS))
@given(grid=st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(TEXTS, min_size=width, max_size=width), max_size=6)))
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
)
def test_any_grid_of_text_survives_the_way(kind: Kind, stand: Stand, grid: list[list[str]]) -> None:
    kept = [["".join(char for char in cell if kind.accepts(char)) for cell in row] for row in grid]
    width = len(kept[0]) if kept else 1
    names = [f"c{place}" for place in range(width)]
    rows, _, _ = _read(opened(stand, [names, *kept], frozenset(names)))
    assert [[row.cells[name] for name in names] for row in rows] == (_to_the_last_filled(kept) if kind.ends_at_filled else kept)


@every([kind for kind in KINDS if kind.is_measured])
def test_memory_does_not_grow_with_the_number_of_rows(stand: Stand) -> None:
    """For a kind that is not measured, this process holds the look-alike's rows too; its benchmark measures it from outside."""

    def peak(count: int) -> int:
        source = opened(stand, [["ref", "text"], *[["1", "x" * 200]] * count])
        tracemalloc.start()
        with source.read() as reading:
            assert sum(1 for _ in reading.rows) == count
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    small = peak(2_100)  # more than a database hands over at once, twice
    assert peak(2_700) < small + 100_000  # the texts of 600 rows take more


@every([kind for kind in KINDS if not kind.is_incremental])
def test_a_source_without_cursors_reads_all_whatever_it_is_asked(kind: Kind, stand: Stand) -> None:
    rows, is_whole, ending = _read(opened(stand, [["ref"], ["1"], ["2"]], since="an old cursor"))
    assert (len(rows), is_whole) == (2, True)
    assert kind.knows_versions or not ending.cursor


@every_versioned
def test_a_source_that_has_not_changed_gives_no_row_and_one_that_has_all_of_them(stand: Stand) -> None:
    grid = [["ref"], ["1"], ["2"]]
    _, _, first = _read(opened(stand, grid))
    again = open_source(stand.put(grid), stand.base, frozenset(), access=stand.access, since=first.cursor)
    rows, is_whole, second = _read(again)
    assert (rows, is_whole, second.cursor) == ([], False, first.cursor)
    assert "has not changed" in second.notices[0]
    rows, is_whole, third = _read(opened(stand, [*grid, ["3"]], since=second.cursor))
    assert (len(rows), is_whole) == (3, True)
    assert third.cursor != first.cursor
    assert not [secret for secret in stand.secrets if secret in third.cursor]


def test_nothing_is_opened_before_a_source_is_read(tmp_path: Path) -> None:
    for kind in KINDS:
        (tmp_path / kind.name).mkdir()
        with kind.stand(tmp_path / kind.name) as stand:
            spec = stand.put([["ref"]])
            stand.take_away()
            open_source(spec, stand.base, frozenset({"anything"}), access=stand.access)


BOOK = FeedScope(DESTINATION, FeedName("agenda"))
COLUMNS = ["ref", "text"]
NAMES = frozenset(COLUMNS)


class StoppedError(Exception):
    """The test stops a read between two chunks."""


@dataclass(frozen=True)
class Desk:
    """One kind's place, and the state DB that its rows are staged into."""

    stand: Stand
    engine: StateDb
    url: str

    def job(self, grid: Grid) -> SourceToRead:
        return SourceToRead(self.stand.put(grid), self.stand.base, self.stand.access, self.url)

    @property
    def rows(self) -> list[RowRecord]:
        return list(LedgerQueries(self.engine).every_row(BOOK, RowFilter()))


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Laid out before temporary files are watched."""
    return f"sqlite:///{lay_out(tmp_path / 'state.db')}"


@pytest.fixture
def desk(database: str, stand: Stand) -> Iterator[Desk]:
    engine = open_database(database)
    yield Desk(stand, engine, database)
    engine.dispose()


def many(count: int, text: str = "Evening") -> list[list[str]]:
    return [COLUMNS, *[[str(number), f"{text} {number}"] for number in range(1, count + 1)]]


def silent(_rows: int) -> None:
    """Nobody watches."""


def stop(_rows: int) -> None:
    raise StoppedError


@pytest.mark.slow
@every(quick(FAMILIES))
def test_a_process_killed_while_it_reads_loses_nothing_doubles_nothing_and_leaves_no_file(
    desk: Desk, killing: Killer, tmp_path: Path
) -> None:
    count = CHUNK_ROWS + 50
    job = desk.job(many(count))
    killing.kill(job, tmp_path, desk.stand.environment)
    assert 0 < len(desk.rows) < count
    assert job.ledger(desk.engine).bookmark().cursor == ""
    assert not list((tmp_path / "temporary").iterdir())
    report = job.stage(desk.engine, "after", silent).report
    assert report.account.read == count
    assert report.account.unchanged + report.account.new == count
    assert sorted(int(row.row_key) for row in desk.rows) == list(range(1, count + 1))
    assert job.ledger(desk.engine).gate().is_open


@every(FAMILIES)
def test_a_read_that_was_stopped_or_failed_moves_nothing_and_marks_nothing(desk: Desk) -> None:
    job = desk.job(many(3))
    job.stage(desk.engine, "first", silent)
    before = job.ledger(desk.engine).bookmark()
    desk.stand.put([*many(600, "Night"), ["601", "long " * 20_000]])
    with pytest.raises(StoppedError):
        job.stage(desk.engine, "second", stop)
    after = job.ledger(desk.engine).bookmark()
    assert after.cursor in {before.cursor, ""}
    desk.stand.break_off()
    with pytest.raises(SyncError):
        job.stage(desk.engine, "third", silent)
    assert job.ledger(desk.engine).bookmark().cursor in {before.cursor, ""}
    assert not job.ledger(desk.engine).gate().is_open
    assert not [row for row in desk.rows if row.vanished_at]


@every(FAMILIES)
def test_no_secret_comes_into_the_state_db_or_the_log(desk: Desk, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    job = desk.job(many(3))
    with caplog.at_level(logging.DEBUG):
        job.stage(desk.engine, "first", silent)
        desk.stand.take_away()
        with pytest.raises(SyncError) as caught:
            job.stage(desk.engine, "second", silent, RunOptions(full=True))
    desk.engine.dispose()
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    told = f"{caught.value!r} {caught.value} {caught.value.hint} {caplog.text} {job!r}".encode()
    assert not [secret for secret in desk.stand.secrets if secret.encode() in kept + told]


@every(quick(VERSIONED_KINDS))
@pytest.mark.parametrize("rules", ["", "rows:\n- duplicates: {keep: last}\n"], ids=["", "rows of one key belong together"])
def test_a_source_that_has_not_changed_moves_nothing_and_marks_nothing(desk: Desk, rules: str) -> None:
    job = replace(desk.job(many(3)), rules=rules)
    job.stage(desk.engine, "first", silent)
    before = job.ledger(desk.engine).bookmark()
    second = job.stage(desk.engine, "second", silent)
    assert (second.report.account.read, second.report.is_whole) == (0, False)
    assert "has not changed" in second.notices[0]
    assert job.ledger(desk.engine).bookmark() == before
    assert job.ledger(desk.engine).gate().is_open
    assert len(desk.rows) == 3
    desk.stand.put(many(2))
    third = job.stage(desk.engine, "third", silent)
    assert (third.report.account.read, third.report.is_whole, third.notices) == (2, True, ())
    assert sorted(row.row_key for row in desk.rows) == ["1", "2"]
    asked_for = job.stage(desk.engine, "fourth", silent, RunOptions(full=True))
    assert (asked_for.report.account.read, asked_for.notices) == (2, ("read in full: the option `full` was given",))


@every(SHEET_KINDS)
def test_a_sheet_that_loses_its_version_is_read_each_time_without_a_word(desk: Desk) -> None:
    """Nothing that an earlier read left was cut short: there is nothing to tell."""
    job = desk.job(many(3))
    job.stage(desk.engine, "first", silent)
    assert isinstance(desk.stand, SheetStand)
    desk.stand.google.is_drive_on = False
    for run in ("second", "third"):
        staged = job.stage(desk.engine, run, silent)
        assert (staged.report.account.read, staged.notices) == (3, ())
    desk.stand.google.is_drive_on = True
    job.stage(desk.engine, "fourth", silent)
    assert job.stage(desk.engine, "fifth", silent).report.account.read == 0


@every_incremental
def test_a_feeds_rules_for_cells_pass_on_what_a_reading_says_of_itself(desk: Desk) -> None:
    with opened(desk.stand, many(3), NAMES).read() as reading:
        list(reading.rows)
        cursor = reading.ending().cursor
    spec = desk.stand.put([COLUMNS, ["1", "Evening 1"], ["2", "~~~"]]).model_copy(update={"empty_if": ("~~~",)})
    source = open_source(spec, desk.stand.base, NAMES, access=desk.stand.access, since=cursor)
    with source.read() as reading:
        rows = list(reading.rows)
        assert not reading.is_whole
        assert reading.ending().cursor
    assert {row.cells["ref"]: row.cells["text"] for row in rows if not row.is_gone}["2"] == ""
    assert [row.cells["ref"] for row in rows if row.is_gone] == ["3"]
