"""A state DB of version 0.2 becomes one of ours, on both databases and from an export; an older one is named."""

from __future__ import annotations

import gzip
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from postgres import Postgres
from sqlalchemy import Boolean, Connection, DateTime, Engine, MetaData, inspect, text
from unit.state.world import Clock, World

from mappings.errors import ConfigError
from mappings.row_key import FeedName
from state.database import reading, writing
from state.enums import ProblemKind, Waiting
from state.errors import HeldByAnotherError, StateDamagedError
from state.export import Sum, import_from, line_of, sums_of
from state.ledger.standing import FeedScope
from state.migrations.upgrade import HEAD, differences, upgrade
from state.notes import NoticesSent
from state.opening import open_database
from state.queries import LedgerQueries, RowFilter
from state.tables import METADATA
from state.verify import examine

MIGRATIONS = Path(sys.modules["state.migrations.upgrade"].__file__ or "").parent
LEDGER = Path(__file__).parent / "exports" / "ledger_of_0_2.sql.gz"
REFERRED_TO = ("scope", "sync_run", "ledger_entry", "backfill")
OF_TWO_EVENTS = "SELECT scope_id FROM ledger_entry WHERE event_id IS NOT NULL GROUP BY scope_id HAVING count(*) > 1 LIMIT 1"
HINT = "open it once with version 0.2 (`eventsync status`), which upgrades it, then with this one"
BOOK = FeedScope("https://story-1.example#tests", FeedName("agenda"))


@contextmanager
def of_0_2(folder: Path) -> Iterator[sqlite3.Connection]:
    """The ledger that 0.2 wrote, to be changed in the block."""
    with of_0_2_as_it_is(folder) as connection:
        connection.executescript(gzip.decompress(LEDGER.read_bytes()).decode())
        yield connection


@contextmanager
def of_0_2_as_it_is(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / "of_0_2.db")) as connection:
        connection.row_factory = sqlite3.Row
        yield connection
        connection.commit()


def sums(engine: Engine) -> dict[str, Sum]:
    """Return what tells one content of the tables from another: the leases are taken anew by an upgrade."""
    with reading(engine) as connection:
        return sums_of(connection, id)


def rows_of(connection: sqlite3.Connection) -> dict[str, list[sqlite3.Row]]:
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
    every = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in names}  # its own
    return {name: rows for name, rows in every.items() if name != "alembic_version"}


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'of_0_2.db'}"


@pytest.fixture
def old_rows(tmp_path: Path) -> dict[str, list[sqlite3.Row]]:
    with of_0_2(tmp_path) as old:
        return rows_of(old)


@pytest.fixture
def upgraded(tmp_path: Path, old_rows: object) -> Iterator[Engine]:
    assert old_rows
    engine = open_database(url_of(tmp_path))
    yield engine
    engine.dispose()


def test_the_newest_migration_ends_in_the_tables_that_are_declared(engine: Engine) -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [HEAD]
    with reading(engine) as connection:
        assert differences(connection) == []
        declared = {index.name for table in METADATA.tables.values() for index in table.indexes}
        assert declared <= {index["name"] for table in METADATA.tables for index in inspect(connection).get_indexes(table)}


def test_an_upgraded_ledger_has_the_same_tables_and_is_sound(upgraded: Engine) -> None:
    with reading(upgraded) as connection:
        assert differences(connection) == []
        assert not {"ledger_entry", "earlier_event", "known_as", "shard_run"} & {*inspect(connection).get_table_names()}
        given = connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = 'entry'")).scalar_one()
        assert given >= connection.execute(text("SELECT max(id) FROM entry")).scalar_one()
    assert examine(upgraded).findings == ()


def _copied(connection: Connection, rows: dict[str, list[sqlite3.Row]]) -> None:
    """Fill PostgreSQL's tables of 0.2 with rows of SQLite's."""
    found = MetaData()
    found.reflect(connection)
    for table in found.sorted_tables:
        types = {column.name: column.type for column in table.columns}
        values = [{name: _typed(one[name], types[name]) for name in one.keys()} for one in rows.get(table.name, [])]  # noqa: SIM118 # a row's
        if values:
            connection.execute(table.insert(), values)
        if table.name in {"ledger_entry", "problem_row", "scope"}:
            highest = f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) FROM {table.name}"
            connection.execute(text(highest))


def _typed(value: Any, column: object) -> Any:
    if value is None:
        return None
    if isinstance(column, DateTime):
        return datetime.fromisoformat(value)
    return bool(value) if isinstance(column, Boolean) else value


def test_postgresql_gets_the_same_rows_in_place(
    old_rows: dict[str, list[sqlite3.Row]], upgraded: Engine, postgres: Postgres
) -> None:
    url = postgres.fresh_url()
    engine = open_database(url, upgrades=False)
    with writing(engine) as connection:
        upgrade(connection, "0006")
        _copied(connection, old_rows)
    open_database(url).dispose()
    with reading(engine) as connection:
        assert differences(connection) == []
    assert sums(engine) == sums(upgraded)
    assert examine(engine).findings == ()
    engine.dispose()


