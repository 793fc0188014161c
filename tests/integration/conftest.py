"""One warm start and one sandbox process for each file of tests; a desk of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.desk import Desk, WarmStart, made_desk
from integration.service import Service, serving


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmStart]:
    started = WarmStart()
    yield started
    started.close()


@pytest.fixture(scope="module")
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
