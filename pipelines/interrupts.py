"""Running a drain so that Ctrl-C, SIGTERM or Dagster's own interruption ends it in good order.

The event loop lives in a thread of its own; the main thread only waits, so that whatever interrupts it can be turned
into a request to stop. What stopping in good order means is the drain's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run_stoppable(work: Callable[[], Coroutine[Any, Any, T]], on_stop: Callable[[], None]) -> T:
    """Run `work()` in an event loop of its own; on the first interruption call `on_stop` there and go on waiting.

    A second interruption is not caught: it leaves at once. Whatever `work` raises is raised here; an interruption that
    is no `KeyboardInterrupt` is raised again once the work has ended, because whoever sent it waits for it.
    """
    loop = asyncio.new_event_loop()
    future: Future[T] = Future()
    heard = threading.Event()  # the work begins only once an interruption would be caught below
    thread = threading.Thread(target=_run_into, args=(heard, loop, work, future), name="eventsync-drain", daemon=True)
    thread.start()
    try:
        heard.set()
        return future.result()
    except BaseException as interruption:
        if future.done() or isinstance(interruption, Exception):
            raise
        with suppress(RuntimeError):  # the work has ended by itself in this very moment
            loop.call_soon_threadsafe(on_stop)
        heard.set()
        result = future.result()
        if not isinstance(interruption, KeyboardInterrupt):
            raise
        return result


def _run_into(
    heard: threading.Event, loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[T]], future: Future[T]
) -> None:
    heard.wait()
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            result = runner.run(_awaited(work))
    except BaseException as error:  # noqa: BLE001 - handed over whole to the thread that waits for it
        future.set_exception(error)
    else:
        future.set_result(result)


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
