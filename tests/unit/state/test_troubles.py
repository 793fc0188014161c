"""Each trouble of a state DB is recognised by its code, and shown with the database's name and what would help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from postgres import Postgres
from sqlalchemy import make_url, text
from unit.state.world import World, row

from mappings.errors import ConfigError, SyncError
from state.database import parse, shown_url, writing
from state.errors import Failure, StateBusyError, StateDamagedError, StateUnavailableError
from state.opening import open_database

SECRET = "s3cret-0f-the-b00ks"


@pytest.mark.parametrize(
    ("sqlstate", "kind", "words"),
    [
        ("08006", StateBusyError, "cannot be reached"),
        ("57P01", StateBusyError, "cannot be reached"),
        ("57P03", StateBusyError, "cannot be reached"),
        ("53300", StateBusyError, "no room for another connection"),
        ("53200", StateBusyError, "no room for another connection or its work"),
        ("40001", StateBusyError, "held by another process"),
        ("40P01", StateBusyError, "held by another process"),
        ("55P03", StateBusyError, "held by another process"),
        ("57014", StateBusyError, "held by another process"),
        ("53100", StateUnavailableError, "no room is left"),
        ("25006", StateUnavailableError, "read-only"),
        ("42501", StateUnavailableError, "does not let our role"),
        ("58030", StateUnavailableError, "its disk fails"),
        ("XX001", StateDamagedError, "is damaged"),
        ("42P01", StateUnavailableError, "the tables that we expect"),
        ("22021", StateUnavailableError, "cannot keep a value"),
        ("P0001", StateUnavailableError, "cannot be used"),
    ],
)
def test_what_a_server_says_is_told_by_its_sqlstate(emptied_url: str, sqlstate: str, kind: type[SyncError], words: str) -> None:
    engine = open_database(emptied_url)
    fail = text(f"DO $$ BEGIN RAISE EXCEPTION 'Nichts geht mehr' USING ERRCODE = '{sqlstate}'; END $$")
    with pytest.raises(kind, match=words) as caught, writing(engine) as connection:
        connection.execute(fail)
    engine.dispose()
    assert "Nichts geht mehr" in str(caught.value)
    assert "the state DB postgresql+psycopg://" in str(caught.value)
    assert caught.value.hint


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


def test_passwords_never_reach_a_name_or_an_error() -> None:
    url = f"postgres://ana:{SECRET}@127.0.0.1:1/books?connect_timeout=2"
    assert SECRET not in shown_url(url)
    with pytest.raises(StateBusyError, match="cannot be reached") as caught:
        open_database(url)
    assert SECRET not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"


@pytest.mark.parametrize("url", ["mysql://h/d", "postgresql+psycopg2://h/d", "sqlite+aiosqlite:///x"])
def test_databases_and_drivers_that_we_do_not_know_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="EVENTSYNC_STATE_URL") as caught:
        parse(url)
    assert caught.value.hint


def test_a_missing_driver_is_told_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from mappings.errors import ConfigError\n"
        "from state.opening import open_database\n"
        "try: open_database('postgresql://h/d')\n"
        "except ConfigError as error: print(error, error.hint)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 'pip install "eventsync[postgres]"' in said


def test_a_wait_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="timeout is not a number"):
        open_database(f"sqlite:///{tmp_path / 'state.db'}?timeout=soon")


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
    url = f"sqlite:///{tmp_path / 'state.db'}"
    said = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=False)
    assert "too many files open" in said.stdout, said.stderr
    assert "ulimit -n" in said.stdout


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


@pytest.mark.parametrize("trouble", Failure)
def test_the_page_tells_each_trouble_with_its_exit_code(trouble: Failure) -> None:
    kind, what, _ = trouble.value
    code = 6 if issubclass(kind, StateBusyError) else 2
    page = (Path(__file__).parents[3] / "docs" / "state.md").read_text("utf-8")
    assert [line for line in page.splitlines() if line.startswith(f"| {what} | ") and line.endswith(f" | {code} |")], what
