"""Dagster forgets old runs of ours when it is asked to, no other team's, and nothing that has not ended."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg
import pytest
from on_dagster.desk import FEED, Desk

from pipelines.clock import now
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import origin_tags
from pipelines.orchestration.instance import JOB, forget_runs


@dg.job
def reports() -> None:
    """A job of another team on the same instance."""


@pytest.fixture
def instance(home: dg.DagsterInstance) -> dg.DagsterInstance:
    return home


def test_old_runs_go_with_their_logs_those_of_ninety_days_stay_and_so_does_what_is_known_of_the_assets(desk: Desk) -> None:
    old, definitions = desk.run().run_id, desk.definitions()
    assert min(job.name for job in definitions.get_repository_def().get_all_jobs() if not job.name.startswith("__")) == names.JOB
    syncing, forgetting = (definitions.resolve_job_def(name) for name in (names.JOB, JOB))
    unended = desk.instance.create_run_for_job(syncing, status=dg.DagsterRunStatus.STARTED, tags=origin_tags()).run_id
    other_teams = reports.execute_in_process(instance=desk.instance).run_id
    assert definitions.resolve_schedule_def(f"{JOB}_schedule").default_status is dg.DefaultScheduleStatus.STOPPED
    assert forgetting.execute_in_process(instance=desk.instance).success
    too_few = {"ops": {"forget": {"config": {"days": 1}}}}
    assert not forgetting.execute_in_process(instance=desk.instance, run_config=too_few, raise_on_error=False).success
    assert list(forget_runs(desk.instance, now() - timedelta(days=7))) == []
    assert old in set(forget_runs(desk.instance, now() + timedelta(seconds=1)))
    assert {run.run_id for run in desk.instance.get_runs() if run.job_name != JOB} == {unended, other_teams}
    assert desk.instance.get_latest_materialization_event(dg.AssetKey([FEED, "published"])) is not None
    again = desk.run()
    assert again.success
    assert desk.posts() == 10
