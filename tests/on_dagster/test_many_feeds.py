"""A code server loads each mapping file once; the process of a run loads those of the feeds at work, however it is started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._grpc.types import ExecuteRunArgs
from integration.desk import shell_environ
from on_dagster.desk import FEED, MAPPING, Desk

from pipelines.orchestration import names
from pipelines.orchestration.run_tags import feed_tags
from pipelines.run.context import SCHEDULE

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


SERVER = """
import json, sys
opened = []
sys.addaudithook(lambda event, words: opened.append(str(words[0])) if event == "open" else None)
from dagster._core.definitions.reconstruct import ReconstructableRepository
ReconstructableRepository.for_module("pipelines.definitions", "defs").get_definition().load_all_definitions()
print(json.dumps(opened), file=sys.stderr)
"""
"""What a code server does when it starts."""


@pytest.fixture(autouse=True)
def _four_feeds(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**desk.environ, "DAGSTER_HOME": str(desk.folder / "home")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(desk.folder)
    for feed in OTHERS:
        desk.mapping(feed)


def launched(home: dg.DagsterInstance, *feeds: str) -> tuple[dg.DagsterRun, ReconstructableJob]:
    """A run that a launcher is about to start a process for."""
    job = ReconstructableRepository.for_module("pipelines.definitions", "defs").get_reconstructable_job(names.JOB)
    run = home.create_run_for_job(
        job.get_definition(),
        asset_selection=frozenset(dg.AssetKey([feed, phase]) for feed in feeds for phase in names.PHASES),
        tags={names.LAUNCHED_BY_TAG: SCHEDULE, **feed_tags(feeds)},
        job_code_origin=job.get_python_origin(),
        status=dg.DagsterRunStatus.STARTING,
    )
    return run, job


def carried_out(desk: Desk, home: dg.DagsterInstance, run: dg.DagsterRun, job: ReconstructableJob) -> Counter[str]:
    """Execute a run in a process of its own, as in a container; return the mapping files that it loaded."""
    words = ExecuteRunArgs(job.get_python_origin(), run.run_id, home.get_ref()).get_command_args()
    environ = shell_environ({**desk.environ, "DAGSTER_HOME": str(desk.folder / "home")})
    worker = subprocess.run([sys.executable, "-c", HOOKED, *words[1:]], env=environ, capture_output=True, text=True, check=True)
    assert home.get_runs(dg.RunsFilter([run.run_id]))[0].status is dg.DagsterRunStatus.SUCCESS
    return loaded(worker) - SEARCHED


def loaded(worker: subprocess.CompletedProcess[str]) -> Counter[str]:
    """The mapping files that a process opened."""
    opened = map(Path, json.loads(worker.stderr.splitlines()[-1]))
    return Counter(path.name for path in opened if path.parent.name == "feeds")


def test_a_code_server_loads_each_file_once(desk: Desk) -> None:
    environ = shell_environ({**desk.environ, "DAGSTER_HOME": str(desk.folder / "home")})
    server = subprocess.run([sys.executable, "-c", SERVER], env=environ, capture_output=True, text=True, check=True)
    assert loaded(server) == SEARCHED


def test_a_run_loads_its_own_feeds_and_those_of_other_runs_at_work(desk: Desk, home: dg.DagsterInstance) -> None:
    assert carried_out(desk, home, *launched(home, FEED)) == {"town-hall.yaml": 1}
    assert desk.posts() == 10
    launched(home, "art-fair", "book-club")
    assert set(carried_out(desk, home, *launched(home, FEED))) == {"town-hall.yaml", "art-fair.yaml", "book-club.yaml"}


def test_a_run_whose_file_was_broken_meanwhile_says_what_is_wrong(desk: Desk, home: dg.DagsterInstance) -> None:
    run, job = launched(home, "night-walks")
    desk.mapping("night-walks", text=MAPPING.replace("title:", "titel:"))
    with pytest.raises(AssertionError):
        carried_out(desk, home, run, job)
    staged, published = home.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE).records
    assert "titel" in str(staged.event_log_entry.dagster_event)
    assert "titel" in str(published.event_log_entry.dagster_event)
