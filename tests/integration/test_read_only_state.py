"""Commands that only read, on a state DB that lets us read and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

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
    desk.source(lines(4))
    desk.run(code=0)
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
    desk.source(lines(4))
    desk.run(code=0)
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
