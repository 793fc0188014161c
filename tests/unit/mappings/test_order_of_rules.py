"""Rules apply in the order of the file, and what is unreadable is rejected before any rule that reads it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import MappingFileError
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowOutcome, Skipped, SourceRow, if_unknown
from mappings.reasons import ReasonCode
from mappings.spec.feed import FeedMapping

Build = Callable[..., FeedMapping]
Row = Callable[..., SourceRow]

NOW = datetime(2026, 7, 1, tzinfo=UTC)
STARTS = "startAt: {from: START}\nendAt: {from: END, on_empty: omit}"
SKIP = "  - skip: {column: KIND, equals: online}\n    because: online only\n"
ASSERT = "  - assert: {column: PRICE, is: present}\n    message: a price is needed\n"
CANCELLED = "  - cancelled: {column: KIND, equals: 'off'}\n"
WINDOW = "  - window: {past: skip, horizon: 30d}\n"


@pytest.fixture
def ruled(build: Build) -> Callable[..., RowMapper]:
    """Return a function from rules to a compiled feed."""

    def feed(rules: str, *, let: str = "", event: str = STARTS) -> RowMapper:
        return compile_feed(build(top=f"{let}rows:\n{rules}", event=event), Directory(), NOW)

    return feed


def told(outcome: RowOutcome) -> str:
    """Return the rule's label of a row that is left out, or the codes of a rejected one."""
    match if_unknown(outcome):
        case Skipped() as skipped:
            return skipped.because
        case Rejection() as rejection:
            return " ".join(reason.code for reason in rejection.reasons)
        case _:
            return "event"


LATER = {"START": "2026-07-10T18:00:00+00:00"}
OVER = {"START": "2026-06-10T18:00:00+00:00"}


@pytest.mark.parametrize(
    ("rules", "cells", "becomes"),
    [
        (SKIP + ASSERT, {"KIND": "online"}, "online only"),
        (ASSERT + SKIP, {"KIND": "online"}, "assertion"),
        (ASSERT + SKIP, {"KIND": "online", "PRICE": "5"}, "online only"),
        (CANCELLED + ASSERT, {"KIND": "off"}, "cancelled"),
        (ASSERT + CANCELLED, {"KIND": "off"}, "assertion"),
        (WINDOW + ASSERT, OVER, "already over"),
        (ASSERT + WINDOW, OVER, "assertion"),
        (WINDOW + SKIP, {**OVER, "KIND": "online"}, "online only"),
    ],
)
def test_the_first_rule_that_rejects_a_row_or_leaves_it_out_decides(
    rules: str, cells: dict[str, str], becomes: str, ruled: Callable[..., RowMapper], row: Row
) -> None:
    assert told(ruled(rules)(row(**LATER | cells))) == becomes


def test_a_value_that_a_rule_cannot_read_rejects_the_row_and_no_later_rule_leaves_it_out(
    ruled: Callable[..., RowMapper], row: Row
) -> None:
    let = 'let: {seats: {from: SEATS, do: [{number: "."}]}}\n'
    full = "  - skip: {value: $seats, less: '1'}\n    because: sold out\n"
    assert told(ruled(full + SKIP, let=let)(row(**LATER, KIND="online", SEATS="many"))) == "not_a_number"
    assert told(ruled(SKIP + full, let=let)(row(**LATER, KIND="online", SEATS="many"))) == "online only"


@pytest.mark.parametrize(
    ("cells", "becomes"),
    [
        ({**LATER, "END": "2026-06-10T20:00:00+00:00"}, "end_before_start"),
        ({**OVER, "END": "2026-06-09T20:00:00+00:00"}, "end_before_start"),
        ({**OVER, "END": "soon"}, "not_a_date"),
        ({**OVER, "END": "2026-06-10T20:00:00"}, "not_a_date"),
        ({"START": "soon", "END": "2026-06-10T20:00:00+00:00"}, "not_a_date"),
        ({**OVER, "TITLE": ""}, "already over"),
        ({**OVER, "END": "2026-06-10T20:00:00+00:00"}, "already over"),
    ],
)
def test_the_window_leaves_no_row_out_whose_times_cannot_be_read(
    cells: dict[str, str], becomes: str, ruled: Callable[..., RowMapper], row: Row
) -> None:
    assert told(ruled(WINDOW)(row(**cells))) == becomes


def test_a_window_that_does_not_look_at_the_end_leaves_out_what_is_too_far_ahead(
    ruled: Callable[..., RowMapper], row: Row
) -> None:
    window = "  - window: {past: keep, horizon: 30d}\n"
    assert told(ruled(window)(row(START="2026-09-01T18:00:00+00:00", END="soon"))) == "beyond the horizon"


LET = 'let: {first: {from: FIRST, do: [{date: "%Y-%m-%d"}]}}\n'
RECUR = "  - recur: {from: $first, until: '2026-07-12'}\n"
EARLY = "  - skip: {value: $day, before: '2026-07-11'}\n    because: too early\n"
AT = 'startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: "20:00"}}'


def test_a_rule_about_the_day_hides_no_unreadable_recurrence(ruled: Callable[..., RowMapper], row: Row) -> None:
    mapper = ruled(RECUR + EARLY, let=LET, event=AT)
    (outcome,) = mapper.outcomes(row(FIRST="soon"))
    assert told(outcome) == "not_a_date"
    assert [told(each) for each in mapper.outcomes(row(FIRST="2026-07-10"))] == ["too early", "event", "event"]


def test_a_rule_about_the_day_before_the_recurrence_looks_at_the_rows_own_day(ruled: Callable[..., RowMapper], row: Row) -> None:
    mapper = ruled(EARLY + RECUR, let=LET, event=AT)
    assert [told(each) for each in mapper.outcomes(row(FIRST="2026-07-10"))] == ["too early"]
    assert [told(each) for each in mapper.outcomes(row(FIRST="2026-07-11"))] == ["event", "event"]
    (unreadable,) = mapper.outcomes(row(FIRST="soon"))
    assert isinstance(unreadable, Rejection)
    assert [reason.code for reason in unreadable.reasons] == [ReasonCode.NOT_A_DATE]


def test_a_recurrence_cannot_begin_on_a_day_that_it_gives_itself(ruled: Callable[..., RowMapper]) -> None:
    let = (
        'let: {first: {choose: [{when: {column: A, is: present}, then: $day}], otherwise: {from: B, do: [{date: "%Y-%m-%d"}]}}}\n'
    )
    with pytest.raises(MappingFileError, match=r"\$day cannot say on which day a recurrence begins"):
        ruled(EARLY + RECUR, let=let, event=AT)


def test_days_outside_the_window_are_compared_by_their_own_keys(ruled: Callable[..., RowMapper], row: Row) -> None:
    explode = "  - explode: {columns: DATES, by: ';'}\n" + WINDOW
    event = 'startAt: {at: {day: {from: DATES, do: [{date: "%Y-%m-%d"}]}, zone: Europe/Lisbon, all_day: "20:00"}}'
    outcomes = ruled(explode, event=event).outcomes(row(DATES="2026-06-10;2026-06-11"))
    assert [(outcome.row_key, outcome.outside) for outcome in outcomes if isinstance(outcome, MappedRow)] == [
        ("1|2026-06-10", "already over"),
        ("1|2026-06-11", "already over"),
    ]
    assert [outcome.part.is_further for outcome in outcomes] == [False, True]
