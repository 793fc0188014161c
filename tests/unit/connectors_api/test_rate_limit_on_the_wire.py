"""The first minute under a limit that the client does not know: how much of it is used, and how often it is met."""

from __future__ import annotations

import asyncio
import math
from itertools import count

import httpx
import pytest
from unit.connectors_api.wired import api_over, created, intent, told
from virtual_time import at_once, clock

from connectors.concurrency import ConcurrencyLimit
from sandbox.service import Meter, SlidingWindow, TokenBucket
from sandbox.switches import Rate

MINUTE_S = 60.0


def used_and_met(meter: Meter, *, in_flight: int, latency_s: float, style: str) -> tuple[float, float]:
    """How many requests passed within a minute, and which share of all was refused."""
    passed, refused, numbers, events = [0], [0], count(1), count(1)

    async def serve(_request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(latency_s / 2)
        wait_s = meter.take(clock())
        (refused if wait_s > 0 else passed)[0] += clock() <= MINUTE_S
        event_id = next(events)
        await asyncio.sleep(latency_s / 2)
        if wait_s <= 0:
            return created(event_id)
        spelt = str(math.ceil(wait_s)) if style == "seconds" else f"{math.ceil(wait_s * 1000) / 1000:.3f}"
        return told(429, "rate_limited", headers={"retry-after": spelt})

    async def main() -> None:
        api, http = api_over(serve)
        api._events.limiter.concurrency = ConcurrencyLimit(in_flight)

        async def work() -> None:
            while clock() < MINUTE_S:
                await api.deliver(intent(number=next(numbers)))

        async with http:
            await asyncio.gather(*(work() for _ in range(in_flight)))

    at_once(main)
    return passed[0], refused[0] / (passed[0] + refused[0])


@pytest.mark.parametrize("style", ["seconds", "fraction"])
@pytest.mark.parametrize(("kind", "in_flight"), [("bucket", 1), ("bucket", 32), ("sliding", 8)])
def test_the_first_minute_uses_nearly_all_of_an_unknown_limit_and_rarely_meets_it(kind: str, in_flight: int, style: str) -> None:
    meter: Meter = TokenBucket(Rate(20), 5) if kind == "bucket" else SlidingWindow(Rate(20))
    passed, met = used_and_met(meter, in_flight=in_flight, latency_s=0.005, style=style)
    assert passed >= 0.82 * 20 * MINUTE_S
    assert met < 0.025


def test_slow_answers_leave_most_of_the_limit_used() -> None:
    passed, met = used_and_met(TokenBucket(Rate(20), 5), in_flight=32, latency_s=0.5, style="seconds")
    assert passed >= 0.7 * 20 * MINUTE_S
    assert met < 0.04
