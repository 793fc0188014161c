"""Client of a running Dagster webserver: find it, launch and follow runs and backfills. Does not import Dagster."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
import psutil

from mappings.errors import SyncError, TransientError
from mappings.spec.feed import FeedMapping
from pipelines.orchestration import names
from pipelines.orchestration.run_request import launch_config, launch_tags, wanted_assets
from pipelines.run.backfill import BackfillPlan
from pipelines.run.context import BACKFILL
from pipelines.run.options import RunOptions
from pipelines.settings import Settings

ROOT_TAG = "dagster/root_backfill_id"
"""Dagster's tag of a backfill that continues another one: the id of the first."""
POLL_S = 0.5
LONG_IN_QUEUE_S = 30.0
DAEMON_S = 30
"""How often Dagster's daemon looks at backfills."""
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
_LAUNCH_BACKFILL = """
mutation Launch($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on Error { message }
  }
}
"""
_CANCEL_BACKFILL = """
mutation Cancel($id: String!) { cancelPartitionBackfill(backfillId: $id) { __typename ... on Error { message } } }
"""
_BACKFILLS = """
{ partitionBackfillsOrError(limit: 500) { ... on PartitionBackfills { results { id assetSelection { path } } } } }
"""
_BACKFILL = """
query Backfill($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill {
      status timestamp tags { key value } error { message } runs { runId status startTime endTime tags { key value } }
      assetBackfillData {
        rootTargetedPartitions { ranges { start end } }
        assetBackfillStatuses { ... on AssetPartitionsStatusCounts { numPartitionsMaterialized numPartitionsFailed } }
      }
    }
  }
}
"""
_LAUNCHED = frozenset({"LaunchRunSuccess", "LaunchBackfillSuccess"})
_CLASS_NAME = re.compile(r"^(?:\w+\.)+\w+: ")
"""The name of an exception's class before its message."""
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
        selector: dict[str, Any] = {"repositoryLocationName": self.location, "repositoryName": names.REPOSITORY}
        selector |= {"jobName": names.JOB, "assetSelection": _paths(mapping, options)}
        selector["assetCheckSelection"] = []  # the assets log them
        tags = _tags(launch_tags(mapping, options, launched_by))
        config = {"runConfigData": launch_config(options, mapping.feed), "mode": "default", "executionMetadata": {"tags": tags}}
        answer = self._launch(_LAUNCH, {"selector": selector, **config}, mapping.feed)
        return str(answer["run"]["runId"])

    def launch_backfill(
        self, mapping: FeedMapping, plan: BackfillPlan, days: Sequence[str], options: RunOptions, after: Sequence[str] = ()
    ) -> str:
        """Launch an asset backfill of these days of a feed and return its id. Dagster's daemon makes its runs.

        `after`: the ids of the attempts that it continues, oldest first.

        Raises:
            DagsterRefusedError: the webserver does not have the asset, or refuses the days.
        """
        options = options.model_copy(update={"window": plan.window, "status": plan.status})
        tags = {names.LAUNCHED_BY_TAG: BACKFILL, names.FEED_TAG: str(mapping.feed), names.PLAN_TAG: plan.tag}
        tags["dagster/priority"] = "-1"  # a scheduled run that waits goes before the next one
        if after:
            tags |= {ROOT_TAG: after[0], "dagster/parent_backfill_id": after[-1]}
        params = {
            "assetSelection": _paths(mapping, options),
            "partitionNames": days,
            "tags": _tags(tags),
            "runConfigData": launch_config(options, mapping.feed),
            "title": f"{mapping.feed}: {plan.window} by {plan.window.by}",
        }
        return str(self._launch(_LAUNCH_BACKFILL, params, mapping.feed)["backfillId"])

    def cancel_backfill(self, backfill_id: str) -> None:
        """Ask Dagster's daemon to cancel a backfill with its runs.

        Raises:
            DagsterRefusedError: it may not be cancelled.
        """
        answer = self._query(_CANCEL_BACKFILL, {"id": backfill_id})["cancelPartitionBackfill"]
        if "message" in answer:
            raise DagsterRefusedError(f"Dagster refused to cancel {backfill_id}: {answer['message']}", hint="see the Dagster UI")

    def backfills(self, feed: str) -> Sequence[DagsterBackfill]:
        """Return the backfills of a feed, those of the UI too, newest first."""
        found = self._query(_BACKFILLS, {})["partitionBackfillsOrError"].get("results", ())
        ours = [{"path": [feed, "backfilled"]}]
        return [self.backfill(one["id"]) for one in found if one["assetSelection"] == ours]

    def backfill(self, backfill_id: str) -> DagsterBackfill:
        """Return the present state of a backfill."""
        found = self._query(_BACKFILL, {"id": backfill_id})["partitionBackfillOrError"]
        if "status" not in found:
            raise DagsterRefusedError(f"Dagster has no backfill {backfill_id}", hint="see Runs > Backfills in the Dagster UI")
        data = found["assetBackfillData"] or {}
        ranges = (data.get("rootTargetedPartitions") or {}).get("ranges") or ()
        counts: Mapping[str, int] = next(filter(None, data.get("assetBackfillStatuses", ())), {})
        return DagsterBackfill(
            backfill_id=backfill_id,
            status=found["status"],
            began=datetime.fromtimestamp(found["timestamp"], UTC),
            tags=_untagged(found),
            days=[(date.fromisoformat(one["start"]), date.fromisoformat(one["end"])) for one in ranges],
            ended_days=sum(counts.values()),
            runs=[_run_of(one) for one in reversed(found["runs"])],
            error=(found["error"] or {}).get("message", ""),
        )

    def follow_backfill(self, backfill_id: str, sleep: Callable[[float], None], report: Report) -> Iterator[DagsterBackfill]:
        """Poll a backfill every half second until it has ended, and yield its state; `report` if no run is at work for long."""
        idle = 0
        while True:
            backfill = self.backfill(backfill_id)
            yield backfill
            if backfill.has_ended:
                return
            idle = 0 if any(run.status in {"STARTING", "STARTED", "CANCELING"} for run in backfill.runs) else idle + 1
            if idle == 4 * LONG_IN_QUEUE_S / POLL_S:
                report(f"no run of backfill {backfill_id} is at work: another run of the feed is, or no Dagster daemon runs")
            sleep(POLL_S)

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

    def page_of(self, run_id: str) -> str:
        """Return the address of the page of a run."""
        return str(self.http.base_url.join(f"/runs/{run_id}"))

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

    def _launch(self, query: str, params: Mapping[str, Any], feed: str) -> Mapping[str, Any]:
        """Return the answer to a launch. After a refusal, reload and launch again: the mapping file may be newer than the code
        location.

        Raises:
            DagsterRefusedError: it is refused again.
        """
        if (answer := self._asked(query, params))["__typename"] not in _LAUNCHED:
            self.reload()
            answer = self._asked(query, params)
        if answer["__typename"] in _LAUNCHED:
            return answer
        errors = "; ".join(one["message"] for one in answer.get("errors", []))
        reason = answer.get("message") or errors or answer["__typename"]
        is_unknown = "InvalidSubsetError" in reason or answer["__typename"] in {"InvalidSubsetError", "PipelineNotFoundError"}
        reason = f"it has no such feed in {self.location}" if is_unknown else _CLASS_NAME.sub("", reason.splitlines()[0])
        raise DagsterRefusedError(
            f"Dagster refused to launch {feed}: {reason}",
            hint="check that Dagster has the same EVENTSYNC_FEEDS and EVENTSYNC_LOCATION; or use --no-dagster",
        )

    def _asked(self, query: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        (answer,) = self._query(query, {"params": params}).values()
        return cast("Mapping[str, Any]", answer)

    def _query(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        try:
            response = self.http.post("/graphql", json={"query": query, "variables": variables})
            response.raise_for_status()
            data: dict[str, Any] = response.json()["data"]
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            hint = "start it, as with `eventsync ui`; Dagster then continues what it had begun"
            raise TransientError(f"the Dagster webserver at {self.http.base_url} does not answer: {error}", hint=hint) from error
        return data


class BackfillRun(NamedTuple):
    """A run of a backfill, with its days."""

    run_id: str
    status: str
    first: str
    last: str
    began: datetime | None
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class DagsterBackfill:
    """An asset backfill in Dagster. `days`: its ranges; `ended_days`: how many are made or failed; `runs`: oldest first."""

    backfill_id: str
    status: str
    began: datetime
    tags: Mapping[str, str]
    days: Sequence[tuple[date, date]]
    ended_days: int
    runs: Sequence[BackfillRun]
    error: str

    @property
    def has_started(self) -> bool:
        """Whether one of its runs has left the queue."""
        return any(run.began for run in self.runs)

    @property
    def has_ended(self) -> bool:
        """Whether Dagster's daemon is done with it."""
        return self.status in {"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"}


def _paths(mapping: FeedMapping, options: RunOptions) -> list[dict[str, list[str]]]:
    return [{"path": list(path)} for path in wanted_assets(mapping, options)]


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _untagged(node: Mapping[str, Any]) -> Mapping[str, str]:
    return {tag["key"]: tag["value"] for tag in node["tags"]}


def _run_of(node: Mapping[str, Any]) -> BackfillRun:
    tags = _untagged(node)
    first, last = (
        tags.get(f"dagster/asset_partition_range_{end}") or tags.get("dagster/partition", "") for end in ("start", "end")
    )
    began, ended = (datetime.fromtimestamp(node[time], UTC) if node[time] else None for time in ("startTime", "endTime"))
    return BackfillRun(node["runId"], node["status"], first, last, began, ended)


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
