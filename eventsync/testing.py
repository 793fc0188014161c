"""The contract suite of sources, for the authors of plug-ins; it needs pytest.

Declare a `Kind`, and let a test class inherit from `SourceContract`, from `GridContract` if your columns have names of their own,
and from `IncrementalContract` if your kind has cursors::

    class TestTicker(SourceContract):
        source_kind = Kind("ticker", stand)

What a kind cannot do is a field of `Kind`: `accepts` for text that it cannot hold, `first` for rows that are not numbered as
lines of a table are.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("eventsync.source_contract")

from eventsync.source_contract import (  # noqa: E402  # its assertions show what they compare
    Grid,
    GridContract,
    IncrementalContract,
    Kind,
    SourceContract,
    Stand,
    in_no_time,
    open_stand,
    opened,
)

__all__ = [
    "Grid",
    "GridContract",
    "IncrementalContract",
    "Kind",
    "SourceContract",
    "Stand",
    "in_no_time",
    "open_stand",
    "opened",
]
