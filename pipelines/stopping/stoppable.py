"""Asynchronous work that can be asked to stop: its event loop lives in a thread, and the main thread waits for it.

How signals reach the main thread is `interrupts`'; what stopping in good order means is the work's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from pipelines.stopping.interrupts import catch_up, window, window_again

T = TypeVar("T")

_LEAVE_S = 0.4
"""How long a second interruption waits for the work to end."""
_NAP_S = 0.2


def run_stoppable(
    work: Callable[[], Coroutine[Any, Any, T]], on_stop: Callable[[], None], on_leave: Callable[[], None] | None = None
) -> T:
    """Run `work()` in an event loop of its own, in a thread; the main thread only waits, in a window.

    The first interruption has `on_stop` called in the loop, and the wait goes on; the second has `on_leave` called, and
    is raised, after at most a moment. Whatever `work` raises is raised here; an interruption that is no
    `KeyboardInterrupt` is raised again once the work has ended, because whoever sent it waits for it, and so is any that
    the work was cancelled for.
    """
    loop = asyncio.new_event_loop()
    future: Future[T] = Future()
    heard = threading.Event()  # the work begins only once an interruption would be caught below
    begin = copy_context().run  # what is logged there names the same run and feed
    thread = threading.Thread(target=begin, args=(_run_into, heard, loop, work, future), name="eventsync-drain", daemon=True)
    thread.start()
    try:
        with window():
            heard.set()
            return _result_of(future)
    except BaseException as interruption:
        if future.done() or isinstance(interruption, Exception):
            raise
        _call_in(loop, on_stop)
        heard.set()
        try:
            result = _result_or_leave(future, lambda: _call_in(loop, on_leave or on_stop))
        except asyncio.CancelledError:
            raise interruption from None
        if not isinstance(interruption, KeyboardInterrupt):
            raise
        return result


def cancel_all() -> None:
    """Stop a work of which nothing has to be finished: an `on_stop`."""
    for task in asyncio.all_tasks(asyncio.get_running_loop()):
        task.cancel()


def _result_or_leave(future: Future[T], leave: Callable[[], None]) -> T:
    try:
        with window_again():
            return _result_of(future)
    except BaseException:
        if not future.done():
            leave()
            with suppress(Exception):
                future.result(_LEAVE_S)
        raise


def _result_of(future: Future[T]) -> T:
    """Wait in short pieces: a signal that comes as the thread falls asleep is not heard until it wakes."""
    while not wait((future,), _NAP_S).done:
        catch_up()
    return future.result()


def _call_in(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the work has ended by itself in this very moment
        loop.call_soon_threadsafe(what)


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
