"""Stopping in good order: the first signal asks, the second one leaves, and no result is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from pipelines.run.signals import raise_if_stopped, run_async, signals_deferred, signals_raised, wait_to_be_stopped


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """Here tests signal their own process, which is not meant to end the suite."""
    former = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def _interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_signal_that_was_kept_stops_work_that_begins() -> None:
    stopped: list[int] = []
    with signals_deferred():
        _interrupt()
        run_async(partial(asyncio.sleep, 0), stopped.append)
    assert stopped == [1]


def test_the_exception_of_an_orchestrator_is_raised_once_the_work_that_was_asked_to_stop_has_ended() -> None:
    class Withdrawn(BaseException):
        """How an orchestrator interrupts its steps."""

    def withdraw(_signal: int, _frame: object) -> None:
        raise Withdrawn

    asked, ended = asyncio.Event(), list[int]()

    async def work() -> None:
        asyncio.get_running_loop().call_soon(_interrupt)
        await asked.wait()
        ended.append(len(ended))

    signal.signal(signal.SIGINT, withdraw)
    with signals_deferred(), pytest.raises(Withdrawn):
        run_async(work, lambda _signals: asked.set())
    assert ended == [0]


def test_a_signal_waits_for_a_block_that_writes_and_interrupts_one_that_reads_or_the_end_of_it() -> None:
    done: list[str] = []
    with signals_deferred():
        _interrupt()
        done.append("written")
        with pytest.raises(KeyboardInterrupt), signals_raised():
            done.append("read")
    assert done == ["written"]
    with pytest.raises(KeyboardInterrupt), signals_deferred():
        _interrupt()


@pytest.mark.parametrize("listen", [raise_if_stopped, wait_to_be_stopped])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_where_nothing_can_be_raised_is_raised_a_moment_later(listen: Callable[[], None]) -> None:
    class Doomed:
        def __del__(self) -> None:
            _interrupt()

    doomed = [Doomed()]
    with signals_deferred(), signals_raised():
        doomed.clear()
        with pytest.raises(KeyboardInterrupt):
            listen()


@pytest.mark.parametrize("delay_s", [0.0, 0.1])
def test_a_signal_ends_a_wait_at_whatever_moment_it_comes(delay_s: float) -> None:
    with signals_deferred():
        threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(KeyboardInterrupt):
            wait_to_be_stopped()
