"""A state DB of an earlier version becomes one of ours: nothing that was sent or decided is lost, nothing is sent again."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from postgres import Postgres
from sqlalchemy import Connection, Engine, LargeBinary, MetaData, Table, inspect, select, text, update
from sqlalchemy.exc import IntegrityError
from unit.state.books import resolve
from unit.state.world import KINDS, Clock, World, body_of, rejection

from connectors.sources.contract import REAL_CLOCK
from mappings.errors import ConfigError
from mappings.outcome import MappedRow, RowLocation, Skipped
from mappings.row_key import FeedName, RowKey, duplicate_digest, fingerprint, row_digest
from state.database import reading, writing
from state.errors import HeldByAnotherError, LeaseLostError, StateUnavailableError
from state.export import TABLES, import_from
from state.ledger.choices import Instruction, Option
from state.ledger.lease import Lease, own_clock, this_process
from state.ledger.ledger import Ledger
from state.migrations.upgrade import HEAD, PACKED, differences, unpacked, upgrade
from state.opening import open_database
from state.tables import DUPLICATE_MARK, EARLIER, ENTRY, LEASE, MEDIA, METADATA, PROBLEM, SCOPE
from state.verify import examine

EXPORT = Path(__file__).parent / "exports" / "state-0002.gz"
"""Written by version 0.1, of a ledger in which something of everything had happened."""
TOWN = "https://events.example#town"
KEPT = {
    **dict.fromkeys(("same", "edited", "to-publish", "cancelled", "drift-ignored", "redrafted", "żółć Ω"), "delivered"),
    **dict.fromkeys(("vanished", "vanished-ignored", "past", "reconciled", "original"), "delivered"),
    **dict.fromkeys(("refused", "refused-ignored"), "refused"),
    **dict.fromkeys(("uncertain", "unanswered"), "uncertain"),
    **dict.fromkeys(("unanswered-of-late", "fresh", "fresh-2"), "pending"),
    "conflict": "conflict",
    "blocked": "blocked",
    "unconfirmed": "delivered_unconfirmed",
}


def fill(connection: Connection) -> None:
    for line in map(json.loads, gzip.decompress(EXPORT.read_bytes()).splitlines()[1:]):
        if isinstance(line, dict) and "table" in line:
            table = Table(line["table"], MetaData(), autoload_with=connection, resolve_fks=False)
            columns = [(name, isinstance(table.c[name].type, LargeBinary)) for name in line["columns"]]
        elif isinstance(line, list):
            cells = zip(columns, line, strict=True)
            values = {name: base64.b64decode(cell) if is_coded and cell is not None else cell for (name, is_coded), cell in cells}
            connection.execute(table.insert(), values)
        elif connection.dialect.name == "postgresql" and "id" in table.c and table.c.id.autoincrement is True:
            highest = f"(SELECT max(id) FROM {table.name})"
            connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), {highest})"))


@pytest.fixture
def revision() -> str:
    return "0002"


@pytest.fixture(params=KINDS)
def fresh_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state.db'}"
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.fresh_url()


@contextmanager
def not_upgraded(state_url: str) -> Iterator[Connection]:
    """A transaction in a state DB whose schema stays as it is."""
    engine = open_database(state_url, upgrades=False)
    with writing(engine) as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def state_url(fresh_url: str, revision: str) -> str:
    """A state DB of an earlier version."""
    with not_upgraded(fresh_url) as connection:
        upgrade(connection, "0002")
        fill(connection)
        upgrade(connection, revision)
    return fresh_url


ON_SQLITE = pytest.mark.parametrize("fresh_url", ["sqlite"], indirect=True)
EVERY_REVISION = pytest.mark.parametrize("revision", ["0002", "0003"])


def entries_of(engine: Engine) -> dict[str, Any]:
    with reading(engine) as connection:
        found = select(ENTRY).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
        rows = connection.execute(found.where(SCOPE.c.destination == TOWN, SCOPE.c.feed == "agenda")).all()
    return {row.row_key: row for row in rows}


@EVERY_REVISION
def test_every_earlier_schema_becomes_the_present_one_and_is_sound(engine: Engine) -> None:
    with reading(engine) as connection:
        assert differences(connection) == []
        declared = {index.name for table in METADATA.tables.values() for index in table.indexes}
        found = {index["name"] for table in METADATA.tables for index in inspect(connection).get_indexes(table)}
        assert declared <= found
        assert not {"row_release", "twin_mark", "entry_anew", "earlier_before"} & {*inspect(connection).get_table_names()}
    assert examine(engine).findings == ()
    with writing(engine) as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == "fresh").values(state="superseded"))
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == "fresh").values(state="sideways"))


@EVERY_REVISION
def test_an_upgrade_keeps_every_entry_with_its_state_key_and_event_and_what_people_decided(engine: Engine) -> None:
    entries = entries_of(engine)
    assert {key: entries[key].state for key in KEPT} == KEPT
    assert (entries["reconciled"].event_id, entries["original"].event_id) == (4711, 1019)
    assert {key: entries[key].drift_kind for key in ("edited", "cancelled")} == {"edited": "edited", "cancelled": "cancelled"}
    ends = [entries[key].ends_at for key in ("edited", "past")]
    assert ends == [datetime(2026, 4, 1, 18, 0, tzinfo=UTC), datetime(2026, 3, 1, 18, 0, tzinfo=UTC)]
    assert entries["vanished"].vanished_at is not None
    with reading(engine) as connection:
        scopes = {(row.destination, row.service, row.namespace, row.feed) for row in connection.execute(select(SCOPE))}
        marks = connection.execute(select(DUPLICATE_MARK.c.entry_id)).scalars().all()
        listed = {row.kind: row.row_key for row in connection.execute(select(PROBLEM).where(PROBLEM.c.listed_run != ""))}
        earlier_ends = connection.execute(select(EARLIER.c.ends_at)).scalars().all()
        images = connection.execute(select(MEDIA.c.destination, MEDIA.c.media_id)).all()
    service = "https://events.example"
    assert scopes == {
        (TOWN, service, "town", "agenda"),
        (f"{TOWN} (was at {service})", service, "town", "agenda"),
        (TOWN, service, "town", "museum"),
        ("http://127.0.0.1:8080#rehearsal", "http://127.0.0.1:8080", "rehearsal", "agenda"),
    }
    assert {*marks} == {row.id for row in entries.values() if row.state != "held"} | {row for row in marks if row > 22}
    assert listed["warning"] == "same"
    assert {*images} == {(TOWN, 5), (TOWN, 6)}
    assert earlier_ends == [datetime(2026, 4, 1, 18, 0, tzinfo=UTC)]
    held = {key: (row.decision, row.decided_by) for key, row in entries.items() if row.state == "held"}
    assert held == {"held": (None, None), "held-ignored": ("ignore", "ann@desk"), "held-released": ("release", "ann@desk")}
    assert {entries[key].candidate_id for key in held} == {entries["original"].id}
    for key in ("drift-ignored", "vanished-ignored", "refused-ignored"):
        assert entries[key].ignored_fingerprint == (entries[key].drift_fingerprint or entries[key].fingerprint)


def test_an_upgrade_counts_the_events_that_may_exist_never_too_few(state_url: str) -> None:
    with not_upgraded(state_url) as connection:
        connection.execute(text("UPDATE ledger_entry SET resent_run = 'run-1', attempts = 4 WHERE row_key = 'edited'"))
        connection.execute(text("UPDATE ledger_entry SET resent_run = 'run-1' WHERE row_key = 'past'"))
    engine = open_database(state_url)
    copies = {key: entry.copies for key, entry in entries_of(engine).items()}
    engine.dispose()
    expected = {"edited": 4, "past": 2, "uncertain": 1, "unanswered-of-late": 1, "vanished": 1, "refused": 0, "fresh-2": 0}
    assert {key: copies[key] for key in expected} == expected


def resumed(engine: Engine) -> World:
    """The world of the export's feed, a day later."""
    world = World.__new__(World)
    world.place, world.clock, world.feed, world.runs, world.engine = "", Clock(), FeedName("agenda"), 100, engine
    world.clock.turn(days=2)
    world.ledger = Ledger(engine, TOWN, world.feed, namespace="town", now=world.clock, lease_clock=world.clock.lease_clock)
    world.lease = world.ledger.acquire_lease("test")
    return world


