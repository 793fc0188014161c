"""What several modules of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract.killed_read import Killer, killer


@pytest.fixture(scope="session")
def killing() -> Iterator[Killer]:
    with killer() as one:
        yield one
