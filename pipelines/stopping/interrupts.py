"""How Ctrl-C, SIGTERM and SIGHUP reach a run: between its steps and while it waits, never in the midst of writing down.

Here a signal becomes an interruption of the main thread where the run has opened a window for it, and is kept until
then; another signal leaves at once. What stopping in good order means is the drain's and the run's.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn, TypeVar

from pipelines.stopping.threshold import INTERRUPTED
from pipelines.stopping.threshold import leave as leave_unheard

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
        _EARS.interrupt = handler if callable(handler) and handler != leave_unheard else signal.default_int_handler
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
