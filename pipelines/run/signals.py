"""The error of a run that somebody asked to stop. It imports next to nothing, so that it can be told in the midst of any import.

How a signal reaches a run is `interrupts`'; what the error means for scripts is `outcomes`'.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn, TypeVar

from mappings.errors import SyncError


class InterruptedRunError(SyncError):
    """A person or the machine asked the run to stop; the state is intact."""


INTERRUPTED = 130
"""The exit code of a process that SIGINT has ended (128 + 2, as shells count)."""


def leave(_number: int, _frame: FrameType | None) -> None:
    """Leave at once, with what was already printed: nothing is at work whose state could be hurt."""
    with suppress(RuntimeError, OSError, ValueError):  # it is being written to, or nobody reads it any more
        sys.stdout.flush()
    os._exit(INTERRUPTED)


T = TypeVar("T")
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_PRESS_S = 0.1
"""Signals so close together are one wish: a terminal's Ctrl-C may come from the terminal and from a parent as well."""
_LAST_S = 0.7
"""How long after a second signal the block still has, whatever it hangs in."""
_FAREWELL_S = 0.25
"""How long the process then has: Python waits for threads, one of which may ask a server that does not answer."""
_NAP_S = 0.2
"""How long a signal may go unheard by somebody who only waits."""
Handler = Callable[[int, FrameType | None], object]
Dropped = Callable[["sys.UnraisableHookArgs"], object]


@dataclass(slots=True)
class _Ears:
    """What was heard in this process. Signals belong to the process, so there is one of these."""

    interrupt: Handler = signal.default_int_handler
    is_open: bool = False
    is_asked: bool = False
    is_due: bool = False
    asked_at: float = 0.0
    raised: type[BaseException] | None = None
    tell_dropped: Dropped = sys.unraisablehook
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
            self.let_in(number, frame)

    def let_in(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the main thread, and close the window."""
        self.is_open = self.is_due = False
        try:
            self.interrupt(number, frame)
        except BaseException as interruption:
            self.raised = type(interruption)
            raise

    def drop(self, dropped: sys.UnraisableHookArgs) -> None:
        """Take what could not be raised where it came, as while an object is finalized: an interruption is due a moment later."""
        if dropped.exc_type is self.raised:
            self.is_open = self.is_due = True
        else:
            self.tell_dropped(dropped)

    def forget(self) -> None:
        """Be as new."""
        self.is_asked, self.is_due, self.asked_at, self.raised = False, False, 0.0, None


_EARS = _Ears()


def is_stop_asked() -> bool:
    """Whether somebody has asked this process to stop."""
    return _EARS.is_asked


@contextmanager
def deferred() -> Iterator[None]:
    """Keep signals for the windows that the block opens. One that is left over interrupts at the block's end, unless the
    block stands in another one that keeps them. Only the main thread hears signals; elsewhere this does nothing.
    """
    with _hearing() as ended:
        yield
    if ended and _EARS.is_asked:
        _EARS.is_open = False
        ended[0](signal.SIGINT, None)


@contextmanager
def deferred_to_the_end(last_words: Callable[[], None]) -> Iterator[None]:
    """The same around the last thing that a process does: what is left over at its end is dropped.

    From a second signal on, the process is gone within a second whatever it hangs in, after its `last_words`, which are
    called from another thread.
    """
    over = threading.Event()

    def leave() -> None:
        _EARS.leaving.wait()
        if over.is_set():
            return
        if over.wait(_LAST_S):
            threading.Event().wait(_FAREWELL_S)
            sys.stdout.flush()
        else:
            last_words()
        os._exit(INTERRUPTED)

    threading.Thread(target=leave, name="eventsync-leaving", daemon=True).start()
    try:
        with _hearing():
            yield
    finally:
        over.set()


@contextmanager
def _hearing() -> Iterator[list[Handler]]:
    """Take the signals over, and keep them; after the block the list says how to interrupt with what is left over, if at all."""
    ended: list[Handler] = []
    if not _is_main():
        yield ended
        return
    former = {number: signal.getsignal(number) for number in STOPPING}
    is_ours, was_open, interrupt = former[signal.SIGINT] == _EARS.hear, _EARS.is_open, _EARS.interrupt
    _EARS.is_open = False
    if not is_ours:
        handler = former[signal.SIGINT]
        _EARS.interrupt = handler if callable(handler) and handler != leave else signal.default_int_handler
        _EARS.tell_dropped, sys.unraisablehook = sys.unraisablehook, _EARS.drop
    try:
        for number in STOPPING:
            signal.signal(number, _EARS.hear)
        yield ended
        ended += [_EARS.interrupt] if was_open or not is_ours else []
    finally:
        _EARS.interrupt, _EARS.is_open = interrupt, was_open
        for number, handler in former.items():
            signal.signal(number, handler)
        if not is_ours:
            sys.unraisablehook = _EARS.tell_dropped
        if _EARS.hear not in former.values():
            _EARS.forget()


@contextmanager
def window() -> Iterator[None]:
    """Let signals interrupt the block; one that came before interrupts at once. Without `deferred` they always do."""
    was_open = _EARS.is_open
    try:
        _EARS.is_open = True
        if _EARS.is_asked and _is_main() and signal.getsignal(signal.SIGINT) == _EARS.hear:
            _EARS.let_in(signal.SIGINT, None)
        yield
    finally:
        _EARS.is_open = was_open


def catch_up() -> None:
    """Interrupt now for a signal that came in this window, at a moment in which nothing could be raised."""
    if _EARS.is_due and _EARS.is_open and _is_main():
        _EARS.let_in(signal.SIGINT, None)


def wait_to_be_stopped() -> NoReturn:
    """Wait until a signal interrupts, in a window.

    In naps: a signal of the very moment in which a wait begins does not end that wait, and `signal.pause` would never end.
    """
    never = threading.Event()
    while True:
        never.wait(_NAP_S)
        catch_up()


def interruptible(items: Iterable[T]) -> Iterator[T]:
    """Yield the items, and hold on to none; signals interrupt while the next is made, and never while the caller works on one."""
    iterator = iter(items)
    while True:
        with window():
            item = next(iterator, _END)
        if item is _END:
            return
        yield item
        del item


_END: Any = object()


@contextmanager
def window_again() -> Iterator[None]:
    """Let the next signal interrupt the block; the one that was heard does not."""
    was_open, _EARS.is_open = _EARS.is_open, True
    try:
        yield
    finally:
        _EARS.is_open = was_open


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


_LEAVE_S = 0.4
"""How long a second interruption waits for the work to end."""


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
