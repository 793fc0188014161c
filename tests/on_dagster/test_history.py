"""Dagster forgets old runs when it is asked to, and nothing that has not ended."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg
import pytest
from on_dagster.desk import FEED, Desk

from pipelines.clock import now
from pipelines.orchestration import names
from pipelines.orchestration.automation import JOB, forget_runs


@pytest.fixture
def instance(home: dg.DagsterInstance) -> dg.DagsterInstance:
    return home


def run_ids(desk: Desk) -> set[str]:
    return {run.run_id for run in desk.instance.get_runs()}


def test_old_runs_go_with_their_logs_and_what_is_known_of_the_assets_stays(desk: Desk) -> None:
    old = desk.run().run_id
    unended = desk.instance.create_run_for_job(
        desk.definitions().resolve_job_def(names.job_of(FEED)), status=dg.DagsterRunStatus.STARTED
    ).run_id
    key = dg.AssetKey([FEED, "published"])
    assert list(forget_runs(desk.instance, now() - timedelta(days=7))) == []
    assert list(forget_runs(desk.instance, now() + timedelta(seconds=1))) == [old]
    assert run_ids(desk) == {unended}
    assert desk.instance.get_latest_materialization_event(key) is not None
    again = desk.run()
    assert again.success
    assert desk.posts() == 10


def test_the_job_keeps_ninety_days_unless_it_is_told_otherwise_and_never_less_than_a_week(desk: Desk) -> None:
    recent = desk.run().run_id
    definitions = desk.definitions()
    assert definitions.resolve_schedule_def(names.schedule_of_job(JOB)).default_status is dg.DefaultScheduleStatus.STOPPED
    job = definitions.resolve_job_def(JOB)
    assert job.execute_in_process(instance=desk.instance).success
    assert recent in run_ids(desk)
    config = {"ops": {"forget": {"config": {"days": 1}}}}
    assert not job.execute_in_process(instance=desk.instance, run_config=config, raise_on_error=False).success
    assert recent in run_ids(desk)