def as_read(engine: Engine) -> list[Any]:
    """The source of the export's feed as it was when the export was written."""
    outcomes: list[Any] = [rejection("broken")]
    for key, entry in entries_of(engine).items():
        if key == "cancelled":
            outcomes.append(Skipped(RowLocation("agenda.csv:c"), "off", RowKey(key), is_cancelled=True))
        elif not key.startswith("vanished") and key != "past":
            body = entry.drift_body or entry.body or body_of(f"copy {key}")
            twin = entry.twin_digest or duplicate_digest(7, "twin x", "2026-04-01T20:00:00+02:00", "Lisboa The old mill x")
            digest = entry.row_digest or row_digest(b"m", (key,))
            row = MappedRow(RowLocation(entry.origin), RowKey(key), body, fingerprint(body), digest, twin, 7, {"REF": key})
            outcomes.append(row)
    return outcomes


def test_a_run_after_the_upgrade_sends_nothing_that_is_delivered(engine: Engine) -> None:
    world, rows = resumed(engine), as_read(engine)
    before = entries_of(engine)
    report = world.stage(rows)
    assert report.account.new == 1, "the held row that a person had released"
    sent: list[str] = []
    outbox = world.outbox()
    while intents := outbox.settle_and_claim([], 1):
        sent += [intent.row_key for intent in intents]
    assert {*sent} == {"fresh", "fresh-2", "held-released", "blocked", "unanswered-of-late"}
    after = entries_of(engine)
    assert {key: (row.id, row.idempotency_key, row.event_id) for key, row in after.items()} == {
        key: (row.id, row.idempotency_key, row.event_id) for key, row in before.items()
    }
    assert after["held"].body
    assert (after["held"].state, after["held-ignored"].state, after["held-ignored"].decision) == ("held", "held", "ignore")
    assert {key for key, row in after.items() if row.decision == "ignore"} == {
        *("drift-ignored", "vanished-ignored", "refused-ignored", "held-ignored")
    }


