"""Processes that a command starts and stops again: the sandbox, the Dagster webserver and its daemon."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from mappings.errors import TransientError
from pipelines.webserver import Webserver

STOP_S = 10.0
READY_S = 90.0

WORKSPACE = """\
load_from:
  - python_module: {module_name: pipelines.definitions, location_name: eventsync}
"""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A running sandbox: where it listens, and the secret of its default key."""

    base_url: str
    api_key: str


@contextmanager
def running_sandbox(folder: Path, port: int = 0) -> Iterator[Sandbox]:
    """Run a sandbox that keeps its state in `folder`, for the length of the block.

    Raises:
        TransientError: it did not start; its own words are on stderr.
    """
    command = [sys.executable, "-m", "sandbox", "--port", str(port), "--state", str(folder)]
    with _running(command, os.environ, stdout=subprocess.PIPE) as process:
        line = process.stdout.readline() if process.stdout else b""
        if not line:
            raise TransientError("the sandbox did not start", hint="its own words are above; is the port taken?")
        said = json.loads(line)
        yield Sandbox(said["base_url"], said["api_key"])


@contextmanager
def running_dagster(home: Path, environ: Mapping[str, str], port: int) -> Iterator[str]:
    """Run a Dagster webserver and daemon on this machine, for the length of the block; yields the UI's address.

    Raises:
        TransientError: the UI did not answer in time.
    """
    workspace = home / "workspace.yaml"
    workspace.write_text(WORKSPACE, encoding="utf-8")
    dagster = Path(sys.executable).parent
    web = [str(dagster / "dagster-webserver"), "-h", "127.0.0.1", "-p", str(port), "-w", str(workspace), "--log-level", "warning"]
    daemon = [str(dagster / "dagster-daemon"), "run", "-w", str(workspace), "--log-level", "warning"]
    log = (home / "dagster.log").open("ab")
    with log, _running(web, environ, stdout=log, stderr=log) as process:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, process, home / "dagster.log")
        # Only now: two processes that make the storage of a fresh home at once stumble over each other.
        with _running(daemon, environ, stdout=log, stderr=log):
            yield url


def free_port(preferred: int) -> int:
    """Return the preferred loopback port, or a free one where it is taken."""
    for port in (preferred, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as server:
                return int(server.getsockname()[1])
        except OSError:
            continue
    raise TransientError("no loopback port is free")


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    with httpx.Client(base_url=url, timeout=5.0, trust_env=False) as http:
        server = Webserver(http)
        started = time.monotonic()
        while not server.is_there():
            if process.poll() is not None or time.monotonic() - started > READY_S:
                raise TransientError(f"the Dagster UI did not start; its log is {log}")
            time.sleep(0.3)  # noqa: TID251  # another process is waited for by asking


@contextmanager
def _running(command: list[str], environ: Mapping[str, str], **streams: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a session of its own, so that Ctrl-C reaches us first; stop it when the block ends."""
    process = subprocess.Popen(command, env=dict(environ), start_new_session=True, **streams)  # type: ignore[call-overload]  # noqa: S603  # our own programs; streams are Popen's
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
