"""Waiting for something to become true, with a deadline, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

import psutil

T = TypeVar("T")

DEADLINE_S = 60.0
"""Far longer than anything takes: it bounds a test that would otherwise hang."""

_NEVER = Event()


def until(condition: Callable[[], T], *, within_s: float = DEADLINE_S, every_s: float = 0.01, what: str = "the condition") -> T:
    deadline = monotonic() + within_s
    while not (answer := condition()):
        assert monotonic() < deadline, f"waited {within_s:.0f} s in vain for {what}"
        _NEVER.wait(every_s)
    return answer


def has_ended(pid: int) -> bool:
    """Return whether a process runs no more, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pause(seconds: float) -> None:
    """Let a moment of a chosen length pass: where to strike at random, never what to wait for."""
    _NEVER.wait(seconds)
