"""Workers that share the pace of one route: how often they ask the store, and how soon they hear of a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from virtual_time import at_once, clock, now

from connectors.rate_limit import RateLimiter, RateReport, Sharing
from connectors.retry import Timing

SECONDS = 20.0
LATENCY_S = 0.05
HEARD_WITHIN_S = 0.25


@dataclass
class Board:
    """What the workers share; `asked` counts what they ask. `ahead_s` is how far its clock is ahead of theirs."""

    text: str = ""
    asked: int = 0
    ahead_s: float = 0.0
    written_s: float = 0.0

    def read(self) -> tuple[str, float]:
        self.asked += 1
        return self.text, clock() + self.ahead_s - self.written_s if self.text else 0.0

    def change(self, turn: Callable[[str, float], str]) -> None:
        self.text = turn(*self.read())
        self.written_s = clock() + self.ahead_s


def worker(board: Board, name: str) -> RateLimiter:
    def fail(trouble: Exception) -> None:
        raise trouble

    return RateLimiter(Timing(clock, asyncio.sleep, lambda: 1.0, now), sharing=Sharing(lambda _route: board, name, fail))


async def send(paced: RateLimiter, left: list[float], *, slots: int, until_s: float, limited_at: float | None = None) -> None:
    """Send as fast as the pace allows; the first answer after `limited_at` is a 429 that asks for two seconds."""
    is_limited = limited_at is None

    async def slot() -> None:
        nonlocal is_limited
        while clock() < until_s:
            admitted = await paced.acquire()
            assert admitted is not None
            left.append(clock())
            await asyncio.sleep(LATENCY_S)
            if not is_limited and limited_at is not None and clock() >= limited_at:
                is_limited = True
                paced.limited(admitted, 2.0)
            else:
                paced.passed()

    await asyncio.gather(*(slot() for _ in range(slots)))


async def all_send(
    board: Board, lefts: list[list[float]], *, slots: int, until_s: float, limited_at: float | None = None
) -> list[RateReport]:
    """Send by a worker for each list of departures; the first of them meets the limit."""
    workers = [worker(board, str(number)) for number in range(len(lefts))]
    first, *others = zip(workers, lefts, strict=True)
    await asyncio.gather(
        send(*first, slots=slots, until_s=until_s, limited_at=limited_at),
        *(send(*other, slots=slots, until_s=until_s) for other in others),
    )
    return [one.report for one in workers]


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_that_meet_no_limit_ask_the_store_a_few_times_a_second_however_much_they_send(workers: int) -> None:
    board, left = Board(), list[float]()
    at_once(lambda: all_send(board, [left] * workers, slots=8, until_s=SECONDS))
    assert len(left) > 0.9 * workers * 8 * (SECONDS - 2) / LATENCY_S
    assert board.asked <= workers * 7 * SECONDS


def test_a_pause_that_another_worker_meets_is_kept_within_a_quarter_of_a_second() -> None:
    first, second = list[float](), list[float]()
    at_once(lambda: all_send(Board(), [first, second], slots=4, until_s=10.0, limited_at=5.0))
    known_at = 5.0 + LATENCY_S
    assert not [at for at in first if known_at < at < 7.0]
    assert not [at for at in second if known_at + HEARD_WITHIN_S < at < 7.0]
    assert [at for at in second if at > 7.0]


BACK_S = [-86_400.0, -3_600.0, -30.0]
jumps = pytest.mark.parametrize("by_s", [*BACK_S, 30.0, 3_600.0, 86_400.0])


def sent_while_the_clock_is_set(
    workers: int, by_s: float, *, jump_at: float, limited_at: float, until_s: float
) -> tuple[list[float], list[RateReport]]:
    """When requests left while the store's clock jumped at `jump_at`, and the workers' reports."""
    board, left = Board(), list[float]()

    async def main() -> list[RateReport]:
        sending = asyncio.ensure_future(all_send(board, [left] * workers, slots=4, until_s=until_s, limited_at=limited_at))
        await asyncio.sleep(jump_at)
        board.ahead_s += by_s
        return await sending

    return left, at_once(main)


@jumps
@pytest.mark.parametrize("workers", [1, 2])
def test_a_clock_that_is_set_while_workers_send_begins_and_ends_no_pause(workers: int, by_s: float) -> None:
    left, reports = sent_while_the_clock_is_set(workers, by_s, jump_at=8.0, limited_at=3.0, until_s=20.0)
    assert [report.pauses for report in reports] == [1] * workers
    assert all(report.paused_s < 2.5 for report in reports)
    after = sorted(at for at in left if at > 7.0)
    assert max(later - earlier for earlier, later in pairwise(after)) < 1.0


@jumps
@pytest.mark.parametrize("workers", [1, 2])
def test_a_clock_that_is_set_during_a_pause_does_not_shorten_it_or_stretch_it(workers: int, by_s: float) -> None:
    left, _ = sent_while_the_clock_is_set(workers, by_s, jump_at=6.0, limited_at=5.0, until_s=12.0)
    assert not [at for at in left if 5.0 + LATENCY_S + HEARD_WITHIN_S < at < 7.0]
    assert [at for at in left if 7.0 < at < 8.5]


@pytest.mark.parametrize("by_s", BACK_S)
def test_a_run_after_the_clock_was_set_back_waits_no_longer_than_the_service_asked(by_s: float) -> None:
    board, before, after = Board(ahead_s=1e9), list[float](), list[float]()

    async def main() -> None:
        await send(first := worker(board, "first"), before, slots=4, until_s=5.0, limited_at=3.0)
        first.leave()
        board.ahead_s += by_s
        await send(worker(board, "second"), after, slots=4, until_s=15.0)

    at_once(main)
    assert min(after) < 5.0 + 2.5


NIGHT_S = 17 * 3_600.0


def first_slots_of_a_later_run(pause_s: float, later_s: float) -> list[float]:
    """When the first two requests of a run leave that begins `later_s` after another one's first answer asked for a pause."""

    async def main() -> list[float]:
        board, left = Board(), list[float]()
        earlier, later = worker(board, "earlier"), worker(board, "later")
        admitted = await earlier.acquire()
        assert admitted is not None
        earlier.limited(admitted, pause_s)
        earlier.leave()
        await asyncio.sleep(later_s)
        for _ in range(2):
            assert await later.acquire() is not None
            left.append(clock() - later_s)
            later.passed()
        return left

    return at_once(main)


