"""Databases as sources: every type's cell, only reads, errors with a way out, changes and ties, flat memory."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from contract.killed_read import DESTINATION, Killer, SourceToRead
from contract.sql_kinds import PASSWORD, DatabaseStand
from empty_books import lay_out
from integration.waiting import until
from postgres import Postgres
from pydantic import SecretStr, ValidationError

from connectors.sources.catalogue import open_source, probe_source
from connectors.sources.contract import (
    REAL_CLOCK,
    Access,
    BadSourceError,
    Clock,
    MissingColumnsError,
    Reading,
    SourceRefusedError,
    SourceUnavailableError,
)
from mappings.compiler.mapper import compile_feed
from mappings.errors import ConfigError
from mappings.event import Directory
from mappings.outcome import MappedRow, SourceRow
from mappings.row_key import FeedName
from mappings.spec.source import SqlSource
from mappings.yaml.loader import parse_feed
from state.ledger.standing import FeedScope
from state.opening import open_database
from state.queries import LedgerQueries, RowFilter

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> DatabaseStand:
    return database(str(request.param), tmp_path, request)


@pytest.fixture
def server(postgres: Postgres, tmp_path: Path) -> DatabaseStand:
    return on_postgres(postgres, tmp_path)


def on_postgres(postgres: Postgres, base: Path) -> DatabaseStand:
    url = sa.make_url(postgres.fresh_url()).set(password=PASSWORD)
    return DatabaseStand(base, url.render_as_string(hide_password=False), {})


def run(house: DatabaseStand, *statements: str) -> None:
    with house.writing() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def spec_of(**words: Any) -> SqlSource:
    return SqlSource.model_validate({"kind": "sql", "connection": "HOUSE", **words})


def read(
    house: DatabaseStand, *columns: str, since: str = "", clock: Clock = REAL_CLOCK, spec: SqlSource | None = None, **words: Any
) -> tuple[list[SourceRow], Reading, str]:
    source = open_source(spec or spec_of(**words), house.base, frozenset(columns), access=house.access, since=since, clock=clock)
    with source.read() as reading:
        rows = list(reading.rows)
        return rows, reading, reading.ending().cursor


def refused(house: DatabaseStand, *columns: str, **words: Any) -> SourceRefusedError:
    with pytest.raises(SourceRefusedError) as caught:
        read(house, *columns, **words)
    assert PASSWORD not in f"{caught.value!r} {caught.value.hint} {caught.value.__cause__}"
    return caught.value


POSTGRES_CELLS = [
    ("text", "'Łódź 💃'", "Łódź 💃"),
    ("varchar(9)", "' padded '", " padded "),
    ("char(4)", "'ab'", "ab  "),
    ("smallint", "-5", "-5"),
    ("integer", "42", "42"),
    ("bigint", "9223372036854775807", "9223372036854775807"),
    ("numeric(30,10)", "12345678901234567890.12", "12345678901234567890.1200000000"),
    ("numeric", "1e-12", "0.000000000001"),
    ("real", "0.1", "0.1"),
    ("double precision", "2.5", "2.5"),
    ("boolean", "true", "true"),
    ("date", "'2026-05-03'", "2026-05-03"),
    ("time", "'24:00'", "24:00:00"),
    ("timestamp", "'2026-05-03 17:30:00.5'", "2026-05-03T17:30:00.5"),
    ("timestamptz", "'2026-05-03 19:30:00+02'", "2026-05-03T17:30:00Z"),
    ("interval", "'1 day 2 hours'", "1 day 02:00:00"),
    ("uuid", "'5e4d1f6e-0b0a-4c55-9d3d-5a3a3d1c0a11'", "5e4d1f6e-0b0a-4c55-9d3d-5a3a3d1c0a11"),
    ("json", """'{"b":  2.50, "a": [1]}'""", '{"b":  2.50, "a": [1]}'),
    ("jsonb", """'{"n": 1.10}'""", '{"n": 1.10}'),
    ("json", "'null'", ""),
    ("text[]", "array['a', 'Ł', null]", '["a", "Ł", null]'),
    ("numeric[]", "array[2.50, 1]", "[2.50, 1]"),
    ("timestamptz[]", "array['2026-05-03 19:30+02'::timestamptz]", '["2026-05-03T17:30:00Z"]'),
    ("jsonb[]", """array['{"n": 1.10}'::jsonb]""", '[{"n": 1.10}]'),
    ("inet", "'10.0.0.1'", "10.0.0.1"),
    ("bit(3)", "B'101'", "101"),
    ("daterange", "'[2026-05-01,2026-05-03)'", "[2026-05-01,2026-05-03)"),
    ("mood", "'merry'", "merry"),
    ("mood[]", "array['merry', null]::mood[]", '["merry", null]'),
]
SQLITE_CELLS = [
    ("text", "'Łódź 💃'", "Łódź 💃"),
    ("integer", "9223372036854775807", "9223372036854775807"),
    ("real", "0.1", "0.1"),
    ("decimal(10, 2)", "'a1'", "a1"),
    ("boolean", "1", "1"),
    ("timestamp", "'2026-05-03 17:30:00'", "2026-05-03 17:30:00"),
    ("json", """'{"n": 2.50}'""", '{"n": 2.50}'),
    ("", "'02134'", "02134"),
]
DUCKDB_CELLS = [
    ("varchar", "'Łódź'", "Łódź"),
    ("hugeint", "170141183460469231731687303715884105727", "170141183460469231731687303715884105727"),
    ("decimal(20,4)", "2.50", "2.5000"),
    ("double", "0.1", "0.1"),
    ("boolean", "false", "false"),
    ("date", "'2026-05-03'", "2026-05-03"),
    ("time", "'19:30:00'", "19:30:00"),
    ("timestamp", "'2026-05-03 17:30:00'", "2026-05-03T17:30:00"),
    ("timestamptz", "'2026-05-03 19:30:00+02'", "2026-05-03T17:30:00Z"),
    ("json", """'{"n": 2.50}'""", '{"n": 2.50}'),
    ("json", "'null'", ""),
    ("decimal(4,2)[]", "[2.50, 1]", "[2.50, 1.00]"),
    ("struct(a integer, b varchar)", "{'a': 1, 'b': 'x'}", '{"a": 1, "b": "x"}'),
    ("uuid", "'5e4d1f6e-0b0a-4c55-9d3d-5a3a3d1c0a11'", "5e4d1f6e-0b0a-4c55-9d3d-5a3a3d1c0a11"),
]
BAD = {
    "postgresql": [
        *(("date", "'infinity'"), ("date", "'0044-03-15 BC'"), ("timestamp", "'-infinity'"), ("timestamp", "'0044-03-15 BC'")),
        *(("timestamptz", "'infinity'"), ("double precision", "'Infinity'"), ("numeric", "'NaN'"), ("bytea", r"'\xff'")),
    ],
    "sqlite": [("blob", "x'ff'"), ("real", "9e999"), ("text", "cast(x'ff41' as text)")],
    "duckdb": [("timestamp", "'infinity'"), ("timestamptz", "'-infinity'"), ("double", "'nan'"), ("blob", "'abc'")],
}


def database(kind: str, tmp_path: Path, request: pytest.FixtureRequest | None) -> DatabaseStand:
    if kind == "postgresql" and request:
        return on_postgres(request.getfixturevalue("postgres"), tmp_path)
    return DatabaseStand(tmp_path, f"{kind}:///{tmp_path / 'house.db'}", {})


def hold(house: DatabaseStand, kinds: list[tuple[str, str]]) -> None:
    """Put a row with a value of each type between a first and a last one with none."""
    names = ", ".join(f"c{place} {kind}" for place, (kind, _) in enumerate(kinds))
    empty = ", ".join(["null"] * len(kinds))
    run(
        house,
        *(["create type mood as enum ('merry')"] if house.url.startswith("postgresql") else ()),
        f"create table events (id integer primary key, {names})",
        *(
            f"insert into events values ({row})"
            for row in (f"1, {empty}", f"2, {', '.join(text for _, text in kinds)}", f"3, {empty}")
        ),
    )


@pytest.mark.parametrize(
    ("kind", "cells"),
    [("sqlite", SQLITE_CELLS), ("postgresql", POSTGRES_CELLS), ("duckdb", DUCKDB_CELLS)],
    ids=lambda one: str(one)[:10],
)
@pytest.mark.parametrize("words", [{"table": "events"}, {"query": "select * from events order by id;"}], ids=["table", "query"])
def test_every_type_has_its_cell(
    kind: str, cells: list[tuple[str, str, str]], words: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    house = database(kind, tmp_path, request)
    hold(house, [(kind, text) for kind, text, _ in cells])
    rows, reading, _ = read(house, *(f"C{place}" for place in range(len(cells))), **words)
    assert [list(row.cells.values())[-len(cells) :] for row in rows] == [
        [""] * len(cells),
        [cell for *_, cell in cells],
        [""] * len(cells),
    ]
    assert not any(row.problems or row.warnings for row in rows)
    assert reading.is_whole
    assert rows[1].location.place == (
        "HOUSE (row 2)" if "query" in words else "HOUSE.events (row 2)" if kind == "duckdb" else "HOUSE.events id=2"
    )


@pytest.mark.parametrize("kind", BAD)
def test_what_a_cell_cannot_hold_rejects_its_row_and_no_other(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    house = database(kind, tmp_path, request)
    hold(house, BAD[kind])
    for place in range(len(BAD[kind])):
        first, bad, last = read(house, "id", f"c{place}", table="events")[0]
        assert (first.problems, last.problems, [one.column for one in bad.problems]) == ((), (), [f"c{place}"])
        assert bad.problems[0].hint
    every = read(house, "id", query="select * from events")[0]
    assert [(len(row.problems), len(row.warnings)) for row in every] == [(0, 0), (0, len(BAD[kind])), (0, 0)]


def test_only_the_rows_and_columns_that_are_asked_for_are_read(house: DatabaseStand) -> None:
    run(
        house,
        'create table "My events" (id integer, "Title" text, note text, status text)',
        """insert into "My events" values (1, 'Jazz', '50%', 'public'), (2, 'Tea:x', 'n', 'hidden')""",
    )
    rows, reading, _ = read(
        house, "TITLE", "ID", table='"My events"', where="note like '%\\%' escape '\\' and status <> ':x' -- all"
    )
    assert (reading.columns, [dict(row.cells) for row in rows]) == (("ID", "TITLE"), [{"ID": "1", "TITLE": "Jazz"}])
    assert rows[0].location.place == 'HOUSE."My events" (row 1)'
    rows, _, _ = read(house, query="""select "Title" as t, '100%' as p, ':x' as q from "My events" order by 1""")
    assert [list(row.cells.values()) for row in rows] == [["Jazz", "100%", ":x"], ["Tea:x", "100%", ":x"]]


@pytest.mark.parametrize("query", ["delete from events", "select 1; delete from events", "/* with */ drop table events"])
def test_a_query_that_plainly_writes_is_a_mistake_of_the_mapping(query: str) -> None:
    with pytest.raises(ValidationError, match=r"only reads|one statement"):
        spec_of(query=query)
    spec_of(query="-- ;\nwith x as (select ';') select * from x;")


WRITING = {
    "postgresql": [
        "with gone as (delete from events returning *) select * from gone",
        "select * from spoil()",
        "select set_config('transaction_read_only', 'off', false) from spoil()",
        "select nextval('numbers')",
    ],
    "sqlite": ["with x as (select 1) delete from events", "with x as (select 'y') insert into events select * from x"],
}


def test_a_statement_that_writes_is_refused_by_the_database(house: DatabaseStand) -> None:
    run(house, "create table events (id text)", "insert into events values ('1')")
    kind = house.url.partition(":")[0].partition("+")[0]
    if kind == "postgresql":
        body = "begin delete from events; return 1; end"
        run(house, f"create function spoil() returns int language plpgsql as $$ {body} $$", "create sequence numbers")
    for query in WRITING[kind]:
        assert "the database refuses" in str(refused(house, query=query))
    hostile = spec_of(table="events").model_copy(update={"where": "true); delete from events; --"})
    assert "the database refuses" in str(refused(house, spec=hostile)) or kind == "sqlite"
    assert [row.cells["id"] for row in read(house, table="events")[0]] == ["1"]


def test_a_statement_ends_after_the_timeout(server: DatabaseStand, tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match="statement timeout") as caught:
        read(server, query="select pg_sleep(60)", timeout="1s")
    assert "longer than `timeout`" in caught.value.hint
    file = DatabaseStand(tmp_path, f"sqlite:///{tmp_path / 'h.db'}", {})
    run(file, "create table events (id text)")
    ticks = count()
    endless = "with recursive n(x) as (select 1 union all select x + 1 from n) select count(*) from n"
    with pytest.raises(SourceUnavailableError, match="interrupted"):
        read(file, query=endless, timeout="1m", clock=Clock(clock_s=lambda: float(next(ticks))))


def test_what_is_not_there_is_named_with_what_is(house: DatabaseStand) -> None:
    run(house, "create table events (id text, title text)")
    assert 'did you mean "events"' in refused(house, table="evnts").hint
    assert refused(house, table="else.events").hint
    with pytest.raises(MissingColumnsError) as missing:
        read(house, "titel", "id", table="events")
    assert missing.value.nearest == {"titel": "title"}
    with pytest.raises(MissingColumnsError):
        read(house, "id", table="events", incremental={"by": "changed"})
    for words in ({"by": "changed"}, {"by": "id", "deleted": "changed"}):
        with pytest.raises(MissingColumnsError):
            read(house, "id", table="events", incremental=words, optional=["changed"])
    assert "stauts" in str(refused(house, table="events", where="stauts = 1"))
    assert refused(house, query="select from from")


def test_one_connection_is_enough_for_the_key_the_rows_and_the_names_of_other_tables(server: DatabaseStand) -> None:
    run(server, "create table events (id integer primary key, title text)", "insert into events values (7, 'Jazz')")
    run(server, "create role single login connection limit 1", "grant select on events to single")
    single = away(sa.make_url(server.url).set(username="single").render_as_string(hide_password=False))
    assert [row.location.place for row in read(single, "title", table="events")[0]] == ["HOUSE.events id=7"]
    connections = "select count(*) from pg_stat_activity where usename = 'single'"
    with sa.create_engine(server.url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT").connect() as other:
        until(lambda: not other.exec_driver_sql(connections).scalar(), what="PostgreSQL to end the first connection")
    assert 'did you mean "events"' in refused(single, table="evnts").hint


def away(url: str) -> DatabaseStand:
    return DatabaseStand(ROOT, url, {})


def test_a_database_that_cannot_be_opened_says_why_and_never_its_password(server: DatabaseStand) -> None:
    for url, hint in {
        f"postgresql://me:{PASSWORD}@h@host/name": "SQL_HOUSE",
        f"nosuchdb://me:{PASSWORD}@host/name": "install its SQLAlchemy dialect",
        f"mysql://me:{PASSWORD}@host/name": "pip install mysqlclient",
        f"me:{PASSWORD}": "%40",
    }.items():
        with pytest.raises((ConfigError, SourceUnavailableError)) as caught:
            read(away(url), table="events")
        assert hint in f"{caught.value.hint}"
        assert PASSWORD not in f"{caught.value!r} {caught.value.hint} {caught.value.__cause__}"
    with pytest.raises(ConfigError, match="SQL_HOUSE is not set"):
        open_source(spec_of(table="events"), ROOT, frozenset()).read().__enter__()
    with pytest.raises(SourceUnavailableError) as gone:
        read(away(f"postgresql://me:{PASSWORD}@127.0.0.1:9/name"), table="events")
    assert "SQL_HOUSE" in gone.value.hint
    url = sa.make_url(server.url)
    assert "nobody" in str(refused(away(url.set(username="nobody").render_as_string(hide_password=False)), table="events"))
    assert "nowhere" in str(refused(away(url.set(database="nowhere").render_as_string(hide_password=False)), table="events"))
    run(server, "create table events (id text)", "create role reader login")
    reader = away(url.set(username="reader").render_as_string(hide_password=False))
    assert "permission denied" in str(refused(reader, table="events"))
    assert not list(ROOT.glob("nowhere*"))
    assert refused(away("sqlite:///nowhere/nothing.db"), table="events")


def test_a_wrong_password_is_refused_and_masked(server: DatabaseStand) -> None:
    run(server, "create role locked login password 'the-right-one'")
    engine = sa.create_engine(server.url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        rules = Path(str(connection.exec_driver_sql("show hba_file").scalar()))
        before = rules.read_text("utf-8")
        rules.write_text(f"local all locked scram-sha-256\n{before}", "utf-8")
        connection.exec_driver_sql("select pg_reload_conf()")
        while not connection.exec_driver_sql("select pg_conf_load_time() > now()").scalar():
            connection.rollback()
            connection.exec_driver_sql("select pg_reload_conf()")
    try:
        url = sa.make_url(server.url).set(username="locked").render_as_string(hide_password=False)
        assert "password authentication failed" in str(refused(away(url), table="events"))
    finally:
        rules.write_text(before, "utf-8")
        with engine.connect() as connection:
            connection.exec_driver_sql("select pg_reload_conf()")


STAMPS = {
    "moment": ("timestamp", "'2026-05-03 17:{:02}:00'"),
    "number": ("integer", "{}"),
    "text": ("text", "'2026-05-03T17:{:02}:00Z'"),
    "day": ("date", "'2026-05-{:02}'"),
    "zoned": ("timestamp with time zone", "'2026-05-03 17:{:02}:00+00'"),
}


@pytest.mark.parametrize("stamps", STAMPS)
def test_a_read_goes_on_at_its_last_stamp_and_ties_and_rows_without_one_are_read_again(stamps: str, house: DatabaseStand) -> None:
    kind, stamp = STAMPS[stamps]
    run(house, f"create table events (id text, changed {kind}, deleted_at text)")

    def put(name: str, at: int | None, gone: str = "null") -> None:
        run(house, f"insert into events values ('{name}', {'null' if at is None else stamp.format(at)}, {gone})")

    def names(cursor: str) -> tuple[list[str], list[str], str]:
        words = {"by": "CHANGED", "overlap": "0s", "deleted": "deleted_at"}
        rows, reading, reached = read(house, "id", table="events", incremental=words, since=cursor)
        assert reading.is_whole == (not cursor or "another" in cursor)
        gone = sorted(row.cells["id"] for row in rows if row.is_gone)
        return sorted(row.cells["id"] for row in rows if not row.is_gone), gone, reached

    for name, at in {"a": 1, "b": 2, "c": 3, "none": None}.items():
        put(name, at)
    put("gone before", 3, "'2026'")
    seen, gone, cursor = names("")
    assert (seen, gone) == (["a", "b", "c", "none"], [])
    put("tie", 3)
    put("late", 1)
    put("gone", 4, "'t'")
    put("kept", 4, "'false'")
    seen, gone, cursor = names(cursor)
    assert (seen, gone) == (["c", "kept", "none", "tie"], ["gone", "gone before"])
    assert names(cursor)[:2] == (["kept", "none"], ["gone"])
    assert names(names("m2026-05-03T00:00:00 another")[2])[0] == ["kept", "none"]
    if house.file:
        elsewhere = DatabaseStand(house.base, f"sqlite:///{house.base / 'copy.db'}", {})
        (house.base / "copy.db").write_bytes(house.file.read_bytes())
        words = {"by": "CHANGED", "overlap": "0s", "deleted": "deleted_at"}
        assert not read(house, "id", table="events", incremental=words, since=cursor)[1].is_whole
        assert read(elsewhere, "id", table="events", incremental=words, since=cursor)[1].is_whole


@pytest.mark.parametrize("name", ["50% off #1", "why?", "a b"])
def test_a_file_of_any_name_is_opened_and_none_is_made(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with sqlite3.connect(folder / "house.db") as connection:
        connection.execute("create table events as select 7 as id")
    connection.close()
    url = sa.URL.create("sqlite", database=str(folder / "house.db")).render_as_string()
    access = Access(secrets={"SQL_HOUSE": SecretStr(url)})
    with open_source(spec_of(table="events"), folder, frozenset({"id"}), access=access).read() as reading:
        assert [row.cells["id"] for row in reading.rows] == ["7"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_address_may_name_another_encoding(server: DatabaseStand) -> None:
    run(server, "create table events (id json)", """insert into events values ('"é"')""")
    latin = sa.make_url(server.url).update_query_dict({"client_encoding": "latin1"})
    (row,) = read(away(latin.render_as_string(hide_password=False)), "id", table="events")[0]
    assert row.cells["id"] == '"é"'


def test_an_error_of_the_caller_is_none_of_the_source(house: DatabaseStand) -> None:
    run(house, "create table events (id text)")
    source = open_source(spec_of(table="events"), house.base, frozenset({"id"}), access=house.access)
    with pytest.raises(sa.exc.OperationalError, match="our own"), source.read():
        raise sa.exc.OperationalError("select 1", {}, Exception("our own database is locked"))


def test_a_read_starts_an_overlap_earlier_and_a_stamp_far_ahead_hides_nothing(house: DatabaseStand) -> None:
    run(house, "create table events (id text, changed timestamp with time zone)")
    run(house, "insert into events values ('a', '2026-05-03 17:00:00+00'), ('b', '2026-05-03 17:09:00+00')")
    words = {"table": "events", "incremental": {"by": "changed", "overlap": "5m"}}
    *_, cursor = read(house, "id", **words)
    run(house, "insert into events values ('late', '2026-05-03 17:04:30+00'), ('too late', '2026-05-03 17:03:30+00')")
    assert sorted(row.cells["id"] for row in read(house, "id", since=cursor, **words)[0]) == ["b", "late"]
    if house.file is None:
        run(house, "insert into events values ('2099', '2099-01-01 00:00:00+00')")
        *_, cursor = read(house, "id", **words)
        run(house, "insert into events values ('now', now() + interval '1 minute')")
        assert "now" in [row.cells["id"] for row in read(house, "id", since=cursor, **words)[0]]


def test_a_backfill_reads_what_changed_in_its_days(house: DatabaseStand) -> None:
    run(house, "create table events (id text, changed timestamp)")
    run(house, *(f"insert into events values ('{day}', '2026-05-{day:02} 00:00:00')" for day in (1, 2, 3, 4)))
    spec = spec_of(table="events", incremental={"by": "changed"})
    assert spec.changed_by == "changed"
    narrowed = spec.changed_between(datetime(2026, 5, 2, tzinfo=UTC), datetime(2026, 5, 4, tzinfo=UTC))
    rows, reading, cursor = read(house, "id", spec=narrowed)
    assert [row.cells["id"] for row in rows] == ["2", "3"]
    assert (reading.is_whole, cursor) == (True, "")
    numbered = {"table": "events", "incremental": {"by": "id"}}
    with pytest.raises((BadSourceError, SourceRefusedError)):
        read(house, spec=spec_of(**numbered).changed_between(datetime(2026, 5, 2, tzinfo=UTC), datetime(2026, 5, 4, tzinfo=UTC)))
    assert probe_source(spec, house.base, access=house.access).blind


@pytest.mark.slow
def test_a_process_killed_between_rows_of_one_stamp_loses_none(house: DatabaseStand, killing: Killer, tmp_path: Path) -> None:
    url = f"sqlite:///{lay_out(tmp_path / 'state.db')}"
    run(house, "create table events (ref text, text text, changed timestamp)")
    values = ", ".join(f"('{number}', 'Evening {number}', '2026-05-03 17:00:00')" for number in range(1_200))
    run(house, f"insert into events values {values}")
    spec = spec_of(table="events", incremental={"by": "changed", "overlap": "0s"})
    job, engine = SourceToRead(spec, tmp_path, house.access, url), open_database(url)
    job.stage(engine, "first", lambda _: None)
    run(house, f"insert into events values {values.replace(chr(40) + chr(39), chr(40) + chr(39) + 'tie-')}")
    killing.kill(job, tmp_path, {})
    job.stage(engine, "after", lambda _: None)
    rows = LedgerQueries(engine).every_row(FeedScope(DESTINATION, FeedName("agenda")), RowFilter())
    assert len({row.row_key for row in rows}) == 2_400
    engine.dispose()


GROWTH = """\
import resource, sys
from pathlib import Path
from pydantic import SecretStr
from connectors.sources.catalogue import open_source
from connectors.sources.contract import Access
from mappings.spec.source import SqlSource
from mappings.yaml.loader import parse_feed
def read(count):
    query = f"select g as id, repeat('x', 200) as text from generate_series(1, {count}) g"
    spec = SqlSource(kind="sql", connection="HOUSE", query=query)
    with open_source(spec, Path(), frozenset(), access=Access(secrets={"SQL_HOUSE": SecretStr(sys.argv[1])})).read() as reading:
        assert sum(1 for _ in reading.rows) == count
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(-read(3_000) + read(200_000))
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows_of_a_server(server: DatabaseStand) -> None:
    said = subprocess.run(
        [sys.executable, "-c", GROWTH, server.url], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True
    )
    assert float(said.stdout) < 10


