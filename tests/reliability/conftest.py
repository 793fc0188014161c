"""One process that starts commands and one sandbox with a memory of its own, for all lines that are played here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from integration.desk import WarmStart
from integration.service import serving
from reliability.line import Stage


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("reliability")
    with closing(WarmStart()) as warm, serving(folder / "service") as service:
        yield Stage(folder, warm, service)
