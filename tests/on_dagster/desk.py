"""A folder of feeds, their rows, a sandbox and a Dagster instance: what Dagster sees of it, and its jobs as they run."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from integration import waiting
from integration.desk import Command, WarmStart, shell_environ
from integration.service import Door
from lookalikes.notices import closed_port

from pipelines.definitions import application
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import origin_tags
from pipelines.orchestration.run_request import launch_config
from pipelines.run.context import open_context
from pipelines.run.options import RunOptions
from pipelines.settings import Settings, read_settings
from sandbox.server import running
from sandbox.switches import Switches
from state.queries import LedgerQueries, RunRecord

until = partial(waiting.until, within_s=90.0, every_s=0.1)
"""Waits for processes of Dagster, which take their time, and more of it where they are asked without a pause."""
FEED = "town-hall"
SECRET = "sk-dagster-3fKw9Qx7-0042"
MAPPING = """\
feed: {feed}
owner: agenda@example.org
source:
  kind: csv
  path: ../{source}
schedule: {{cron: "15 */2 * * *", timezone: Europe/Warsaw}}
key: [ID]
event:
  channelId: {{channel: city-agenda}}
  title: {{from: TITLE, do: [collapse]}}
  startAt:
    at:
      day: {{from: DAY, do: [{{date: ["%Y-%m-%d"]}}]}}
      clock: {{from: HOUR, do: [{{time: ["%H:%M"]}}]}}
      zone: Europe/Warsaw
  timezone: Europe/Warsaw
  status: published
  classifications: {{from: GENRE, do: [{{map: {{concert: music, play: theatre}}}}]}}
  approxLocation: {{city: {{placeId: krk}}}}
publish:
  brakes: {{rejected: 20%}}
  in_flight: 4
"""
HEADER = "ID,TITLE,DAY,HOUR,GENRE"


def line(number: int, *, day: str = "2031-05-01") -> str:
    """One good row, unless its day is bad."""
    return f"{number},Evening {number},{day},19:30,concert"


@dataclass
class Desk(Door):
    """One folder with one feed at first, the service it is sent to, the instance that remembers its runs."""

    folder: Path
    base_url: str
    instance: dg.DagsterInstance
    api_key: str = SECRET
    warm: Callable[[], WarmStart] | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def settings(self) -> Settings:
        return read_settings(self.environ, self.folder)

    @property
    def environ(self) -> Mapping[str, str]:
        return {
            "EVENT_API_BASE_URL": self.base_url,
            "EVENT_API_KEY": self.api_key,
            "EVENTSYNC_FEEDS": "feeds",
            "EVENTSYNC_FILES": str(self.folder),
            "EVENTSYNC_STATE_URL": "sqlite:///state/state.db",
            "DAGSTER_HOME": str(self.folder / "dagster"),
        }

    def mapping(self, feed: str = FEED, *, source: str = "events.csv", text: str = MAPPING) -> Path:
        path = self.folder / "feeds" / f"{feed}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(feed=feed, source=source), "utf-8")
        return path

    def source(self, lines: Iterable[str], header: str = HEADER) -> None:
        (self.folder / "events.csv").write_text("\n".join([header, *lines]) + "\n", "utf-8")

    def definitions(self) -> dg.Definitions:
        settings = self.settings
        return application(settings, lambda: open_context(settings))

    def run(self, options: RunOptions | None = None, *, feed: str = FEED) -> dg.ExecuteInProcessResult:
        """Run a feed's job as the launchpad would, with the options as run configuration."""
        options = options or RunOptions()
        assets = [
            (feed, phase)
            for phase in names.PHASES
            if phase != ("staged" if options.publish_only else "published" if options.stage_only else "")
        ]
        return self.run_configured(launch_config(options), assets, feed)

    def run_configured(
        self, config: Mapping[str, Any], assets: Iterable[tuple[str, ...]] = (), feed: str = FEED
    ) -> dg.ExecuteInProcessResult:
        return (
            self.definitions()
            .resolve_job_def(names.JOB)
            .get_subset(
                asset_selection={dg.AssetKey(path) for path in assets or ((feed, one) for one in names.PHASES)},
                asset_check_selection=set(),
            )
            .execute_in_process(
                instance=self.instance,
                run_config=config,
                tags={names.FEED_TAG: feed, **origin_tags()},
                raise_on_error=False,
            )
        )

    def book(self, run_id: str, *, feed: str = FEED) -> RunRecord:
        settings = self.settings
        with open_context(settings) as workshop:
            record = LedgerQueries(workshop.engine).run(settings.destination, feed, run_id)
        assert record is not None
        return record

    def posts(self) -> int:
        return len(self.requests())

    def start(self, *words: str, environ: Mapping[str, str] | None = None) -> Command:
        """Start `eventsync` as a process of its own, forked from one that has imported it; nothing of it lies in the folder."""
        assert self.warm is not None, "a fixture gives it, started by the first that needs it"
        base = self.folder.with_name(f"{self.folder.name}.said") / f"{next(self._numbers)}.command"
        base.parent.mkdir(exist_ok=True)
        return self.warm().start(words, shell_environ(self.environ if environ is None else environ), self.folder, base)


