"""SIGINT, SIGTERM and SIGHUP: the first one stops a command cleanly, a second one ends it at once.

While the main thread waits or reads, a signal raises `KeyboardInterrupt` (or what an orchestrator's handler raises). While it
writes, the signal is deferred. An event loop of a run is stopped through a callback.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, TypeVar

from mappings.errors import SyncError

T = TypeVar("T")
Handler = Callable[[int, FrameType | None], object]

INTERRUPTED = 130
"""Exit code of a process that SIGINT has ended (128 + 2, as shells count)."""
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_PRESS_S = 0.1
"""Signals within this time count as one: Ctrl-C may arrive from the terminal and from a parent process."""
_SECOND = 2
_LAST_S = 0.7
"""Seconds that the command gets after a second signal, even if it hangs."""
_NAP_S = 0.1
"""Seconds of a step of a wait: a signal just before a wait does not end it."""
_ENTRY = "pipelines.cli.entry"
"""The module whose handler ends a command that has not begun; it is not an orchestrator's."""


class InterruptedRunError(SyncError):
    """A person or the machine asked the run to stop; the state is intact."""


@dataclass(slots=True)
class _Signals:
    """The signals that this process has received; there is one instance, because signals belong to the process.

    `numbers`: the signals that stop it. `handled`: how many of `count` have stopped something. `depth`: the number of nested
    blocks that handle signals. `has_alarm`: a second signal sets the alarm that ends the process. `raise_interrupt`: the handler
    installed before ours, Python's or an orchestrator's.
    """

    numbers: tuple[signal.Signals, ...] = STOPPING
    count: int = 0
    handled: int = 0
    received_at: float = 0.0
    is_deferred: bool = False
    depth: int = 0
    has_alarm: bool = False
    raise_interrupt: Handler = signal.default_int_handler

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        at = time.monotonic()
        if self.count and at - self.received_at <= _SAME_PRESS_S:
            return
        self.count, self.received_at = self.count + 1, at
        if self.has_alarm and self.count == _SECOND:
            signal.setitimer(signal.ITIMER_REAL, _LAST_S)
        self.raise_new()

    def raise_new(self) -> None:
        """Raise for signals that have stopped nothing yet, unless they are deferred."""
        if self.count > self.handled and not self.is_deferred:
            self.handled = self.count
            self.raise_interrupt(signal.SIGINT, None)


_SIGNALS = _Signals()


def is_stop_asked() -> bool:
    """Return whether this process has received a signal to stop."""
    return _SIGNALS.count > 0


def raise_if_stopped() -> None:
    """Raise for a signal that arrived while Python drops exceptions, as in callbacks from C and finalizers."""
    if _SIGNALS.count and not _SIGNALS.is_deferred and _is_main():
        _SIGNALS.raise_interrupt(signal.SIGINT, None)


def raise_if_turned_into_an_error() -> None:
    """Raise again for a signal that was raised: pydantic and other libraries in C turn its exception into one of their own."""
    if _SIGNALS.handled and _is_main():
        _SIGNALS.raise_interrupt(signal.SIGINT, None)


