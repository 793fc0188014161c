from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import at_once, clock, now

from connectors.errors import PausedError
from connectors.rate_limit import RateLimiter, RateReport, Timing


def limiter_with(**patience: float) -> RateLimiter:
    return RateLimiter(Timing(clock, asyncio.sleep, lambda: 1.0, now), **patience)  # type: ignore[arg-type]


@dataclass
class Limiter:
    """Lets a request pass or names the seconds to wait; `allows` sees the time of day."""

    allows: Callable[[float], float | None]
    passed: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    def __call__(self) -> float | None:
        at = clock()
        wait = self.allows(at)
        (self.passed if wait is None else self.refused).append(at)
        return wait


def bucket(rate: float, capacity: float, *, tells: bool = True) -> Callable[[float], float | None]:
    tokens, seen = capacity, 0.0

    def allows(at: float) -> float | None:
        nonlocal tokens, seen
        tokens, seen = min(capacity, tokens + (at - seen) * rate), at
        if tokens >= 1:
            tokens -= 1
            return None
        return 1.0 if tells else -1.0

    return allows


def fixed_window(most: int, length_s: float) -> Callable[[float], float | None]:
    counts: dict[int, int] = {}

    def allows(at: float) -> float | None:
        window = int(at // length_s)
        counts[window] = counts.get(window, 0) + 1
        return None if counts[window] <= most else (window + 1) * length_s - at

    return allows


def sliding_window(most: int, length_s: float) -> Callable[[float], float | None]:
    times: deque[float] = deque()

    def allows(at: float) -> float | None:
        while times and times[0] <= at - length_s:
            times.popleft()
        if len(times) < most:
            times.append(at)
            return None
        return times[0] + length_s - at

    return allows


async def drive(paced: RateLimiter, limiter: Limiter, *, in_flight: int, seconds: float, latency_s: float = 0.02) -> None:
    async def worker() -> None:
        while clock() < seconds:
            admitted = await paced.acquire()
            assert admitted is not None
            await asyncio.sleep(latency_s / 2)
            wait = limiter()
            await asyncio.sleep(latency_s / 2)
            if wait is None:
                paced.passed()
            else:
                paced.limited(admitted, wait if wait >= 0 else None)

    await asyncio.gather(*(worker() for _ in range(in_flight)))


LIMITS = {
    "token bucket": lambda: bucket(50, 50),
    "small token bucket": lambda: bucket(50, 5),
    "fixed window of a second": lambda: fixed_window(50, 1),
    "fixed window of a minute": lambda: fixed_window(3000, 60),
    "sliding window": lambda: sliding_window(500, 10),
}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS.keys())
@pytest.mark.parametrize("in_flight", [8, 32])
def test_an_unknown_limit_is_nearly_used_up_and_rarely_met(
    limit: Callable[[], Callable[[float], float | None]], in_flight: int
) -> None:
    limiter = Limiter(limit())
    at_once(lambda: drive(limiter_with(), limiter, in_flight=in_flight, seconds=600))
    used = len(limiter.passed) / (50 * 600)
    met = len(limiter.refused) / (len(limiter.refused) + len(limiter.passed))
    assert used > 0.9
    assert met < 0.02


def test_a_limit_without_a_named_wait_is_lived_with() -> None:
    limiter = Limiter(bucket(50, 50, tells=False))
    at_once(lambda: drive(limiter_with(), limiter, in_flight=8, seconds=600))
    assert len(limiter.passed) > 0.85 * 50 * 600
    assert len(limiter.refused) < 0.02 * len(limiter.passed)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 3), st.none() | st.floats(0, 20)), max_size=12),
    st.integers(1, 16),
    st.floats(0.001, 0.5),
)
def test_no_request_ever_leaves_during_a_pause(waits: list[tuple[float, float | None]], in_flight: int, latency_s: float) -> None:
    left: list[float] = []
    pauses: list[tuple[float, float]] = []
    script = deque(waits)

    async def main() -> None:
        paced = limiter_with(max_pause_s=10_000)

        async def worker() -> None:
            for _ in range(4):
                admitted = await paced.acquire()
                assert admitted is not None
                left.append(clock())
                await asyncio.sleep(latency_s)
                if script and (told := script.popleft())[1] is not None:
                    pauses.append((clock(), clock() + told[1]))
                    paced.limited(admitted, told[1])
                else:
                    paced.passed()

        await asyncio.gather(*(worker() for _ in range(in_flight)))

    at_once(main)
    assert not [at for at in left for start, end in pauses if start < at < end - 1e-6]