@contextmanager
def desk_in(
    folder: Path, instance: dg.DagsterInstance, api_key: str = SECRET, *, warm: Callable[[], WarmStart] | None = None
) -> Iterator[Desk]:
    """A desk with a sandbox of its own, and no feed yet."""
    with running(None, Switches(), api_key) as service:
        yield Desk(folder, service.base_url, instance, api_key, warm)


@contextmanager
def eventsync_ui(environ: Mapping[str, str], home: Path, cwd: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`eventsync ui` from when its pages can be opened, and their address; in the end what is left of it is killed."""
    port = closed_port()
    process, note = start(("ui", "--port", str(port), *words), environ, cwd), home / "eventsync-ui.json"
    try:
        until(lambda: note.exists() or process.poll() is not None, within_s=180, what="the Dagster UI")
        assert process.poll() is None, ended(process)
        yield process, f"http://127.0.0.1:{port}"
    finally:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def start(words: Iterable[str], environ: Mapping[str, str], cwd: Path) -> subprocess.Popen[str]:
    """Start `eventsync` as a shell would; nothing of this process's settings is heard."""
    script = Path(sys.executable).with_name("eventsync")
    pipe = subprocess.PIPE
    return subprocess.Popen([script, *words], cwd=cwd, env=shell_environ(environ), stdout=pipe, stderr=pipe, text=True)


def ended(process: subprocess.Popen[str] | Command, within_s: float = 90.0) -> tuple[int, str, str]:
    """Wait for a process: its exit code, what it printed, what it complained of."""
    if isinstance(process, Command):
        said = process.ended(within_s=within_s)
        return said.code, said.out, said.err
    out, err = process.communicate(timeout=within_s)
    return process.returncode, out, err


def metadata_of(result: dg.ExecuteInProcessResult, phase: str, feed: str = FEED) -> Mapping[str, dg.MetadataValue[Any]]:
    """The metadata of the one materialization of a phase, `staged` or `published`."""
    (event,) = [one for one in result.get_asset_materialization_events() if one.asset_key == dg.AssetKey([feed, phase])]
    return event.materialization.metadata


def materialized(result: dg.ExecuteInProcessResult) -> set[str]:
    return {event.asset_key.path[-1] for event in result.get_asset_materialization_events() if event.asset_key}


def checks_of(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {check.check_name: check for check in result.get_asset_check_evaluations()}


def failure_of(result: dg.ExecuteInProcessResult) -> tuple[str, dict[str, Any]]:
    """What the first failed step says: its description, and the values of its metadata."""
    failed = next(event for event in result.all_events if event.is_step_failure)
    told = failed.step_failure_data.user_failure_data
    assert told is not None, failed.step_failure_data.error
    return told.description or "", {name: value.value for name, value in told.metadata.items()}


def is_stale_in(definitions: dg.Definitions, instance: dg.DagsterInstance, key: dg.AssetKey) -> bool:
    """Whether the UI shows an asset as stale."""
    graph = definitions.get_repository_def().asset_graph
    return CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance)).get_status(key).value == "STALE"


def observed_version_of(instance: dg.DagsterInstance, key: dg.AssetKey) -> str | None:
    """The data version of the last observation of an asset."""
    (record,) = instance.fetch_observations(key, limit=1).records
    return (record.event_log_entry.tags or {}).get("dagster/data_version")


def schedules_of_feeds(definitions: dg.Definitions) -> list[str]:
    return sorted(one.name for one in definitions.get_repository_def().schedule_defs if one.name.startswith("sync_"))
