"""A state DB that is full, read-only, damaged, gone or held: one message, the right exit code, no row lost or doubled."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from integration.desk import FEED, Books, Desk, assert_all_on_record, assert_delivered, lines, mid_way
from integration.service import Service
from integration.waiting import pause, until
from ledger_tables import ENTRIES
from privileges import bound_by_permissions
from sqlalchemy import make_url

pytestmark = pytest.mark.slow
ROWS = 150


def _assert_the_next_run_delivers(desk: Desk, service: Service, rows: int = ROWS) -> None:
    service.switch(latency_ms=0)
    desk.run(code=0)
    assert_delivered(desk, service, rows)


@pytest.fixture
def disk(desk: Desk) -> Iterator[Path]:
    """A small disk of its own with the state DB on it."""
    folder = desk.folder / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("a disk of one's own needs Linux and the right to mount one")
    desk.books = Books(folder, f"sqlite:///{folder / 'state.db'}")
    desk.env["EVENTSYNC_STATE_URL"] = desk.books.url
    try:
        yield folder
    finally:
        desk.end_all()
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _remount(disk: Path, *options: str) -> None:
    subprocess.run(["mount", "-o", ",".join(("remount", *options)), str(disk)], check=True)


def _fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"\x00" * 4096):
                pass
        except OSError:
            return ballast
    raise AssertionError("the disk takes anything")


def test_a_disk_that_fills_while_rows_are_staged_lets_nothing_out(desk: Desk, service: Service, disk: Path) -> None:
    _remount(disk, "size=400k")
    desk.run_with(lines(1_500)).assert_told(2, "state.db", "no room is left", "make room")
    assert service.requests() == []

    _remount(disk, "size=64m")
    _assert_the_next_run_delivers(desk, service, 1_500)


def test_a_disk_that_fills_while_rows_are_sent_ends_the_run(desk: Desk, service: Service, disk: Path) -> None:
    run = mid_way(desk, service, ROWS)
    ballast = _fill(disk)
    run.ended().assert_told(2, "state.db", "no room is left", "make room")
    assert_all_on_record(desk, service)

    desk.run().assert_told(2, "state.db")
    assert_all_on_record(desk, service)
    ballast.unlink()
    _assert_the_next_run_delivers(desk, service)


def test_a_disk_that_turns_read_only_is_told_and_nothing_is_sent(desk: Desk, service: Service, disk: Path) -> None:
    desk.run_with(lines(ROWS), "--stage-only", code=0)
    _remount(disk, "ro")
    desk.run().assert_told(2, "state.db", "read-only")
    assert service.requests() == []

    _remount(disk, "rw")
    _assert_the_next_run_delivers(desk, service)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="another process's limits are Linux's")
def test_a_file_that_may_grow_no_more_ends_the_run(desk: Desk, service: Service) -> None:
    run = mid_way(desk, service, ROWS)
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (4096, 4096))
    run.ended().assert_told(2, "state.db", "make room")
    assert_all_on_record(desk, service)
    _assert_the_next_run_delivers(desk, service)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no header": lambda content: b"\x00" * 100 + content[100:],
    "torn pages": lambda content: content[:4096] + b"\xa5" * (len(content) - 4096),
    "cut short": lambda content: content[: len(content) // 2],
    "something else": lambda _: b"ID,TITLE\n" * 2_000,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_told_and_nothing_is_sent(desk: Desk, service: Service, damage: Callable[[bytes], bytes]) -> None:
    desk.run_with(lines(ROWS), "--stage-only", code=0)
    path = desk.folder / "state.db"
    path.write_bytes(damage(path.read_bytes()))
    desk.run().assert_told(2, "state.db", "damaged", "restore it from a backup, or move it away")
    assert service.requests() == []
    verified = desk.command("state", "verify", "--json", code=1)
    assert {finding["check"] for finding in verified.document["findings"]} == {"file"}

    desk.forget()
    _assert_the_next_run_delivers(desk, service)


def test_a_folder_in_the_files_place_is_named(desk: Desk, service: Service) -> None:
    (desk.folder / "state.db").mkdir()
    desk.run_with(lines(3)).assert_told(2, "state.db", "Is a directory")
    assert service.requests() == []


def test_a_killed_runs_log_that_is_damaged_costs_no_row(desk: Desk, service: Service) -> None:
    run = mid_way(desk, service, ROWS)
    run.kill()
    log = desk.folder / "state.db-wal"
    content = bytearray(log.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 64] = b"\xa5" * 64
    log.write_bytes(content)
    _assert_the_next_run_delivers(desk, service)


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
def test_a_file_that_goes_away_in_mid_run_stops_it_at_once(desk: Desk, service: Service, is_replaced: bool) -> None:
    run = mid_way(desk, service, ROWS)
    before = desk.folder / "before"
    before.mkdir()
    for path in desk.folder.glob("state.db*"):
        path.rename(before / path.name)
    gone_at = len(service.requests())
    if is_replaced:
        (desk.folder / "state.db").write_bytes((before / "state.db").read_bytes())
    run.ended().assert_told(2, "state.db", "was deleted or replaced while it was in use", "run again")
    assert len(service.requests()) <= gone_at + 2 * 16, "only what was on its way out"

    desk.forget()
    _assert_the_next_run_delivers(desk, service)
    assert len(service.bodies()) == ROWS


def _hold(desk: Desk, how: str = "IMMEDIATE") -> sqlite3.Connection:
    other = sqlite3.connect(desk.folder / "state.db", isolation_level=None, timeout=10)
    if how == "EXCLUSIVE":
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute(f"BEGIN {how}")
    return other


def _is_quiet(service: Service) -> bool:
    sent = len(service.requests())
    pause(1.0)
    return len(service.requests()) == sent


@pytest.fixture
def hasty(desk: Desk) -> Desk:
    """A desk whose runs wait only a moment for a lock."""
    desk.env["EVENTSYNC_STATE_URL"] = "sqlite:///state.db?timeout=0.2"
    return desk


@pytest.mark.parametrize("how", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_file_that_another_process_holds_is_worth_coming_back_for(hasty: Desk, service: Service, how: str) -> None:
    desk = hasty
    desk.run_with(lines(ROWS), "--stage-only", code=0)
    with closing(_hold(desk, how)):
        desk.run().assert_told(6, "state.db", "held by another process", "run again")
        assert service.requests() == []
    _assert_the_next_run_delivers(desk, service)


def test_a_file_that_is_taken_for_a_moment_while_rows_are_sent_costs_nothing(hasty: Desk, service: Service) -> None:
    desk = hasty
    run = mid_way(desk, service, ROWS)
    with closing(_hold(desk)):
        until(lambda: _is_quiet(service), what="the arrival of what was in flight")
        assert len(service.requests()) < ROWS, "nothing is sent that cannot be recorded"
    run.ended(0)
    assert service.outcomes() == {"created": ROWS}
    assert_delivered(desk, service, ROWS)


READING = [
    ("status",),
    ("status", FEED, "--runs", "2"),
    ("rows", FEED, "--state", "delivered"),
    ("diff", FEED),
    ("report", FEED),
    ("runs",),
    ("feeds",),
]
ALL_IN_ONE_PROCESS = """\
import contextlib, io, json, sys
from pipelines.cli.entry import main
said = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["eventsync", *words, "--json"]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main()
    said.append(json.loads(out.getvalue()))
