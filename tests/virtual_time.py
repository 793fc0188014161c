"""A loop whose time jumps instead of passing: hours of waiting are over in milliseconds, and the clock has moved on."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")
EPOCH = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class _Jumping(selectors.DefaultSelector):
    jumped = 0.0
    threads_at_work = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.threads_at_work:  # they take real time, and wake the loop when they are done
            return super().select(timeout)
        ready = super().select(0)
        if not ready and timeout:
            self.jumped += timeout
        return ready


class InstantLoop(asyncio.SelectorEventLoop):
    """Sleeping takes no time and moves the clock, so that hours of waiting are tested in milliseconds."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.jumped

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # any will do
        future = super().run_in_executor(executor, func, *args)
        self._jumping.threads_at_work += 1
        future.add_done_callback(self._is_done)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109  # from Python 3.12 on
        """Wait for its threads without a limit: the runner's would be over at once."""
        await super().shutdown_default_executor()

    def _is_done(self, _: object) -> None:
        self._jumping.threads_at_work -= 1


def at_once(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main` on a loop whose time jumps."""

    async def run() -> T:
        return await main()

    with asyncio.Runner(loop_factory=InstantLoop) as runner:
        return runner.run(run())


def clock() -> float:
    return asyncio.get_running_loop().time()


def now() -> datetime:
    return EPOCH + timedelta(seconds=clock())


@dataclass
class Board:
    """What the workers of a route share, `away_s` away; `asked` counts their questions. `ahead_s`: its clock minus theirs."""

    text: str = ""
    asked: int = 0
    ahead_s: float = 0.0
    written_s: float = 0.0
    away_s: float = 0.0

    async def exchange(self, write: Callable[[str, float], str | None]) -> None:
        while True:
            await asyncio.sleep(self.away_s / 2)
            self.asked += 1
            seen, seen_s = self.text, clock() + self.ahead_s
            age_s = seen_s - self.written_s if seen else 0.0
            await asyncio.sleep(self.away_s / 2)
            text = write(seen, age_s)
            if text is None:
                return
            await asyncio.sleep(self.away_s / 2)
            is_same = self.text == seen
            if is_same:
                self.text, self.written_s = text, seen_s
            await asyncio.sleep(self.away_s / 2)
            if is_same:
                return
