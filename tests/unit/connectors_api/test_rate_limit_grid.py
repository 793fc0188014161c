"""A part of the grid of budget 7, on virtual time: unknown limits are used, rarely met, and never asked in a pause."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from virtual_time import at_once, clock, now

from connectors.concurrency import ConcurrencyLimit
from connectors.rate_limit import Permit, RateLimiter, Timing
from sandbox.service import FixedWindow, Meter, SlidingWindow, TokenBucket
from sandbox.switches import Rate

MINUTE_S = 60.0


class Tens(Rate):
    """A rate for a window of ten seconds."""

    @property
    def period_s(self) -> int:
        return 10


LIMITS: dict[str, Callable[[], Meter]] = {
    "bucket with a burst of five": lambda: TokenBucket(Rate(20), 5),
    "fixed window of a second": lambda: FixedWindow(Rate(20)),
    "fixed window of ten seconds": lambda: FixedWindow(Tens(200)),
    "sliding window of a second": lambda: SlidingWindow(Rate(20)),
    "sliding window of ten seconds": lambda: SlidingWindow(Tens(200)),
}
SPELT: dict[str, Callable[[float], float | None]] = {
    "whole seconds": math.ceil,
    "a fraction": lambda wait_s: wait_s,
    "nothing": lambda _wait_s: None,
}


@dataclass
class Minute:
    """The first minute of eight requests in flight at five milliseconds, from anywhere in a window on.

    Timers are up to `late_s` late.
    """

    meter: Meter
    spelt: Callable[[float], float | None]
    chance: random.Random
    late_s: float = 0.0
    seconds: float = MINUTE_S
    passed: int = 0
    passed_later: int = 0
    refused: int = 0
    early: int = 0
    paused_until: float = field(default=0.0)

    def spent(self) -> Minute:
        at_once(self._main)
        return self

    async def _main(self) -> None:
        begins_at = self.chance.uniform(0.0, 60.0)
        paced = RateLimiter(Timing(clock, self._sleep, self.chance.random, now), concurrency=ConcurrencyLimit(8))
        await asyncio.gather(*(self._work(paced, begins_at) for _ in range(8)))

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds + self.chance.uniform(0.0, self.late_s))

    async def _work(self, paced: RateLimiter, begins_at: float) -> None:
        while clock() < self.seconds:
            await paced.concurrency.enter()
            admitted = await paced.acquire()
            assert admitted is not None
            self.early += clock() < self.paused_until - 1e-6
            await self._send(paced, admitted, begins_at)
            paced.concurrency.leave()

    async def _send(self, paced: RateLimiter, admitted: Permit, begins_at: float) -> None:
        paced.concurrency.sent()
        await asyncio.sleep(0.005 * self.chance.uniform(0.4, 0.6))
        wait_s = self.meter.take(begins_at + clock())
        await asyncio.sleep(0.005 * self.chance.uniform(0.4, 0.6))
        paced.concurrency.back(0.005, is_well=wait_s <= 0)
        if wait_s <= 0:
            self.passed += clock() <= self.seconds
            self.passed_later += self.seconds / 2 <= clock() <= self.seconds
            paced.passed()
            return
        self.refused += 1
        told_s = self.spelt(wait_s)
        self.paused_until = max(self.paused_until, clock() + (told_s or 0.0))
        paced.limited(admitted, told_s)


def test_unknown_limits_are_used_rarely_met_and_never_asked_in_a_pause() -> None:
    minutes = [
        Minute(limit(), spelt, random.Random(seed)).spent()
        for limit in LIMITS.values()
        for spelt in SPELT.values()
        for seed in range(2)
    ]
    passed, refused = sum(min(one.passed, 1200) for one in minutes), sum(one.refused for one in minutes)
    assert passed >= 0.9 * len(minutes) * 1200
    assert min(one.passed for one in minutes) >= 0.75 * 1200
    assert refused < 0.02 * (passed + refused)
    assert not sum(one.early for one in minutes)


@pytest.mark.parametrize(("per_s", "burst"), [(50, 10), (100, 10), (200, 20)])
def test_a_bucket_that_holds_little_of_its_rate_is_used_up_once_it_is_known_though_timers_are_late(
    per_s: int, burst: int
) -> None:
    run = Minute(TokenBucket(Rate(per_s), burst), math.ceil, random.Random(1), late_s=0.02, seconds=40.0).spent()
    assert run.passed_later >= 0.93 * per_s * 20
    assert run.refused < 0.01 * (run.passed + run.refused)
    assert not run.early


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS.keys())
def test_over_ten_minutes_a_limit_is_nearly_used_up_and_rarely_met(limit: Callable[[], Meter]) -> None:
    run = Minute(limit(), math.ceil, random.Random(1), seconds=600.0).spent()
    assert run.passed > 0.9 * 20 * run.seconds
    assert run.refused < 0.01 * run.passed
    assert not run.early