print(json.dumps(said))
"""


def _said_by(desk: Desk) -> list[dict[str, Any]]:
    return [desk.command(*words, "--json", code=0).document | {"made_at": ""} for words in READING]


def _said_where_permissions_hold(desk: Desk, state_url: str) -> list[dict[str, Any]]:
    env = {**desk.env, "EVENTSYNC_STATE_URL": state_url}
    said = bound_by_permissions([sys.executable, "-c", ALL_IN_ONE_PROCESS, json.dumps(READING)], env, desk.folder)
    return [document | {"made_at": ""} for document in json.loads(said.stdout)]


def test_commands_that_read_work_on_a_file_that_lets_us_read_only(desk: Desk, tmp_path: Path) -> None:
    desk.run_with(lines(4), code=0)
    folder = tmp_path / "kept"
    folder.mkdir()
    file = folder / "state.db"
    file.write_bytes((desk.folder / str(make_url(desk.books.url).database)).read_bytes())
    before = file.read_bytes()
    file.chmod(0o400)
    folder.chmod(0o500)
    wanted = _said_by(desk)
    assert _said_where_permissions_hold(desk, f"sqlite:///{file}") == wanted
    assert [each.name for each in folder.iterdir()] == ["state.db"]
    assert file.read_bytes() == before


def test_commands_that_read_work_for_a_role_that_may_only_read(desk_on_postgres: Desk) -> None:
    desk = desk_on_postgres
    desk.run_with(lines(4), code=0)
    with psycopg.connect(desk.books.url.replace("+psycopg", ""), autocommit=True) as connection:
        for statement in (
            "DROP ROLE IF EXISTS reader",
            "CREATE ROLE reader LOGIN",
            "ALTER ROLE reader SET default_transaction_read_only = on",
            "GRANT USAGE ON SCHEMA public TO reader",
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
        ):
            connection.execute(statement.encode())
    wanted = _said_by(desk)
    desk.env["EVENTSYNC_STATE_URL"] = make_url(desk.books.url).set(username="reader").render_as_string(hide_password=False)
    assert _said_by(desk) == wanted
    with psycopg.connect(desk.books.url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(b"DROP OWNED BY reader")
        connection.execute(b"DROP ROLE reader")


@pytest.mark.usefixtures("service")
def test_a_restored_copy_beside_a_log_that_was_left_is_verified_and_not_spoilt(desk: Desk) -> None:
    desk.run_with(lines(ROWS), code=0)
    path, log = desk.folder / "state.db", desk.folder / "state.db-wal"
    backup = path.read_bytes()
    with closing(sqlite3.connect(path)) as other:  # later the file grows and is copied into; a log is left, as by a kill
        other.execute(f"CREATE TABLE later AS SELECT * FROM {ENTRIES}")
        other.execute(f"CREATE INDEX later_index ON {ENTRIES} (id, row_key)")
        other.commit()
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.execute(f"UPDATE {ENTRIES} SET row_key = row_key || ' later'")
        other.commit()
        left = log.read_bytes()
    path.write_bytes(backup)
    log.write_bytes(left)
    found = desk.command("state", "verify", "--json", code=1).document["findings"]
    assert f"delete {log} and {path}-shm" in found[0]["problem"]
    assert (path.read_bytes(), log.read_bytes()) == (backup, left)
    for beside in desk.folder.glob("state.db-*"):
        beside.unlink()
    desk.command("state", "verify", code=0)
    assert sorted(one.name for one in desk.folder.glob("state.db*")) == ["state.db"]
