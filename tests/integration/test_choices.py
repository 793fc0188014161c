"""What a person may ask of one run: fewer rows, chosen rows, drafts; and what is reported but never acted on."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from integration.desk import Desk, evenings, line, lines
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


def test_only_the_rows_of_the_given_keys_are_sent_and_keys_that_the_source_does_not_have_are_named(
    desk: Desk, service: Service
) -> None:
    said = desk.run("--keys", "1,77,3,nobody", code=1)
    assert said.run["message"] == "keys that are not in the source: 77, nobody"
    assert service.titles() == ["Evening 1", "Evening 3"]
    desk.run("--keys", "1,3", code=0)
    desk.run(code=0)
    assert len(service.events()) == len(service.requests()) == ROWS


def test_publishing_where_nothing_was_staged_is_no_brake(desk: Desk, service: Service) -> None:
    said = desk.run("--publish-only", code=2)
    assert said.run["outcome"] != "stopped by a brake"
    assert "nothing was staged yet" in said.run["message"]
    assert "without `--publish-only`" in said.run["hint"]
    assert service.requests() == []


def test_the_same_rows_in_another_order_or_from_a_reworded_mapping_change_nothing(desk: Desk, service: Service) -> None:
    desk.run(code=0)
    desk.source(reversed(lines(ROWS)))
    desk.mapping(title="{from: TITLE, do: [trim, collapse]}")
    assert desk.run().run["read"]["unchanged"] == ROWS
    assert len(service.requests()) == ROWS


def test_rows_under_one_key_are_never_both_sent(desk: Desk, service: Service) -> None:
    desk.source([*lines(ROWS), line(3, title="A different evening")])
    read = desk.run().run["read"]
    assert read["duplicate"] + read["rejected"] > 0
    assert len({one["idempotency_key"] for one in service.requests()}) == len(service.requests()) <= ROWS


def test_namespaces_keep_two_deployments_at_one_account_apart(desk: Desk, service: Service) -> None:
    desk.run(code=0)
    desk.run(EVENTSYNC_NAMESPACE="staging", code=5)
    desk.run("--accept", "scope", EVENTSYNC_NAMESPACE="staging", code=0)
    assert len({one["idempotency_key"] for one in service.requests()}) == 2 * ROWS


def test_words_that_exclude_each_other_are_a_mistake_of_the_command(desk: Desk, service: Service) -> None:
    for words in (("--stage-only", "--publish-only"), ("--accept", "everything"), ("--status", "published")):
        desk.run(*words, code=2)
    assert service.requests("all") == []


def test_a_run_during_which_the_clock_was_set_back_shows_no_negative_length(desk: Desk) -> None:
    run_id = desk.run().run["run_id"]
    with closing(sqlite3.connect(desk.folder / "state.db")) as connection, connection:
        connection.execute("UPDATE sync_run SET finished_at = '2020-01-01T12:00:00.000000+00:00'")
    said = desk.command("runs", run_id, code=0)
    assert "took an unknown time (the clock was set back meanwhile)" in said.words
    assert "took -" not in said.words
