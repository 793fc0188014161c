"""The command line over a database: the address in one variable, seen nowhere, and the first mapping file of a table."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from postgres import Postgres
from unit.cli.conftest import MAPPING, Desk

PASSWORD = "made-up-pass-4711"
ROWS = (
    ("1", "Jazz", "2030-05-01", "19:30", "concert", "2026-05-01 10:00:00"),
    ("2", "Hamlet", "2030-05-03", "20:00", "play", "2026-05-03 10:00:00"),
)
TABLE = "create table events (ID text primary key, TITLE text, DAY text, HOUR text, KIND text, GENRE text, updated_at timestamp)"
FEED = MAPPING.replace(
    "  kind: csv\n  path: ../events.csv\n", "  kind: sql\n  connection: HOUSE\n  table: events\n  incremental: {by: updated_at}\n"
)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, desk: Desk) -> str:
    """The address of a database with a table of events, in SQL_HOUSE."""
    url = f"sqlite:///{desk.folder / 'house.db'}"
    if request.param == "postgresql":
        postgres = request.getfixturevalue("postgres")
        assert isinstance(postgres, Postgres)
        url = sa.make_url(postgres.fresh_url()).set(password=PASSWORD).render_as_string(hide_password=False)
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql(TABLE)
        values = ", ".join(str((*row[:4], "", *row[4:])) for row in ROWS)
        connection.exec_driver_sql(f"insert into events values {values}")
    desk.monkeypatch.setenv("SQL_HOUSE", url)
    desk.mapping(FEED)
    return url


def test_check_preview_explain_and_runs_read_the_database(desk: Desk, url: str) -> None:
    with desk.service() as service:
        live = desk.run("check", "town-hall", "--live", "--json", code=0).document["feeds"][0]["live"]
        (source,) = (one for one in live if one["asked"] == "source")
        assert "sql HOUSE.events: " in source["told"]
        desk.run("preview", "town-hall").assert_told(0, "Jazz")
        desk.run("explain", "town-hall", "2").assert_told(0, "HOUSE.events ", "=2", "Hamlet")
        desk.sync(code=0)
        assert len(service.events()) == 2
        with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
            connection.exec_driver_sql(
                "insert into events values ('3', 'Othello', '2030-05-04', '20:00', '', 'play', '2026-05-03 10:00:00')"
            )
        desk.sync(code=0)
        assert len(service.events()) == 3


def test_a_backfill_reads_the_days_of_change_and_starts_no_run_for_one_without_rows(desk: Desk, url: str) -> None:
    assert url
    with desk.service() as service:
        words = ("--no-dagster", "--json", "--from", "2026-05-01", "--to", "2026-05-03")
        document = desk.run("backfill", "town-hall", *words, code=0).document
        assert (document["sent"], document["backfill"]["by"]) == (2, "cursor")
        assert [bool(one["run_id"]) for one in document["backfill"]["slices"]] == [True, False, True]
        assert len(service.events()) == 2


def test_a_first_mapping_file_names_the_variable_and_never_the_address(desk: Desk, url: str) -> None:
    for source, more in ((url, ()), ("sql:HOUSE", ("--force",))):
        said = desk.run(
            "init", source, "--table", "events", "--feed", "drafted", "--zone", "Europe/Warsaw", "--json", *more, code=0
        )
        text = (desk.folder / "feeds" / "drafted.yaml").read_text("utf-8")
        feed = yaml.safe_load(text)
        assert {"kind": "sql", "connection": "HOUSE", "table": "events", "incremental": {"by": "updated_at"}}.items() <= feed[
            "source"
        ].items()
        assert [key.upper() for key in feed["key"]] == ["ID"]
        assert url not in text + said.out + said.err
        assert PASSWORD not in text + said.out + said.err
        assert any("SQL_HOUSE" in one["why"] for one in said.document["guesses"])
    desk.run("preview", "drafted").assert_told(0, "Jazz")


def test_a_new_address_gets_a_variable_of_its_database(desk: Desk) -> None:
    with sqlite3.connect(desk.folder / "our-town.db") as file:
        file.execute("create table events (id, title)")
        file.execute("insert into events values (1, 'Jazz')")
    said = desk.run("init", "sqlite:///our-town.db", "--table", "events", "--json", code=0)
    assert yaml.safe_load(Path(said.document["out"]).read_text("utf-8"))["source"]["connection"] == "OUR_TOWN"
    desk.run("init", "sqlite:///our-town.db").assert_told(2, "--table")
    desk.run("init", "sqlite:///our-town.db", "--table", "evnts").assert_told(2, 'did you mean "events"')
    desk.run("init", "sql:NOWHERE", "--table", "events", "--force").assert_told(2, "SQL_NOWHERE")


def test_a_database_that_refuses_us_does_not_get_its_password_into_what_we_say(desk: Desk) -> None:
    desk.mapping(FEED)
    desk.monkeypatch.setenv("SQL_HOUSE", f"postgresql://me:{PASSWORD}@127.0.0.1:9/house")
    for words in (
        ("check", "town-hall", "--live"),
        ("preview", "town-hall"),
        ("run", "town-hall", "--no-dagster", "--stage-only"),
    ):
        with desk.service():
            said = desk.run(*words)
        assert said.code != 0
        assert PASSWORD not in said.out + said.err
