"""When a feed's schedule ticks, on the two days of Warsaw's year that have not 24 hours too, and which ticks ask for a run."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._utils.schedules import schedule_execution_time_iterator
from on_dagster.desk import FEED, MAPPING, Desk

from mappings.yaml.loader import parse_feed
from pipelines.orchestration import names
from pipelines.orchestration.automation import feed_schedules

AT = datetime(2031, 5, 1, 14, 15, tzinfo=UTC)


@pytest.fixture
def instance(home: dg.DagsterInstance) -> dg.DagsterInstance:
    """A schedule asks the instance on disk, never one in memory."""
    return home


def tick(desk: Desk) -> dg.ScheduleExecutionData:
    schedule = desk.definitions().resolve_schedule_def("sync_town_hall_schedule")
    return schedule.evaluate_tick(dg.build_schedule_context(instance=desk.instance, scheduled_execution_time=AT))


def begin(desk: Desk, status: str, feed: str = FEED) -> str:
    job = desk.definitions().resolve_job_def("sync_town_hall")
    run = desk.instance.create_run_for_job(job, tags={names.FEED_TAG: feed}, status=dg.DagsterRunStatus[status])
    return run.run_id


@pytest.mark.parametrize("status", ["STARTING", "STARTED", "CANCELING"])
def test_a_tick_that_finds_the_feed_at_work_is_skipped_and_says_which_run_it_is(desk: Desk, status: str) -> None:
    run_id = begin(desk, status)
    assert run_id in (tick(desk).skip_message or "")


def test_a_tick_asks_for_a_run_whatever_has_ended_or_never_began_or_is_another_feeds(desk: Desk) -> None:
    for status in ("SUCCESS", "FAILURE", "CANCELED", "NOT_STARTED"):
        begin(desk, status)
    begin(desk, "STARTED", feed="other-feed")
    (request,) = tick(desk).run_requests or ()
    assert request.tags[names.LAUNCHED_BY_TAG] == "schedule"


WARSAW = ZoneInfo("Europe/Warsaw")
SPRING, AUTUMN = datetime(2026, 3, 29, 0, 50, tzinfo=WARSAW), datetime(2026, 10, 25, 0, 50, tzinfo=WARSAW)
"""02:00 is 03:00 on the one, and 03:00 is 02:00 again on the other."""


def _ticks(cron: str, after: datetime, count: int) -> list[str]:
    text = MAPPING.format(feed=FEED, source="events.csv").replace("15 */2 * * *", cron)
    (schedule,) = feed_schedules(parse_feed(text, Path(f"feeds/{FEED}.yaml")))
    assert isinstance(schedule.cron_schedule, str)
    ticks = schedule_execution_time_iterator(
        after.timestamp(), schedule.cron_schedule, schedule.execution_timezone, ascending=True
    )
    return [f"{tick.astimezone(WARSAW):%d %H:%M %Z}" for tick in islice(ticks, count)]


@pytest.mark.parametrize(
    ("cron", "spring", "autumn"),
    [
        ("30 2 * * *", ["29 03:00 CEST", "30 02:30 CEST"], ["25 02:30 CET", "26 02:30 CET"]),
        ("30 2,14 * * *", ["29 03:00 CEST", "29 14:30 CEST"], ["25 02:30 CET", "25 14:30 CET"]),
        ("15 */2 * * *", ["29 03:00 CEST", "29 04:15 CEST"], ["25 02:15 CET", "25 04:15 CET"]),
        ("30 * * * *", ["29 01:30 CET", "29 03:30 CEST"], ["25 01:30 CEST", "25 02:30 CEST", "25 02:30 CET"]),
    ],
)
def test_a_named_hour_that_is_skipped_or_shown_twice_is_one_tick_and_each_hour_that_passes_is_one(
    cron: str, spring: list[str], autumn: list[str]
) -> None:
    assert _ticks(cron, SPRING, len(spring)) == spring
    assert _ticks(cron, AUTUMN, len(autumn)) == autumn
