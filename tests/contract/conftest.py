"""What several modules of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract import killed_read
from contract.killed_read import Killer
from contract.program import program


@pytest.fixture(scope="session")
def killing() -> Iterator[Killer]:
    with program(killed_read.__file__) as started:
        yield Killer(started)
