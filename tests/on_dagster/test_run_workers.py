"""Which runs count as dead: those of this machine whose process is gone, and no others."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import dagster as dg
import psutil
import pytest
from dagster._core.events import EngineEventData
from dagster._core.launcher import WorkerStatus
from on_dagster.desk import FEED, Desk, until

from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import GRPC_INFO_TAG, HIDDEN_TAG_PREFIX, origin_tags
from pipelines.orchestration.run_tags import end_runs_of_the_dead
from pipelines.orchestration.workers import BORN_TAG, HOST_TAG, PID_TAG, process_tags

HERE, FAR = ({GRPC_INFO_TAG: json.dumps({"host": host})} for host in ("localhost", "code.example.org"))
RUNNING, NOT_FOUND = WorkerStatus.RUNNING, WorkerStatus.NOT_FOUND


@contextmanager
def process() -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield psutil.Process(running.pid)
        running.kill()


def gone(**more: str) -> Mapping[str, str]:
    """The tags of a process that has died."""
    with process() as dying:
        return {**tags_of(dying), **more}


def tags_of(one: psutil.Process, *, older_s: float = 0.0) -> dict[str, str]:
    """The tags of a process, shown as version 0.1 did."""
    hidden = {name.removeprefix(HIDDEN_TAG_PREFIX): value for name, value in process_tags().items()}
    return {**hidden, PID_TAG: str(one.pid), BORN_TAG: f"{one.create_time() - older_s:.2f}"}


@dg.job
def sync() -> None:
    """Does nothing."""


def started(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> dg.DagsterRun:
    return instance.create_run_for_job(sync, tags=tags, status=dg.DagsterRunStatus.STARTED)


def health(instance: dg.DagsterInstance, run: dg.DagsterRun) -> WorkerStatus:
    assert instance.run_launcher.supports_check_run_worker_health
    return instance.run_launcher.check_run_worker_health(run).status


def test_a_run_is_not_found_once_its_process_is_dead_a_zombie_or_another_one_and_other_hosts_are_left_alone(
    home: dg.DagsterInstance,
) -> None:
    known = [process_tags(), gone(), gone(**{HOST_TAG: "worker-7"}), HERE]
    assert [health(home, started(home, tags)) for tags in known] == [RUNNING, NOT_FOUND, RUNNING, RUNNING]
    with process() as other:
        assert health(home, started(home, tags_of(other, older_s=60))) is NOT_FOUND
        run = started(home, tags_of(other))
        other.kill()
        until(lambda: other.status() == psutil.STATUS_ZOMBIE, what="the death of a process")
        assert health(home, run) is NOT_FOUND


def test_a_launched_run_is_known_by_dagsters_own_event_unless_its_code_server_is_far(home: dg.DagsterInstance) -> None:
    near, far = started(home, HERE), started(home, FAR)
    with process() as worker:
        for run in (near, far):
            home.report_engine_event("Started process for run.", run, EngineEventData.in_process(worker.pid))
        assert health(home, near) is RUNNING
    assert [health(home, run) for run in (near, far)] == [NOT_FOUND, RUNNING]


def test_runs_of_the_dead_are_ended_and_their_slots_given_back_and_all_others_left_alone(home: dg.DagsterInstance) -> None:
    ours = origin_tags()
    alive = [started(home, {**ours, **tags}) for tags in (process_tags(), gone(**{HOST_TAG: "worker-7"}), {}, HERE)]
    alive.append(started(home, gone()))  # of another location, whose processes this one may not even see
    dead, storage = started(home, {**ours, **gone()}), home.event_log_storage
    storage.set_concurrency_slots("event-api", 1)
    storage.claim_concurrency_slot("event-api", dead.run_id, "published")
    assert storage.get_concurrency_info("event-api").active_slot_count == 1
    end_runs_of_the_dead(home)
    assert storage.get_concurrency_info("event-api").active_slot_count == 0
    runs = {run.run_id: run.status.value for run in home.get_runs()}
    assert runs == {dead.run_id: "FAILURE", **{run.run_id: "STARTED" for run in alive}}


def test_ticks_at_the_same_time_report_a_dead_run_once(home: dg.DagsterInstance) -> None:
    dead = [started(home, gone(**{names.FEED_TAG: FEED})) for _ in range(3)]
    with ThreadPoolExecutor(4) as ticks:
        assert [*ticks.map(end_runs_of_the_dead, [home] * 4)] == [None] * 4
    failures = [home.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE) for run in dead]
    assert [len(one) for one in failures] == [1, 1, 1]


@pytest.mark.parametrize("host", ["localhost", socket.gethostname()])
def test_a_tick_ends_a_run_that_was_killed_as_it_waited_for_its_pool_and_held_no_lease(
    desk: Desk, home: dg.DagsterInstance, host: str
) -> None:
    schedule, storage = desk.definitions().resolve_schedule_def("sync_town_hall_schedule"), home.event_log_storage
    storage.set_concurrency_slots("event-api", 1)
    tags = {names.FEED_TAG: FEED, GRPC_INFO_TAG: json.dumps({"host": host})}
    with process() as alive, process() as dying:
        runs = [started(home, tags), started(home, tags)]
        for run, worker in zip(runs, [alive, dying], strict=True):
            home.report_engine_event("Started process for run.", run, EngineEventData.in_process(worker.pid))
            storage.claim_concurrency_slot("event-api", run.run_id, "published")
        dying.kill()
        until(lambda: dying.status() == psutil.STATUS_ZOMBIE, what="the death of a process")
        assert schedule.evaluate_tick(dg.build_schedule_context(home)).run_requests
        assert [run.status.value for run in home.get_runs()] == ["FAILURE", "STARTED"]
        assert storage.get_concurrency_info("event-api").pending_step_count == 0


def test_the_projects_instance_tells_nobody_and_fences_each_feed(home: dg.DagsterInstance) -> None:
    assert (home.telemetry_enabled, home.run_monitoring_enabled) == (False, True)
    config = home.get_concurrency_config().run_queue_config
    assert config is not None
    assert [(limit["key"], limit["limit"]) for limit in config.tag_concurrency_limits] == [("eventsync/feed", 1)]
