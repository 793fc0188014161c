"""A code server loads each mapping file once; the process of a run loads that of its own feed alone, however it is started."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._grpc.types import ExecuteRunArgs
from integration.desk import shell_environ
from on_dagster.desk import FEED, MAPPING, Desk

from pipelines import definitions

pytestmark = pytest.mark.slow
OTHERS = ["art-fair", "book-club", "night-walks"]
SEARCHED = Counter(f"{feed}.yaml" for feed in (FEED, *OTHERS))
"""Each file opened once: to load it, or to find the one that has a feed."""
HOOKED = """
import json, sys
opened = []
sys.addaudithook(lambda event, words: opened.append(str(words[0])) if event == "open" else None)
from dagster._cli import main
try:
    main()
finally:
    print(json.dumps(opened), file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def _four_feeds(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in desk.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(desk.folder)
    for feed in OTHERS:
        desk.mapping(feed)


def job_of(name: str) -> ReconstructableJob:
    return ReconstructableRepository.for_module("pipelines.definitions", "defs").get_reconstructable_job(name)


def in_spawned(name: str, *, is_server: bool = False) -> tuple[Counter[str], str]:
    """Load a job as a process does that a code server spawns for a run, or as the code server itself.

    The mapping files that the process opened, and the id of the job's snapshot.
    """
    spawning = multiprocessing.get_context("spawn")
    said = spawning.SimpleQueue()
    process = spawning.Process(target=_load, args=[job_of(name), is_server, said])
    process.start()
    process.join(120)
    assert process.exitcode == 0
    opened, snapshot_id = said.get()
    return mapping_files(opened), snapshot_id


def _load(job: ReconstructableJob, is_server: bool, said: Any) -> None:
    opened: list[str] = []
    sys.addaudithook(lambda event, words: opened.append(str(words[0])) if event == "open" else None)
    if is_server:
        job.repository.get_definition().load_all_definitions()
    snapshot_id = job.get_definition().get_job_snapshot_id()
    said.put((opened, snapshot_id))


def mapping_files(opened: list[str]) -> Counter[str]:
    return Counter(path.name for path in map(Path, opened) if path.parent.name == "feeds")


def test_a_code_server_loads_each_file_once_and_a_run_its_own_alone_with_the_same_job() -> None:
    for name in ("sync_night_walks", "backfill_night_walks"):
        opened, snapshot_id = in_spawned(name, is_server=True)
        assert opened == SEARCHED
        opened, own = in_spawned(name)
        assert (opened - SEARCHED, own) == ({"night-walks.yaml": 1}, snapshot_id)


def test_a_job_of_no_feed_and_one_whose_file_was_broken_meanwhile_are_found(desk: Desk) -> None:
    assert in_spawned("forget_old_runs")[1]
    desk.mapping("night-walks", text=MAPPING.replace("title:", "titel:"))
    assert in_spawned("sync_night_walks")[1] == in_spawned("sync_night_walks", is_server=True)[1]


def test_a_run_in_a_container_of_its_own_loads_its_feed_alone(desk: Desk, home: dg.DagsterInstance) -> None:
    job = job_of("sync_town_hall")
    run = home.create_run_for_job(job.get_definition(), job_code_origin=job.get_python_origin())
    words = ExecuteRunArgs(job.get_python_origin(), run.run_id, home.get_ref()).get_command_args()
    worker = subprocess.run(
        [sys.executable, "-c", HOOKED, *words[1:]], env=shell_environ(desk.environ), capture_output=True, text=True, check=True
    )
    assert (home.get_runs(dg.RunsFilter([run.run_id]))[0].status, desk.posts()) == (dg.DagsterRunStatus.SUCCESS, 10)
    opened = mapping_files(json.loads(worker.stderr.splitlines()[-1]))
    assert opened - SEARCHED == {"town-hall.yaml": 1}


def test_assets_run_from_their_pages_build_no_job_of_a_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "feed_jobs", lambda *_: pytest.fail("a job of a feed was built"))
    alone = definitions.FeedRepository()
    assert alone.get_job("__ASSET_JOB").asset_layer.executable_asset_keys >= {dg.AssetKey([FEED, "staged"])}