@pytest.mark.parametrize("later_s", [3_600.0, NIGHT_S + 60.0, NIGHT_S + 36_000.0])
def test_a_pause_of_a_night_is_asked_about_and_taught_nothing(later_s: float) -> None:
    assert first_slots_of_a_later_run(NIGHT_S, later_s) == [0.0, 0.0]


def test_a_short_pause_is_obeyed_by_the_next_run_and_what_it_taught_is_used() -> None:
    first, second = first_slots_of_a_later_run(5.0, 2.0)
    assert first == pytest.approx(3.0)
    assert second > 3.5
    first, second = first_slots_of_a_later_run(5.0, 60.0)
    assert first == 0.0
    assert second > 0.5


def test_a_state_of_version_0_1_is_not_believed() -> None:
    board = Board(text='{"curve":null,"wave":0,"lesson":null,"resume_at":1800000000.0,"slot_at":1800000000.0}', written_s=-5.0)

    async def main() -> None:
        await worker(board, "first").acquire()
        assert clock() == 0.0

    at_once(main)


def test_a_worker_that_left_is_not_counted_by_the_next_one() -> None:
    board = Board()

    async def main() -> None:
        for name in ("first", "second"):
            limiter = worker(board, name)
            await limiter.acquire()
            assert limiter.report.workers == 1
            limiter.leave()

    at_once(main)
