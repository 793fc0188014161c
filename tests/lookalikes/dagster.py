"""A Dagster webserver as far as somebody needs one who launches runs on it and follows them: none of them is worked on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from lookalikes.threaded import Answer, answering_by

RUN_ID = "run-of-the-ui"


@dataclass(slots=True)
class Webserver:
    url: str = ""
    is_followed: bool = False
    """Whether a client has asked for the status of a run."""


@contextmanager
def dagster_webserver(status: str) -> Iterator[Webserver]:
    """Launch every run that is asked for, and say that it stands at `status`."""
    webserver = Webserver()

    def answer(_: BaseHTTPRequestHandler, body: bytes) -> Answer:
        query = json.loads(body)["query"]
        data: dict[str, Any] = {"version": "1.13.0"}
        if "launchPipelineExecution" in query:
            data = {"launchPipelineExecution": {"__typename": "LaunchRunSuccess", "run": {"runId": RUN_ID}}}
        elif "runOrError" in query:
            data = {"runOrError": {"__typename": "Run", "status": status}}
            webserver.is_followed = True
        return Answer(json.dumps({"data": data}).encode())

    with answering_by(answer) as webserver.url:
        yield webserver