def bodies_of(connection: Connection, *, is_packed: bool) -> dict[tuple[str, int], bytes]:
    """Every body of entries and earlier events as it was sent, by key and revision, whatever the schema."""
    base = "body_base" if is_packed else "NULL"
    entries = f"SELECT row_key, -1 AS revision, body, {base} AS base FROM ledger_entry JOIN scope ON scope.id = scope_id"
    earlier = (
        f"SELECT row_key, earlier_event.revision, earlier_event.body, {base} AS base FROM earlier_event"
        " JOIN ledger_entry ON ledger_entry.id = entry_id JOIN scope ON scope.id = scope_id"
    )
    rows = connection.execute(text(f"{entries} UNION ALL {earlier}")).all()
    packed = [row for row in rows if row.body[:1] == PACKED]
    assert 0 < len(packed) < len(rows) if is_packed else not packed
    return {(row.row_key, row.revision): unpacked(row.body, row.base) for row in rows}


@EVERY_REVISION
def test_a_drain_that_an_upgrade_interrupts_goes_on_with_the_same_keys_and_bytes(state_url: str) -> None:
    with not_upgraded(state_url) as connection:
        bodies = bodies_of(connection, is_packed=True)
    engine = open_database(state_url)
    with reading(engine) as connection:
        after = bodies_of(connection, is_packed=False)
    assert {which: after[which] for which in bodies} == bodies
    assert examine(engine).findings == ()
    world = resumed(engine)
    pending = {key: (row.idempotency_key, row.body) for key, row in entries_of(engine).items() if row.state == "pending"}
    world.ledger.open_gate("ann@desk")
    sent: dict[str, tuple[str, bytes]] = {}
    outbox = world.outbox()
    while intents := outbox.settle_and_claim([], 2):
        sent |= {intent.row_key: (intent.key, intent.body) for intent in intents}
    assert {"fresh", "fresh-2", "unanswered-of-late"} <= pending.keys() <= sent.keys()
    assert {key: sent[key] for key in pending} == pending
    engine.dispose()


