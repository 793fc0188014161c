"""A month of schedules, by Dagster's own scheduler and in simulated time: what came of every tick, row and alert."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from dagster._core.scheduler.instigation import TickStatus
from empty_books import folder_in_memory
from ledger_tables import times_kept
from month.office import FEED
from month.page import HEAD, TABLE, days_of
from month.story import ZONE, Played, Span, a_quiet_day, expected_ticks, hard_days, played, the_month
from written_tables import table_of

from pipelines.notices import Cause
from state.enums import EntryState
from state.ledger.standing import FeedScope
from state.notes import NoticesSent
from state.queries import LedgerQueries, RowFilter
from state.verify import examine

pytestmark = pytest.mark.slow

MARCH = Span(date(2026, 3, 1), 31)
HARD = Span(date(2026, 3, 26), 4)
AUTUMN = Span(date(2026, 10, 25), 1)
LONG = pytest.mark.skipif("EVENTSYNC_TEST_LONG" not in os.environ, reason="takes a minute: set EVENTSYNC_TEST_LONG=1")
QUICK = timedelta(minutes=1)
"""No run has anything to wait for: one takes a second, and far less than this on the busiest machine."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_in_memory() as made:
        yield Path(made)


def _march(day: int, hour: int, minute: int) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=ZONE).astimezone(UTC)


def _ticks(done: Played) -> dict[datetime, TickStatus]:
    return {datetime.fromtimestamp(tick.timestamp, UTC): tick.status for tick in done.office.ticks.values()}


def _assert_each_row_is_online_once_and_the_books_are_in_order(done: Played) -> None:
    assert Counter(event["title"] for event in done.service.events()) == Counter(done.partner.ever.values())
    keys = {event["idempotencyKey"] for event in done.service.events()}
    assert {request["idempotency_key"] for request in done.service.requests()} == keys
    entries = list(LedgerQueries(done.engine).every_row(FeedScope(done.office.settings.destination, FEED), RowFilter()))
    assert {entry.state for entry in entries} == {EntryState.DELIVERED}
    assert {entry.event_id for entry in entries} == {event["id"] for event in done.service.events()}
    assert examine(done.engine).findings == ()
    for run in done.runs:
        assert run.finished_at is not None, run
        for account in (run.read, run.publish):
            if account is not None:
                account.check()
    for name, at in times_kept(done.engine):  # the clock that is handed in is asked for every time of day that is kept
        assert done.span.begin <= at < done.span.end, name


def _assert_no_tick_is_lost_and_none_piles_up(done: Played, missed: set[datetime], held_up: datetime) -> None:
    """`missed`: those without a daemon, but for the last one, which it makes up for. `held_up`: the one during another run."""
    seen, ticks = _ticks(done), done.office.ticks.values()
    assert set(seen) == set(expected_ticks(done.span)) - missed
    assert {at for at, status in seen.items() if status is not TickStatus.SUCCESS} == {held_up}
    assert {len(tick.run_ids) for tick in ticks if tick.status is TickStatus.SUCCESS} == {1}
    (skipped,) = [tick for tick in ticks if tick.status is TickStatus.SKIPPED]
    assert "at work" in (skipped.skip_reason or "")
    assert Counter(run.launched_by for run in done.runs)["schedule"] == len(ticks) - 1


def _assert_each_cause_is_told_once_and_its_end_once(done: Played, standing: list[Cause]) -> None:
    """What was told is over, and was told to be, or still stands."""
    sent = NoticesSent(done.engine, done.office.settings.destination, done.office.clock.now).causes()
    assert set().union(*sent.values()) == set(standing)
    lines = [line for _, message in done.office.told for line in message.body.splitlines()]
    over = sum(line.count(";") + 1 for line in lines if line.startswith("Over: "))
    assert sum(line.startswith("- ") for line in lines) == over + len(standing)


def _assert_no_run_waits(done: Played, held_up: datetime) -> None:
    """But for the one that holds a tick up, and the one that was killed, whose end is the next one's."""
    ended = {(run.started_at, run.finished_at) for run in done.runs if run.finished_at and run.exit_code is not None}
    (long,) = {(began, end) for began, end in ended if began < held_up < end}
    assert max(end - began for began, end in ended - {long}) < QUICK


@LONG
def test_a_month_keeps_every_promise_and_is_as_its_page_tells_it(folder: Path) -> None:
    with played(folder, MARCH, the_month(MARCH.first, MARCH.days)) as month:
        missed = {_march(18, 14, 30), _march(19, 2, 30), _march(19, 14, 30)}
        _assert_no_tick_is_lost_and_none_piles_up(month, missed, _march(23, 14, 30))
        _assert_each_row_is_online_once_and_the_books_are_in_order(month)
        _assert_each_cause_is_told_once_and_its_end_once(month, [Cause.VANISHED])
        _assert_no_run_waits(month, _march(23, 14, 30))
        assert table_of(HEAD, days_of(month)) == TABLE.read()


def test_four_hard_days_lose_no_tick_no_row_and_no_alert_and_double_none(folder: Path) -> None:
    with played(folder, HARD, hard_days(HARD.first)) as done:
        _assert_no_tick_is_lost_and_none_piles_up(done, {_march(27, 14, 30)}, _march(28, 14, 30))
        assert [run.exit_code for run in done.runs] == [0, 6, 6, 0, 0, None, 0]
        told = [message.title.rpartition(": ")[2] for _, message in done.office.told]
        assert told == ["paused", "resolved", "a run was lost", "resolved"]
        _assert_each_row_is_online_once_and_the_books_are_in_order(done)
        _assert_each_cause_is_told_once_and_its_end_once(done, [])
        _assert_no_run_waits(done, _march(28, 14, 30))


def test_where_clocks_go_back_a_time_that_comes_twice_is_one_tick(folder: Path) -> None:
    with played(folder, AUTUMN, a_quiet_day(AUTUMN.first)) as done:
        assert _ticks(done) == dict.fromkeys(expected_ticks(AUTUMN), TickStatus.SUCCESS)
        assert [run.exit_code for run in done.runs] == [0] * len(_ticks(done))
        assert done.office.told == []
        _assert_each_row_is_online_once_and_the_books_are_in_order(done)
