"""Client of a running Dagster webserver: find it, launch a run on it, follow it. Does not import Dagster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from mappings.errors import SyncError, TransientError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from pipelines.clock import now
from pipelines.orchestration import names
from pipelines.run.backfill import FIRST_SHOWN, has_days, usual_way
from pipelines.run.options import RunOptions
from pipelines.settings import Settings

REPOSITORY = "__repository__"
POLL_S = 0.5
LONG_IN_QUEUE_S = 30.0
ENDED = frozenset({"SUCCESS", "FAILURE", "CANCELED"})
_LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on PipelineNotFoundError { message }
    ... on InvalidSubsetError { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
  }
}
"""
_RELOAD = """
mutation Reload($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename
    ... on WorkspaceLocationEntry { locationOrLoadError { __typename ... on PythonError { message } } }
    ... on ReloadNotSupported { message }
    ... on RepositoryLocationNotFound { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
  }
}
"""
_STATUS = "query Status($id: ID!) { runOrError(runId: $id) { __typename ... on Run { status } } }"
_VERSION = "{ version }"


class LaunchError(SyncError):
    """The webserver refuses to launch the run."""


class ReloadError(SyncError):
    """The webserver refuses to reload the definitions, or they cannot be loaded."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A run to launch: job, run configuration, the assets it is limited to (all if empty), tags."""

    job: str
    config: Mapping[str, Any]
    assets: tuple[tuple[str, ...], ...]
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Webserver:
    """A webserver. The caller closes `http`."""

    http: httpx.Client

    def launch(self, launch: Launch) -> str:
        """Launch a run and return its id.

        Raises:
            LaunchError: the webserver does not know the job, or refuses its configuration.
        """
        selector: dict[str, Any] = {"repositoryLocationName": names.LOCATION, "repositoryName": REPOSITORY, "jobName": launch.job}
        if launch.assets:
            selector["assetSelection"] = [{"path": list(path)} for path in launch.assets]
        tags = [{"key": key, "value": value} for key, value in launch.tags.items()]
        params = {"selector": selector, "runConfigData": launch.config, "mode": "default", "executionMetadata": {"tags": tags}}
        answer = self._query(_LAUNCH, {"params": params})["launchPipelineExecution"]
        if answer["__typename"] != "LaunchRunSuccess":
            errors = "; ".join(one["message"] for one in answer.get("errors", []))
            reason = answer.get("message") or errors or answer["__typename"]
            raise LaunchError(
                f"Dagster would not launch {launch.job}: {reason.splitlines()[0]}",
                hint="a new mapping file is seen after `eventsync reload`; or use --no-dagster",
            )
        return str(answer["run"]["runId"])

    def follow(self, run_id: str, sleep: Callable[[float], None], report: Callable[[str], None]) -> str:
        """Return the status in which a run ended, polling every half second; `report` once if it waits long in the queue."""
        polls = 0
        while True:
            status = str(self._query(_STATUS, {"id": run_id})["runOrError"].get("status", "FAILURE"))
            if status in ENDED:
                return status
            if status == "QUEUED" and polls == LONG_IN_QUEUE_S / POLL_S:
                report(f"run {run_id} still waits in Dagster's queue: is another run of the feed at work, is the daemon running?")
            polls += 1
            sleep(POLL_S)

    def reload(self) -> None:
        """Have the code location reload all mapping files; running runs go on with what they have read.

        Raises:
            ReloadError: the webserver does not know the location, or it cannot be loaded.
            TransientError: no webserver answers.
        """
        answer = self._query(_RELOAD, {"name": names.LOCATION})["reloadRepositoryLocation"]
        refusal = answer.get("locationOrLoadError") or answer
        if "message" in refusal:
            raise ReloadError(
                f"Dagster would not reload {names.LOCATION}: {str(refusal['message']).strip().splitlines()[0]}",
                hint="Deployment > Code locations in the Dagster UI shows the whole message",
            )

    def is_there(self) -> bool:
        """Whether a Dagster webserver answers."""
        try:
            return bool(self._query(_VERSION, {}).get("version"))
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
    """Return the file in which `ui` records the address of the webserver it started."""
    return settings.dagster_home / "eventsync-ui.json"


def launch_config(options: RunOptions) -> dict[str, Any]:
    """Return the run configuration for the `options`; nothing in it is secret."""
    config: dict[str, Any] = {
        "row_keys": list(options.keys),
        "as_draft": options.status == "draft",
        "accept": list(options.accept),
        "full": options.full,
        "wait": options.wait,
        "publish_only": options.publish_only,
    }
    if options.limit is not None:
        config["limit"] = options.limit
    if options.window is not None:
        config["window"] = options.window.model_dump(mode="json")
    return {"resources": {"options": {"config": config}}}


def wanted_assets(feed: FeedName, options: RunOptions) -> Sequence[names.AssetPath]:
    """Return the assets that the options limit a run to; none means all of them."""
    if options.stage_only:
        return [names.staged_path(feed)]
    if options.publish_only:
        return [names.published_path(feed)]
    return []


def launched_job(mapping: FeedMapping, options: RunOptions) -> str:
    """Return the name of the job to launch: a backfill has one of its own."""
    return names.backfill_job_of(mapping.feed) if options.window else names.job_of(mapping.feed)


def launch_tags(mapping: FeedMapping, options: RunOptions, launched_by: str) -> Mapping[str, str]:
    """Return the tags of a run to launch: the feed, who launched it, and its days where they are partitions."""
    tags = {names.LAUNCHED_BY_TAG: launched_by, names.FEED_TAG: str(mapping.feed)}
    days = options.window
    if days is None or not has_days(mapping) or days.by != usual_way(mapping.source) or days.column:
        return tags
    if days.first < FIRST_SHOWN or days.last > now().date():
        return tags
    span = {"start": days.first, "end": days.last}
    return {**tags, **{f"dagster/asset_partition_range_{end}": day.isoformat() for end, day in span.items()}}
