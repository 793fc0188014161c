"""A run as people see it: accounts that balance, tables of rejected rows and brakes, its pace, a bar that ends with it."""

from __future__ import annotations

import io

from rich.console import Console

from connectors.rate_limit import RateReport
from pipelines.cli.output.console import Output, brakes_table, publish_line, read_line
from pipelines.cli.output.drawing import drawn_table
from pipelines.cli.run_report import RunReport, pace_line, show_accounts
from pipelines.run.brakes import BrakeResult
from pipelines.run.publish import pace_numbers

NOTHING_SENT = {"rows_per_s": 0.0, "limited": 0, "pauses": 0, "paused_s": 0.0, "most_under_way": 0, "workers": 1}


def test_a_run_that_sends_nothing_has_no_empty_line_where_its_pace_would_stand() -> None:
    out = io.StringIO()
    report = RunReport("town-hall", "1", "done", 0, "", "", publish={"new": 0}, pace=NOTHING_SENT)
    show_accounts(Output(stdout=out), report)
    assert out.getvalue().splitlines() == ["town-hall: done (run 1)", "  new 0"]


def test_of_rows_told_as_paragraphs_only_the_title_is_bold() -> None:
    console = Console(width=40, file=io.StringIO())
    told = drawn_table("town-hall: refused", ["state", "problem"], [["refused", "too long: " + "x" * 60]], console)
    assert "".join(char for place, char in enumerate(str(told)) if told.get_style_at_offset(console, place).bold).strip() == (
        "town-hall: refused"
    )


def test_a_read_and_a_publish_are_equations_and_one_that_does_not_hold_says_so() -> None:
    counts = {"read": 1200, "filtered": 0, "rejected": 2, "unchanged": 1188, "new": 10}
    assert read_line(counts) == "read 1,200 = rejected 2 + unchanged 1,188 + new 10"
    assert read_line({}) == "read 0"
    assert read_line({"read": 5, "new": 3}) == "read 5 ≠ new 3: 2 rows unaccounted for"
    assert read_line({"read": 1, "new": 3}) == "read 1 ≠ new 3: 2 rows too many"
    assert read_line({"read": 4}) == "read 4 ≠ filtered 0: 4 rows unaccounted for"
    counts = {"new": 10, "carried_over": 3, "delivered": 9, "delivered_unconfirmed": 1, "pending": 3}
    assert publish_line(counts) == "new 10 + carried over 3 = delivered 9 + delivered unconfirmed 1 + still pending 3"
    assert publish_line({"carried_over": 1, "refused": 1}) == "carried over 1 = refused 1"
    assert publish_line({}) == "new 0"


def test_a_brake_is_free_stops_or_was_accepted() -> None:
    verdicts = [
        BrakeResult(name, is_tripped=is_tripped, is_accepted=is_accepted, measured=0, allowed=0, sentence="a")
        for name, is_tripped, is_accepted in (("new", False, True), ("shrink", True, False), ("rejected", True, True))
    ]
    assert [verdict for _, verdict, _ in brakes_table(verdicts)[1]] == ["free", "STOPS", "accepted for this run"]


def test_the_pace_of_a_run_names_the_limit_that_it_met() -> None:
    pace = RateReport(20.0, limited=3, pauses=2, paused_s=2.04, requests=1203, seconds=60.0, workers=2, most_in_flight=8)
    numbers = pace_numbers(pace, 1200, 61.0)
    assert numbers["used_share"] == 1.0
    assert pace_line(numbers) == (
        "pace: 19.7 rows/s, up to 8 at a time, 100% of the 20/s that the service allows, "
        "answered 429: 3, paused 2 s, shared by 2 workers"
    )
    unlimited = RateReport(None, limited=0, pauses=0, paused_s=0.0, requests=10, seconds=1.0, most_in_flight=4)
    assert pace_line(pace_numbers(unlimited, 10, 1.0)) == "pace: 10 rows/s, up to 4 at a time"
    assert "rate_per_s" not in pace_numbers(unlimited, 10, 1.0)
    assert not pace_line(pace_numbers(unlimited, 10, 1.0) | {"rows_per_s": 0.0, "most_under_way": 0})
    assert pace_line({}) == ""
