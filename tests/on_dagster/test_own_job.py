"""The process of one run builds the definitions of its feed alone, and they are those that it has among all feeds."""

from __future__ import annotations

import pytest
from on_dagster.desk import MAPPING, Desk
from on_dagster.spawned import loaded_for, loaded_for_any

from pipelines.orchestration.dagster_private import own_job

OURS = ["backfill_town_hall", "forget_old_runs", "sync_town_hall"]
OTHERS = ["backfill_night_walks", "sync_night_walks"]


@pytest.fixture
def _two_feeds(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in desk.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(desk.folder)
    desk.mapping("night-walks")


@pytest.mark.usefixtures("_two_feeds")
def test_a_run_of_a_feed_builds_that_feed_as_it_is_among_all() -> None:
    every, snapshot_id = loaded_for_any()
    assert every == sorted([*OURS, *OTHERS])
    assert loaded_for("sync_town_hall") == (OURS, snapshot_id)


@pytest.mark.slow
@pytest.mark.usefixtures("_two_feeds")
@pytest.mark.parametrize("job", ["forget_old_runs", "sync_nobody"])
def test_a_run_whose_job_tells_no_feed_builds_all(job: str) -> None:
    assert loaded_for(job)[0] == sorted([*OURS, *OTHERS])


@pytest.mark.slow
@pytest.mark.usefixtures("_two_feeds")
def test_a_run_of_a_feed_whose_file_was_broken_meanwhile_builds_the_job_that_says_so(desk: Desk) -> None:
    desk.mapping("night-walks", text=MAPPING.replace("title:", "titel:"))
    jobs, snapshot_id = loaded_for("sync_night_walks")
    assert jobs == ["forget_old_runs", "sync_night_walks"]
    assert snapshot_id


def test_any_other_process_has_no_job_of_its_own() -> None:
    assert own_job() == ""
