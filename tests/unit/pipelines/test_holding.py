"""A feed held while a run works on it: the heartbeat goes on through troubles, and nothing leaves once it was silent for long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest
import structlog
from integration.waiting import until
from structlog.contextvars import bound_contextvars
from structlog.testing import LogCapture

from mappings.errors import SyncError, TransientError
from pipelines.run.context import FRESH_S, LeaseKeeper
from pipelines.run.publish import Drain
from state.errors import LeaseLostError
from state.ledger.lease import LEASE_TTL_S
from state.ledger.outbox import Outbox

BEAT_S = 0.01


@dataclass
class Paper:
    """A lease that answers as it is told to; and a clock to turn by hand, which it is called for."""

    token: int = 1
    answer: Callable[[], None] = lambda: None
    renewed: int = 0
    is_released: bool = False
    at: float = 0.0

    def __call__(self) -> float:
        return self.at

    def renew(self) -> None:
        self.renewed += 1
        self.answer()

    def release(self) -> None:
        self.is_released = True

    def kept(self, beat_s: float = 60) -> LeaseKeeper:
        return LeaseKeeper(self, self, beat_s=beat_s)


def _raise(error: SyncError) -> Callable[[], None]:
    def answer() -> None:
        raise error

    return answer


NO_OUTBOX = cast("Outbox", None)
LOST = LeaseLostError("another run has the feed")
BUSY = TransientError("the state DB is held by another process")


def test_a_held_feed_is_renewed_though_the_state_db_is_busy_for_a_while_and_released_in_the_end() -> None:
    paper = Paper(answer=_raise(BUSY))
    with paper.kept(BEAT_S):
        until(lambda: paper.renewed > 3)
        paper.answer = lambda: None
        before = paper.renewed
        until(lambda: paper.renewed > before + 1)
    assert paper.is_released


def test_once_the_feed_is_known_to_be_lost_nothing_leaves_and_no_beat_asks_again() -> None:
    paper = Paper(answer=_raise(LOST))
    with paper.kept(BEAT_S) as hold:
        until(lambda: "eventsync-heartbeat" not in {thread.name for thread in threading.enumerate()})
        with pytest.raises(LeaseLostError):
            asyncio.run(hold.assure())
    assert paper.renewed == 2


@pytest.mark.parametrize(("silent_s", "asked"), [(FRESH_S, 0), (LEASE_TTL_S * 3, 1)], ids=["a moment ago", "stopped for long"])
def test_a_process_that_was_stopped_asks_before_its_next_request_leaves_and_once_for_all_of_them(
    silent_s: float, asked: int
) -> None:
    paper = Paper()

    async def many(hold: LeaseKeeper) -> None:
        await asyncio.gather(*(hold.assure() for _ in range(20)))

    with paper.kept() as hold:
        paper.at = silent_s
        asyncio.run(many(hold))
    assert paper.renewed == asked


@pytest.mark.parametrize("trouble", [LOST, BUSY], ids=["lost", "busy"])
def test_after_a_silence_nothing_leaves_unless_the_feed_is_still_ours(trouble: SyncError) -> None:
    paper, left = Paper(answer=_raise(trouble)), list[str]()

    async def send(hold: LeaseKeeper) -> None:
        async with Drain(NO_OUTBOX, 1, 1.0, lambda _rows: None, assure=hold.assure).passage():
            left.append("a request")

    with paper.kept() as hold:
        paper.at = FRESH_S + 0.1
        with pytest.raises(type(trouble)):
            asyncio.run(send(hold))
    assert left == []


def test_a_lease_that_cannot_be_released_is_no_fault_of_the_run() -> None:
    paper = Paper()
    paper.release = _raise(BUSY)  # type: ignore[method-assign]  # what a locked state DB answers
    with paper.kept():
        pass


def test_what_the_heartbeat_logs_names_the_run_that_holds_the_feed() -> None:
    heard = LogCapture()
    former = structlog.get_config()["processors"]
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, heard])
    paper = Paper(answer=_raise(BUSY))
    try:
        with bound_contextvars(feed="town-hall", run_id="r1"), paper.kept(BEAT_S):
            until(lambda: bool(heard.entries), what="a beat that fails")
    finally:
        structlog.configure(processors=former)
    assert {(entry["feed"], entry["run_id"]) for entry in heard.entries} == {("town-hall", "r1")}