def test_a_named_wait_is_obeyed_to_the_second_by_every_request() -> None:
    async def main() -> list[float]:
        paced = limiter_with()
        admitted = await paced.acquire()
        assert admitted is not None
        paced.limited(admitted, 30.0)

        async def leave() -> float:
            await paced.acquire()
            return clock()

        return await asyncio.gather(*(leave() for _ in range(16)))

    left = at_once(main)
    assert min(left) == pytest.approx(30.0)


def test_the_route_comes_back_one_by_one() -> None:
    async def main() -> list[float]:
        paced = limiter_with()
        first = [await paced.acquire() for _ in range(20)]
        await asyncio.sleep(1.0)
        for _ in range(10):
            paced.passed()
        admitted = first[0]
        assert admitted is not None
        paced.limited(admitted, 1.0)

        async def leave() -> float:
            await paced.acquire()
            return clock()

        return sorted(await asyncio.gather(*(leave() for _ in range(16))))

    left = at_once(main)
    gaps = [after - before for before, after in pairwise(left)]
    assert min(gaps) > 0.01


def test_late_answers_of_one_wave_lower_the_rate_once() -> None:
    async def main(late: int) -> float | None:
        paced = limiter_with()
        admitted = [await paced.acquire() for _ in range(20)]
        await asyncio.sleep(1.0)
        for _ in range(10):
            paced.passed()
        for one in admitted[: 1 + late]:
            assert one is not None
            paced.limited(one, 1.0)
        return paced.report.rate_per_s

    assert at_once(lambda: main(late=0)) == at_once(lambda: main(late=9))


def test_an_unlimited_route_is_not_slowed_down() -> None:
    async def main() -> tuple[float, RateReport]:
        paced = limiter_with()
        for _ in range(1000):
            await paced.acquire()
            paced.passed()
        return clock(), paced.report

    took_s, pace = at_once(main)
    assert took_s == 0.0
    assert (pace.rate_per_s, pace.used_share) == (None, None)


def test_a_closed_route_lets_those_go_who_wait_in_a_pause() -> None:
    async def main() -> tuple[float, object]:
        paced = limiter_with()
        admitted = await paced.acquire()
        assert admitted is not None
        paced.limited(admitted, 600.0)
        waiting = asyncio.ensure_future(paced.acquire())
        await asyncio.sleep(5)
        paced.limited(admitted, 6000.0)
        assert await waiting is None
        return clock(), paced.closed

    at, outcome = at_once(main)
    assert isinstance(outcome, PausedError)
    assert at <= 6


def test_one_routes_pause_is_not_anothers() -> None:
    async def main() -> float:
        paced = limiter_with()
        admitted = await paced.acquire()
        assert admitted is not None
        paced.limited(admitted, 60.0)
        await paced.sibling().acquire()
        return clock()

    assert at_once(main) == 0.0


def test_pauses_between_which_something_passes_do_not_add_up_to_impatience() -> None:
    async def main() -> list[object]:
        paced = limiter_with(max_pause_s=900)
        outcomes: list[object] = []
        for _ in range(5):
            outcomes.append(admitted := await paced.acquire())
            assert admitted is not None
            paced.limited(admitted, 500.0)
            await paced.acquire()
            paced.passed()
        return outcomes

    assert None not in at_once(main)
