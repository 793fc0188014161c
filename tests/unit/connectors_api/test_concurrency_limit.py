"""How many requests are under way: against servers that are near, far, or full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from virtual_time import at_once, clock

from connectors.rate_limit import ConcurrencyLimit

Serve = Callable[[], Awaitable[None]]


async def drive(limit: ConcurrencyLimit, serve: Serve, *, seconds: float, is_well: bool = True) -> None:
    async def work() -> None:
        while clock() < seconds:
            await limit.enter()
            began = clock()
            limit.sent()
            await serve()
            limit.back(clock() - began, is_well=is_well)
            limit.leave()

    await asyncio.gather(*(work() for _ in range(64)))


def far(seconds: float) -> Serve:
    return lambda: asyncio.sleep(seconds)


def full(slots: int, seconds: float) -> Callable[[], Serve]:
    def open_up() -> Serve:
        at_work = asyncio.Semaphore(slots)

        async def serve() -> None:
            async with at_work:
                await asyncio.sleep(seconds)

        return serve

    return open_up


def test_a_far_service_is_asked_for_many_at_once() -> None:
    limit = ConcurrencyLimit(32, adapts=True)
    at_once(lambda: drive(limit, far(0.2), seconds=10))
    assert limit.room == limit.most == 32


def test_a_service_with_four_hands_is_not_flooded() -> None:
    limit = ConcurrencyLimit(32, adapts=True)
    at_once(lambda: drive(limit, full(4, 0.05)(), seconds=60))
    assert 3 <= limit.room <= 12


def test_failures_bring_it_down_to_one_and_no_further() -> None:
    limit = ConcurrencyLimit(32, adapts=True)
    at_once(lambda: drive(limit, far(0.05), seconds=20, is_well=False))
    assert limit.room == 1


@pytest.mark.parametrize("ceiling", [1, 3, 8])
def test_a_number_is_never_passed_and_soon_reached(ceiling: int) -> None:
    limit = ConcurrencyLimit(ceiling)
    at_once(lambda: drive(limit, far(0.05), seconds=3))
    assert limit.most == limit.room == ceiling


def test_who_gives_up_waiting_leaves_its_place_to_the_next() -> None:
    async def main() -> None:
        limit = ConcurrencyLimit(1)
        await limit.enter()
        first, second = asyncio.ensure_future(limit.enter()), asyncio.ensure_future(limit.enter())
        await asyncio.sleep(0)
        first.cancel()
        limit.leave()
        await asyncio.wait_for(second, 1)
        with pytest.raises(asyncio.CancelledError):
            await first
        assert limit.room == 1

    at_once(main)
