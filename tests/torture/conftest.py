"""The process that forks commands, as the integration tests have it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.desk import WarmStart


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmStart]:
    started = WarmStart()
    yield started
    started.close()
