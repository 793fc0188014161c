"""The state DB on a PostgreSQL server that turns us away, breaks off, fills up or is shared: one message, the right exit code,
nothing sent that is not on record, every row delivered once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from integration.desk import Desk, assert_delivered, lines, mid_way
from integration.service import Service
from integration.waiting import until
from ledger_tables import ENTRIES, a_stage_that_begins
from postgres import Postgres
from sqlalchemy import make_url
from unit.state.world import World, row

from state.ledger.gate import GateClosedError

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

    def with_url(self, **parts: object) -> str:
        return make_url(self.url).set(**parts).render_as_string(hide_password=False)  # type: ignore[arg-type]

    def ours(self) -> list[int]:
        found = self.do(f"SELECT pid FROM pg_stat_activity WHERE application_name = 'eventsync' AND datname = '{self.name}'")
        return [int(str(pid)) for (pid,) in found]


@pytest.fixture
def desk(desk_on_postgres: Desk) -> Desk:
    return desk_on_postgres


@pytest.fixture
def server(desk: Desk) -> Server:
    return Server(desk.books.url)


def test_a_server_that_crashes_and_recovers_in_mid_run_costs_nothing(desk: Desk, service: Service, server: Server) -> None:
    server.do("CHECKPOINT")  # what other tests have written need not be recovered while the run waits
    run = mid_way(desk, service, ROWS)
    os.kill(server.ours()[0], signal.SIGKILL)  # the server then ends all its processes, and recovers
    run.ended(0)
    assert_delivered(desk, service, ROWS)
    assert len(service.bodies()) == ROWS


def _with_query(**words: str) -> Callable[[Server], str]:
    return lambda server: make_url(server.url).update_query_dict(words).render_as_string(hide_password=False)


def _with(*statements: str, **parts: object) -> Callable[[Server], str]:
    """The address with other parts, once an administrator has executed these statements."""

    def address(server: Server) -> str:
        server.do(*(statement.format(server.name) for statement in statements))
        return server.with_url(**parts)

    return address


def _wrong_password(server: Server) -> str:
    server.do("DROP ROLE IF EXISTS knocking", "CREATE ROLE knocking LOGIN PASSWORD 'right'")
    rules = Path(str(make_url(server.url).query["host"])) / "pg_hba.conf"
    if "knocking" not in rules.read_text("ascii"):
        rules.write_text("local all knocking scram-sha-256\n" + rules.read_text("ascii"), "ascii")
    server.do("SELECT pg_reload_conf()")
    return server.with_url(username="knocking", password=PASSWORD)


_READ_ONLY = "ALTER DATABASE {} SET default_transaction_read_only = on"
_NO_ROOM = ("DROP ROLE IF EXISTS one_more", "CREATE ROLE one_more LOGIN CONNECTION LIMIT 0")


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        (_with_query(host="/nowhere"), 6, ("cannot be reached", "check EVENTSYNC_STATE_URL")),
        (_with(database="nobody_made_it"), 2, ("cannot be connected to", "createdb")),
        (_with("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN", username="guest"), 2, ("does not let our role", "GRANT")),
        (_with(username="nobody"), 2, ("cannot be connected to", "correct user, password")),
        (_wrong_password, 2, ("cannot be connected to", "correct user, password")),
        (_with(_READ_ONLY), 2, ("is read-only",)),
        (_with(*_NO_ROOM, username="one_more"), 6, ("no room for another connection", "run again later")),
        (_with_query(sslmood="require"), 2, ("cannot be connected to", "sslmood")),
    ],
    ids=["nobody there", "no database", "no rights", "no role", "wrong password", "read-only", "too many", "bad option"],
)
def test_a_server_that_turns_us_away_is_told_with_what_helps(
    desk: Desk, service: Service, server: Server, address: Callable[[Server], str], code: int, words: tuple[str, ...]
) -> None:
    said = desk.run_with(lines(3), EVENTSYNC_STATE_URL=address(server))
    said.assert_told(code, "the state DB postgresql+psycopg://", *words)
    assert PASSWORD not in said.words
    assert service.requests() == []


def test_a_lock_that_somebody_keeps_is_worth_coming_back_for(desk: Desk, service: Service, server: Server) -> None:
    desk.run_with(lines(ROWS), "--stage-only", code=0)
    patient = _with_query(options="-c lock_timeout=300ms")(server)
    with psycopg.connect(server.url.replace("+psycopg", "")) as other:
        other.execute(f"LOCK TABLE {ENTRIES} IN EXCLUSIVE MODE")
        said = desk.run(EVENTSYNC_STATE_URL=patient)
        said.assert_told(6, "held by another process", "lock timeout")
        assert service.requests() == []
    desk.run(code=0)
    assert_delivered(desk, service, ROWS)


@pytest.mark.parametrize("spelt", ["postgres", "postgresql"])
def test_addresses_as_other_tools_spell_them_are_taken(desk: Desk, server: Server, spelt: str) -> None:
    desk.run_with(lines(3), EVENTSYNC_STATE_URL=server.url.replace("postgresql+psycopg", spelt), code=0)


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
    with a_stage_that_begins(world.engine):
        person.start()
        until(lambda: _waits(world), what="the person to wait for the stage")
    person.join()
    assert refused
    assert not world.ledger.gate().is_open
    world.engine.dispose()


def _waits(world: World) -> bool:
    rows = Server(world.url).do("SELECT 1 FROM pg_locks WHERE NOT granted")
    return bool(rows)
