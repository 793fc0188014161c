"""One sandbox process for each test process; a sandbox as if new and a desk of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.desk import Desk, WarmStart, made_desk
from integration.service import Service, serving
from postgres import Postgres


@pytest.fixture(scope="session")
def sandbox_process() -> Iterator[Service]:
    with serving() as service:
        yield service


@pytest.fixture
def service(sandbox_process: Service) -> Iterator[Service]:
    """The sandbox as it is when fresh, for one test."""
    as_new = sandbox_process.look()["switches"]
    yield sandbox_process
    sandbox_process.change("/reset")
    sandbox_process.change("/switches", **as_new)


@pytest.fixture
def desk(tmp_path: Path, warm: WarmStart, service: Service) -> Iterator[Desk]:
    with made_desk(tmp_path, warm) as made:
        made.point_to(service)
        yield made


@pytest.fixture
def desk_on_postgres(tmp_path: Path, warm: WarmStart, service: Service, postgres: Postgres) -> Iterator[Desk]:
    """The same with its books in an empty PostgreSQL database."""
    with made_desk(tmp_path, warm, postgres.fresh_url()) as made:
        made.point_to(service)
        yield made


@pytest.fixture(params=["desk", "desk_on_postgres"], ids=["sqlite", "postgresql"])
def any_desk(request: pytest.FixtureRequest) -> Desk:
    """A desk for each kind of state DB: the test runs once with each."""
    made: Desk = request.getfixturevalue(request.param)
    return made
