"""Which tasks of a drain have a request under way: the only ones that are worth waiting for when it is asked to stop.

Whether the feed is still ours is `holding`'s to say; it is asked here, before each request leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Token
from types import TracebackType
from typing import Any

from connectors.event_api.transport import may_leave

Task = asyncio.Task[Any]


async def _at_once() -> None:
    """Nothing has to be assured."""


class Departures:
    """The door that every request of a drain leaves through; in the event loop's thread only.

    `assure` is awaited before each request, and may raise: then nothing leaves; `still_assured` is asked once more when
    there is a connection, as getting one may take long. Once `close` was called no request
    leaves any more: who asks to waits for ever, until its task is cancelled.
    """

    def __init__(
        self, assure: Callable[[], Awaitable[None]] = _at_once, still_assured: Callable[[], bool] = lambda: True
    ) -> None:
        self._assure = assure
        self.still_assured = still_assured
        self._under_way: set[Task | None] = set()
        self._left: set[Task | None] = set()
        self._is_closed = False

    def __call__(self) -> _Departure:
        """Return the passage of one request: an async context manager around all of it, its answer included."""
        return _Departure(self)

    def close(self) -> None:
        """Let no further request leave."""
        self._is_closed = True

    def is_under_way(self, task: Task) -> bool:
        """Whether the task has a request at the service now."""
        return task in self._under_way

    def has_left(self, task: Task) -> bool:
        """Whether the task has ever sent one."""
        return task in self._left

    async def begin(self) -> None:
        """Let the running task's request leave."""
        if self._is_closed:
            await asyncio.get_running_loop().create_future()
        await self._assure()
        task = asyncio.current_task()
        self._under_way.add(task)
        if task is not None and task not in self._left:
            self._left.add(task)
            task.add_done_callback(self._left.discard)

    def end(self) -> None:
        """The running task's request has its answer, or none."""
        self._under_way.discard(asyncio.current_task())


class _Departure:
    """One request's way out and back."""

    __slots__ = ("_departures", "_looked")

    def __init__(self, departures: Departures) -> None:
        self._departures = departures
        self._looked: Token[Callable[[], bool]] | None = None

    async def __aenter__(self) -> None:
        await self._departures.begin()
        others = may_leave.get(None)
        if others is not None:  # whoever has not set it would not ask again for a request that was held back
            self._looked = may_leave.set(lambda: others() and self._departures.still_assured())

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._departures.end()
        if self._looked is not None:
            may_leave.reset(self._looked)


class Unwatched(Departures):
    """Where nobody sees requests leave: every task may have one under way."""

    def is_under_way(self, task: Task) -> bool:  # noqa: ARG002  # whichever
        """Return True."""
        return True
