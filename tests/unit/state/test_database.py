"""The state DB itself: opening it, its transactions, texts that no database takes, each trouble, and what makes it unsound."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from threading import Timer

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_tables import (
    call_schema,
    contradict,
    damage_body,
    damage_run,
    forget_marks,
    give_event,
    try_nonsense,
    without_a_table,
)
from postgres import Postgres
from privileges import bound_by_permissions
from sqlalchemy import Connection, Engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from unit.state.world import DESTINATION, FEED, World, answer, receipt, rejection, row, skipped

from mappings.delivery import Answer, Conflict, Cover, Refusal, Uncertain
from mappings.errors import ConfigError
from mappings.row_key import FeedName
from state.database import reading, writing
from state.enums import ProblemKind
from state.errors import Failure, StateBusyError, StateUnavailableError
from state.ledger.ledger import Ledger
from state.ledger.outbox import Settled
from state.ledger.stage import open_stage
from state.ledger.standing import FeedScope
from state.opening import open_database
from state.queries import LedgerQueries
from state.tables import storable
from state.verify import Examination, Finding, examine


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def test_a_connection_that_the_server_closed_while_it_was_idle_is_replaced(postgres: Postgres) -> None:
    engine, backend = open_database(postgres.fresh_url()), text("SELECT pg_backend_pid()")
    with reading(engine) as connection:
        closed = connection.execute(backend).scalar_one()
    with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        assert admin.execute("SELECT pg_terminate_backend(%s, 30000)", [closed]).fetchone() == (True,)
    with writing(engine) as connection:
        assert connection.execute(backend).scalar_one() != closed
    engine.dispose()


def test_who_opens_a_new_file_waits_for_another_who_does_the_same(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        Timer(0.2, other.rollback).start()
        open_database(url(file)).dispose()
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_settled_answer_survives_power_loss(tmp_path: Path) -> None:
    engine = open_database(url(tmp_path / "state.db"))
    with writing(engine) as connection:
        pragmas = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("synchronous", "journal_mode")}
    assert pragmas == {"synchronous": 2, "journal_mode": "wal"}
    engine.dispose()


def test_a_schema_newer_than_ours_is_refused_also_in_a_file_that_we_may_only_read(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    engine = open_database(url(path))
    call_schema(engine, "9999")
    engine.dispose()
    with pytest.raises(ConfigError, match=r"newer version \(schema 9999, ours is"):
        open_database(url(path))
    path.chmod(0o400)
    assert "newer version (schema 9999, ours is" in _opened_by_a_child(path)


@pytest.mark.parametrize(
    "address",
    [
        *("", "no such thing", "oracel://x/y", "mysql://h/d", "postgresql+psycopg2://h/d"),
        *("sqlite+aiosqlite:///x", "mysql+oursql://ana:s3cret@host/db", "sqlite:///state.db?timeout=soon"),
    ],
)
def test_an_address_that_names_no_database_of_ours_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="EVENTSYNC_STATE_URL") as caught:
        open_database(address)
    assert "for example" in caught.value.hint
    assert "s3cret" not in str(caught.value) + caught.value.hint


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateUnavailableError, match=str(tmp_path / "file")):
        open_database(url(tmp_path / "file" / "state.db"))


def _opened_by_a_child(path: Path) -> str:
    code = f"from state.opening import open_database; open_database({url(path)!r})"
    return bound_by_permissions([sys.executable, "-c", code]).stderr


def test_a_folder_that_we_may_not_write_to_is_told_with_its_path(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    told = _opened_by_a_child(tmp_path / "state.db")
    assert "StateUnavailableError" in told
    assert str(tmp_path) in told


@pytest.mark.parametrize(("file", "folder"), [(0o400, 0o500), (0o600, 0o500), (0o400, 0o700)])
def test_a_file_that_we_may_only_read_is_opened_and_left_as_it_is(tmp_path: Path, file: int, folder: int) -> None:
    path = tmp_path / "state.db"
    open_database(url(path)).dispose()
    before = path.read_bytes()
    path.chmod(file)
    tmp_path.chmod(folder)
    assert _opened_by_a_child(path) == ""
    assert [each.name for each in tmp_path.iterdir()] == ["state.db"]
    assert path.read_bytes() == before


@pytest.mark.parametrize(("is_interrupted", "raised"), [(True, KeyboardInterrupt), (False, StateUnavailableError)])
def test_a_complaint_does_not_hide_the_interruption_that_caused_it(
    tmp_path: Path, is_interrupted: bool, raised: type[BaseException]
) -> None:
    engine = open_database(url(tmp_path / "state.db"))

    @event.listens_for(engine, "begin")
    def _complain(_connection: Connection) -> None:
        """Fail as a driver does that resets a connection in the middle of a statement."""
        complaint = sqlite3.ProgrammingError("can't change 'autocommit' now")
        complaint.__context__ = KeyboardInterrupt() if is_interrupted else None
        raise DBAPIError("SELECT 1", None, complaint) from complaint

    with pytest.raises(raised), writing(engine):
        pass
    engine.dispose()


SQLSTATES = {
    Failure.LOCKED: "40001 40P01 55P03 57014",
    Failure.AWAY: "08006 57P01 57P03 53300 53200",
    Failure.READ_ONLY: "25006 42501",
    Failure.FULL: "53100 58030",
    Failure.DAMAGED: "XX001",
    Failure.STRANGE_TABLES: "42P01",
    Failure.OTHER: "22021 P0001",
}


@pytest.mark.parametrize(
    ("sqlstate", "failure"), [(each, failure) for failure, states in SQLSTATES.items() for each in states.split()]
)
def test_the_sqlstate_of_a_server_says_what_is_wrong(emptied_url: str, sqlstate: str, failure: Failure) -> None:
    kind, words, hint, _ = failure.value
    engine = open_database(emptied_url)
    fail = text(f"DO $$ BEGIN RAISE EXCEPTION 'Nichts geht mehr' USING ERRCODE = '{sqlstate}'; END $$")
    with (
        pytest.raises(kind, match=rf"the state DB postgresql\+psycopg://.* {words}: .*Nichts geht mehr") as caught,
        writing(engine) as connection,
    ):
        connection.execute(fail)
    engine.dispose()
    assert caught.value.hint == hint


def test_a_database_that_cannot_hold_every_text_is_refused_before_it_is_used(postgres: Postgres) -> None:
    url = make_url(postgres.fresh_url())
    plain = open_database(url.render_as_string(hide_password=False))
    with plain.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
    plain.dispose()
    with pytest.raises(StateUnavailableError, match="its encoding is LATIN1") as caught:
        open_database(url.set(database="narrow").render_as_string(hide_password=False))
    assert "UTF8" in caught.value.hint


def test_values_of_rows_never_reach_an_error(world: World) -> None:
    with pytest.raises(StateUnavailableError) as caught, writing(world.engine) as connection:
        connection.execute(text("INSERT INTO no_such_table VALUES (:body)"), {"body": "the partner's own"})
    chain = f"{caught.value} {caught.value.hint} {caught.value.__cause__!r} {caught.value.__cause__}"
    assert "the partner's own" not in chain


def said_by_a_child(code: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True).stdout


def test_a_missing_driver_is_told_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from mappings.errors import ConfigError\n"
        "from state.opening import open_database\n"
        "try: open_database('postgresql://h/d')\n"
        "except ConfigError as error: print(error, error.hint)"
    )
    assert 'pip install "eventsync[postgres]"' in said_by_a_child(code)


def test_a_process_with_too_many_files_open_is_told_so(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "from state.opening import open_database\n"
        "from state.errors import StateBusyError\n"
        "open_database(sys.argv[1]).dispose()\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))\n"
        "held = open('/dev/null')\n"
        "try: open_database(sys.argv[1])\n"
        "except StateBusyError as error: sys.stdout.write(f'{error} {error.hint}')"
    )
    said = said_by_a_child(code, url(tmp_path / "state.db"))
    assert "too many files open" in said
    assert "ulimit -n" in said


def test_a_file_that_was_moved_away_is_noticed_before_and_after_a_transaction(tmp_path: Path) -> None:
    world = World(tmp_path / "state.db")
    with pytest.raises(StateUnavailableError, match="deleted or replaced"), writing(world.engine):
        (tmp_path / "state.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(StateUnavailableError, match="deleted or replaced"):
        world.stage([row("a")])
    (tmp_path / "state.db").write_bytes((tmp_path / "elsewhere.db").read_bytes())
    with pytest.raises(StateUnavailableError, match="another file lies there now"):
        world.stage([row("a")])
    world.engine.dispose()


@pytest.mark.parametrize("transaction", [reading, writing])
def test_a_connection_that_is_opened_after_the_file_was_replaced_is_not_used(
    transaction: Callable[[Engine], AbstractContextManager[Connection]], tmp_path: Path
) -> None:
    world = World(tmp_path / "state.db")
    with reading(world.engine):  # keeps the connection that is there already
        (tmp_path / "state.db").rename(tmp_path / "elsewhere.db")
        (tmp_path / "state.db").write_bytes((tmp_path / "elsewhere.db").read_bytes())
        with pytest.raises(StateUnavailableError, match="another file lies there now"), transaction(world.engine):
            pass
    world.engine.dispose()


def test_the_page_lists_the_troubles_that_are_worth_another_run() -> None:
    page = (Path(__file__).parents[3] / "docs" / "state.md").read_text("utf-8")
    listed = page.partition("## When it is in trouble")[2].splitlines()
    assert {one for one in Failure if f"* {one.value[1]}" in listed} == {
        one for one in Failure if issubclass(one.value[0], StateBusyError)
    }


BAD = "k\x00\udce9é"
KEPT = "k\\x00\\udce9é"


def test_a_row_with_such_a_key_goes_all_the_way_and_is_known_again(world: World) -> None:
    odd = row(BAD, "Good title", place=f"{BAD}.csv:7")
    assert world.stage([row(BAD, "Bad title")], [row(BAD, "Bad title")]).account.duplicate == 1
    said = Answer(400, BAD, BAD, BAD, BAD, BAD)
    world.publish(Refusal(said))
    assert world.known(BAD).answer == said
    assert world.stage([odd]).account.new == 1
    entry = world.known(BAD)
    outbox = world.outbox(keys=[BAD])
    (intent,) = outbox.settle_and_claim([], 1)
    outbox.settle_and_claim([Settled(intent, receipt(intent))], 0)
    assert world.stage([odd]).account.unchanged == 1
    for other in (skipped(BAD), rejection(BAD, place=BAD), rejection(BAD, place=BAD)):
        assert world.stage([other]).vanished == 0
    (problem,) = LedgerQueries(world.engine).problems(FeedScope(DESTINATION, FEED), ProblemKind.REJECTED)
    assert (problem.row_key, problem.origin, entry.row_key, entry.origin) == (KEPT, KEPT, KEPT, f"{KEPT}.csv:7")
    assert problem.cells == {"REF": BAD}
    assert (world.known(BAD).state, world.known(BAD).key) == ("delivered", entry.key)
    assert examine(world.engine).findings == ()


def test_names_of_feeds_people_and_reasons_are_kept_too(world: World) -> None:
    ledger = Ledger(world.engine, DESTINATION + BAD, FeedName(FEED + BAD), namespace="tests", now=world.clock)
    with ledger.acquire_lease(BAD) as lease:
        ledger.begin_run("run-1", launched_by=BAD, dagster_run_id=BAD)
        stage = open_stage(ledger.fence("run-1", lease.token), is_whole=True, stamp=BAD)
        stage.write([row("a", cover=Cover(f"https://img.example/{BAD.replace(chr(0xDCE9), '')}", "omit"))])
        stage.close(lambda _report: [BAD])
        ledger.open_gate(BAD)
        ledger.finish_run("run-1", outcome="done", exit_code=0, message=BAD)
    (run,) = LedgerQueries(world.engine).runs()
    assert (run.message, run.launched_by, run.dagster_run_id) == (KEPT, KEPT, KEPT)
    assert KEPT in ledger.gate().reason


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(st.characters(codec=None), min_size=1, max_size=12).filter(lambda key: "\\" not in key))
def test_every_text_is_a_key(world: World, key: str) -> None:
    before = len(world.states())
    odd = row(key, place=f"{key} {before}")
    is_known = storable(key) in world.states()
    world.stage([odd], is_whole=False)
    assert len(world.states()) == before + (not is_known)
    assert world.stage([odd], is_whole=False).account.unchanged == 1


def findings(world: World) -> list[tuple[str, str, str]]:
    return [(found.check, found.which, found.problem) for found in examine(world.engine).findings]


@pytest.fixture
def full(world: World) -> World:
    """Rows of every state, and one that has drifted."""
    world.stage([row(key) for key in "abcdef"], brakes=())
    world.publish(Refusal(answer(400)), Uncertain(answer(500)), Conflict(answer(409)))
    world.stage([row(key, "another title" if key == "f" else None) for key in "abcdefg"])
    return world


def test_a_sound_state_db_has_no_findings(full: World) -> None:
    examined = examine(full.engine)
    assert (examined.findings, examined.entries, examined.runs) == ((), 7, 3)


def test_an_event_belongs_to_one_row_of_a_feed(full: World) -> None:
    with pytest.raises(IntegrityError):
        give_event(full.engine, "e", full.known("d").event_id or 0)
    assert findings(full) == []


def test_facts_that_do_not_go_together_are_found(full: World) -> None:
    expected = contradict(full.engine)
    assert sorted(f"{which} {check}: {problem}" for check, which, problem in findings(full)) == expected


def test_a_body_that_is_not_what_was_pinned_is_found(full: World) -> None:
    damage_body(full.engine, "d", b'{"title":"another\'s"}')
    damage_body(full.engine, "e", b"\x00\x00\x00")
    assert sorted((check, which) for check, which, _ in findings(full)) == [("body", which) for which in "de"]


def test_what_means_nothing_is_not_taken(full: World) -> None:
    assert list(try_nonsense(full.engine)) == []


def test_entries_that_are_not_in_the_index_of_duplicates_are_counted(full: World) -> None:
    forget_marks(full.engine, upto=2)
    said = "2 entries are not in the index of duplicates: copies of them would not be held"
    assert findings(full) == [("tables", "", said)]


def test_a_body_whose_cover_was_put_in_or_left_out_is_no_finding(world: World) -> None:
    world.stage([row(key, cover=Cover(f"https://img.example/{key}", "omit")) for key in "ab"])
    outbox = world.outbox()
    first, second = outbox.settle_and_claim([], 2)
    outbox.pin(first, b'{"coverImage":5,"title":"x"}')
    outbox.pin(second, b'{"title":"x"}')
    assert examine(world.engine).findings == ()


def test_an_account_that_does_not_balance_or_cannot_be_read_is_found(full: World) -> None:
    damage_run(full.engine, "run-1", read_account='{"read": 5, "new": 3}')
    damage_run(full.engine, "run-3", read_account="{", stage_report="{}")
    assert findings(full) == [
        ("account", "run-1", "the account of rows read does not add up, by 2"),
        ("account", "run-3", "the account of rows read cannot be read"),
        ("account", "run-3", "the report of its stage cannot be read"),
    ]


def test_tables_that_are_not_ours_as_we_made_them_are_found(engine: Engine) -> None:
    with without_a_table(engine) as problem:
        assert findings(World(engine)) == [("tables", "", problem)]


def test_a_database_without_our_tables_says_so(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}", upgrades=False)
    assert examine(engine) == Examination(None, 0, 0, (Finding("tables", "there are none of ours: the first run makes them"),))
    engine.dispose()
