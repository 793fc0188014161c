"""Client of a running Dagster webserver: find it, launch a run, follow it, reload changed mapping files.

Does not import Dagster.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import psutil

from mappings.errors import SyncError, TransientError
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import SUFFIXES, FeedFolder, load_folder
from pipelines.clock import now
from pipelines.orchestration import names
from pipelines.run.backfill import FIRST_SHOWN, default_way, has_days
from pipelines.run.options import RunOptions, Window
from pipelines.settings import Settings

POLL_S = 0.5
LONG_IN_QUEUE_S = 30.0
QUIET_MS = 300
"""Changes are collected until this long without another: an editor or a checkout writes several times."""
LONGEST_MS = 3_000
RETRY_S = 10.0
_LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on Error { message }
  }
}
"""
_RELOAD = """
mutation Reload($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename
    ... on WorkspaceLocationEntry { locationOrLoadError { __typename ... on PythonError { message } } }
    ... on Error { message }
  }
}
"""
_STATUS = "query Status($id: ID!) { runOrError(runId: $id) { __typename ... on Run { status } } }"

Report = Callable[[str], None]


class DagsterRefusedError(SyncError):
    """Dagster refuses to launch a run, or cannot load or reload the definitions."""


@dataclass(frozen=True, slots=True)
class Webserver:
    """Client of one webserver for the feeds of one code location. The caller closes `http`."""

    http: httpx.Client
    location: str

    def launch(self, mapping: FeedMapping, options: RunOptions, launched_by: str) -> str:
        """Launch a run of a feed and return its id.

        Raises:
            DagsterRefusedError: the webserver does not have the job, or refuses its configuration.
        """
        job = launched_job(mapping, options)
        selector: dict[str, Any] = {"repositoryLocationName": self.location, "repositoryName": names.REPOSITORY, "jobName": job}
        selector["assetSelection"] = [{"path": list(path)} for path in wanted_assets(mapping, options)]
        selector["assetCheckSelection"] = []  # the assets log them
        tags = [{"key": key, "value": value} for key, value in launch_tags(mapping, options, launched_by).items()]
        config = {"runConfigData": launch_config(options), "mode": "default", "executionMetadata": {"tags": tags}}
        answer = self._query(_LAUNCH, {"params": {"selector": selector, **config}})["launchPipelineExecution"]
        if answer["__typename"] != "LaunchRunSuccess":
            errors = "; ".join(one["message"] for one in answer.get("errors", []))
            reason = answer.get("message") or errors or answer["__typename"]
            raise DagsterRefusedError(
                f"Dagster refused to launch {job}: {reason.splitlines()[0]}",
                hint="after adding a mapping file, run `eventsync reload`; check EVENTSYNC_LOCATION; or use --no-dagster",
            )
        return str(answer["run"]["runId"])

    def follow(self, runs: Collection[str], sleep: Callable[[float], None], report: Report) -> Iterator[tuple[str, str]]:
        """Poll runs every half second; yield the id of one that has ended, and its status. The caller removes it, and may add
        others.

        `report` once about a run that waits long in the queue.
        """
        polls = Counter[str]()
        while runs:
            for run_id in list(runs):
                status = str(self._query(_STATUS, {"id": run_id})["runOrError"].get("status", "FAILURE"))
                if status in {"SUCCESS", "FAILURE", "CANCELED"}:
                    yield run_id, status
                if status == "QUEUED" and polls[run_id] == LONG_IN_QUEUE_S / POLL_S:
                    report(f"run {run_id} still waits in Dagster's queue: another run of the feed is at work, or no daemon runs")
                polls[run_id] += 1
            sleep(POLL_S)

    def reload(self) -> None:
        """Make the code location reload all mapping files; runs at work keep what they have read.

        Raises:
            DagsterRefusedError: the webserver does not have the location, or cannot load it.
            TransientError: no webserver answers.
        """
        answer = self._query(_RELOAD, {"name": self.location})["reloadRepositoryLocation"]
        refusal = answer.get("locationOrLoadError") or answer
        if "message" in refusal:
            raise DagsterRefusedError(
                f"Dagster could not reload {self.location}: {str(refusal['message']).strip().splitlines()[0]}",
                hint="Deployment > Code locations in the Dagster UI shows the whole message and the names (EVENTSYNC_LOCATION)",
            )

    def is_there(self) -> bool:
        """Return whether a Dagster webserver answers."""
        try:
            return bool(self._query("{ version }", {}).get("version"))
        except TransientError:
            return False

    def _query(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        try:
            response = self.http.post("/graphql", json={"query": query, "variables": variables})
            response.raise_for_status()
            data: dict[str, Any] = response.json()["data"]
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise TransientError(f"the Dagster webserver at {self.http.base_url} does not answer: {error}") from error
        return data


def webserver_url(settings: Settings) -> str:
    """Return the address of the configured webserver, or of the local one that `ui` started; "" if there is none."""
    if settings.dagster_url:
        return settings.dagster_url
    try:
        noted = json.loads(note_path(settings).read_text(encoding="utf-8"))
        return str(noted["url"]) if psutil.pid_exists(int(noted["pid"])) else ""
    except (OSError, ValueError, KeyError):
        return ""


def note_path(settings: Settings) -> Path:
    """Return the file in which `ui` records the address of its webserver."""
    return settings.dagster_home / "eventsync-ui.json"


def launch_config(options: RunOptions) -> dict[str, Any]:
    """Return Dagster's run configuration for the `options`; it contains no secret."""
    config: dict[str, Any] = options.model_dump(
        mode="json", include={"limit", "accept", "full", "wait", "publish_only", "window"}, exclude_none=True
    )
    config |= {"row_keys": list(options.keys), "as_draft": options.status == "draft"}
    return {"resources": {names.OPTIONS: {"config": config}}}


def wanted_assets(mapping: FeedMapping, options: RunOptions) -> Sequence[tuple[str, str]]:
    """Return the assets that a run with these options makes."""
    if launched_job(mapping, options) == names.ASSETS_JOB:
        return [(mapping.feed, "backfilled")]
    phases = ("staged",) if options.stage_only else ("published",) if options.publish_only else names.PHASES
    return [(mapping.feed, phase) for phase in phases]


def launched_job(mapping: FeedMapping, options: RunOptions) -> str:
    """Return the name of the job to launch; partitions are made by Dagster's own job of all assets."""
    is_partitioned = options.window is not None and are_partitions(mapping, options.window)
    return names.ASSETS_JOB if is_partitioned else names.JOB


def launch_tags(mapping: FeedMapping, options: RunOptions, launched_by: str) -> Mapping[str, str]:
    """Return the tags of a run to launch: the feed, the launcher, and the days if they are partitions."""
    tags = {names.LAUNCHED_BY_TAG: launched_by, names.FEED_TAG: str(mapping.feed)}
    days = options.window
    if days is None or not are_partitions(mapping, days):
        return tags
    span = {"start": days.first, "end": days.last}
    return {**tags, **{f"dagster/asset_partition_range_{end}": day.isoformat() for end, day in span.items()}}


def slice_tags(backfill_id: str, mapping: FeedMapping, days: Window) -> Mapping[str, str]:
    """Return the tags by which the UI finds the run of a backfill's slice. A job with partitions accepts only their names."""
    return {"dagster/backfill": backfill_id} | ({} if has_days(mapping) else {"dagster/partition": str(days)})


def are_partitions(mapping: FeedMapping, days: Window) -> bool:
    """Return whether the days of a window are partitions of the feed in Dagster."""
    is_usual = has_days(mapping) and days.by == default_way(mapping.source) and not days.column
    return is_usual and days.first >= FIRST_SHOWN and days.last <= now().date()


@dataclass(frozen=True, slots=True)
class FolderVersion:
    """The mapping files of a folder at one moment, and the digest of all that Dagster shows of them."""

    folder: FeedFolder
    digest: bytes

    def __str__(self) -> str:
        """Return the number of feeds and broken files, for people."""
        count = len(self.folder.feeds)
        text = f"{count} feed{'s' * (count != 1)}"
        return f"{text}, {len(self.folder.broken)} broken" if self.folder.broken else text


def read_folder_version(folder: Path, others: Sequence[Path]) -> FolderVersion:
    """Read all mapping files of a folder with their included and lookup files, which may be in the `others`, too."""
    loaded = load_folder(folder, folders=others, warns=False)
    digest = hashlib.blake2b(digest_size=16)
    for feed in loaded.feeds:
        content = feed.path.read_bytes() if feed.path.is_file() else b""
        digest.update(f"{feed.path}\0".encode("utf-8", "surrogateescape") + feed.digest + content)
    for error in loaded.broken:
        digest.update(f"{error.path}\0{error}\0".encode("utf-8", "surrogateescape"))
    return FolderVersion(loaded, digest.digest())


@dataclass(slots=True)
class Reloader:
    """Makes Dagster at `server` reload the mapping files of `folder`. `shown`: the digest of the version it has.

    `others`: folders in which the files that they name may lie, too.
    """

    server: Webserver
    folder: Path
    others: Sequence[Path] = ()
    shown: bytes = b""

    def reload(self) -> FolderVersion:
        """Reload the files, changed or not; return their version.

        Raises:
            SyncError: Dagster does not answer, or cannot load its definitions.
        """
        version = read_folder_version(self.folder, self.others)
        self.server.reload()
        self.shown = version.digest
        return version

    def reload_if_changed(self, report: Report) -> bool:
        """Reload the files if they differ from those that Dagster has, and report it; return whether Dagster now has them."""
        if read_folder_version(self.folder, self.others).digest == self.shown:
            return True
        try:
            version = self.reload()
        except SyncError as error:
            report(f"the mapping files have changed, but {error}; trying again")
            return False
        report(f"the mapping files have changed, and Dagster has reloaded them: {version}")
        for broken in version.folder.broken:
            report(str(broken))
        return True


def files_to_watch(folder: Path, others: Sequence[Path]) -> tuple[set[Path], set[Path]]:
    """Return the existing folders to watch for the feeds of a folder, and the files that these feeds include or look up."""
    files = {
        (feed.path.parent / name).resolve()
        for feed in load_folder(folder, folders=others, warns=False).feeds
        for name in (*feed.include, *feed.tables)
    }
    return {one for one in (folder, *(path.parent for path in files)) if one.is_dir()}, files


def watch(reloader: Reloader, report: Report, stop: Event) -> None:
    """Reload after each change of the mapping files, until `stop` is set."""
    while not stop.is_set():
        folders, files = files_to_watch(reloader.folder, reloader.others)
        if reloader.reload_if_changed(report) and folders:
            _wait_for_change(reloader, folders, files, stop)
        else:
            stop.wait(RETRY_S)


def _wait_for_change(reloader: Reloader, folders: set[Path], files: set[Path], stop: Event) -> None:
    """Wait for a change, including one between the last reload and the start of the watch."""
    import watchfiles  # noqa: PLC0415  # runs need none of it

    def concerns(_change: watchfiles.Change, path: str) -> bool:
        changed = Path(path)  # `..data` is the link that a mounted ConfigMap turns to its new content
        return changed.suffix in SUFFIXES or changed in files or changed.name.startswith("..")

    pace: dict[str, Any] = {"debounce": LONGEST_MS, "step": QUIET_MS, "rust_timeout": 1_000, "yield_on_timeout": True}
    changes = watchfiles.watch(*folders, watch_filter=concerns, stop_event=stop, recursive=False, raise_interrupt=False, **pace)
    if next(changes, None) or read_folder_version(reloader.folder, reloader.others).digest != reloader.shown:
        return
    next(filter(None, changes), None)
