"""A Dagster webserver as far as somebody needs one who launches runs on it and follows them: none of them is worked on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from lookalikes.threaded import Answer, answering_by

RUN_ID = "run-of-the-ui"


@dataclass(slots=True)
class Webserver:
    url: str = ""
    launched: int = 0
    reloads: int = 0
    followed: set[str] = field(default_factory=set)
    """The runs whose status a client has asked for."""

    @property
    def is_followed(self) -> bool:
        return bool(self.followed)


@contextmanager
def dagster_webserver(status: str, lacking: str = "", *, is_behind: bool = False) -> Iterator[Webserver]:
    """Launch every run that is asked for, except of the feed `lacking`, and say that it stands at `status`.

    `is_behind`: it lacks the feed only until it is reloaded.
    """
    webserver = Webserver()

    def answer(_: BaseHTTPRequestHandler, body: bytes) -> Answer:
        asked = json.loads(body)
        query = asked["query"]
        data: dict[str, Any] = {"version": "1.13.0"}
        if "reloadRepositoryLocation" in query:
            webserver.reloads += 1
            data = {"reloadRepositoryLocation": {"__typename": "WorkspaceLocationEntry", "locationOrLoadError": {}}}
        elif (
            "launchPipelineExecution" in query
            and asked["variables"]["params"]["selector"]["assetSelection"][0]["path"][0] == lacking
            and not (is_behind and webserver.reloads)
        ):
            message = f"dagster._core.errors.DagsterInvalidSubsetError: AssetKey(s) ['{lacking}/published'] were selected, but"
            data = {"launchPipelineExecution": {"__typename": "PythonError", "message": message}}
        elif "launchPipelineExecution" in query:
            run_id = f"{RUN_ID}-{webserver.launched}" if webserver.launched else RUN_ID
            webserver.launched += 1
            data = {"launchPipelineExecution": {"__typename": "LaunchRunSuccess", "run": {"runId": run_id}}}
        elif "runOrError" in query:
            data = {"runOrError": {"__typename": "Run", "status": status}}
            webserver.followed.add(asked["variables"]["id"])
        return Answer(json.dumps({"data": data}).encode())

    with answering_by(answer) as webserver.url:
        yield webserver