PAGE = (ROOT / "docs" / "sources.md").read_text("utf-8").partition("## Databases\n")[2].partition("\n## ")[0]
SHOWN = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ON_THE_PAGE = (
    "create table events (id integer primary key, title text, starts_at timestamp, status text, venue_id integer)",
    "alter table events add column updated_at timestamp",
    "alter table events add column deleted_at timestamp",
    "create table venues (id integer primary key, city text)",
    "insert into venues values (7, 'Lisboa')",
    "insert into events values (1, 'Jazz', '2030-05-03T19:30:00', 'public', 7, '2026-05-03 10:00:00', null)",
    "insert into events values (2, 'Rehearsal', '2030-05-03T19:30:00', 'hidden', 7, '2026-05-03 10:00:00', null)",
)


@pytest.mark.parametrize("text", SHOWN[:2], ids=["table", "query"])
def test_the_feeds_on_the_page_do_what_they_say(text: str, house: DatabaseStand) -> None:
    run(house, *ON_THE_PAGE)
    mapping = parse_feed(text, house.base / "page.yaml")
    mapper = compile_feed(mapping, Directory(), datetime(2026, 5, 3, tzinfo=UTC))
    access = Access(secrets={"SQL_WAREHOUSE": SecretStr(house.url)})
    with open_source(mapping.source, house.base, mapper.columns, access=access).read() as reading:
        (event,) = mapper.over(reading.rows)
    assert isinstance(event, MappedRow), event
    assert b"2030-05-03T19:30:00+01:00" in event.body


def test_duckdb_reads_the_parquet_files_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = database("duckdb", tmp_path, None)
    (tmp_path / "events").mkdir()
    monkeypatch.chdir(tmp_path)
    run(house, "copy (select 1 as id, 2.50::decimal(4, 2) as price) to 'events/may.parquet'")
    spec = spec_of(query=yaml.safe_load(SHOWN[2])["source"]["query"])
    rows, _, _ = read(DatabaseStand(tmp_path, "duckdb:///:memory:", {}), "id", "price", spec=spec)
    assert [dict(row.cells) for row in rows] == [{"id": "1", "price": "2.50"}]
