"""The process of one run builds the definitions of its feed alone, and they are those that it has among all feeds."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository
from on_dagster.desk import MAPPING, Desk

from pipelines.orchestration.dagster_private import own_job

pytestmark = pytest.mark.slow
OURS = ["backfill_town_hall", "forget_old_runs", "sync_town_hall"]
ALL = sorted([*OURS, "backfill_night_walks", "sync_night_walks"])


@pytest.fixture(autouse=True)
def _two_feeds(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in desk.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(desk.folder)
    desk.mapping("night-walks")


def loaded(name: str, *, is_handed_alone: bool = True) -> tuple[list[str], str]:
    """Load the definitions in a process that is spawned as a code server spawns one for a run of the job.

    The jobs that were built, and the id of the snapshot of this one, "" if it was not. A job in a list is none to run.
    """
    job = ReconstructableRepository.for_module("pipelines.definitions", "defs").get_reconstructable_job(name)
    spawning = multiprocessing.get_context("spawn")
    said = spawning.SimpleQueue()
    process = spawning.Process(target=_load, args=[job if is_handed_alone else [job], said])
    process.start()
    process.join(120)
    assert process.exitcode == 0
    found: tuple[list[str], str] = said.get()
    return found


def _load(handed: Any, said: Any) -> None:
    job = handed[0] if isinstance(handed, list) else handed
    names = sorted(one for one in job.repository.get_definition().job_names if not one.startswith("__"))
    said.put((names, job.get_definition().get_job_snapshot_id() if job.job_name in names else ""))


def test_a_run_of_a_feed_builds_that_feed_as_it_is_among_all_and_any_other_run_builds_all() -> None:
    every, snapshot_id = loaded("sync_town_hall", is_handed_alone=False)
    assert every == ALL
    assert loaded("sync_town_hall") == (OURS, snapshot_id)
    assert loaded("forget_old_runs")[0] == ALL
    assert own_job() == "", "any other process has none"


def test_a_run_of_a_feed_whose_file_was_broken_meanwhile_builds_the_job_that_says_so(desk: Desk) -> None:
    desk.mapping("night-walks", text=MAPPING.replace("title:", "titel:"))
    jobs, snapshot_id = loaded("sync_night_walks")
    assert (jobs, bool(snapshot_id)) == (["forget_old_runs", "sync_night_walks"], True)
