from __future__ import annotations

import gc

import pytest

from pipelines.garbage import OBJECTS, seldom_looked_for


def test_garbage_is_looked_for_seldom_and_then_as_before_whatever_ends_the_work() -> None:
    before = gc.get_threshold()
    within: list[tuple[int, ...]] = []
    with pytest.raises(KeyboardInterrupt):
        _interrupted(within)
    assert within == [(OBJECTS, *before[1:])]
    assert gc.get_threshold() == before


def _interrupted(within: list[tuple[int, ...]]) -> None:
    with seldom_looked_for():
        within.append(gc.get_threshold())
        raise KeyboardInterrupt
