"""Stopping in good order, and a feed held while a run works on it: no result is lost, nothing leaves after a long silence."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import cast

import pytest
import structlog
from integration.waiting import until
from pydantic_core import SchemaValidator, core_schema
from structlog.contextvars import bound_contextvars
from structlog.testing import LogCapture

from mappings.errors import SyncError, TransientError
from pipelines.run.outcome import FaultError, faults_as_errors
from pipelines.run.publish import Drain
from pipelines.run.signals import (
    leaving_on_second_signal,
    raise_if_stopped,
    run_async,
    signals_deferred,
    signals_raised,
    wait_to_be_stopped,
)
from state.errors import LeaseLostError
from state.ledger.lease import FRESH_S, LEASE_TTL_S, LeaseKeeper
from state.ledger.outbox import Outbox


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


def test_an_interruption_that_a_library_turned_into_its_own_error_is_an_interruption() -> None:
    class Word(str):
        __slots__ = ()

        def __repr__(self) -> str:
            _interrupt()
            return super().__repr__()

    with signals_deferred(), pytest.raises(KeyboardInterrupt), faults_as_errors("building"), signals_raised():
        SchemaValidator(core_schema.literal_schema([Word("draft")]))  # pydantic raises SchemaError


def test_a_fault_beside_a_signal_that_waits_is_still_a_fault() -> None:
    def write() -> None:
        _interrupt()
        raise ZeroDivisionError

    with pytest.raises(FaultError), signals_deferred(), faults_as_errors("writing"):
        write()


@pytest.mark.parametrize("delay_s", [0.0, 0.1])
def test_a_signal_ends_a_wait_at_whatever_moment_it_comes(delay_s: float) -> None:
    with signals_deferred():
        threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(KeyboardInterrupt):
            wait_to_be_stopped()


def test_a_signal_that_does_not_wake_the_main_thread_is_sent_to_it_again() -> None:
    async def wait() -> None:
        # As in the moment before a wait begins: Python has the signal, and the wait of the main thread goes on.
        threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()
        await asyncio.Event().wait()

    with leaving_on_second_signal(lambda: None), pytest.raises(KeyboardInterrupt):
        run_async(wait)


BEAT_S = 0.01
NO_OUTBOX = cast("Outbox", None)
LOST = LeaseLostError("another run has the feed")
BUSY = TransientError("the state DB is held by another process")


@dataclass
class Paper:
    """A lease that fails as it is told to; and a clock to turn by hand, which it is called for."""

    token: int = 1
    trouble: SyncError | None = None
    renewed: int = 0
    released: int = 0
    at: float = 0.0

    def __call__(self) -> float:
        return self.at

    def renew(self) -> None:
        self.renewed += 1
        if self.trouble:
            raise self.trouble

    def release(self) -> None:
        self.released += 1
        if self.trouble:
            raise self.trouble

    def kept(self, beat_s: float = 60) -> LeaseKeeper:
        return LeaseKeeper(self, self, beat_s=beat_s)


def test_a_held_feed_is_renewed_though_the_state_db_is_busy_for_a_while_and_released_in_the_end() -> None:
    paper = Paper(trouble=BUSY)
    with paper.kept(BEAT_S):
        until(lambda: paper.renewed > 3)
        paper.trouble = None
        before = paper.renewed
        until(lambda: paper.renewed > before + 1)
    assert paper.released == 1


def test_once_the_feed_is_known_to_be_lost_nothing_leaves_and_no_beat_asks_again() -> None:
    paper = Paper(trouble=LOST)
    with paper.kept(BEAT_S) as hold:
        until(lambda: "eventsync-heartbeat" not in {thread.name for thread in threading.enumerate()})
        with pytest.raises(LeaseLostError):
            asyncio.run(hold.assure())
    assert (paper.renewed, paper.released) == (2, 1), "and a lease that cannot be released is no fault of the run"


@pytest.mark.parametrize(
    ("silent_s", "trouble", "asked", "left"),
    [(FRESH_S, LOST, 0, 20), (LEASE_TTL_S * 3, None, 1, 20), (FRESH_S + 0.1, LOST, 20, 0), (FRESH_S + 0.1, BUSY, 20, 0)],
    ids=["a moment ago", "stopped for long", "lost meanwhile", "the state DB is busy"],
)
def test_after_a_silence_requests_leave_once_the_feed_is_known_to_be_ours_which_is_asked_once_for_all_of_them(
    silent_s: float, trouble: SyncError | None, asked: int, left: int
) -> None:
    paper = Paper(trouble=trouble)

    async def send(hold: LeaseKeeper) -> None:
        async with Drain(NO_OUTBOX, 1, 1.0, lambda _rows: None, assure=hold.assure).passage():
            """Leave."""

    async def many(hold: LeaseKeeper) -> list[BaseException | None]:
        return await asyncio.gather(*(send(hold) for _ in range(20)), return_exceptions=True)

    with paper.kept() as hold:
        paper.at = silent_s
        assert asyncio.run(many(hold)) == [None] * left + [trouble] * (20 - left)
    assert paper.renewed == asked


def test_what_the_heartbeat_logs_names_the_run_that_holds_the_feed() -> None:
    heard = LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, heard])
    with bound_contextvars(feed="town-hall", run_id="r1"), Paper(trouble=BUSY).kept(BEAT_S):
        until(lambda: bool(heard.entries), what="a beat that fails")
    assert {(entry["feed"], entry["run_id"]) for entry in heard.entries} == {("town-hall", "r1")}
