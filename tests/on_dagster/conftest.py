"""A desk of its own for each test: a fresh sandbox, a fresh instance in memory, ten good rows of one feed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
from on_dagster.desk import Desk, desk_in, line

from pipelines.before_serving import DAGSTER_YAML


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance on disk, as the project sets it up."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(DAGSTER_YAML, "utf-8")
    with dg.DagsterInstance.from_config(str(folder)) as made:
        yield made


@pytest.fixture
def desk(tmp_path: Path, instance: dg.DagsterInstance, request: pytest.FixtureRequest) -> Iterator[Desk]:
    with desk_in(tmp_path, instance, warm=partial(request.getfixturevalue, "warm")) as made:
        made.mapping()
        made.source(line(number) for number in range(10))
        yield made
