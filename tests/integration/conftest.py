"""One sandbox process for each test process; a sandbox as if new and a desk of its own for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract.every_kind import INCREMENTAL_KINDS
from contract.feeds_of_texts import TOLD_BY_AN_ORG
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
    with made_desk(tmp_path, warm, postgres.fresh_url()) as made:
        made.point_to(service)
        yield made


@pytest.fixture(params=["desk", "desk_on_postgres"], ids=["sqlite", "postgresql"])
def any_desk(request: pytest.FixtureRequest) -> Desk:
    made: Desk = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def put(desk: Desk, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Let the feed read an org; give the org these records, titles by id."""
    (desk.folder / "feeds" / "town.yaml").write_text(TOLD_BY_AN_ORG, "utf-8")
    (tmp_path / "org").mkdir()
    with INCREMENTAL_KINDS[0].stand(tmp_path / "org") as stand:
        desk.env.update(stand.environment)
        yield lambda **titles: stand.put([["ref", "text"], *titles.items()])
