"""A clock that was set back while a run was at work."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from integration.desk import Desk, lines

pytestmark = pytest.mark.slow


def test_a_run_during_which_the_clock_was_set_back_shows_no_negative_length(desk: Desk) -> None:
    desk.source(lines(2))
    run_id = desk.run().run["run_id"]
    with closing(sqlite3.connect(desk.folder / "state.db")) as connection, connection:
        connection.execute("UPDATE sync_run SET finished_at = '2020-01-01T12:00:00.000000+00:00'")
    said = desk.command("runs", run_id)
    assert said.code == 0, said.words
    assert "took an unknown time (the clock was set back meanwhile)" in said.words
    assert "took -" not in said.words
