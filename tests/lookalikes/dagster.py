"""A Dagster webserver as far as somebody needs one who launches runs on it and follows them: none of them is worked on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from lookalikes.threaded import served

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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["content-length"])))["query"]
            data: dict[str, Any] = {"version": "1.13.0"}
            if "launchPipelineExecution" in query:
                data = {"launchPipelineExecution": {"__typename": "LaunchRunSuccess", "run": {"runId": RUN_ID}}}
            elif "runOrError" in query:
                data = {"runOrError": {"__typename": "Run", "status": status}}
                webserver.is_followed = True
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with served(Handler) as port:
        webserver.url = f"http://127.0.0.1:{port}"
        yield webserver
