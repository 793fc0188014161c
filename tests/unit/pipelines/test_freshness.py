"""When a feed counts as stale: told by Dagster's own words for it, asked about moments around its ticks."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.definitions.freshness import CronFreshnessPolicy, TimeWindowFreshnessPolicy
from dagster._utils.schedules import get_latest_completed_cron_tick
from hypothesis import given, settings
from hypothesis import strategies as st

from mappings.spec.feed import Schedule
from pipelines.orchestration.freshness import freshness_of

ZONE = "Europe/Warsaw"


def policy(cron: str) -> CronFreshnessPolicy | TimeWindowFreshnessPolicy:
    made = freshness_of(Schedule.model_validate({"cron": cron, "timezone": ZONE}))
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


FIELD = st.sampled_from(["*", "0", "30", "*/15", "0,30", "5-50/15", "59"])
HOURS = st.sampled_from(["*", "6", "*/2", "6,18", "6-20", "22-6", "23", "0-23/3"])
DAYS = st.sampled_from(["* * *", "* * 1-5", "1 * *", "* 6-9 *"])


@settings(max_examples=40, deadline=None)  # Dagster counts a thousand ticks of each new line
@given(FIELD, HOURS, DAYS)
def test_every_schedule_has_a_policy_whose_deadlines_come_after_its_ticks_by_the_grace_that_it_leaves(
    minute: str, hour: str, days: str
) -> None:
    made = policy(f"{minute} {hour} {days}")
    if isinstance(made, TimeWindowFreshnessPolicy):
        assert days == "* * *"
        return
    assert timedelta(minutes=1) <= made.lower_bound_delta <= timedelta(days=1)
    start = datetime(2031, 5, 5, 12, tzinfo=ZoneInfo(ZONE))
    tick = get_latest_completed_cron_tick(f"{minute} {hour} {days}", start, ZONE)
    own = made.deadline_cron == f"{minute} {hour} {days}"
    deadline = get_latest_completed_cron_tick(made.deadline_cron, start, ZONE)
    assert own or deadline - made.lower_bound_delta <= tick


@pytest.mark.parametrize("cron", ["15 */2 * * *", "*/15 * * * *", "7 6,18 * * *", "* * * * *"])
def test_even_ticks_need_no_calendar(cron: str) -> None:
    assert isinstance(policy(cron), TimeWindowFreshnessPolicy)


@pytest.mark.parametrize("schedule", [None, Schedule.model_validate({"look_every": "5m"})])
def test_a_feed_without_a_clock_is_never_stale(schedule: Schedule | None) -> None:
    assert freshness_of(schedule) is None


def test_a_policy_is_made_once_for_all_feeds_of_a_schedule() -> None:
    assert policy("0 6 * * *") is policy("0 6 * * *")
    assert isinstance(policy("0 6 * * *"), dg.FreshnessPolicy)
