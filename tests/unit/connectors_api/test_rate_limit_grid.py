"""Limits that the worker does not know, on virtual time (budget 7): used, rarely met, and never asked in a pause.

Also limits that change in mid-run, that strangers use too, that are slow, or that let nothing through at all.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import httpx
import pytest
from unit.connectors_api.wired import created, deliver_for_a_minute, told
from virtual_time import at_once, clock, now

from connectors.errors import PausedError
from connectors.rate_limit import ConcurrencyLimit, RateLimiter
from connectors.retry import Timing
from sandbox.service import FixedWindow, Meter, SlidingWindow, TokenBucket
from sandbox.switches import Rate

Wait = Callable[[float], float]
"""Seconds to wait for a request that arrives at that time, 0 where it passes."""


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
class Drive:
    """Requests in flight against a limit for some seconds, beginning anywhere in a window. Timers are up to `late_s` late."""

    wait: Wait
    seconds: float = 60.0
    in_flight: int = 8
    max_pause_s: float = 900.0
    spelt: Callable[[float], float | None] = math.ceil
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    late_s: float = 0.0
    passed: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    early: int = 0
    closed: object = None
    paused_until: float = 0.0

    def driven(self) -> Drive:
        at_once(self._main)
        return self

    def share(self, since: float, until: float, per_s: float) -> float:
        return sum(since <= at < until for at in self.passed) / ((until - since) * per_s)

    @property
    def met(self) -> float:
        return len(self.refused) / (len(self.refused) + len(self.passed))

    async def _main(self) -> None:
        begins_at = self.chance.uniform(0.0, 60.0)
        timing = Timing(clock, self._sleep, self.chance.random, now)
        limiter = RateLimiter(timing, max_pause_s=self.max_pause_s, concurrency=ConcurrencyLimit(self.in_flight))
        await asyncio.gather(*(self._work(limiter, begins_at) for _ in range(self.in_flight)))

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds + self.chance.uniform(0.0, self.late_s))

    async def _work(self, limiter: RateLimiter, begins_at: float) -> None:
        while clock() < self.seconds and self.closed is None:
            await limiter.concurrency.enter()
            permit = await limiter.acquire()
            if permit is None:
                self.closed = limiter.closed
                limiter.concurrency.leave()
                return
            self.early += clock() < self.paused_until - 1e-6
            limiter.concurrency.sent()
            await asyncio.sleep(0.005 * self.chance.uniform(0.4, 0.6))
            wait_s = self.wait(begins_at + clock())
            await asyncio.sleep(0.005 * self.chance.uniform(0.4, 0.6))
            limiter.concurrency.back(0.005, is_well=wait_s <= 0)
            (self.passed if wait_s <= 0 else self.refused).append(clock())
            if wait_s <= 0:
                limiter.passed()
            else:
                named_s = self.spelt(wait_s)
                self.paused_until = max(self.paused_until, clock() + (named_s or 0.0))
                limiter.limited(permit, named_s)
            limiter.concurrency.leave()


def test_unknown_limits_are_used_rarely_met_and_never_asked_in_a_pause() -> None:
    minutes = [
        Drive(limit().take, spelt=spelt, chance=random.Random(seed)).driven()
        for limit in LIMITS.values()
        for spelt in SPELT.values()
        for seed in range(2)
    ]
    passed = sum(min(len(one.passed), 1200) for one in minutes)
    refused = sum(len(one.refused) for one in minutes)
    assert passed >= 0.9 * len(minutes) * 1200
    assert min(len(one.passed) for one in minutes) >= 0.75 * 1200
    assert refused < 0.02 * (passed + refused)
    assert not sum(one.early for one in minutes)


@pytest.mark.parametrize(("per_s", "burst"), [(50, 10), (100, 10), (200, 20)])
def test_a_bucket_that_holds_little_of_its_rate_is_used_up_once_it_is_known_though_timers_are_late(
    per_s: int, burst: int
) -> None:
    run = Drive(TokenBucket(Rate(per_s), burst).take, 40.0, late_s=0.02).driven()
    assert run.share(20, 40, per_s) >= 0.93
    assert run.met < 0.01
    assert not run.early


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS.keys())
def test_over_ten_minutes_a_limit_is_nearly_used_up_and_rarely_met(limit: Callable[[], Meter]) -> None:
    run = Drive(limit().take, 600.0).driven()
    assert run.share(0, 600, 20) > 0.9
    assert run.met < 0.01
    assert not run.early


@pytest.mark.parametrize(("before", "after"), [(40, 20), (20, 40)], ids=["halved", "doubled"])
def test_a_limit_that_changes_in_mid_run_is_found_again(before: int, after: int) -> None:
    meters: tuple[Meter, Meter] = TokenBucket(Rate(before), 10), TokenBucket(Rate(after), 10)

    def wait(at: float) -> float:
        return meters[clock() >= 100].take(at)

    run = Drive(wait, 250, spelt=SPELT["a fraction"]).driven()
    assert run.share(0, 100, before) > 0.93
    assert run.share(100, 250, after) > 0.85
    assert run.met < 0.02


def test_a_strangers_requests_leave_us_the_rest_of_the_limit() -> None:
    meter, stranger = TokenBucket(Rate(20), 10), [0.0]

    def wait(at: float) -> float:
        while stranger[0] <= at:
            meter.take(stranger[0])
            stranger[0] += 0.1
        return meter.take(at)

    run = Drive(wait, 120, spelt=SPELT["a fraction"]).driven()
    assert run.share(0, 120, 10) > 0.9
    assert run.met < 0.03


def test_thirty_a_minute_are_used_up() -> None:
    run = Drive(FixedWindow(Rate(30, "m")).take, 1200, spelt=SPELT["a fraction"]).driven()
    assert run.share(0, 1200, 0.5) > 0.95
    assert run.met < 0.05


def test_a_hundred_an_hour_are_used_up_by_who_has_patience() -> None:
    run = Drive(FixedWindow(Rate(100, "h")).take, 4 * 3600, max_pause_s=7200).driven()
    assert run.share(0, 4 * 3600, 100 / 3600) > 0.95
    assert run.closed is None


def test_a_hundred_an_hour_pause_a_run_that_has_no_patience() -> None:
    run = Drive(FixedWindow(Rate(100, "h")).take, 4 * 3600).driven()
    assert isinstance(run.closed, PausedError)
    assert len(run.passed) == 100


def test_without_any_patience_the_first_limit_ends_the_run() -> None:
    run = Drive(TokenBucket(Rate(20), 5).take, max_pause_s=0.0).driven()
    assert isinstance(run.closed, PausedError)
    assert len(run.refused) <= 8


def test_a_service_that_refuses_everything_for_a_moment_each_time_pauses_the_run_and_is_rarely_asked() -> None:
    run = Drive(lambda _at: 0.05, 3600, in_flight=32, max_pause_s=60, spelt=SPELT["a fraction"]).driven()
    assert isinstance(run.closed, PausedError)
    assert not run.passed
    assert run.refused[-1] <= 61


@pytest.mark.parametrize(
    ("limit", "in_flight", "latency_s", "share"),
    [
        ("bucket with a burst of five", 1, 0.005, 0.82),
        ("bucket with a burst of five", 32, 0.005, 0.82),
        ("sliding window of a second", 8, 0.005, 0.82),
        ("bucket with a burst of five", 32, 0.5, 0.7),
    ],
)
def test_the_client_uses_nearly_all_of_an_unknown_limit(limit: str, in_flight: int, latency_s: float, share: float) -> None:
    meter, passed, refused, numbers = LIMITS[limit](), [0], [0], count(1)

    async def serve(_request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(latency_s / 2)
        wait_s = meter.take(clock())
        (refused if wait_s > 0 else passed)[0] += clock() <= 60.0
        await asyncio.sleep(latency_s / 2)
        limited = told(429, "rate_limited", headers={"retry-after": str(math.ceil(wait_s))})
        return created(next(numbers)) if wait_s <= 0 else limited

    deliver_for_a_minute(serve, in_flight=in_flight)
    assert passed[0] >= share * 20 * 60.0
    assert refused[0] < 0.04 * (passed[0] + refused[0])
