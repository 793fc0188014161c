"""The state DB on a PostgreSQL server that turns us away, breaks off, fills up or is shared: one message, the right exit code,
nothing sent that is not on record, every row delivered once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from integration.desk import Command, Desk, Said, lines
from integration.service import Service
from integration.waiting import until
from postgres import Postgres
from property.test_ledger_machine import LedgerMachine
from sqlalchemy import func, make_url, select, update
from unit.state.world import DESTINATION, FEED, Clock, World, row

from state.database import writing
from state.errors import HeldByAnotherError
from state.ledger.gate import GateClosedError
from state.ledger.ledger import Ledger
from state.opening import open_database
from state.tables import ENTRY, LEASE, METADATA, SCOPE

pytestmark = pytest.mark.slow
ROWS = 150
PASSWORD = "s3cret-0f-the-b00ks"


@dataclass
class Server:
    """The database of a desk, as its administrator sees it."""

    url: str

    def do(self, *statements: str) -> list[tuple[object, ...]]:
        """Execute statements as a superuser; return the last one's rows."""
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def name(self) -> str:
        return str(make_url(self.url).database)

    @property
    def data(self) -> Path:
        return Path(str(make_url(self.url).query["host"]))

    def with_url(self, **parts: object) -> str:
        return make_url(self.url).set(**parts).render_as_string(hide_password=False)  # type: ignore[arg-type]

    def ours(self) -> list[int]:
        """The server's processes that work for us."""
        found = self.do(f"SELECT pid FROM pg_stat_activity WHERE application_name = 'eventsync' AND datname = '{self.name}'")
        return [int(str(pid)) for (pid,) in found]


@pytest.fixture
def desk(desk_on_postgres: Desk) -> Desk:
    return desk_on_postgres


@pytest.fixture
def server(desk: Desk) -> Server:
    return Server(desk.books.url)


def _assert_told(said: Said, code: int, *words: str) -> None:
    assert said.code == code, said.words
    assert "Traceback" not in said.words
    missing = [word for word in words if word not in said.words]
    assert missing == [], said.words


def _assert_all_on_record(desk: Desk, service: Service) -> None:
    with desk.books.engine.connect() as connection:
        attempts = connection.execute(select(func.coalesce(func.sum(ENTRY.c.attempts), 0))).scalar_one()
    assert len(service.requests()) <= attempts


def _assert_delivered(desk: Desk, service: Service) -> None:
    assert service.titles() == sorted(f"Evening {number}" for number in range(ROWS))
    assert set(desk.states().values()) == {"delivered"}
    assert desk.command("state", "verify").code == 0


def _mid_way(desk: Desk, service: Service) -> Command:
    desk.source(lines(ROWS))
    service.switch(latency_ms=150)
    run = desk.start_run()
    until(lambda: run.has_ended or len(service.requests()) > 40)
    assert not run.has_ended
    return run


def test_connections_that_are_ended_in_mid_run_cost_nothing(desk: Desk, service: Service, server: Server) -> None:
    run = _mid_way(desk, service)
    for requests in (45, 80, 110):
        until(lambda requests=requests: run.has_ended or len(service.requests()) > requests)
        server.do(*(f"SELECT pg_terminate_backend({pid})" for pid in server.ours()))
    said = run.ended()

    assert said.code == 0, said.words
    assert Counter(one["outcome"] for one in service.requests()) == {"created": ROWS}
    _assert_delivered(desk, service)


def test_a_server_that_crashes_and_recovers_in_mid_run_costs_nothing(desk: Desk, service: Service, server: Server) -> None:
    server.do("CHECKPOINT")  # what other tests have written need not be recovered while the run waits
    run = _mid_way(desk, service)
    os.kill(server.ours()[0], signal.SIGKILL)  # the server then ends all its processes, and recovers
    said = run.ended()

    assert said.code == 0, said.words
    _assert_delivered(desk, service)
    assert set(Counter(event["idempotencyKey"] for event in service.events()).values()) == {1}


def _nobody_there(server: Server) -> str:
    return make_url(server.url).update_query_dict({"host": "/nowhere"}).render_as_string()


def _no_such_database(server: Server) -> str:
    return server.with_url(database="nobody_made_it")


def _no_rights(server: Server) -> str:
    server.do("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    return server.with_url(username="guest")


def _no_such_role(server: Server) -> str:
    return server.with_url(username="nobody")


def _read_only(server: Server) -> str:
    server.do(f"ALTER DATABASE {server.name} SET default_transaction_read_only = on")
    return server.url


def _too_many(server: Server) -> str:
    server.do("DROP ROLE IF EXISTS one_more", "CREATE ROLE one_more LOGIN CONNECTION LIMIT 0")
    return server.with_url(username="one_more")


def _wrong_password(server: Server) -> str:
    server.do("DROP ROLE IF EXISTS knocking", "CREATE ROLE knocking LOGIN PASSWORD 'right'")
    rules = server.data / "pg_hba.conf"
    if "knocking" not in rules.read_text("ascii"):
        rules.write_text("local all knocking scram-sha-256\n" + rules.read_text("ascii"), "ascii")
    server.do("SELECT pg_reload_conf()")
    return server.with_url(username="knocking", password=PASSWORD)


def _bad_option(server: Server) -> str:
    return make_url(server.url).update_query_dict({"sslmood": "require"}).render_as_string()


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        (_nobody_there, 6, ("cannot be reached", "check EVENTSYNC_STATE_URL")),
        (_no_such_database, 2, ("does not exist on its server", "createdb")),
        (_no_rights, 2, ("does not let our role", "GRANT")),
        (_no_such_role, 2, ("does not let us in", "user and password")),
        (_wrong_password, 2, ("does not let us in", "user and password")),
        (_read_only, 2, ("is read-only",)),
        (_too_many, 6, ("no room for another connection", "run again later")),
        (_bad_option, 2, ("cannot be connected to", "sslmood")),
    ],
)
def test_a_server_that_turns_us_away_is_told_with_what_helps(
    desk: Desk, service: Service, server: Server, address: Callable[[Server], str], code: int, words: tuple[str, ...]
) -> None:
    desk.source(lines(3))
    said = desk.run(EVENTSYNC_STATE_URL=address(server))
    _assert_told(said, code, "the state DB postgresql+psycopg://", *words)
    assert PASSWORD not in said.words
    assert service.requests() == []


