from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
import pytest
from on_dagster.desk import FEED, Desk

from pipelines.orchestration import names

AT = datetime(2031, 5, 1, 14, 15, tzinfo=UTC)


@pytest.fixture
def instance(home: dg.DagsterInstance) -> dg.DagsterInstance:
    """A schedule asks the instance on disk, never one in memory."""
    return home


def tick(desk: Desk) -> dg.RunRequest | dg.SkipReason:
    schedule = desk.definitions().resolve_schedule_def("sync_town_hall_schedule")
    context = dg.build_schedule_context(instance=desk.instance, scheduled_execution_time=AT)
    told = schedule.evaluate_tick(context)
    if told.skip_message is not None:
        return dg.SkipReason(told.skip_message)
    (request,) = told.run_requests or ()
    return request


def begin(desk: Desk, status: dg.DagsterRunStatus, feed: str = FEED) -> str:
    job = desk.definitions().resolve_job_def("sync_town_hall")
    run = desk.instance.create_run_for_job(job, tags={names.FEED_TAG: feed}, status=status)
    return run.run_id


def test_a_tick_asks_for_a_run_and_says_that_it_did(desk: Desk) -> None:
    request = tick(desk)
    assert isinstance(request, dg.RunRequest)
    assert request.tags[names.LAUNCHED_BY_TAG] == "schedule"


@pytest.mark.parametrize("status", ["STARTING", "STARTED", "CANCELING"])
def test_a_tick_that_finds_the_feed_at_work_is_skipped_and_says_which_run_it_is(desk: Desk, status: str) -> None:
    run_id = begin(desk, dg.DagsterRunStatus[status])
    skipped = tick(desk)
    assert isinstance(skipped, dg.SkipReason)
    assert run_id in (skipped.skip_message or "")


@pytest.mark.parametrize("status", ["SUCCESS", "FAILURE", "CANCELED", "NOT_STARTED"])
def test_a_run_that_ended_or_never_began_holds_no_tick_up(desk: Desk, status: str) -> None:
    begin(desk, dg.DagsterRunStatus[status])
    assert isinstance(tick(desk), dg.RunRequest)


def test_another_feeds_run_holds_no_tick_up(desk: Desk) -> None:
    begin(desk, dg.DagsterRunStatus.STARTED, feed="other-feed")
    assert isinstance(tick(desk), dg.RunRequest)
