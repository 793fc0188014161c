"""Limits that change under the worker's feet, that strangers use too, that are slow, or that let nothing through at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from virtual_time import at_once, clock, now

from connectors.concurrency import ConcurrencyLimit
from connectors.errors import PausedError
from connectors.rate_limit import RateLimiter, Timing
from sandbox.service import FixedWindow, Meter, TokenBucket
from sandbox.switches import Rate

Wait = Callable[[float], float]
"""Seconds to wait for a request that arrives at that time, 0 where it passes."""


@dataclass
class Told:
    """What a service answered, and when; `closed` is why the route was given up, if it was."""

    passed: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    closed: object = None

    def share(self, since: float, until: float, per_s: float) -> float:
        return sum(since <= at < until for at in self.passed) / ((until - since) * per_s)

    @property
    def met(self) -> float:
        return len(self.refused) / (len(self.refused) + len(self.passed))


def driven(wait: Wait, seconds: float, *, in_flight: int = 8, max_pause_s: float = 900.0) -> Told:
    told = Told()

    async def main() -> None:
        around = Timing(clock, asyncio.sleep, lambda: 1.0, now)
        paced = RateLimiter(around, max_pause_s=max_pause_s, concurrency=ConcurrencyLimit(in_flight))

        async def work() -> None:
            while clock() < seconds and told.closed is None:
                admitted = await paced.acquire()
                if admitted is None:
                    told.closed = paced.closed
                    return
                wait_s = wait(clock())
                (told.refused if wait_s else told.passed).append(clock())
                await asyncio.sleep(0.01)
                if wait_s:
                    paced.limited(admitted, wait_s)
                else:
                    paced.passed()

        await asyncio.gather(*(work() for _ in range(in_flight)))

    at_once(main)
    return told


@pytest.mark.parametrize(("before", "after"), [(40, 20), (20, 40)], ids=["halved", "doubled"])
def test_a_limit_that_changes_in_mid_run_is_found_again(before: int, after: int) -> None:
    meters: tuple[Meter, Meter] = TokenBucket(Rate(before), 10), TokenBucket(Rate(after), 10)
    told = driven(lambda at: meters[at >= 100].take(at), 250)
    assert told.share(0, 100, before) > 0.93
    assert told.share(100, 250, after) > 0.85
    assert told.met < 0.02


def test_a_strangers_requests_leave_us_the_rest_of_the_limit() -> None:
    meter, stranger = TokenBucket(Rate(20), 10), [0.0]

    def wait(at: float) -> float:
        while stranger[0] <= at:
            meter.take(stranger[0])
            stranger[0] += 0.1
        return meter.take(at)

    told = driven(wait, 120)
    assert told.share(0, 120, 10) > 0.9
    assert told.met < 0.03


def test_thirty_a_minute_are_used_up() -> None:
    told = driven(FixedWindow(Rate(30, "m")).take, 1200)
    assert told.share(0, 1200, 0.5) > 0.95
    assert told.met < 0.05


def test_a_hundred_an_hour_are_used_up_by_who_has_patience() -> None:
    told = driven(FixedWindow(Rate(100, "h")).take, 4 * 3600, max_pause_s=7200)
    assert told.share(0, 4 * 3600, 100 / 3600) > 0.95
    assert told.closed is None


def test_a_hundred_an_hour_pause_a_run_that_has_no_patience() -> None:
    told = driven(FixedWindow(Rate(100, "h")).take, 4 * 3600)
    assert isinstance(told.closed, PausedError)
    assert len(told.passed) == 100


def test_without_any_patience_the_first_limit_ends_the_run() -> None:
    told = driven(TokenBucket(Rate(20), 5).take, 60, max_pause_s=0.0)
    assert isinstance(told.closed, PausedError)
    assert len(told.refused) <= 8


def test_a_service_that_refuses_everything_for_a_moment_each_time_pauses_the_run_and_is_rarely_asked() -> None:
    told = driven(lambda _at: 0.05, 3600, in_flight=32, max_pause_s=60)
    assert isinstance(told.closed, PausedError)
    assert not told.passed
    assert told.refused[-1] <= 61
    assert len(told.refused) < 80
