from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.state.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "state.db")
    yield world
    world.engine.dispose()