def ignore_all_but_sigint() -> None:
    """Let only SIGINT stop this process. Processes that it starts do not inherit this, unlike a blocked signal."""
    _SIGNALS.numbers = (signal.SIGINT,)
    for number in set(STOPPING) - {signal.SIGINT}:
        signal.signal(number, lambda _number, _frame: None)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer signals until a block `signals_raised` inside, or until the end. Does nothing outside the main thread."""
    if not _is_main():
        yield
        return
    was_deferred, raise_interrupt, report_dropped = _SIGNALS.is_deferred, _SIGNALS.raise_interrupt, sys.unraisablehook
    _SIGNALS.is_deferred = True
    _SIGNALS.depth += 1
    sys.unraisablehook = lambda dropped: None if dropped.exc_type is KeyboardInterrupt else report_dropped(dropped)
    former = {number: signal.signal(number, _SIGNALS.handle) for number in _SIGNALS.numbers}
    if (handler := former[signal.SIGINT]) != _SIGNALS.handle:
        is_others = callable(handler) and getattr(handler, "__module__", "") != _ENTRY
        _SIGNALS.raise_interrupt = handler if callable(handler) and is_others else signal.default_int_handler
    try:
        yield
        _SIGNALS.is_deferred = was_deferred
        _SIGNALS.raise_new()
    finally:
        _SIGNALS.is_deferred, _SIGNALS.raise_interrupt = was_deferred, raise_interrupt
        _SIGNALS.depth -= 1
        sys.unraisablehook = report_dropped
        for number, handler in former.items():
            signal.signal(number, handler)
        if not _SIGNALS.depth:
            _SIGNALS.count = _SIGNALS.handled = 0


@contextmanager
def signals_raised() -> Iterator[None]:
    """Let signals interrupt the block, for waiting and reading; a deferred one interrupts at once."""
    if not _is_main():
        yield
        return
    was_deferred, _SIGNALS.is_deferred = _SIGNALS.is_deferred, False
    try:
        _SIGNALS.raise_new()
        yield
    finally:
        _SIGNALS.is_deferred = was_deferred


def run_async(work: Callable[[], Coroutine[Any, Any, T]], on_stop: Callable[[int], None] | None = None) -> T:
    """Run `work()` in an event loop. A signal calls `on_stop` there, with the number of signals so far.

    Without `on_stop`, a signal cancels the work and is raised here. After a clean stop the result is returned, unless an
    orchestrator's handler raises its own exception.
    """
    import asyncio  # noqa: PLC0415  # keeps the first moment of a command short

    if not _is_main():
        return asyncio.run(work())
    before, was_deferred = _SIGNALS.handled, _SIGNALS.is_deferred

    async def watched() -> T:
        """Wait in short steps, because a signal just before a wait does not end it."""
        task, seen = asyncio.ensure_future(work()), before
        while not task.done():
            if _SIGNALS.count > seen:
                seen = _SIGNALS.count
                on_stop(seen) if on_stop else task.cancel()
            await asyncio.wait({task}, timeout=_NAP_S)
        return task.result()

    _SIGNALS.is_deferred = True
    try:
        result = asyncio.run(watched())
    except asyncio.CancelledError:
        if _SIGNALS.count > before:
            _SIGNALS.raise_interrupt(signal.SIGINT, None)
        raise
    finally:
        _SIGNALS.is_deferred, _SIGNALS.handled = was_deferred, _SIGNALS.count
    if _SIGNALS.count > before:
        with suppress(*[KeyboardInterrupt] if on_stop else []):
            _SIGNALS.raise_interrupt(signal.SIGINT, None)
    return result


def wait_to_be_stopped() -> NoReturn:
    """Wait until a signal interrupts. Sleeps in short steps: a signal just before a sleep does not end it."""
    with signals_raised():
        while True:
            raise_if_stopped()
            time.sleep(_NAP_S)  # noqa: TID251  # waits for a person


@contextmanager
def leaving_on_second_signal(last_words: Callable[[], None]) -> Iterator[None]:
    """Defer signals during the block; a second signal ends the process within a second.

    It sets an alarm. If the block has not ended by then, `last_words` is called before the process exits.
    """
    if not _is_main():
        yield
        return

    def alarmed(_number: int, _frame: FrameType | None) -> None:
        last_words()
        _leave()

    former = signal.signal(signal.SIGALRM, alarmed)
    _SIGNALS.has_alarm = True
    try:
        with signals_deferred():
            yield
            _SIGNALS.handled = _SIGNALS.count
            if _SIGNALS.count >= _SECOND:
                _leave()  # Python would wait for threads, one of which may wait for a server
    finally:
        _SIGNALS.has_alarm = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def _leave() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(INTERRUPTED)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
