"""A folder for each story."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from month.rooms import a_room


@pytest.fixture
def room() -> Iterator[Path]:
    with a_room() as folder:
        yield folder
