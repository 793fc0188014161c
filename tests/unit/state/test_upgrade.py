"""The tables of a new state DB, and what is said of one whose tables cannot be upgraded."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text, update
from sqlalchemy.exc import IntegrityError
from unit.state.world import World, row

from mappings.errors import ConfigError
from state.database import reading, writing
from state.export import import_from
from state.migrations.upgrade import HEAD, differences
from state.opening import open_database
from state.tables import ENTRY, METADATA
from state.verify import examine

HINT = "open it once with version 0.2 (`eventsync status`), which upgrades it, then with this one"


def test_a_new_state_db_has_the_tables_that_are_declared(world: World) -> None:
    with reading(world.engine) as connection:
        assert differences(connection) == []
        declared = {index.name for table in METADATA.tables.values() for index in table.indexes}
        assert declared <= {index["name"] for table in METADATA.tables for index in inspect(connection).get_indexes(table)}
    world.stage([row("a")])
    with pytest.raises(IntegrityError), world.engine.begin() as connection:
        connection.execute(update(ENTRY).values(state="sideways"))


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