def test_a_packed_body_is_unpacked_by_the_dictionary_of_its_feed_alone() -> None:
    base, body = body_of("An evening of songs"), body_of("An evening of tales")
    packing = zlib.compressobj(1, zlib.DEFLATED, 13, 5, zlib.Z_DEFAULT_STRATEGY, base)
    kept = PACKED + packing.compress(body) + packing.flush()
    assert unpacked(kept, base) == body
    for wrong, dictionary in ((kept, None), (kept, base + b" "), (kept[:9], base)):
        with pytest.raises(StateUnavailableError, match="cannot be unpacked"):
            unpacked(wrong, dictionary)


@ON_SQLITE
def test_decisions_of_an_earlier_version_can_be_taken_back_and_its_held_rows_decided_on(engine: Engine) -> None:
    world, rows = resumed(engine), as_read(engine)
    for key, option in (("drift-ignored", Option.UNDO), ("held-ignored", Option.UNDO), ("held", Option.RELEASE)):
        resolve(world, key, Instruction(option))
    world.stage(rows)
    after = entries_of(engine)
    assert after["drift-ignored"].decision is None
    assert (after["held-ignored"].state, after["held-ignored"].decision) == ("held", None)
    assert (after["held"].state, bool(after["held"].body)) == ("pending", True)
    assert examine(engine).findings == ()


def test_an_id_that_was_given_before_the_upgrade_is_never_given_again(state_url: str) -> None:
    with not_upgraded(state_url) as connection:
        newest = connection.execute(text("SELECT max(id) FROM ledger_entry")).scalar_one()
        connection.execute(text("DELETE FROM ledger_entry WHERE id = :newest"), {"newest": newest})
    engine = open_database(state_url)
    assert min(row.id for row in entries_of(engine).values() if row.state == "held") == newest + 1
    engine.dispose()


def test_an_export_of_an_earlier_version_fills_either_kind(fresh_url: str) -> None:
    engine = open_database(fresh_url)
    counted: list[int] = []
    done = import_from(engine, EXPORT, counted.append)
    assert done["ledger_entry"] == 28 + 3
    assert [*done] == [table.name for table in TABLES]
    assert examine(engine).findings == ()
    entries = entries_of(engine)
    assert {key: entries[key].state for key in KEPT} == KEPT
    engine.dispose()


