from __future__ import annotations

import asyncio
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import at_once, clock, now

from connectors.errors import PausedError
from connectors.rate_limit import RateLimiter, RateReport
from connectors.retry import Timing


def limiter_with(**patience: float) -> RateLimiter:
    return RateLimiter(Timing(clock, asyncio.sleep, lambda: 1.0, now), **patience)  # type: ignore[arg-type]


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
