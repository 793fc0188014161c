"""Numbers as people read them: written out, whatever they are."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from connectors.rate_limit import RateReport
from mappings.strict import written, written_rate
from pipelines.cli.run_report import pace_line
from pipelines.run.publish import pace_numbers

PLAIN = re.compile(r"(-?\d{1,3}(,\d{3})*(\.\d{1,6})?|nearly 0|unknown)")


@given(st.floats() | st.integers(-(10**20), 10**20))
def test_any_number_and_any_rate_is_written_without_an_exponent(number: float) -> None:
    assert PLAIN.fullmatch(written(number))
    rate, _, unit = written_rate(number).rpartition("/")
    assert unit in {"s", "min", "h"}
    assert PLAIN.fullmatch(rate)


NUMBERS = {0.0: "0", 12_000.0: "12,000", 19.72: "19.7", 0.25: "0.25", 99.96: "100", -1.5: "-1.5", 1234.5: "1,234"}
RATES = {20.0: "20/s", 0.5: "30/min", 1 / 3600: "1/h", 0.0: "0/h"}


def test_a_number_is_written_with_the_digits_that_count_and_a_slow_rate_by_the_minute_or_the_hour() -> None:
    assert {number: written(number) for number in NUMBERS} == NUMBERS
    assert {per_s: written_rate(per_s) for per_s in RATES} == RATES


def test_a_share_of_a_rate_that_was_learned_too_late_is_left_out() -> None:
    pace = RateReport(1 / 3600, limited=1, pauses=1, paused_s=2.0, requests=4381, seconds=0.1, most_in_flight=8)
    numbers = pace_numbers(pace, 4380, 3.0)
    assert "used_share" not in numbers
    assert "found the 1/h that the service allows" in pace_line(numbers)


@given(st.floats(0, allow_nan=False), st.floats(0, 1e9, allow_nan=False), st.integers(1, 10**9))
def test_the_line_of_a_pace_has_neither_exponents_nor_absurd_shares(rate: float, seconds: float, requests: int) -> None:
    line = pace_line(pace_numbers(RateReport(rate, 1, 1, seconds, requests, seconds, 2, 8), requests, seconds))
    assert not re.search(r"\de[+-]?\d|nan|inf\b", line)
    assert not [share for share in re.findall(r"([\d,.]+)%", line) if float(share.replace(",", "")) > 100]
