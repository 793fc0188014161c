"""`eventsync state verify`: what it says of a sound state DB, of one that is not, and of none."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from unit.cli.conftest import Desk


def _deliver(desk: Desk) -> None:
    with desk.service():
        assert desk.run("run", "town-hall", "--no-dagster").code == 0


def test_a_sound_state_db_is_called_so(desk: Desk) -> None:
    _deliver(desk)
    said = desk.run("state", "verify")
    assert said.code == 0, said.err
    assert "all is as it must be" in said.out
    document = desk.run("state", "verify", "--json").document
    assert document["findings"] == []
    assert document["entries"] > 0
    assert document["state_db"].endswith("state.db")


def test_what_is_wrong_is_listed_with_its_row(desk: Desk) -> None:
    _deliver(desk)
    with closing(sqlite3.connect(desk.state)) as database, database:
        database.execute("UPDATE ledger_entry SET event_id = NULL WHERE row_key = '5'")
        database.execute("UPDATE ledger_entry SET idempotency_key = 'es1-0' WHERE row_key = '1'")
    said = desk.run("state", "verify")
    assert said.code == 1
    assert "delivered, and has no event id" in " ".join(said.out.split())
    found = desk.run("state", "verify", "--json").document["findings"]
    assert [(one["check"], one["feed"], one["which"]) for one in found] == [
        ("key", "town-hall", "1"),
        ("event", "town-hall", "5"),
    ]


def test_where_nothing_was_run_nothing_is_made(desk: Desk) -> None:
    said = desk.run("state", "verify")
    assert said.code == 0
    assert "the first run makes it" in said.out
    assert not desk.state.exists()
    assert desk.run("state", "verify", "--json").document["schema"] is None


def test_an_older_schema_is_told_and_left_as_it_is(desk: Desk) -> None:
    _deliver(desk)
    with closing(sqlite3.connect(desk.state)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '0001'")
    document = desk.run("state", "verify", "--json").document
    assert document["schema"] == "0001"
    assert "the next run brings" in document["findings"][0]["problem"]
    assert desk.run("state", "verify", "--json").document["schema"] == "0001"


def test_the_help_shows_how_it_is_used(desk: Desk) -> None:
    assert "eventsync state verify" in desk.run("state", "verify", "--help").out
    assert "verify" in desk.run("state", "--help").out


def test_a_state_db_is_made_smaller_and_stays_sound(desk: Desk) -> None:
    _deliver(desk)
    document = desk.run("state", "compact", "--json").document
    assert document["packed"] == desk.run("status", "--json").document["feeds"][0]["counts"]["delivered"] > 0
    assert document["spared"] > 0
    assert document["after"] <= document["before"]
    assert desk.run("state", "verify").code == 0
    said = desk.run("state", "compact")
    assert (said.code, "bodies packed" in said.out) == (0, True)


def test_there_is_nothing_to_make_smaller_before_the_first_run(desk: Desk) -> None:
    said = desk.run("state", "compact")
    assert (said.code, "the first run makes it" in " ".join(said.out.split())) == (0, True)
    assert not desk.state.exists()


def test_the_past_is_counted_then_taken_out_and_no_row_is_sent_again(desk: Desk) -> None:
    with desk.service():
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        with closing(sqlite3.connect(desk.state)) as database, database:
            for column, table in (("seen_at", "problem_row"), ("started_at", "sync_run"), ("updated_at", "ledger_entry")):
                database.execute(f"UPDATE {table} SET {column} = '2020' || substr({column}, 5)")
            database.execute("UPDATE problem_row SET listed_run = ''")
        would = desk.run("prune", "--older-than", "90d", "--dry-run", "--json").document
        assert would["is_dry"]
        assert would["removed"] == {"problems": 2, "runs": 0, "answers": 3}
        said = desk.run("prune", "--older-than", "90d")
        assert (said.code, "eventsync state compact" in said.out) == (0, True)
        assert desk.run("prune", "--older-than", "90d", "--json").document["removed"] == {"problems": 0, "runs": 0, "answers": 0}
        read = desk.run("run", "town-hall", "--no-dagster", "--json").document["runs"][0]["read"]
    assert (read["new"], read["unchanged"]) == (0, 3)
    assert desk.run("state", "verify").code == 0


@pytest.mark.parametrize("age", ["90", "soon", "12h", "-3d", "9999999w"])
def test_an_age_that_is_none_or_too_young_is_refused(desk: Desk, age: str) -> None:
    said = desk.run("prune", "--older-than", age, "--json")
    assert said.code == 2
    assert "--older-than" in said.document["error"]["message"]


def test_there_is_nothing_to_prune_before_the_first_run(desk: Desk) -> None:
    assert desk.run("prune", "--older-than", "90d", "--json").code == 0
    assert not desk.state.exists()
