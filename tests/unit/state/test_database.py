"""An interruption in the middle of a statement stays one, whatever the driver complains of while it cleans up."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from privileges import bound_by_permissions
from sqlalchemy import Connection, event, inspect, text
from sqlalchemy.exc import DBAPIError

from mappings.errors import ConfigError
from state.database import reading, writing
from state.errors import StateUnavailableError
from state.migrations.upgrade import HEAD
from state.opening import open_database
from state.tables import METADATA

MIGRATIONS = Path(sys.modules["state.migrations.upgrade"].__file__ or "").parent


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def test_the_migrations_end_in_the_tables(tmp_path: Path) -> None:
    engine = open_database(url(tmp_path / "state.db"))
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
        declared = {index.name for table in METADATA.tables.values() for index in table.indexes}
        found = {index["name"] for table in METADATA.tables for index in inspect(connection).get_indexes(table)}
        assert declared <= found
        checks = connection.execute(text("SELECT sql FROM sqlite_master WHERE name = 'ledger_entry'")).scalar_one()
        assert "ck_ledger_entry_state" in checks
        assert "AUTOINCREMENT" in checks
    engine.dispose()


def test_the_newest_migration_is_the_one_that_opening_looks_for() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [HEAD]


def test_a_new_state_db_gets_a_folder_for_its_owner_alone(tmp_path: Path) -> None:
    open_database(url(tmp_path / "deep" / "er" / "state.db")).dispose()
    assert (tmp_path / "deep" / "er").stat().st_mode & 0o777 == 0o700


def test_a_settled_answer_survives_power_loss(tmp_path: Path) -> None:
    engine = open_database(url(tmp_path / "state.db"))
    with writing(engine) as connection:
        pragmas = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("synchronous", "journal_mode")}
    assert pragmas == {"synchronous": 2, "journal_mode": "wal"}
    engine.dispose()


def test_opening_a_current_state_db_does_not_load_the_migration_tool(tmp_path: Path) -> None:
    open_database(url(tmp_path / "state.db")).dispose()
    code = (
        "import sys; from state.opening import open_database; "
        f"open_database({url(tmp_path / 'state.db')!r}).dispose(); print('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_processes_that_start_at_once_wait_for_one_another(tmp_path: Path) -> None:
    code = f"from state.opening import open_database; open_database({url(tmp_path / 'new' / 'state.db')!r}).dispose()"
    starts = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(6)]
    errors = [process.communicate()[1] for process in starts]
    assert [process.returncode for process in starts] == [0] * 6, errors


def test_a_schema_newer_than_ours_is_refused_also_in_a_file_that_we_may_only_read(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    engine = open_database(url(path))
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(ConfigError, match=r"newer version \(schema 9999, ours is"):
        open_database(url(path))
    path.chmod(0o400)
    assert "newer version (schema 9999, ours is" in _opened_by_a_child(path)


@pytest.mark.parametrize("address", ["", "no such thing", "oracel://x/y", "mysql+oursql://ana:s3cret@host/db"])
def test_an_address_that_names_no_database_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="EVENTSYNC_STATE_URL") as caught:
        open_database(address)
    assert "sqlite:///" in caught.value.hint
    assert "s3cret" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize("place", ["taken", "file/state.db"], ids=["by a folder", "by a file"])
def test_a_place_that_is_taken_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateUnavailableError, match=str(tmp_path)):
        open_database(url(tmp_path / place))


def test_a_read_only_state_db_is_told_as_such(tmp_path: Path) -> None:
    open_database(url(tmp_path / "state.db")).dispose()
    engine = open_database(f"sqlite:///file:{tmp_path / 'state.db'}?mode=ro&uri=true")
    with pytest.raises(StateUnavailableError, match="read-only"), writing(engine) as connection:
        connection.execute(text("DELETE FROM scope"))
    engine.dispose()


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


def test_a_full_disk_is_told_as_such_and_nothing_is_half_written(tmp_path: Path) -> None:
    engine = open_database(url(tmp_path / "state.db"))
    insert = "INSERT INTO media VALUES ('d', :digest, 1, '2026-03-01T12:00:00.000000+00:00')"
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
    with pytest.raises(StateUnavailableError, match="full") as caught, writing(engine) as connection:
        connection.execute(text(insert), [{"digest": bytes([count]) * 9000} for count in range(9)])
    assert "make room" in caught.value.hint
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM media")).scalar() == 0
    engine.dispose()


def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    engine = open_database(url(tmp_path / "state.db"))
    with writing(engine) as writer:
        writer.execute(text("INSERT INTO media VALUES ('d', x'00', 1, '2026-03-01T12:00:00.000000+00:00')"))
        with reading(engine) as reader:
            assert reader.execute(text("SELECT count(*) FROM media")).scalar() == 0
    engine.dispose()


def _complain(*, is_interrupted: bool) -> None:
    """Fail as a driver does that resets a connection in the middle of a statement."""
    try:
        try:
            if is_interrupted:
                raise KeyboardInterrupt
        finally:
            raise sqlite3.ProgrammingError("can't change 'autocommit' now")
    except sqlite3.Error as complaint:
        raise DBAPIError("SELECT 1", None, complaint) from complaint


@pytest.mark.parametrize("transaction", [reading, writing], ids=["reading", "writing"])
@pytest.mark.parametrize(("is_interrupted", "told"), [(True, KeyboardInterrupt), (False, StateUnavailableError)])
def test_a_complaint_does_not_hide_the_interruption_that_caused_it(
    tmp_path: Path, transaction: type, is_interrupted: bool, told: type[BaseException]
) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}")

    @event.listens_for(engine, "begin")
    def _begin(_connection: Connection) -> None:
        _complain(is_interrupted=is_interrupted)

    with pytest.raises(told), transaction(engine):
        pass
    engine.dispose()
