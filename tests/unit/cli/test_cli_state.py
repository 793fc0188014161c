"""`eventsync state` and `prune`: a state DB that is sound, that is not, that moves, and none at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from unit.cli.conftest import Desk

from pipelines.clock import now
from state.ledger.ledger import Ledger
from state.opening import open_database
from state.queries import LedgerQueries


@pytest.fixture
def delivered(desk: Desk) -> Iterator[Desk]:
    with desk.service():
        desk.sync(code=0)
        yield desk


@contextmanager
def books(desk: Desk) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(desk.state)) as database, database:
        yield database


@contextmanager
def held(desk: Desk) -> Iterator[None]:
    """A run holds the feed for the length of the block."""
    engine = open_database(f"sqlite:///{desk.state}")
    book = LedgerQueries(engine).status()[0].book
    with Ledger(engine, book.destination, book.feed, namespace="default", now=now).acquire_lease("eventsync run"):
        yield
    engine.dispose()


def test_a_sound_state_db_is_called_so_and_what_is_wrong_is_listed_with_its_row(delivered: Desk) -> None:
    delivered.run("state", "verify").assert_told(0, "all is as it must be")
    document = delivered.told("state", "verify")
    assert (document["findings"], document["entries"], document["state_db"][-8:]) == ([], 3, "state.db")
    with books(delivered) as database:
        database.execute("UPDATE ledger_entry SET event_id = NULL WHERE row_key = '5'")
        database.execute("UPDATE ledger_entry SET idempotency_key = 'es1-0' WHERE row_key = '1'")
    delivered.run("state", "verify").assert_told(1, "delivered, and has no event id")
    found = [(one["check"], one["feed"], one["which"]) for one in delivered.told("state", "verify")["findings"]]
    assert found == [("key", "town-hall", "1"), ("event", "town-hall", "5")]


def test_an_older_schema_is_named_and_left_as_it_is(delivered: Desk) -> None:
    with books(delivered) as database:
        database.execute("UPDATE alembic_version SET version_num = '0003'")
    for _ in range(2):
        document = delivered.told("state", "verify")
        assert document["schema"] == "0003"
        assert "or the next run upgrades it" in document["findings"][0]["problem"]


def test_where_nothing_was_run_there_is_nothing_to_verify_or_carry_and_nothing_is_made(desk: Desk) -> None:
    desk.run("state", "verify").assert_told(0, "the first run makes it")
    assert desk.told("state", "verify")["schema"] is None
    for words in ("export out.gz", "migrate sqlite:///new.db", "import no.gz"):
        desk.run("state", *words.split()).assert_told(2, "there is no")
    desk.run("state", "compact").assert_told(2, "is gone")
    assert sorted(path.name for path in desk.folder.iterdir()) == ["events.csv", "feeds"]


def test_the_past_is_counted_then_taken_out_and_no_row_is_sent_again(delivered: Desk) -> None:
    with books(delivered) as database:
        for column, table in (("seen_at", "problem_row"), ("started_at", "sync_run"), ("updated_at", "ledger_entry")):
            database.execute(f"UPDATE {table} SET {column} = '2020' || substr({column}, 5)")
        database.execute("UPDATE problem_row SET listed_run = ''")
    none = dict.fromkeys(("problems", "runs", "answers", "backfills", "notices"), 0)
    would = delivered.told("prune", "--older-than", "90d", "--dry-run")
    assert (would["is_dry"], would["removed"]) == (True, none | {"problems": 2, "answers": 3})
    delivered.run("prune", "--older-than", "90d").assert_told(0, "VACUUM")
    assert delivered.told("prune", "--older-than", "90d")["removed"] == none
    read = delivered.sync()["read"]
    assert (read["new"], read["unchanged"]) == (0, 3)
    delivered.run("state", "verify", code=0)


@pytest.mark.parametrize("age", ["90", "soon", "12h", "-3d", "9999999w"])
def test_an_age_that_is_none_or_too_young_is_refused(desk: Desk, age: str) -> None:
    desk.run("prune", "--older-than", age).assert_told(2, "--older-than")


def test_a_state_db_goes_into_a_file_and_comes_back_elsewhere(delivered: Desk) -> None:
    delivered.run("state", "export", "backup.ndjson.gz").assert_told(0, "ledger_entry")
    delivered.run("state", "export", "backup.ndjson.gz").assert_told(2, "there already")
    delivered.run("state", "import", "backup.ndjson.gz").assert_told(2, "not empty")
    before = delivered.told("rows", "town-hall", "--state", "delivered")
    delivered.monkeypatch.setenv("EVENTSYNC_STATE_URL", "sqlite:///restored.db")
    assert delivered.told("state", "import", "backup.ndjson.gz")["rows"]["ledger_entry"] == 3
    assert delivered.told("rows", "town-hall", "--state", "delivered") == before
    delivered.run("state", "verify", code=0)


def test_a_state_db_moves_and_the_next_run_there_sends_nothing_again(delivered: Desk) -> None:
    there = "sqlite:///elsewhere/new.db"
    with held(delivered):
        delivered.run("state", "migrate", there).assert_told(4, "held by eventsync run")
    delivered.run("state", "migrate", there).assert_told(0, "Now set EVENTSYNC_STATE_URL")
    delivered.monkeypatch.setenv("EVENTSYNC_STATE_URL", there)
    read = delivered.sync()["read"]
    assert (read["new"], read["unchanged"]) == (0, 3)
    delivered.run("state", "migrate", there, code=2)


def test_a_state_db_on_its_way_to_a_server_shows_no_password(delivered: Desk) -> None:
    for url, code in (("postgresql://ann:s3cr3t-w0rd@127.0.0.1:1/x?connect_timeout=2", 6), ("mysql://ann:s3cr3t-w0rd@db/x", 2)):
        said = delivered.run("state", "migrate", url, "--json", code=code)
        assert "s3cr3t" not in said.words
    assert "EVENTSYNC_STATE_URL" not in said.document["error"]["message"]


def test_a_service_that_moved_to_another_address_knows_its_rows_there(delivered: Desk) -> None:
    new = "https://api.new.example"
    with books(delivered) as database:
        ((old,),) = database.execute("SELECT DISTINCT service FROM scope")
    with held(delivered):
        delivered.run("state", "rename", "--service", old, new, code=4)
    document = delivered.told("state", "rename", "--service", old, f"{new}/api/public/v1/")
    assert (document["from"], document["to"], document["feeds"], document["rows"]["scope"]) == (old, new, ["town-hall"], 1)
    with books(delivered) as database:
        assert [*database.execute("SELECT DISTINCT service FROM scope")] == [(new,)]
    delivered.run("state", "verify", code=0)
    delivered.run("state", "rename", "--service", old, new).assert_told(2, f"knows no feed at {old}")


def test_a_service_is_not_renamed_to_one_whose_rows_are_known(delivered: Desk) -> None:
    with books(delivered) as database:
        ((old,),) = database.execute("SELECT service FROM scope")
        database.execute(
            "INSERT INTO scope (destination, feed, gate, gate_run, gate_reason, released_id, stamp, created_at, cursor,"
            " cursor_fit, marked_id, service, namespace, key_definition) SELECT 'https://new.example#x', feed, gate, gate_run,"
            " gate_reason, 0, '', created_at, '', '', 0, 'https://new.example', 'x', '' FROM scope"
        )
        database.execute("UPDATE ledger_entry SET scope_id = (SELECT max(id) FROM scope) WHERE row_key = '6'")
    said = delivered.run("state", "rename", "--service", old, "https://new.example")
    said.assert_told(2, "knows rows at https://new.example already")
