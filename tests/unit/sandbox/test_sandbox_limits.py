"""Rate limits: how they count, and how a 429 says when to come back."""

from __future__ import annotations

import math
from datetime import UTC
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.sandbox.bench import Bench, Event, Open

from sandbox.service import FixedWindow, Meter, SlidingWindow, TokenBucket
from sandbox.switches import Rate


def statuses(bench: Bench, event: Event, count: int) -> list[int]:
    return [bench.create(event).status_code for _ in range(count)]


def test_a_bucket_lets_a_burst_through_and_then_the_rate(open_bench: Open, event: Event) -> None:
    bench = open_bench("rate_events=2/s", "rate_burst=3")
    assert statuses(bench, event, 3) == [201, 201, 201]
    assert bench.create(event).json()["error"]["code"] == "rate_limited"
    bench.clock.now += 0.5
    assert statuses(bench, event, 2) == [201, 429]
    assert len(bench.stored()) == 4


def test_a_fixed_window_opens_with_the_clock(open_bench: Open, event: Event) -> None:
    bench = open_bench("rate_events=2/m", "rate_kind=window")
    bench.clock.now += 59
    assert statuses(bench, event, 3) == [201, 201, 429]
    assert bench.create(event).headers["retry-after"] == "1"
    bench.clock.now += 1
    assert statuses(bench, event, 3) == [201, 201, 429]


def test_a_sliding_window_counts_any_stretch_of_a_period(open_bench: Open, event: Event) -> None:
    bench = open_bench("rate_events=2/m", "rate_kind=sliding")
    bench.create(event)
    bench.clock.now += 30
    assert statuses(bench, event, 2) == [201, 429]
    assert bench.create(event).headers["retry-after"] == "30"
    bench.clock.now += 30
    assert statuses(bench, event, 2) == [201, 429]


def test_each_route_and_each_key_has_a_limit_of_its_own(open_bench: Open, event: Event) -> None:
    bench = open_bench("rate_events=1/m", "rate_lists=1/m")
    assert statuses(bench, event, 2) == [201, 429]
    assert bench.create(event, **bench.as_key("sandbox-key-starter")).status_code == 201
    for route in ("channels", "classifications", "events"):
        assert [bench.http.get(f"/api/public/v1/{route}").status_code for _ in range(2)] == [200, 429], route


def refused_for_two_and_a_half_seconds(bench: Bench, event: Event) -> list[str]:
    bench.create(event)
    return bench.create(event).headers.get_list("retry-after")


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("seconds", ["3"]),
        ("fraction", ["2.500"]),
        ("absent", []),
        ("garbage", ["soon"]),
        ("negative", ["-1"]),
        ("absurd", ["31536000"]),
        ("several", ["0", "3"]),
    ],
)
def test_retry_after_is_written_as_switched(open_bench: Open, event: Event, style: str, expected: list[str]) -> None:
    bench = open_bench("rate_events=24/m", "rate_burst=1", f"retry_after={style}")
    assert refused_for_two_and_a_half_seconds(bench, event) == expected


@pytest.mark.parametrize("style", ["date", "rfc850_date", "asctime_date"])
def test_retry_after_as_a_date_is_never_too_early(open_bench: Open, event: Event, style: str) -> None:
    bench = open_bench("rate_events=24/m", "rate_burst=1", f"retry_after={style}")
    (date,) = refused_for_two_and_a_half_seconds(bench, event)
    assert parsedate_to_datetime(date).replace(tzinfo=UTC).timestamp() == math.ceil(bench.clock.now + 2.5)


def test_what_is_left_may_be_told_beside_every_answer(open_bench: Open, event: Event) -> None:
    bench = open_bench("rate_events=2/m", "rate_kind=window", "rate_headers=x-ratelimit")
    told = [bench.create(event).headers for _ in range(3)]
    assert [headers["x-ratelimit-remaining"] for headers in told] == ["1", "0", "0"]
    bench.switch(rate_headers="ratelimit")
    assert bench.create(event).headers["ratelimit"].startswith('"default";r=0;t=')


def meters() -> st.SearchStrategy[Meter]:
    rates = st.builds(Rate, st.integers(1, 50), st.sampled_from(["s", "m"]))
    return st.one_of(
        st.builds(FixedWindow, rates),
        st.builds(SlidingWindow, rates),
        st.builds(TokenBucket, rates, st.integers(1, 20)),
    )


@given(meter=meters(), gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60))
def test_who_waits_as_long_as_told_is_admitted(meter: Meter, gaps: list[float]) -> None:
    now = 1_800_000_000.0
    for gap in gaps:
        now += gap
        wait_s = meter.take(now)
        if wait_s > 0:
            now += wait_s + 1e-6
            assert meter.take(now) == 0
