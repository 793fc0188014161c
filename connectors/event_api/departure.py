"""The last look before a request is written: between its admission and its first byte, a pause may have begun.

Who decides is the route, which sets `may_leave` around each request; who asks is the wire, which has the connection by then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar


class HeldBackError(Exception):
    """The request was not written: its admission no longer holds. Nothing of it has left."""


def _always() -> bool:
    return True


may_leave: ContextVar[Callable[[], bool]] = ContextVar("may_leave", default=_always)
"""Whether the request that the running task is about to write may still leave."""
