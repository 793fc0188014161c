"""`eventsync state verify`: what it says of a sound state DB, of one that is not, and of none."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from unit.cli.conftest import Desk

from mappings.row_key import FeedName
from pipelines.clock import now
from state.ledger.ledger import Ledger
from state.opening import open_database
from state.queries import LedgerQueries


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
        database.execute("UPDATE alembic_version SET version_num = '0003'")
    document = desk.run("state", "verify", "--json").document
    assert document["schema"] == "0003"
    assert "or the next run upgrades it" in document["findings"][0]["problem"]
    assert desk.run("state", "verify", "--json").document["schema"] == "0003"


def test_packing_is_gone_and_says_that_nothing_needs_it(desk: Desk) -> None:
    said = desk.run("state", "compact", "--json")
    assert (said.code, "is gone" in said.document["error"]["message"]) == (2, True)
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
        assert would["removed"] == {"problems": 2, "runs": 0, "answers": 3, "backfills": 0, "notices": 0}
        said = desk.run("prune", "--older-than", "90d")
        assert (said.code, "VACUUM" in said.out) == (0, True)
        again = desk.run("prune", "--older-than", "90d", "--json").document["removed"]
        assert again == dict.fromkeys(("problems", "runs", "answers", "backfills", "notices"), 0)
        read = desk.run("run", "town-hall", "--no-dagster", "--json").document["runs"][0]["read"]
    assert (read["new"], read["unchanged"]) == (0, 3)
    assert desk.run("state", "verify").code == 0


@pytest.mark.parametrize("age", ["90", "soon", "12h", "-3d", "9999999w"])
def test_an_age_that_is_none_or_too_young_is_refused(desk: Desk, age: str) -> None:
    said = desk.run("prune", "--older-than", age, "--json")
    assert said.code == 2
    assert "--older-than" in said.document["error"]["message"]


def test_a_state_db_goes_into_a_file_and_comes_back_elsewhere(desk: Desk) -> None:
    _deliver(desk)
    said = desk.run("state", "export", "backup.ndjson.gz")
    assert (said.code, "ledger_entry" in said.out) == (0, True), said.err
    again = desk.run("state", "export", "backup.ndjson.gz", "--json")
    assert (again.code, "there already" in again.document["error"]["message"]) == (2, True)
    full = desk.run("state", "import", "backup.ndjson.gz", "--json")
    assert (full.code, "not empty" in full.document["error"]["message"]) == (2, True)
    before = desk.run("rows", "town-hall", "--state", "delivered", "--json").document
    desk.monkeypatch.setenv("EVENTSYNC_STATE_URL", "sqlite:///restored.db")
    document = desk.run("state", "import", "backup.ndjson.gz", "--json").document
    assert document["rows"]["ledger_entry"] == 3
    assert desk.run("rows", "town-hall", "--state", "delivered", "--json").document == before
    assert desk.run("state", "verify").code == 0


def test_a_state_db_moves_and_the_next_run_there_sends_nothing_again(desk: Desk) -> None:
    with desk.service():
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        said = desk.run("state", "migrate", "sqlite:///elsewhere/new.db")
        assert (said.code, "Now set EVENTSYNC_STATE_URL" in said.out) == (0, True), said.err
        desk.monkeypatch.setenv("EVENTSYNC_STATE_URL", "sqlite:///elsewhere/new.db")
        read = desk.run("run", "town-hall", "--no-dagster", "--json").document["runs"][0]["read"]
        assert (read["new"], read["unchanged"]) == (0, 3)
        twice = desk.run("state", "migrate", "sqlite:///elsewhere/new.db", "--json")
    assert (twice.code, "error" in twice.document) == (2, True)


def test_a_state_db_on_its_way_to_a_server_shows_no_password(desk: Desk) -> None:
    _deliver(desk)
    said = desk.run("state", "migrate", "postgresql://ann:s3cr3t-w0rd@127.0.0.1:1/x?connect_timeout=2", "--json")
    assert said.code == 6
    assert "s3cr3t" not in said.out + said.err
    wrong = desk.run("state", "migrate", "mysql://ann:s3cr3t-w0rd@db/x", "--json")
    assert (wrong.code, "EVENTSYNC_STATE_URL" in wrong.document["error"]["message"]) == (2, False)
    assert "s3cr3t" not in wrong.out + wrong.err


def test_where_nothing_was_run_there_is_nothing_to_carry(desk: Desk) -> None:
    for words in (["export", "out.gz"], ["migrate", "sqlite:///new.db"], ["import", "no.gz"]):
        said = desk.run("state", *words, "--json")
        assert (said.code, "there is no" in said.document["error"]["message"]) == (2, True)
    assert not desk.state.exists()
    assert sorted(desk.folder.glob("*.gz")) == []


def test_no_state_db_moves_while_a_run_holds_a_feed(desk: Desk) -> None:
    _deliver(desk)
    engine = open_database(f"sqlite:///{desk.state}")
    (status,) = LedgerQueries(engine).status()
    ledger = Ledger(engine, status.book.destination, status.book.feed, namespace="default", now=now)
    with ledger.acquire_lease("eventsync run"):
        said = desk.run("state", "migrate", "sqlite:///new.db", "--json")
    engine.dispose()
    assert (said.code, "held by eventsync run" in said.document["error"]["message"]) == (4, True)


def _service_of(desk: Desk) -> str:
    with closing(sqlite3.connect(desk.state)) as database:
        (service,) = database.execute("SELECT DISTINCT service FROM scope").fetchone()
    return str(service)


def test_a_service_that_moved_to_another_address_knows_its_rows_there(desk: Desk) -> None:
    _deliver(desk)
    old, new = _service_of(desk), "https://api.new.example"
    said = desk.run("state", "rename", "--service", old, f"{new}/api/public/v1/", "--json")
    assert said.code == 0, said.err
    assert (said.document["from"], said.document["to"], said.document["feeds"]) == (old, new, ["town-hall"])
    assert said.document["rows"]["scope"] == 1
    assert _service_of(desk) == new
    assert desk.run("state", "verify").code == 0
    again = desk.run("state", "rename", "--service", old, new)
    assert again.code == 2
    assert f"knows no feed at {old}" in again.err


def test_a_service_is_not_renamed_to_one_whose_rows_are_known_nor_while_a_run_is_at_work(desk: Desk) -> None:
    _deliver(desk)
    old = _service_of(desk)
    with closing(sqlite3.connect(desk.state)) as database, database:
        database.execute(
            "INSERT INTO scope (destination, feed, gate, gate_run, gate_reason, released_id, stamp, created_at, cursor,"
            " cursor_fit, marked_id, service, namespace, key_definition) SELECT 'https://new.example#x', feed, gate, gate_run,"
            " gate_reason, 0, '', created_at, '', '', 0, 'https://new.example', 'x', '' FROM scope"
        )
        database.execute(
            "UPDATE ledger_entry SET scope_id = (SELECT max(id) FROM scope) WHERE id = (SELECT max(id) FROM ledger_entry)"
        )
    said = desk.run("state", "rename", "--service", old, "https://new.example")
    assert (said.code, _said_in(said.err, "knows rows at https://new.example already")) == (2, True)
    engine = open_database(f"sqlite:///{desk.state}")
    with closing(sqlite3.connect(desk.state)) as database:
        (destination,) = database.execute("SELECT destination FROM scope ORDER BY id").fetchone()
    with Ledger(engine, destination, FeedName("town-hall"), namespace="", now=now).acquire_lease("a run"):
        assert desk.run("state", "rename", "--service", old, "https://other.example").code == 4
    engine.dispose()


def _said_in(text: str, words: str) -> bool:
    return words in " ".join(text.split())
