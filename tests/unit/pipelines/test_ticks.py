"""The last tick of a cron line, worked out from the calendar: the same as Dagster's, which runs feeds by its own."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from dagster._utils.schedules import get_latest_completed_cron_tick
from hypothesis import given, settings
from hypothesis import strategies as st

from mappings.spec.feed import Schedule
from pipelines.ticks import gaps_of_day, last_tick, ticks_of_day

MINUTES = st.sampled_from(["*", "0", "30", "*/15", "0,30", "5-50/15", "59", "50-10/5"])
HOURS = st.sampled_from(["*", "6", "*/2", "6,18", "6-20", "22-6", "23", "0-23/3"])
DAYS = st.sampled_from(["*", "1", "1,15", "30", "28-31", "*/10"])
MONTHS = st.sampled_from(["*", "6", "jun-aug", "6,SEP", "5-9/2"])
WEEKDAYS = st.sampled_from(["*", "1-5", "mon", "0", "7", "sat,sun", "fri-7"])
SUMMER = st.datetimes(datetime(2031, 5, 1), datetime(2031, 9, 30), timezones=st.just(UTC))  # noqa: DTZ001  # as hypothesis asks


def schedule(cron: str, timezone: str = "Europe/Warsaw") -> Schedule:
    return Schedule.model_validate({"cron": cron, "timezone": timezone})


@settings(max_examples=60, deadline=None)  # Dagster counts a thousand ticks of each new line
@given(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS, SUMMER)
def test_it_is_the_one_at_which_dagster_ticks(minute: str, hour: str, day: str, month: str, weekday: str, at: datetime) -> None:
    cron = f"{minute} {hour} {day} {month} {weekday}"
    ours = last_tick(schedule(cron), at)
    theirs = get_latest_completed_cron_tick(cron, at, "Europe/Warsaw")
    if ours is None or (ours.year == at.year and 4 < ours.month < 10):  # clocks are put forward and back outside
        assert ours == theirs


@pytest.mark.parametrize(
    ("cron", "at", "last"),
    [
        ("0 6 * * *", "2031-05-05T04:00", "2031-05-05T04:00"),
        ("0 6 * * *", "2031-05-05T03:59", "2031-05-04T04:00"),
        ("0 6 29 2 *", "2031-05-05T04:00", "2028-02-29T05:00"),
        ("0 6 29 2 *", "2104-02-28T04:00", "2096-02-29T05:00"),
        ("0 6 1 * mon", "2031-05-02T04:00", "2031-05-01T04:00"),
        ("0 6 1 * mon", "2031-05-06T04:00", "2031-05-05T04:00"),
    ],
)
def test_it_may_be_long_ago(cron: str, at: str, last: str) -> None:
    found = last_tick(schedule(cron), datetime.fromisoformat(at).replace(tzinfo=UTC))
    assert found == datetime.fromisoformat(last).replace(tzinfo=UTC)


def test_a_schedule_without_a_clock_has_none() -> None:
    assert last_tick(Schedule.model_validate({"look_every": "5m"}), datetime(2031, 5, 5, tzinfo=UTC)) is None


def test_a_day_goes_round() -> None:
    assert ticks_of_day("15 22-1 * * *") == [15, 75, 22 * 60 + 15, 23 * 60 + 15]
    assert gaps_of_day(ticks_of_day("15 22-1 * * *")) == {60, 21 * 60}
    assert gaps_of_day([360]) == {24 * 60}
