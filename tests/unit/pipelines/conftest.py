"""A state DB of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from empty_books import lay_out
from sqlalchemy import Engine

from state.opening import open_database


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = open_database(f"sqlite:///{lay_out(tmp_path / 'state.db')}")
    yield opened
    opened.dispose()