def test_an_export_of_0_2_is_imported(
    engine: Engine, old_rows: dict[str, list[sqlite3.Row]], upgraded: Engine, tmp_path: Path
) -> None:
    lines, total = [b'{"file":"eventsync state","version":1,"schema":"0006"}'], 0
    with closing(sqlite3.connect(":memory:")) as blank:
        blank.executescript(gzip.decompress(LEDGER.read_bytes()).decode())
        columns = {name: [each[1] for each in blank.execute(f"PRAGMA table_info({name})")] for name in old_rows}
    others = sorted(old_rows.keys() - {*REFERRED_TO, "duplicate_mark"})
    for name in (*REFERRED_TO, *others):
        found, written = Sum(), [line_of(tuple(one)) for one in old_rows[name]]
        for line in written:
            found.add(line)
        head = {"table": name, "mark": 268 * (name == "ledger_entry"), "columns": columns[name]}
        end = {"end": name, "rows": found.rows, "sum": str(found)}
        lines += [json.dumps(head).encode(), *written, json.dumps(end).encode()]
        total += found.rows
    lines.append(json.dumps({"end": "eventsync state", "rows": total}).encode())
    (tmp_path / "old.gz").write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    import_from(engine, tmp_path / "old.gz", id)
    assert sums(engine) == sums(upgraded)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE ledger_entry SET idempotency_key = 'es1-0' WHERE id = 1", r"the key of row a of agenda is es1-0, and should be"),
        (f"UPDATE ledger_entry SET event_id = 7 WHERE scope_id = ({OF_TWO_EVENTS})", r"several rows have the same event: 7 of "),
    ],
)
def test_a_ledger_that_cannot_be_taken_over_stays_as_it_is(tmp_path: Path, change: str, problem: str) -> None:
    with of_0_2(tmp_path) as old:
        old.executescript(change)
        before = rows_of(old)
    with pytest.raises((ConfigError, StateDamagedError), match=problem):
        open_database(url_of(tmp_path))
    with of_0_2_as_it_is(tmp_path) as after:
        assert rows_of(after) == before


def test_a_ledger_is_not_upgraded_while_a_run_works(tmp_path: Path) -> None:
    with of_0_2(tmp_path) as old:
        at = "strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'"
        times = f"heartbeat_at = {at}), expires_at = {at}, '+60 seconds')"
        old.execute(f"UPDATE lease SET holder = 'eventsync run', host = 'elsewhere', {times}")  # our own
        before = rows_of(old)
    with pytest.raises(HeldByAnotherError, match="not upgraded while a run works: agenda is held by eventsync run"):
        open_database(url_of(tmp_path))
    with of_0_2_as_it_is(tmp_path) as after:
        assert rows_of(after) == before
        after.execute("UPDATE lease SET expires_at = heartbeat_at")
    open_database(url_of(tmp_path)).dispose()


def test_an_earlier_event_becomes_a_warning_and_a_held_row_without_a_payload_is_forgotten(tmp_path: Path) -> None:
    with of_0_2(tmp_path) as old:
        old.execute(
            "INSERT INTO earlier_event SELECT id, 0, 'es1-0', body, fingerprint, row_digest, twin_digest, channel_id, 77, 1,"
            " NULL, '', updated_at, 1, NULL, NULL, 1 FROM ledger_entry WHERE id = 1"
        )
        old.execute("UPDATE ledger_entry SET state = 'held', body = x'', fingerprint = '', event_id = NULL WHERE id = 3")
    engine = open_database(url_of(tmp_path))
    queries = LedgerQueries(engine)
    (problem,) = queries.problems(BOOK, ProblemKind.WARNING)
    assert [reason.hint for reason in problem.reasons] == ["earlier event 77: remove it by hand"]
    assert [one.row_key for one in queries.rows(BOOK, RowFilter(waiting=Waiting.WARNING))] == ["a"]
    assert queries.rows(FeedScope("https://story-3.example#tests", BOOK.feed), RowFilter()) == ()
    assert examine(engine).findings == ()
    engine.dispose()


def test_a_notification_that_was_never_sent_is_forgotten(tmp_path: Path) -> None:
    with of_0_2(tmp_path) as old:
        at = "2026-03-01T12:00:00.000000+00:00"
        rows = [("here", "agenda", "ops", cause, "", at, told_at, 0, None) for cause, told_at in (("brake", at), ("away", None))]
        old.executemany("INSERT INTO notice_sent VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    engine = open_database(url_of(tmp_path))
    assert NoticesSent(engine, "here", Clock()).causes() == {(BOOK.feed, "ops"): {"brake"}}
    engine.dispose()


@pytest.fixture
def older(world: World) -> Iterator[Engine]:
    """A state DB whose tables are said to be of version 0.1."""
    with writing(world.engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0004'"))
    yield world.engine
    with writing(world.engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": HEAD})


def test_a_state_db_from_before_0_2_is_named_with_what_upgrades_it(older: Engine) -> None:
    with pytest.raises(ConfigError, match=rf"before 0\.2 \(schema 0004, ours is {HEAD}\)") as caught:
        open_database(older.url.render_as_string(hide_password=False))
    assert caught.value.hint == HINT
    (finding,) = examine(older).findings
    assert finding.problem == f"the schema is 0004, ours is {HEAD}: open it once with version 0.2"


def test_an_export_from_before_0_2_is_named_with_what_upgrades_it(world: World, tmp_path: Path) -> None:
    file = tmp_path / "old.gz"
    file.write_bytes(gzip.compress(json.dumps({"file": "eventsync state", "version": 1, "schema": "0002"}).encode() + b"\n"))
    with pytest.raises(
        ConfigError, match=rf"that export has the tables of a version before 0\.2 \(schema 0002, ours is {HEAD}\)"
    ):
        import_from(world.engine, file, id)
