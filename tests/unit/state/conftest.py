"""A world on each kind of database that the state DB may be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from empty_books import lay_out
from ledger_tables import empty, restart_ids
from postgres import Postgres
from sqlalchemy import Engine
from unit.state.world import KINDS, World

from state.opening import open_database


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The database that the state DB is in."""
    return str(request.param)


@pytest.fixture(scope="session")
def emptied_url(postgres: Postgres) -> str:
    """A PostgreSQL database with our tables, for one test after the other: making one takes longer than most tests."""
    url = postgres.fresh_url()
    open_database(url).dispose()
    return url


@pytest.fixture(scope="session")
def kept() -> Iterator[dict[str, Engine]]:
    """The state DBs of the worlds, one of each kind for one test after the other."""
    engines = dict[str, Engine]()
    yield engines
    for engine in engines.values():
        engine.dispose()


@pytest.fixture
def state_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A state DB with nothing in it."""
    if kind == "sqlite":
        return f"sqlite:///{lay_out(tmp_path / 'state.db')}"
    url: str = request.getfixturevalue("emptied_url")
    engine = open_database(url)
    empty(engine)
    restart_ids(engine)
    engine.dispose()
    return url


@pytest.fixture
def engine(state_url: str) -> Iterator[Engine]:
    opened = open_database(state_url)
    yield opened
    opened.dispose()


@pytest.fixture
def world(kind: str, kept: dict[str, Engine], request: pytest.FixtureRequest) -> World:
    """A world in a state DB that is kept: an engine compiles each statement once."""
    if kind not in kept:
        place = request.getfixturevalue("tmp_path_factory").mktemp("kept") / "state.db"
        kept[kind] = open_database(f"sqlite:///{place}" if kind == "sqlite" else request.getfixturevalue("postgres").fresh_url())
    empty(kept[kind])
    restart_ids(kept[kind])
    return World(kept[kind])
