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


@pytest.fixture(scope="session")
def emptied_url(postgres: Postgres) -> str:
    """A PostgreSQL database with our tables, for one test after the other: making one takes longer than most tests."""
    url = postgres.fresh_url()
    open_database(url).dispose()
    return url


@pytest.fixture(params=KINDS)
def state_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A state DB with nothing in it."""
    if request.param == "sqlite":
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
def world(state_url: str) -> Iterator[World]:
    world = World(state_url)
    yield world
    for each in (world, *world.neighbours):
        each.engine.dispose()
