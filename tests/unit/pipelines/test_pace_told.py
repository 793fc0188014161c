"""The pace of a run is told in numbers that a script can read and in a line that a person can."""

from __future__ import annotations

from connectors.rate_limit import RateReport
from pipelines.cli.run_report import pace_line
from pipelines.run.publish import pace_numbers


def test_a_run_that_met_a_limit_says_how_much_of_it_was_used() -> None:
    pace = RateReport(20.0, limited=3, pauses=2, paused_s=2.04, requests=1203, seconds=60.0, workers=2, most_in_flight=8)
    numbers = pace_numbers(pace, 1200, 61.0)
    assert numbers["used_share"] == 1.0
    assert pace_line(numbers) == (
        "pace: 19.7 rows/s, up to 8 at a time, 100% of the 20/s that the service allows, "
        "answered 429: 3, paused 2 s, shared by 2 workers"
    )


def test_a_run_that_met_no_limit_names_none() -> None:
    numbers = pace_numbers(
        RateReport(None, limited=0, pauses=0, paused_s=0.0, requests=10, seconds=1.0, most_in_flight=4), 10, 1.0
    )
    assert "rate_per_s" not in numbers
    assert pace_line(numbers) == "pace: 10 rows/s, up to 4 at a time"
    assert not pace_line(numbers | {"rows_per_s": 0.0, "most_under_way": 0})


def test_a_run_that_sent_nothing_has_no_pace() -> None:
    assert pace_line({}) == ""
