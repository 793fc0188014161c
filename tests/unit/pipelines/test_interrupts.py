"""Stopping in good order: the first interruption asks, the second one leaves, and no result is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from pipelines.run.signals import catch_up, deferred, run_stoppable, wait_to_be_stopped, window


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """Here tests signal their own process, which is not meant to end the suite."""
    former = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


class Work:
    """Work in an event loop that ends once it is asked to; `begun` is told from within."""

    def __init__(self, begun: Callable[[], None] = lambda: None) -> None:
        self._begun = begun
        self._asked: asyncio.Event | None = None
        self.thread = ""

    async def run(self) -> str:
        self._asked = asyncio.Event()
        self.thread = threading.current_thread().name
        asyncio.get_running_loop().call_soon(self._begun)
        await self._asked.wait()
        return "in good order"

    def stop(self) -> None:
        assert self._asked is not None
        assert threading.current_thread().name == self.thread, "the stop is heard in the loop's own thread"
        self._asked.set()


def _interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def _interrupt_main() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_what_the_work_returns_is_returned() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert run_stoppable(work, lambda: None) == 7


def test_what_the_work_raises_is_raised() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_stoppable(work, lambda: None)


def test_an_interruption_asks_the_work_to_stop_and_waits_for_its_result() -> None:
    work = Work(_interrupt_main)
    assert run_stoppable(work.run, work.stop) == "in good order"


def test_an_interruption_of_another_kind_is_raised_again_once_the_work_has_ended() -> None:
    class Withdrawn(BaseException):
        """How an orchestrator interrupts its steps."""

    def withdraw(_signal: int, _frame: object) -> None:
        raise Withdrawn

    work, ended = Work(_interrupt_main), []

    async def observed() -> None:
        ended.append(await work.run())

    former = signal.signal(signal.SIGINT, withdraw)
    try:
        with pytest.raises(Withdrawn):
            run_stoppable(observed, work.stop)
    finally:
        signal.signal(signal.SIGINT, former)
    assert ended == ["in good order"]


def test_a_second_interruption_leaves_at_once() -> None:
    release = threading.Event()

    async def deaf() -> None:
        asyncio.get_running_loop().call_soon(_interrupt_main)
        await asyncio.to_thread(release.wait, 20)

    with pytest.raises(KeyboardInterrupt):
        run_stoppable(deaf, _interrupt_main)
    release.set()


_STUCK = """
import asyncio, signal, threading, time
from pipelines.stopping.interrupts import deferred_to_the_end
from pipelines.stopping.stoppable import run_stoppable

async def stuck():
    interrupt = lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    asyncio.get_running_loop().call_later(0.1, interrupt)
    asyncio.get_running_loop().call_later(2.0, interrupt)
    await asyncio.to_thread(time.sleep, 60)

with deferred_to_the_end(lambda: print("it hung")):
    try:
        run_stoppable(stuck, lambda: None)
    except KeyboardInterrupt:
        print("told")
"""


@pytest.mark.slow
def test_a_process_that_was_left_waits_for_no_thread_that_hangs() -> None:
    left = subprocess.run([sys.executable, "-c", _STUCK], capture_output=True, text=True, check=False, timeout=60)
    assert (left.returncode, left.stdout) == (130, "told\n")


@pytest.mark.parametrize("listen", [catch_up, wait_to_be_stopped])
def test_a_signal_that_comes_where_nothing_can_be_raised_is_heard_a_moment_later(
    listen: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    class Doomed:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    doomed = [Doomed()]
    with deferred(), window():
        doomed.clear()
        with pytest.raises(KeyboardInterrupt):
            listen()
    assert "Traceback" not in capfd.readouterr().err


def test_a_signal_ends_a_wait_at_whatever_moment_it_comes() -> None:
    def wait(delay_s: float) -> None:
        threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGTERM)).start()
        wait_to_be_stopped()

    for delay_s in (0.0, 0.01, 0.1, 0.25):
        with deferred(), window(), pytest.raises(KeyboardInterrupt):
            wait(delay_s)


def test_what_else_cannot_be_raised_is_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(str(dropped.exc_value)))
    broken = [Broken()]
    with deferred(), window():
        broken.clear()
    assert told == ["broken"]
