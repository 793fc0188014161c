"""Dagster through a month: its own scheduler and monitor, given the time, its runs, and the sensor that tells owners."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.remote_representation.external import RemoteSchedule
from dagster._core.scheduler.instigation import InstigatorTick
from dagster._core.test_utils import freeze_time
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._scheduler.scheduler import ScheduleIterationTimes, launch_scheduled_runs
from integration.desk import shell_environ
from integration.waiting import until
from lookalikes.notices import Inbox, Told
from month.worker import MonthClock, carry_out, definitions_at, settings_of

from mappings.row_key import FeedName
from pipelines.before_serving import DAGSTER_YAML
from pipelines.orchestration import names
from pipelines.orchestration.instance import ENDED, NOTICES_SENSOR, NoticesCursor
from pipelines.orchestration.run_request import launch_config
from pipelines.run.options import RunOptions
from pipelines.settings import Settings

FEED = FeedName("town-hall")
CLOCK = "clock"
"""The file in the folder that tells other processes the time."""
_LOG = logging.getLogger("month")
_TESTS = Path(__file__).parents[1]
_FROM_THE_START = str(NoticesCursor(0.0))
"""The sensor looks at all runs each time: some of Dagster's own times are the machine's, not the month's."""


@dataclass
class Elsewhere:
    """A run worker in a process of its own, started once it is needed."""

    folder: Path
    environ: Mapping[str, str]
    _process: subprocess.Popen[str] | None = None

    def begin(self, run_id: str, at: datetime) -> None:
        if self._process is None:
            env = shell_environ({**self.environ, "PYTHONPATH": str(_TESTS)})
            words, pipe = [sys.executable, _TESTS / "month" / "worker.py", self.folder / CLOCK], subprocess.PIPE
            with (self.folder / "worker.log").open("a", encoding="utf-8") as log:
                self._process = subprocess.Popen(words, cwd=self.folder, env=env, stdin=pipe, stdout=pipe, stderr=log, text=True)
            assert self.said() == "ready"
        print(json.dumps({"run_id": run_id, "at": at.isoformat()}), file=self._process.stdin, flush=True)

    def said(self) -> object:
        """The next line that it says, waited for."""
        assert self._process is not None
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            with self._process:
                self._process = None


@dataclass
class Office:
    """One deployment. `ticks` are those that the scheduler has seen, by their ids, `told` what owners heard, and when.

    The next run is begun in a process of its own, and time stands until this is so, where there is something `elsewhere_until`.
    """

    clock: MonthClock
    settings: Settings
    instance: dg.DagsterInstance
    workspace: WorkspaceProcessContext
    inbox: Inbox
    elsewhere: Elsewhere
    is_up: bool = True
    elsewhere_until: Callable[[], object] | None = None
    ticks: dict[int, InstigatorTick] = field(default_factory=dict)
    told: list[tuple[datetime, Told]] = field(default_factory=list)
    _known: dict[str, ScheduleIterationTimes] = field(default_factory=dict)
    _told_of: int = 0

    def __post_init__(self) -> None:
        self.definitions = definitions_at(self.settings, self.clock.now)
        self._schedule = _schedule_of(self.workspace)

    def stop(self) -> None:
        """Stop the daemon; it is started again with nothing in its memory."""
        self.is_up, self._known = False, {}

    def beat(self, at: datetime) -> None:
        """Let the daemon look once, carry out what it queues, and tell owners where anything has happened."""
        if not self.is_up:
            return
        self.clock.set(at)
        with freeze_time(at):
            problems = [*execute_run_monitoring_iteration(self.workspace, _LOG)]
            problems += launch_scheduled_runs(self.workspace, _LOG, at, self._known)
            assert (found := [problem for problem in problems if problem is not None]) == [], found
            origin, selector = self._schedule.get_remote_origin_id(), self._schedule.selector_id
            # the last ones, each time: Dagster forgets them after a month
            self.ticks |= {tick.tick_id: tick for tick in self.instance.get_ticks(origin, selector, limit=10)}
            for run in self.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])):
                self._carry_out(run.run_id, at)
        if self._ended() > self._told_of:
            self.tell(at)

    def ask_for(self, options: RunOptions, at: datetime) -> None:
        """Run the feed as a person would from the launchpad."""
        self.clock.set(at)
        job = self.definitions.resolve_job_def(names.JOB)
        with freeze_time(at.astimezone(UTC)):
            tags = {names.FEED_TAG: FEED, names.LAUNCHED_BY_TAG: "a person"}
            run = self.instance.create_run_for_job(job, run_config=launch_config(options), tags=tags)
            carry_out(self.instance, self.definitions, run.run_id)
        self.tell(at)

    def tell(self, at: datetime) -> None:
        """Let the sensor look a minute later, and write down what came in."""
        self.clock.set(at + timedelta(minutes=1))
        self._told_of = self._ended()
        sensor = self.definitions.resolve_sensor_def(NOTICES_SENSOR)
        with dg.build_sensor_context(instance=self.instance, cursor=_FROM_THE_START) as context:
            said = sensor(context)
        assert isinstance(said, dg.SkipReason)
        self.told += [(at, message) for message in self.inbox.told]
        self.inbox.told = []

    def _carry_out(self, run_id: str, at: datetime) -> None:
        if self.elsewhere_until is None:
            carry_out(self.instance, self.definitions, run_id)
            return
        self.elsewhere.begin(run_id, at)
        until(self.elsewhere_until, what="what the run does that another process carries out")
        self.elsewhere_until = None

    def _ended(self) -> int:
        return self.instance.get_runs_count(dg.RunsFilter(statuses=ENDED))


def _schedule_of(workspace: WorkspaceProcessContext) -> RemoteSchedule:
    (entry,) = workspace.create_request_context().get_code_location_entries().values()
    assert entry.code_location is not None, entry.load_error
    (repository,) = entry.code_location.get_repositories().values()
    name = names.schedule_of(FEED)
    (found,) = [schedule for schedule in repository.get_schedules() if schedule.name == name]
    return found


@contextmanager
def open_office(folder: Path, environ: Mapping[str, str], clock: MonthClock, inbox: Inbox) -> Iterator[Office]:
    """Set a deployment up in a folder; its environment names folders in full."""
    settings = settings_of(environ)
    home = Path(settings.dagster_home)
    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER_YAML, "utf-8")
    elsewhere = Elsewhere(folder, environ)
    with dg.DagsterInstance.from_config(str(home)) as instance, pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():  # what is loaded by name can be handed nothing
            patch.setenv(name, value)
        with _loaded(instance) as workspace:
            try:
                yield Office(clock, settings, instance, workspace, inbox, elsewhere)
            finally:
                elsewhere.kill()


def _loaded(instance: dg.DagsterInstance) -> WorkspaceProcessContext:
    file = Path(__file__).with_name("worker.py")
    target = LoadableTargetOrigin(python_file=str(file), attribute="defs", working_directory=str(_TESTS))
    origin = InProcessCodeLocationOrigin(target, location_name="eventsync")
    with warnings.catch_warnings():  # Dagster asks its own schedules for what it calls deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        return WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(origin))
