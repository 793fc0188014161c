"""Which runs count as dead: those of this machine whose process is gone, and no others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg
import psutil
from dagster._core.events import EngineEventData
from dagster._core.launcher import WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from on_dagster.desk import until

from pipelines.launcher import BORN_TAG, HOST_TAG, PID_TAG, PidCheckingRunLauncher, end_runs_of_the_dead, process_tags

HERE, FAR = ({GRPC_INFO_TAG: json.dumps({"host": host})} for host in ("localhost", "code.example.org"))


@contextmanager
def process() -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield psutil.Process(running.pid)
        running.kill()


def gone() -> Mapping[str, str]:
    """The tags of a process that has died."""
    with process() as dying:
        return tags_of(dying)


def tags_of(one: psutil.Process) -> dict[str, str]:
    return {**process_tags(), PID_TAG: str(one.pid), BORN_TAG: f"{one.create_time():.2f}"}


@dg.job
def sync() -> None:
    """Does nothing."""


def started(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> dg.DagsterRun:
    return instance.create_run_for_job(sync, tags=tags, status=dg.DagsterRunStatus.STARTED)


def health(instance: dg.DagsterInstance, run: dg.DagsterRun) -> WorkerStatus:
    launcher = instance.run_launcher
    assert isinstance(launcher, PidCheckingRunLauncher)
    return launcher.check_run_worker_health(run).status


def test_a_run_is_not_found_once_its_process_is_dead_and_another_hosts_run_is_left_alone(
    home: dg.DagsterInstance,
) -> None:
    assert home.run_launcher.supports_check_run_worker_health
    known = [process_tags(), gone(), {**gone(), HOST_TAG: "worker-7"}, HERE]
    running, not_found = WorkerStatus.RUNNING, WorkerStatus.NOT_FOUND
    assert [health(home, started(home, tags)) for tags in known] == [running, not_found, running, running]


def test_a_process_that_got_the_dead_ones_number_does_not_speak_for_it(home: dg.DagsterInstance) -> None:
    with process() as other:
        born_before = f"{other.create_time() - 60:.2f}"
        assert health(home, started(home, {**tags_of(other), BORN_TAG: born_before})) is WorkerStatus.NOT_FOUND


def test_a_killed_process_that_nobody_has_waited_for_is_not_found(home: dg.DagsterInstance) -> None:
    with process() as zombie:
        run = started(home, tags_of(zombie))
        zombie.kill()
        until(lambda: zombie.status() == psutil.STATUS_ZOMBIE, what="the death of a process")
        assert health(home, run) is WorkerStatus.NOT_FOUND


def test_a_launched_run_is_known_by_dagsters_own_event(home: dg.DagsterInstance) -> None:
    run = started(home, HERE)
    with process() as worker:
        home.report_engine_event("Started process for run.", run, EngineEventData.in_process(worker.pid))
        assert health(home, run) is WorkerStatus.RUNNING
    assert health(home, run) is WorkerStatus.NOT_FOUND


def test_a_run_of_a_far_code_server_is_not_looked_for_here(home: dg.DagsterInstance) -> None:
    run = started(home, FAR)
    home.report_engine_event("Started process for run.", run, EngineEventData.in_process(int(gone()[PID_TAG])))
    assert health(home, run) is WorkerStatus.RUNNING


def test_runs_of_the_dead_are_ended_and_their_slots_given_back(home: dg.DagsterInstance) -> None:
    run = started(home, gone())
    storage = home.event_log_storage
    storage.set_concurrency_slots("event-api", 1)
    storage.claim_concurrency_slot("event-api", run.run_id, "published")
    assert storage.get_concurrency_info("event-api").active_slot_count == 1
    end_runs_of_the_dead(home)
    assert storage.get_concurrency_info("event-api").active_slot_count == 0
    ended = home.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE


def test_runs_of_the_living_and_of_other_hosts_are_left_alone(home: dg.DagsterInstance) -> None:
    runs = [started(home, tags) for tags in (process_tags(), {**gone(), HOST_TAG: "worker-7"}, {}, HERE)]
    end_runs_of_the_dead(home)
    after = [home.get_run_by_id(run.run_id) for run in runs]
    assert {run.status for run in after if run} == {dg.DagsterRunStatus.STARTED}


def test_the_projects_instance_tells_nobody_and_fences_each_feed(home: dg.DagsterInstance) -> None:
    assert not home.telemetry_enabled
    assert home.run_monitoring_enabled
    config = home.get_concurrency_config()
    assert config.run_queue_config is not None
    (limit,) = config.run_queue_config.tag_concurrency_limits
    assert (limit["key"], limit["limit"]) == ("eventsync/feed", 1)
