"""The lines and rows that people are shown of a run."""

from __future__ import annotations

import pytest

from mappings.outcome import Reason, ReasonCode
from mappings.row_key import RowKey
from pipelines.cli.output.console import brake_rows, publish_line, read_line, rejection_rows
from pipelines.run.brakes import BrakeResult
from state.ledger.accounts import RejectedRow


def test_a_read_is_shown_as_an_equation_that_holds() -> None:
    counts = {"read": 1200, "filtered": 0, "rejected": 2, "unchanged": 1188, "new": 10}
    assert read_line(counts) == "read 1,200 = rejected 2 + unchanged 1,188 + new 10"
    assert read_line({}) == "read 0"


def test_a_publish_is_shown_as_an_equation_that_holds() -> None:
    counts = {"new": 10, "carried_over": 3, "delivered": 9, "delivered_unconfirmed": 1, "pending": 3}
    assert publish_line(counts) == "new 10 + carried over 3 = delivered 9 + delivered unconfirmed 1 + still pending 3"
    assert publish_line({"carried_over": 1, "refused": 1}) == "carried over 1 = refused 1"
    assert publish_line({}) == "new 0"


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ({"read": 5, "new": 3}, "read 5 ≠ new 3: 2 rows unaccounted for"),
        ({"read": 1, "new": 3}, "read 1 ≠ new 3: 2 rows too many"),
        ({"read": 4}, "read 4 ≠ filtered 0: 4 rows unaccounted for"),
    ],
)
def test_an_account_that_does_not_balance_says_so(counts: dict[str, int], line: str) -> None:
    assert read_line(counts) == line


def test_each_reason_of_a_rejection_has_its_line_and_its_sentence() -> None:
    reasons = (
        Reason(ReasonCode.NOT_A_DATE, "startAt", "INICIO", "31.02.", "like 24.12.2025"),
        Reason(ReasonCode.REQUIRED, "title", "", "", "a title"),
    )
    rows = list(rejection_rows([RejectedRow("events.csv:42", RowKey("1"), reasons)]))
    assert rows == [
        (
            "events.csv:42",
            "INICIO",
            "31.02.",
            "This is not a date in one of the formats agreed for this feed.",
            "like 24.12.2025",
        ),
        ("", "title", "", "A value is needed here, and there is none.", "a title"),
    ]


def test_a_brake_is_free_stops_or_was_accepted() -> None:
    verdicts = [
        BrakeResult("new", is_tripped=False, is_accepted=True, measured=0, allowed=0, sentence="a"),
        BrakeResult("shrink", is_tripped=True, is_accepted=False, measured=0, allowed=0, sentence="b"),
        BrakeResult("rejected", is_tripped=True, is_accepted=True, measured=0, allowed=0, sentence="c"),
    ]
    assert [(name, verdict) for name, verdict, _ in brake_rows(verdicts)] == [
        ("new", "free"),
        ("shrink", "STOPS"),
        ("rejected", "accepted for this run"),
    ]
