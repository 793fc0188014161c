"""What a person may ask of one run: fewer rows, chosen rows, drafts; and what is reported but never acted on."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from integration.desk import Desk, evenings, lines
from integration.service import Service

pytestmark = pytest.mark.slow

ROWS = 12


@pytest.fixture(autouse=True)
def _source(desk: Desk) -> None:
    desk.source(lines(ROWS))


def test_a_limit_sends_the_first_rows_and_keeps_the_rest_for_the_next_run(desk: Desk, service: Service) -> None:
    said = desk.run("--limit", "5", code=0)
    assert service.titles() == evenings(5)
    assert said.run["publish"]["pending"] == ROWS - 5
    assert desk.run(code=0).run["publish"]["carried_over"] == ROWS - 5
    assert len(service.events()) == len(service.requests()) == ROWS


def test_only_rows_of_the_given_keys_are_sent_and_unknown_keys_are_named(desk: Desk, service: Service) -> None:
    assert desk.run("--keys", "1,77,3,nobody", code=1).run["message"] == "keys that are not in the source: 77, nobody"
    assert service.titles() == ["Evening 1", "Evening 3"]
    desk.run("--keys", "1,3", code=0)
    desk.run(code=0)
    assert len(service.events()) == len(service.requests()) == ROWS


def test_publishing_where_nothing_was_staged_is_no_brake(desk: Desk, service: Service) -> None:
    desk.run("--publish-only").assert_told(2, "nothing was staged yet", "without `--publish-only`")
    assert service.requests() == []


def test_the_same_rows_in_another_order_or_from_a_reworded_mapping_change_nothing(desk: Desk, service: Service) -> None:
    desk.run(code=0)
    desk.source(reversed(lines(ROWS)))
    desk.mapping(title="{from: TITLE, do: [trim, collapse]}")
    assert desk.run().run["read"]["unchanged"] == ROWS
    assert len(service.requests()) == ROWS


def test_a_run_during_which_the_clock_was_set_back_shows_no_negative_length(desk: Desk) -> None:
    run_id = desk.run().run["run_id"]
    with closing(sqlite3.connect(desk.folder / "state.db")) as connection, connection:
        connection.execute("UPDATE sync_run SET finished_at = '2020-01-01T12:00:00.000000+00:00'")
    desk.command("runs", run_id).assert_told(0, "took an unknown time (the clock was set back meanwhile)")