def command(state_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pipelines.cli", *arguments]
    return subprocess.run(words, env={"EVENTSYNC_STATE_URL": state_url}, capture_output=True, text=True, check=False)


def hold(state_url: str, *, silent_s: float) -> None:
    """Let a run of this process hold the feed, that has been silent for so long."""
    me, seen = this_process("eventsync run"), datetime.fromtimestamp(REAL_CLOCK.now() - silent_s, UTC)
    held = {"holder": me.name, "host": me.host, "pid": me.pid, "process_started": me.started, "boot": me.boot}
    held |= {"acquired_at": seen, "heartbeat_at": seen, "expires_at": seen + timedelta(seconds=60)}
    with not_upgraded(state_url) as connection:
        names = {column["name"] for column in inspect(connection).get_columns("lease")}
        taken = {name: value for name, value in held.items() if name in names}
        connection.execute(update(LEASE).where(LEASE.c.scope_id == 1).values(**taken))


@EVERY_REVISION
def test_a_state_db_is_not_upgraded_while_a_run_of_before_is_at_work_and_not_silent(state_url: str, revision: str) -> None:
    hold(state_url, silent_s=0)
    because = rf"schema {revision}.*agenda is held by eventsync run \(process {os.getpid()} on "
    with pytest.raises(HeldByAnotherError, match=because) as held:
        open_database(state_url)
    assert "wait for that run to end" in held.value.hint
    asked = command(state_url, "status")
    assert (asked.returncode, f"process {os.getpid()}" in asked.stderr) == (4, True), asked.stderr
    with not_upgraded(state_url) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == revision
        assert inspect(connection).has_table("side_by_side") == (revision == "0003")
    hold(state_url, silent_s=3_600)
    with not_upgraded(state_url) as connection:
        token = connection.execute(text("SELECT token FROM lease WHERE scope_id = 1")).scalar_one()
    engine = open_database(state_url)
    with pytest.raises(LeaseLostError):  # what a suspended run meets when it goes on
        Lease(
            engine, scope_id=1, token=token, clock=own_clock(engine, lambda: datetime.fromtimestamp(REAL_CLOCK.now(), UTC))
        ).renew()
    engine.dispose()


def test_a_state_db_from_before_0_1_is_named_with_what_upgrades_it(state_url: str) -> None:
    with not_upgraded(state_url) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    with pytest.raises(ConfigError, match=r"before 0\.1 \(schema 0001") as caught:
        open_database(state_url)
    assert "open it once with version 0.1" in caught.value.hint
    engine = open_database(state_url, upgrades=False)
    assert "open it once with version 0.1" in examine(engine).findings[0].problem
    engine.dispose()


@ON_SQLITE
def test_an_earlier_state_db_that_cannot_be_written_is_named_with_what_upgrades_it(state_url: str) -> None:
    read_only = f"sqlite:///file:{state_url.removeprefix('sqlite:///')}?mode=ro&uri=true"
    with pytest.raises(StateUnavailableError, match=r"schema 0002, ours is .* cannot be upgraded: .*read-only") as caught:
        open_database(read_only)
    assert "`eventsync status`" in caught.value.hint
    engine = open_database(read_only, upgrades=False)
    expected = f"the schema is 0002, ours is {HEAD}: `eventsync status` or the next run upgrades it"
    assert [finding.problem for finding in examine(engine).findings] == [expected]
    engine.dispose()


@ON_SQLITE
def test_stderr_names_once_what_stays_ignored(state_url: str) -> None:
    asked = [command(state_url, "runs", "--json") for _ in range(2)]
    for key in ("drift-ignored", "vanished-ignored", "refused-ignored", "held-ignored"):
        assert key in asked[0].stderr
    assert "stay ignored" not in asked[1].stderr
    assert json.loads(asked[0].stdout) == json.loads(asked[1].stdout)


@ON_SQLITE
def test_memory_does_not_grow_with_the_entries_that_are_upgraded(state_url: str) -> None:
    with not_upgraded(state_url) as connection:
        table = Table("ledger_entry", MetaData(), autoload_with=connection, resolve_fks=False)
        entry = connection.execute(select(table).where(table.c.row_key == "conflict")).one()._asdict()
        entry["body"] = json.dumps({"startAt": "2026-04-01T20:00:00+02:00", "text": "x" * 3_000}).encode()
        keys = ({"id": number, "row_key": f"many {number}", "twin_digest": b"%d" % number} for number in range(1_000, 9_000))
        connection.execute(table.insert(), [entry | key for key in keys])
    tracemalloc.start()
    open_database(state_url).dispose()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000_000, "a page of entries, not all 24 MB of them"
