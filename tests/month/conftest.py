"""A folder for each story."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from month.folder import empty_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with empty_folder() as made:
        yield made