def test_a_lock_that_somebody_keeps_is_worth_coming_back_for(desk: Desk, service: Service, server: Server) -> None:
    desk.source(lines(ROWS))
    assert desk.run("--stage-only").code == 0
    patient = make_url(server.url).update_query_dict({"options": "-c lock_timeout=300ms"})
    with psycopg.connect(server.url.replace("+psycopg", "")) as other:
        other.execute("LOCK TABLE ledger_entry IN EXCLUSIVE MODE")
        said = desk.run(EVENTSYNC_STATE_URL=patient.render_as_string(hide_password=False))
        _assert_told(said, 6, "held by another process", "lock timeout")
        assert service.requests() == []
    assert desk.run().code == 0
    _assert_delivered(desk, service)


@pytest.mark.parametrize("spelt", ["postgres", "postgresql"])
def test_addresses_as_other_tools_spell_them_are_taken(desk: Desk, server: Server, spelt: str) -> None:
    desk.source(lines(3))
    said = desk.run(EVENTSYNC_STATE_URL=server.url.replace("postgresql+psycopg", spelt))
    assert said.code == 0, said.words


FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT count(*) FROM ledger_entry WHERE state = 'delivered') > 50 THEN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
  END IF;
  RETURN NEW;
END $$"""


def test_a_servers_full_disk_ends_the_run_and_the_next_one_goes_on(desk: Desk, service: Service, server: Server) -> None:
    desk.source(lines(ROWS))
    assert desk.run("--stage-only").code == 0
    server.do(FULL, "CREATE TRIGGER full_disk BEFORE UPDATE ON ledger_entry FOR EACH ROW EXECUTE FUNCTION full_disk()")
    _assert_told(desk.run(), 2, "no room is left", "make room on its disk")
    _assert_all_on_record(desk, service)
    assert len(service.requests()) < ROWS

    server.do("DROP TRIGGER full_disk ON ledger_entry")
    assert desk.run().code == 0
    _assert_delivered(desk, service)


def test_runs_that_come_to_an_empty_database_at_once_make_one_ledger(desk: Desk, service: Service) -> None:
    desk.source(lines(ROWS))
    runs = [desk.start_run("--wait") for _ in range(3)]
    said = [run.ended() for run in runs]
    assert [one.code for one in said] == [0, 0, 0], [one.words for one in said]
    assert Counter(one["outcome"] for one in service.requests()) == {"created": ROWS}
    _assert_delivered(desk, service)


def test_of_many_that_take_a_new_feed_at_once_one_has_it(postgres: Postgres) -> None:
    engine = open_database(postgres.fresh_url())
    clock = Clock()
    start, ended = threading.Barrier(6), []

    def take() -> None:
        ledger = Ledger(engine, DESTINATION, FEED, namespace="tests", now=clock)
        start.wait()
        try:
            ended.append(ledger.acquire_lease("one of many").token)
        except HeldByAnotherError:
            ended.append(0)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == [0, 0, 0, 0, 0, 1]
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(LEASE)).scalar_one() == 1
        assert connection.execute(select(func.count()).select_from(SCOPE)).scalar_one() == 1
    engine.dispose()


def test_a_gate_is_not_opened_behind_a_stage_that_begins_in_the_same_moment(postgres: Postgres) -> None:
    world = World(postgres.fresh_url())
    world.stage([row("a")], brakes=["rejected"])
    refused: list[str] = []

    def accept() -> None:
        try:
            world.ledger.open_gate("ana")
        except GateClosedError as closed:
            refused.append(str(closed))

    person = threading.Thread(target=accept)
    with writing(world.engine) as stage:
        stage.execute(select(SCOPE.c.gate).with_for_update())
        person.start()
        until(lambda: _waits(world), what="the person to wait for the stage")
        stage.execute(update(SCOPE).values(gate="staging", gate_reason=""))
    person.join()
    assert refused
    assert not world.ledger.gate().is_open
    world.engine.dispose()


def _waits(world: World) -> bool:
    rows = Server(world.url).do("SELECT 1 FROM pg_locks WHERE NOT granted")
    return bool(rows)


def test_the_ledger_keeps_its_word_on_postgresql_whatever_happens(postgres: Postgres) -> None:
    url = postgres.fresh_url()
    open_database(url).dispose()
    tables = ", ".join(METADATA.tables)

    class OnPostgres(LedgerMachine):
        def a_world(self) -> World:
            Server(url).do(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")
            return World(url)

    run_state_machine_as_test(
        OnPostgres,
        settings=settings(max_examples=5, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)),
    )
