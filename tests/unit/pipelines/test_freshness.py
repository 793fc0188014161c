"""Ticks and staleness of a feed: as Dagster works them out, asked about moments around its ticks."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from dagster._core.definitions.freshness import CronFreshnessPolicy, TimeWindowFreshnessPolicy
from dagster._utils.schedules import get_latest_completed_cron_tick
from hypothesis import given, settings
from hypothesis import strategies as st

from mappings.spec.feed import Schedule
from pipelines.orchestration.assets import freshness_of
from pipelines.ticks import last_tick

ZONE = "Europe/Warsaw"


def schedule(cron: str) -> Schedule:
    return Schedule.model_validate({"cron": cron, "timezone": ZONE})


def policy(cron: str) -> CronFreshnessPolicy | TimeWindowFreshnessPolicy:
    made = freshness_of(schedule(cron))
    assert isinstance(made, CronFreshnessPolicy | TimeWindowFreshnessPolicy)
    return made


def is_stale(cron: str, *, published: str, now: str) -> bool:
    """As Dagster evaluates a policy."""
    at = datetime.fromisoformat(now).replace(tzinfo=ZoneInfo(ZONE))
    last = datetime.fromisoformat(published).replace(tzinfo=ZoneInfo(ZONE))
    made = policy(cron)
    if isinstance(made, TimeWindowFreshnessPolicy):
        return at - last >= made.fail_window.to_timedelta()
    return last < get_latest_completed_cron_tick(made.deadline_cron, at, ZONE) - made.lower_bound_delta


@pytest.mark.parametrize(
    ("cron", "published", "now", "stale"),
    [
        # Monday 2031-05-05; every two hours
        ("15 */2 * * *", "2031-05-05T06:16", "2031-05-05T08:14", False),
        ("15 */2 * * *", "2031-05-05T06:16", "2031-05-05T09:14", False),
        ("15 */2 * * *", "2031-05-05T06:16", "2031-05-05T09:16", True),
        ("15 */2 * * *", "2031-05-05T08:55", "2031-05-05T09:16", False),
        # on weekdays: a weekend without a run is not stale, a missed Monday is within the hour
        ("0 6 * * 1-5", "2031-05-02T06:03", "2031-05-04T23:00", False),
        ("0 6 * * 1-5", "2031-05-02T06:03", "2031-05-05T06:59", False),
        ("0 6 * * 1-5", "2031-05-02T06:03", "2031-05-05T07:01", True),
        # every quarter of an hour
        ("*/15 * * * *", "2031-05-05T06:01", "2031-05-05T06:29", False),
        ("*/15 * * * *", "2031-05-05T06:01", "2031-05-05T06:31", True),
        # once a month, before midnight
        ("30 23 1 * *", "2031-05-01T23:31", "2031-05-31T12:00", False),
        ("30 23 1 * *", "2031-05-01T23:31", "2031-06-02T00:01", True),
    ],
)
def test_a_feed_is_stale_once_a_tick_is_old_and_nothing_was_published_since(
    cron: str, published: str, now: str, *, stale: bool
) -> None:
    assert is_stale(cron, published=published, now=now) is stale


MINUTES = st.sampled_from(["*", "0", "30", "*/15", "0,30", "5-50/15", "59", "50-10/5"])
HOURS = st.sampled_from(["*", "6", "*/2", "6,18", "6-20", "22-6", "23", "0-23/3"])


def test_a_feed_without_a_clock_is_never_stale_and_has_no_tick() -> None:
    by_looking = Schedule.model_validate({"look_every": "5m"})
    assert freshness_of(None) is None
    assert freshness_of(by_looking) is None
    assert last_tick(by_looking, datetime(2031, 5, 5, tzinfo=UTC)) is None


DAYS = st.sampled_from(["*", "1", "1,15", "30", "28-31", "*/10"])
MONTHS = st.sampled_from(["*", "6", "jun-aug", "6,SEP", "5-9/2"])
WEEKDAYS = st.sampled_from(["*", "1-5", "mon", "0", "7", "sat,sun", "fri-7"])
SUMMER = st.datetimes(datetime(2031, 5, 1), datetime(2031, 9, 30), timezones=st.just(UTC))  # noqa: DTZ001  # as hypothesis asks


@settings(max_examples=60, deadline=None)  # Dagster counts a thousand ticks of each new line
@given(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS, SUMMER)
def test_the_last_tick_is_the_one_at_which_dagster_ticks(
    minute: str, hour: str, day: str, month: str, weekday: str, at: datetime
) -> None:
    cron = f"{minute} {hour} {day} {month} {weekday}"
    ours = last_tick(schedule(cron), at)
    theirs = get_latest_completed_cron_tick(cron, at, "Europe/Warsaw")
    if ours is None or (ours.year == at.year and 4 < ours.month < 10):  # clocks are put forward and back outside
        assert ours == theirs


@pytest.mark.parametrize(
    ("cron", "at", "last"),
    [
        ("0 6 * * *", "2031-05-05T04:00", "2031-05-05T04:00"),
        ("0 6 29 2 *", "2031-05-05T04:00", "2028-02-29T05:00"),
        ("0 6 29 2 *", "2104-02-28T04:00", "2096-02-29T05:00"),
    ],
)
def test_the_last_tick_may_be_this_very_moment_or_long_ago(cron: str, at: str, last: str) -> None:
    before, found = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (at, last))
    assert last_tick(schedule(cron), before) == found
