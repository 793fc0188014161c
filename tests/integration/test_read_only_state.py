"""Commands that only read, on a state DB that lets us read and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg
import pytest
from integration.desk import FEED, Desk, lines
from privileges import bound_by_permissions
from sqlalchemy import make_url

pytestmark = pytest.mark.slow
READING = [
    ("status",),
    ("status", FEED, "--runs", "2"),
    ("rows", FEED, "--state", "delivered"),
    ("diff", FEED),
    ("report", FEED),
    ("runs",),
    ("feeds",),
]
COMMAND = (sys.executable, "-c", "from pipelines.cli.entry import main; main()")


def _said_by(desk: Desk) -> list[tuple[int, list[str]]]:
    said = [desk.command(*words, "--json") for words in READING]
    return [(one.code, _without_times(one.out)) for one in said]


def _said_where_permissions_hold(desk: Desk, state_url: str) -> list[tuple[int, list[str]]]:
    env = {**desk.env, "EVENTSYNC_STATE_URL": state_url}
    said = [bound_by_permissions([*COMMAND, *words, "--json"], env, desk.folder) for words in READING]
    return [(one.returncode, _without_times(one.stdout)) for one in said]


def _without_times(document: str) -> list[str]:
    return [line for line in document.splitlines() if "made_at" not in line]


def test_commands_that_read_work_on_a_file_that_lets_us_read_only(desk: Desk, tmp_path: Path) -> None:
    desk.source(lines(4))
    assert desk.run().code == 0
    folder = tmp_path / "kept"
    folder.mkdir()
    file = folder / "state.db"
    file.write_bytes((desk.folder / str(make_url(desk.books.url).database)).read_bytes())
    before = file.read_bytes()
    file.chmod(0o400)
    folder.chmod(0o500)
    wanted = _said_by(desk)
    assert {code for code, _ in wanted} == {0}
    assert _said_where_permissions_hold(desk, f"sqlite:///{file}") == wanted
    assert [each.name for each in folder.iterdir()] == ["state.db"]
    assert file.read_bytes() == before


def test_commands_that_read_work_for_a_role_that_may_only_read(desk_on_postgres: Desk) -> None:
    desk = desk_on_postgres
    desk.source(lines(4))
    assert desk.run().code == 0
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
    assert {code for code, _ in wanted} == {0}
    desk.env["EVENTSYNC_STATE_URL"] = make_url(desk.books.url).set(username="reader").render_as_string(hide_password=False)
    assert _said_by(desk) == wanted
    with psycopg.connect(desk.books.url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(b"DROP OWNED BY reader")
        connection.execute(b"DROP ROLE reader")
