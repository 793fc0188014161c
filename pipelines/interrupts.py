"""How Ctrl-C, SIGTERM and SIGHUP reach a run: between its steps and while it waits, never in the midst of writing down.

What stopping in good order means is the drain's and the run's; here a signal becomes an interruption of the main thread
where the run has opened a window for it, and is kept until then. Another signal leaves at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_CODE = 130
_SAME_PRESS_S = 0.1
"""Signals so close together are one wish: a terminal's Ctrl-C may come from the terminal and from a parent as well."""
_LEAVE_S = 0.4
"""How long a second signal waits for the work in its thread to end."""
_LAST_S = 0.7
"""How long after a second signal the process is still there, whatever it hangs in."""

_NAP_S = 0.2

Handler = Callable[[int, FrameType | None], object]


@dataclass(slots=True)
class _Ears:
    """What was heard in this process. Signals belong to the process, so there is one of these."""

    interrupt: Handler = signal.default_int_handler
    is_open: bool = False
    is_asked: bool = False
    asked_at: float = 0.0
    leaving: threading.Event = field(default_factory=threading.Event)

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Take a signal: interrupt the main thread if a window is open, else keep it for the next one."""
        at = time.monotonic()
        if self.is_asked and at - self.asked_at <= _SAME_PRESS_S:
            return
        if self.is_asked:
            self.leaving.set()
        self.is_asked, self.asked_at = True, at
        if self.is_open:
            self.is_open = False
            self.interrupt(number, frame)

    def forget(self) -> None:
        """Be as new."""
        self.is_asked, self.asked_at = False, 0.0


_EARS = _Ears()


def is_stop_asked() -> bool:
    """Whether somebody has asked this process to stop."""
    return _EARS.is_asked


@contextmanager
def deferred() -> Iterator[None]:
    """Keep signals for the windows that the block opens. One that is left over interrupts at the block's end.

    Only the main thread hears signals; elsewhere, and inside of a block like this one, this does nothing.
    """
    with _hearing() as interrupt:
        yield
        is_left_over = interrupt is not None and _EARS.is_asked
    if is_left_over and interrupt is not None:
        interrupt(signal.SIGINT, None)


@contextmanager
def deferred_to_the_end(last_words: Callable[[], None]) -> Iterator[None]:
    """The same around the last thing that a process does: what is left over at its end is dropped.

    From a second signal on, the process is gone within a second whatever it hangs in, after its `last_words`, which are
    called from another thread.
    """
    over = threading.Event()

    def leave() -> None:
        _EARS.leaving.wait()
        if not over.wait(_LAST_S):
            last_words()
            os._exit(EXIT_CODE)

    with _hearing() as interrupt:
        if interrupt is not None:
            threading.Thread(target=leave, name="eventsync-leaving", daemon=True).start()
        yield
        over.set()


@contextmanager
def _hearing() -> Iterator[Handler | None]:
    """Take the signals over; yields how to interrupt as it was done before, None where they are not ours to take."""
    if not _is_main() or signal.getsignal(signal.SIGINT) == _EARS.hear:
        yield None
        return
    former = {number: signal.getsignal(number) for number in STOPPING}
    before = _EARS.interrupt, _EARS.is_open
    is_outermost = not any(handler == _EARS.hear for handler in former.values())
    interrupt = former[signal.SIGINT]
    _EARS.interrupt = interrupt if callable(interrupt) else signal.default_int_handler
    _EARS.is_open = False
    try:
        for number in STOPPING:
            signal.signal(number, _EARS.hear)
        yield _EARS.interrupt
    finally:
        _EARS.interrupt, _EARS.is_open = before
        for number, handler in former.items():
            signal.signal(number, handler)
        if is_outermost:
            _EARS.forget()


@contextmanager
def window() -> Iterator[None]:
    """Let signals interrupt the block; one that came before interrupts at once. Without `deferred` they always do."""
    try:
        _EARS.is_open = True
        if _EARS.is_asked and signal.getsignal(signal.SIGINT) == _EARS.hear and _is_main():
            _EARS.is_open = False
            _EARS.interrupt(signal.SIGINT, None)
        yield
    finally:
        _EARS.is_open = False


def interruptible(items: Iterable[T]) -> Iterator[T]:
    """Yield the items; signals interrupt while the next one is made, and never while the caller works on one."""
    iterator = iter(items)
    while True:
        with window():
            item = next(iterator, _END)
        if item is _END:
            return
        yield item


_END: Any = object()


def run_stoppable(
    work: Callable[[], Coroutine[Any, Any, T]], on_stop: Callable[[], None], on_leave: Callable[[], None] | None = None
) -> T:
    """Run `work()` in an event loop of its own, in a thread; the main thread only waits, in a window.

    The first interruption has `on_stop` called in the loop, and the wait goes on; the second has `on_leave` called, and
    is raised, after at most a moment. Whatever `work` raises is raised here; an interruption that is no
    `KeyboardInterrupt` is raised again once the work has ended, because whoever sent it waits for it.
    """
    loop = asyncio.new_event_loop()
    future: Future[T] = Future()
    heard = threading.Event()  # the work begins only once an interruption would be caught below
    thread = threading.Thread(target=_run_into, args=(heard, loop, work, future), name="eventsync-drain", daemon=True)
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
        result = _result_or_leave(future, lambda: _call_in(loop, on_leave or on_stop))
        if not isinstance(interruption, KeyboardInterrupt):
            raise
        return result


def _result_or_leave(future: Future[T], leave: Callable[[], None]) -> T:
    try:
        return _awaited_again(future)
    except BaseException:
        if not future.done():
            leave()
            with suppress(Exception):
                future.result(_LEAVE_S)
        raise


def _awaited_again(future: Future[T]) -> T:
    """Wait in a window that the first signal, which was heard, does not close again."""
    _EARS.is_open = True
    try:
        return _result_of(future)
    finally:
        _EARS.is_open = False


def _result_of(future: Future[T]) -> T:
    """Wait in short pieces: a signal that comes as the thread falls asleep is not heard until it wakes."""
    while not wait((future,), _NAP_S).done:
        pass
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


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
