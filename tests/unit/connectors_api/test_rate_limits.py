"""Limits that the worker does not know are used, rarely met, shared with other workers, and never asked in a pause (budget 7)."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from itertools import count, pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.connectors_api.wired import created, deliver_for_a_minute, told
from virtual_time import EPOCH, Board, at_once, clock, now

from connectors.concurrency_limit import ConcurrencyLimit
from connectors.errors import PausedError
from connectors.event_api.answers import HttpAnswer, RateHint, interpret, rate_hint
from connectors.rate_limit import Permit, RateLimiter, RateReport, RateState, Sharing
from connectors.retry import Timing, retry_after_s
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
def test_a_small_bucket_is_used_up_once_it_is_known_though_timers_are_late(per_s: int, burst: int) -> None:
    run = Drive(TokenBucket(Rate(per_s), burst).take, 40.0, late_s=0.02).driven()
    assert run.share(20, 40, per_s) >= 0.93
    assert (run.met < 0.01, run.early) == (True, 0)


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


@pytest.mark.parametrize(("max_pause_s", "rows"), [(7200, 380), (900, 100)], ids=["with patience", "without"])
def test_a_hundred_an_hour_are_used_up_or_pause_the_run(max_pause_s: float, rows: int) -> None:
    run = Drive(FixedWindow(Rate(100, "h")).take, 4 * 3600, max_pause_s=max_pause_s).driven()
    assert len(run.passed) > rows if max_pause_s > 3600 else len(run.passed) == rows
    assert isinstance(run.closed, PausedError if max_pause_s < 3600 else type(None))


def test_a_service_that_refuses_everything_for_a_moment_each_time_pauses_the_run_and_is_rarely_asked() -> None:
    run = Drive(lambda _at: 0.05, 3600, in_flight=32, max_pause_s=60, spelt=SPELT["a fraction"]).driven()
    assert isinstance(run.closed, PausedError)
    assert not run.passed
    assert run.refused[-1] <= 61


Shows = Callable[[Meter, float], dict[str, str]]


def shows_x(meter: Meter, wait_s: float) -> dict[str, str]:
    shown = {"limit": 20, "remaining": int(meter.left), "reset": math.ceil(wait_s) or 1}
    return {f"x-ratelimit-{name}": str(value) for name, value in shown.items()}


def shows(limit: int) -> Shows:
    return lambda meter, wait_s: {
        "ratelimit-policy": f'"a";q={limit};w=1',
        "ratelimit": f'"a";r={int(meter.left)};t={math.ceil(wait_s) or 1}',
    }


@pytest.mark.parametrize(
    ("limit", "shown", "in_flight", "latency_s", "share", "met"),
    [
        *(("bucket with a burst of five", None, in_flight, 0.005, 0.82, 0.04) for in_flight in (1, 32)),
        ("sliding window of a second", None, 8, 0.005, 0.82, 0.04),
        ("bucket with a burst of five", None, 32, 0.5, 0.7, 0.04),
        *((limit, shown, 8, 0.01, 0.95, 0.0) for limit in list(LIMITS)[:2] for shown in (shows_x, shows(20))),
        ("bucket with a burst of five", shows(1000), 8, 0.01, 0.83, 0.02),
    ],
    ids=lambda value: "" if callable(value) or value is None else str(value),
)
def test_the_client_uses_nearly_all_of_an_unknown_limit_and_never_meets_one_that_is_shown(
    limit: str, shown: Shows | None, in_flight: int, latency_s: float, share: float, met: float
) -> None:
    """A limit that is shown as larger than it is must be overruled by what is refused."""
    meter, passed, refused, numbers = LIMITS[limit](), [0], [0], count(1)

    async def serve(_request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(latency_s / 2)
        wait_s = meter.take(clock())
        (refused if wait_s > 0 else passed)[0] += clock() <= 60.0
        headers = shown(meter, wait_s) if shown else {}
        await asyncio.sleep(latency_s / 2)
        if wait_s > 0:
            return told(429, "rate_limited", headers={"retry-after": str(math.ceil(wait_s))} | headers)
        answer = created(next(numbers))
        answer.headers.update(headers)
        return answer

    deliver_for_a_minute(serve, in_flight=in_flight)
    assert passed[0] >= share * 20 * 60.0
    assert refused[0] <= met * (passed[0] + refused[0])


def limiter() -> RateLimiter:
    return RateLimiter(Timing(clock, asyncio.sleep, lambda: 1.0, now))


def test_late_answers_of_one_wave_lower_the_rate_once() -> None:
    async def main(late: int) -> float | None:
        paced = limiter()
        admitted = [permit for _ in range(20) if (permit := await paced.acquire())]
        await asyncio.sleep(1.0)
        for _ in range(10):
            paced.passed()
        for one in admitted[: 1 + late]:
            paced.limited(one, 1.0)
        return paced.report.rate_per_s

    assert at_once(lambda: main(late=0)) == at_once(lambda: main(late=9))


def test_a_closed_route_lets_those_go_who_wait_in_a_pause() -> None:
    async def main() -> tuple[float, object]:
        paced = limiter()
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


Serve = Callable[[], Awaitable[None]]


async def drive(limit: ConcurrencyLimit, serve: Serve, *, seconds: float, is_well: bool) -> None:
    async def work() -> None:
        while clock() < seconds:
            await limit.enter()
            began = clock()
            limit.sent()
            await serve()
            limit.back(clock() - began, is_well=is_well)
            limit.leave()

    await asyncio.gather(*(work() for _ in range(64)))


def service(seconds: float, slots: int = 64) -> Serve:
    """Return what takes so long for each request, and has so many at work at a time."""
    at_work = asyncio.Semaphore(slots)

    async def serve() -> None:
        async with at_work:
            await asyncio.sleep(seconds)

    return serve


@pytest.mark.parametrize(
    ("limit", "serve", "is_well", "seconds", "least", "most"),
    [
        (ConcurrencyLimit(32, adapts=True), service(0.2), True, 10, 32, 32),
        (ConcurrencyLimit(32, adapts=True), service(0.05, slots=4), True, 60, 3, 12),
        (ConcurrencyLimit(32, adapts=True), service(0.05), False, 20, 1, 1),
        *((ConcurrencyLimit(ceiling), service(0.05), True, 3, ceiling, ceiling) for ceiling in (1, 3, 8)),
    ],
    ids=["a far service", "a service with four hands", "failures", *(f"a ceiling of {ceiling}" for ceiling in (1, 3, 8))],
)
def test_as_many_requests_are_under_way_as_the_service_digests_and_no_more(
    limit: ConcurrencyLimit, serve: Serve, seconds: float, least: int, most: int, *, is_well: bool
) -> None:
    at_once(lambda: drive(limit, serve, seconds=seconds, is_well=is_well))
    assert least <= limit.room <= most
    if is_well and least == most:
        assert limit.most == most


def test_a_request_that_gives_up_waiting_leaves_its_place_to_the_next() -> None:
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


YEAR_S = 366 * 86_400
IN_A_MINUTE = format_datetime(EPOCH + timedelta(seconds=60), usegmt=True)
FORMS = {
    "0": 0.0,
    "7": 7.0,
    " 7 ": 7.0,
    "0.25": 0.25,
    ".5": 0.5,
    "3.": 3.0,
    IN_A_MINUTE: 60.0,
    format_datetime(EPOCH - timedelta(days=1), usegmt=True): 0.0,
    "Sun, 01 Mar 2026 13:01:00 +0100": 60.0,
    "9" * 400: YEAR_S,
    "Fri, 31 Dec 9999 23:59:59 GMT": YEAR_S,
    "Sunday, 01-Mar-26 12:01:00 GMT": 60.0,
    "Sun Mar  1 12:01:00 2026": 60.0,
    "5, 10": 10.0,
    "5, 5": 5.0,
    **dict.fromkeys(["5, soon", "-1, 5", ",", "", "-1", "-0.5", "+5", "5 s", "5;10", "1 000", "1e3", "inf", "nan", "٣", "0x10"]),
    **dict.fromkeys(["soon", "1 minute", "Mon, 99 Foo 2026", "Sun, 01 Mar 2026 25:61:00 GMT"]),
}


@pytest.mark.parametrize(("text", "seconds"), FORMS.items(), ids=[repr(form)[:24] for form in FORMS])
def test_each_form_of_retry_after_is_read_or_left(text: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": text}, EPOCH) == seconds


@pytest.mark.parametrize("ours", [EPOCH, None])
def test_a_date_is_measured_from_the_answers_own_date(ours: datetime | None) -> None:
    theirs = EPOCH + timedelta(hours=3)
    headers = {"date": format_datetime(theirs, usegmt=True), "retry-after": format_datetime(theirs + timedelta(seconds=30))}
    assert retry_after_s(headers, ours) == 30


def test_without_any_clock_a_date_says_nothing() -> None:
    assert retry_after_s({}) is retry_after_s({"retry-after": IN_A_MINUTE}) is None
    assert retry_after_s({"retry-after": "7"}) == 7


@given(st.text())
def test_no_text_is_too_strange_for_retry_after(text: str) -> None:
    wait = retry_after_s({"retry-after": text, "date": text}, EPOCH)
    assert wait is None or 0 <= wait <= YEAR_S


MEMBERS = st.sampled_from(["error", "code", "message", "requestId", "details", "field", "issue"])
ATOMS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


@given(st.recursive(ATOMS, lambda kids: st.lists(kids) | st.dictionaries(MEMBERS, kids)))
def test_no_envelope_is_too_strange_to_be_interpreted(envelope: object) -> None:
    assert interpret(HttpAnswer(400, {}, json.dumps(envelope).encode()), EPOCH).answer.status == 400


@pytest.mark.parametrize(
    ("headers", "read"),
    [
        *(
            ({"x-ratelimit-limit": "20", "x-ratelimit-remaining": "7", "x-ratelimit-reset": reset}, RateHint(20, None, 30, 0))
            for reset in ("30", f"{EPOCH.timestamp() + 30:.0f}", f"{(EPOCH.timestamp() + 30) * 1000:.0f}")
        ),
        ({"x-rate-limit-limit": "20", "x-rate-limit-reset": "30"}, RateHint(20, None, 30, 0)),
        ({"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "0", "ratelimit-reset": "12"}, RateHint(100, 60, 12, 12)),
        ({"ratelimit-policy": '"default";q=20;w=1', "ratelimit": '"default";r=3;t=1'}, RateHint(20, 1, 1, 0)),
        (
            {"ratelimit-policy": '"burst";q=100;w=1, "day";q=3600;w=3600', "ratelimit": '"burst";r=9;t=1, "day";r=5;t=90'},
            RateHint(3600, 3600, 90, 0),
        ),
        ({"ratelimit-policy": '"default";q=20;w=1'}, RateHint(20, 1, None, 0)),
        ({"ratelimit": '"default";r=3;t=1'}, None),
        *(({"x-ratelimit-limit": odd, "x-ratelimit-reset": "30"}, None) for odd in ("plenty", "0", "-5")),
        ({"x-ratelimit-limit": "20", "x-ratelimit-remaining": "21", "x-ratelimit-reset": "30"}, None),
        ({"x-ratelimit-limit": "20"}, None),
        ({"x-ratelimit-limit": "20", "x-ratelimit-reset": "999999"}, None),
        ({"retry-after": "3"}, None),
    ],
)
def test_every_common_spelling_is_read_and_what_makes_no_sense_is_left(headers: dict[str, str], read: RateHint | None) -> None:
    assert rate_hint(headers, EPOCH) == read


NAMES = ["ratelimit", "ratelimit-policy", "ratelimit-limit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]


@given(st.dictionaries(st.sampled_from(NAMES), st.text('0123456789;,=qwrt."-² ', max_size=20)))
def test_garbage_never_raises(headers: dict[str, str]) -> None:
    hint = rate_hint(headers, EPOCH)
    assert hint is None or hint.limit > 0


@pytest.mark.parametrize(("retry_after", "is_heeded"), [("1", False), ("30", True), ("31", True), ("soon", True), ("-1", True)])
def test_a_limit_used_up_for_longer_than_the_pause_asked_for_is_not_believed(retry_after: str, *, is_heeded: bool) -> None:
    headers = {"x-ratelimit-limit": "1", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "30", "retry-after": retry_after}
    assert (rate_hint(headers, EPOCH) is not None) is is_heeded


SECONDS = 20.0
LATENCY_S = 0.05
HEARD_WITHIN_S = 0.25


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
    assert board.asked <= workers * 12 * SECONDS


def test_requests_go_on_while_the_store_does_not_answer() -> None:
    board, left = Board(), list[float]()

    async def main() -> None:
        sending = asyncio.ensure_future(all_send(board, [left], slots=8, until_s=SECONDS))
        await asyncio.sleep(1.0)
        board.away_s = SECONDS
        await sending

    at_once(main)
    assert board.asked < 15
    assert max(later - earlier for earlier, later in pairwise(left)) <= LATENCY_S + 1e-6


@pytest.mark.parametrize("per_s", [20, 100])
@pytest.mark.parametrize("in_flight", [(4, 32), (8,) * 8], ids=["one has more in flight", "eight"])
def test_workers_get_equal_shares_of_a_limit(per_s: int, in_flight: tuple[int, ...]) -> None:
    board, meter, passed, refused = Board(away_s=0.005), TokenBucket(Rate(per_s), 10), Counter[str](), [0]

    async def work(paced: RateLimiter, name: str) -> None:
        while clock() < SECONDS * 2:
            admitted = await paced.acquire()
            assert admitted is not None
            await asyncio.sleep(LATENCY_S)
            wait_s = meter.take(clock())
            refused[0] += wait_s > 0
            passed[name] += wait_s <= 0 and SECONDS < clock() < SECONDS * 2
            if wait_s > 0:
                paced.limited(admitted, math.ceil(wait_s))
            else:
                paced.passed()

    async def main() -> None:
        names = [str(number) for number in range(len(in_flight))]
        workers = [(worker(board, name), name, slots) for name, slots in zip(names, in_flight, strict=True)]
        await asyncio.gather(*(work(one, name) for one, name, slots in workers for _ in range(slots)))

    at_once(main)
    assert passed.total() > 0.84 * per_s * SECONDS
    assert refused[0] < 0.02 * 2 * passed.total() + sum(in_flight)
    assert max(passed.values()) < 1.1 * min(passed.values())


@pytest.mark.parametrize("limited_at", [5.0 + step * LATENCY_S for step in range(8)])
def test_a_pause_that_another_worker_meets_is_kept_within_a_quarter_of_a_second(limited_at: float) -> None:
    first, second, board = list[float](), list[float](), Board(away_s=0.005)
    at_once(lambda: all_send(board, [first, second], slots=4, until_s=10.0, limited_at=limited_at))
    known_at = limited_at + LATENCY_S
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
        await first.leave()
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
        await earlier.leave()
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


def test_two_workers_begin_at_once_where_nothing_is_believed_of_an_earlier_run() -> None:
    async def main() -> None:
        board = Board()
        earlier, first, second = (worker(board, name) for name in ("earlier", "first", "second"))
        admitted = await earlier.acquire()
        assert admitted is not None
        earlier.limited(admitted, NIGHT_S)
        await earlier.leave()
        await asyncio.sleep(NIGHT_S + 60.0)
        began = clock()
        for one in (first, second):
            assert await one.acquire() is not None
        assert clock() == began

    at_once(main)


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
            await limiter.leave()

    at_once(main)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("wait_s", [60.0, 300.0])
def test_a_refusal_of_the_first_requests_does_not_slow_the_rest_of_a_run(workers: int, wait_s: float) -> None:
    """A service under maintenance names a time that says nothing of its limit."""
    board, left = Board(away_s=0.005), list[float]()

    async def work(paced: RateLimiter) -> None:
        while len(left) < 200:
            permit = await paced.acquire()
            assert permit is not None
            left.append(clock())
            await asyncio.sleep(LATENCY_S)
            if clock() < wait_s:
                paced.limited(permit, wait_s - clock())
            else:
                paced.passed()

    async def main() -> None:
        limiters = [worker(board, str(number)) for number in range(workers)]
        await asyncio.gather(*(work(one) for one in limiters for _ in range(4)))

    at_once(main)
    assert not [at for at in left if LATENCY_S + HEARD_WITHIN_S < at < wait_s]
    assert left[-1] < wait_s + 60.0


def test_a_429_that_seems_to_come_before_the_end_of_the_pause_is_counted() -> None:
    """Times that workers exchange are off by some milliseconds."""
    first = RateState().limited(Permit(), 0.0, 1.0, is_named=True)
    second = first.limited(Permit(at=1.0, pauses=1, before=1), 0.999, 0.999, is_named=True)
    assert (second.pauses, second.resume_at) == (2, 1.0)


def test_a_fault_in_the_store_ends_the_wait_for_a_slot() -> None:
    class FaultyStore:
        async def exchange(self, _write: Callable[[str, float], str | None]) -> None:
            await asyncio.sleep(0.01)
            raise RuntimeError("can't start new thread")

    async def main() -> None:
        sharing = Sharing(lambda _route: FaultyStore(), "first", lambda _trouble: None)
        paced = RateLimiter(Timing(clock, asyncio.sleep, lambda: 1.0, now), sharing=sharing)
        paced.stated(100.0, 1.0, None, 0.0)
        with pytest.raises(RuntimeError, match="new thread"):
            await asyncio.wait_for(paced.acquire(), 10.0)

    at_once(main)
