"""What every kind of source promises a feed that is staged from it: through kills, failures, and rules for its cells."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from contract.every_kind import INCREMENTAL_KINDS, KINDS, VERSIONED_KINDS
from contract.killed_read import DESTINATION, SourceToRead
from contract.sheet_kinds import SHEET_KINDS, SheetStand
from contract.source_kinds import Grid, Kind, Stand, opened
from empty_books import lay_out

from connectors.sources.catalogue import open_source
from mappings.errors import SyncError
from mappings.row_key import FeedName
from pipelines.run.options import RunOptions
from state.database import StateDb
from state.ledger.standing import FeedScope, RowRecord
from state.opening import open_database
from state.queries import LedgerQueries, RowFilter

BOOK = FeedScope(DESTINATION, FeedName("agenda"))
COLUMNS = ["id", "text"]
NAMES = frozenset(COLUMNS)
ROOT = Path(__file__).parents[2]


def _first_of_each_family(kinds: Sequence[Kind]) -> list[Kind]:
    """One kind for each way of coming by rows: where they stand, and whether it can go on."""
    found: dict[tuple[str, bool], Kind] = {}
    for kind in kinds:
        found.setdefault((kind.stand.__module__ + kind.stand.__qualname__, kind.is_incremental), kind)
    return list(found.values())


FAMILIES = _first_of_each_family(KINDS)


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
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    url = f"sqlite:///{lay_out(tmp_path / 'state.db')}"
    engine = open_database(url)
    for name in ("temporary", "place"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with request.param.stand(tmp_path / "place") as stand:
        yield Desk(stand, engine, url)
    engine.dispose()


every_quick_family = pytest.mark.parametrize(
    "desk", [kind for kind in FAMILIES if not kind.is_dear], ids=lambda kind: kind.name, indirect=True
)
every_family = pytest.mark.parametrize("desk", FAMILIES, ids=lambda kind: kind.name, indirect=True)
every_versioned = pytest.mark.parametrize(
    "desk", [kind for kind in VERSIONED_KINDS if not kind.is_dear], ids=lambda kind: kind.name, indirect=True
)
every_sheet = pytest.mark.parametrize("desk", SHEET_KINDS, ids=lambda kind: kind.name, indirect=True)
every_incremental = pytest.mark.parametrize("desk", INCREMENTAL_KINDS, ids=lambda kind: kind.name, indirect=True)


def many(count: int, text: str = "Evening") -> list[list[str]]:
    return [COLUMNS, *[[str(number), f"{text} {number}"] for number in range(1, count + 1)]]


def silent(_rows: int) -> None:
    """Nobody watches."""


def stop(_rows: int) -> None:
    raise StoppedError


@pytest.mark.slow
@every_quick_family
def test_a_process_killed_while_it_reads_loses_nothing_doubles_nothing_and_leaves_no_file(desk: Desk, tmp_path: Path) -> None:
    job = desk.job(many(2_400))
    (tmp_path / "job").write_bytes(pickle.dumps(job))
    ended = subprocess.run(
        [sys.executable, Path(__file__).with_name("killed_read.py"), tmp_path / "job"],
        env={
            **os.environ,
            **desk.stand.environment,
            "TMPDIR": str(tmp_path / "temporary"),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        },
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    assert 0 < len(desk.rows) < 2_400
    assert job.ledger(desk.engine).bookmark().cursor == ""
    assert not list((tmp_path / "temporary").iterdir())
    report = job.stage(desk.engine, "after", silent).report
    assert report.account.read == 2_400
    assert report.account.unchanged + report.account.new == 2_400
    assert sorted(int(row.row_key) for row in desk.rows) == list(range(1, 2_401))
    assert job.ledger(desk.engine).gate().is_open


@every_family
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


@every_family
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


@every_versioned
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
    assert (asked_for.report.account.read, asked_for.notices) == (2, ("read whole: asked for",))


@every_sheet
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
    plain = opened(desk.stand, many(3), NAMES)
    with plain.read() as reading:
        list(reading.rows)
        cursor = reading.ending().cursor
    spec = desk.stand.put([COLUMNS, ["1", "Evening 1"], ["2", "~~~"]]).model_copy(update={"empty_if": ("~~~",)})
    source = open_source(spec, desk.stand.base, NAMES, access=desk.stand.access, since=cursor)
    with source.read() as reading:
        rows = list(reading.rows)
        assert not reading.is_whole
        assert reading.ending().cursor
    assert {row.cells["id"]: row.cells["text"] for row in rows if not row.is_gone}["2"] == ""
    assert [row.cells["id"] for row in rows if row.is_gone] == ["3"]
