"""A Dagster webserver as far as somebody needs one who launches runs on it and follows them: none of them is worked on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from lookalikes.threaded import served

RUN_ID = "run-of-the-ui"


@contextmanager
def dagster_webserver(status: str) -> Iterator[str]:
    """Launch every run that is asked for, and say that it stands at `status`; gives the address."""

    class Webserver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["content-length"])))["query"]
            data: dict[str, Any] = {"version": "1.13.0"}
            if "launchPipelineExecution" in query:
                data = {"launchPipelineExecution": {"__typename": "LaunchRunSuccess", "run": {"runId": RUN_ID}}}
            elif "runOrError" in query:
                data = {"runOrError": {"__typename": "Run", "status": status}}
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with served(Webserver) as port:
        yield f"http://127.0.0.1:{port}"
