"""Processes that a command starts and stops again: the sandbox; Dagster's code server, webserver and daemon."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from mappings.errors import TransientError
from pipelines.orchestration.names import LOCATION
from pipelines.orchestration.webserver import Webserver

STOP_S = 10.0
READY_S = 90.0
WORKSPACE = """\
load_from:
  - grpc_server: {{host: 127.0.0.1, port: {port}, location_name: eventsync}}
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
    """Run a Dagster code server, webserver and daemon on this machine, for the length of the block; yields the UI's address.

    One code server for both: the feeds are loaded once, and a reload is seen by the webserver and the daemon alike.

    Raises:
        TransientError: the UI did not answer in time.
    """
    code_port, log_path = free_port(0), home / "dagster.log"
    workspace = home / "workspace.yaml"
    workspace.write_text(WORKSPACE.format(port=code_port), encoding="utf-8")
    programs = Path(sys.executable).parent
    quiet = ("--log-level", "warning")
    code = ["dagster", "code-server", "start", "-m", "pipelines.definitions", "-h", "127.0.0.1", "-p", str(code_port), *quiet]
    web = ["dagster-webserver", "-h", "127.0.0.1", "-p", str(port), "-w", str(workspace), *quiet]
    daemon = ["dagster-daemon", "run", "-w", str(workspace), *quiet]
    with log_path.open("ab") as log, ExitStack() as children:

        def start(command: list[str]) -> subprocess.Popen[bytes]:
            command = [str(programs / command[0]), *command[1:]]
            return children.enter_context(_running(command, environ, stdout=log, stderr=log))

        # One after another: two processes that make the storage of a fresh home at once stumble over each other.
        _wait_for(lambda: _is_open(code_port), start([*code, "--location-name", LOCATION]), log_path)
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=5.0, trust_env=False) as http:
            _wait_for(Webserver(http).is_there, start(web), log_path)
        start(daemon)
        yield url


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def free_port(preferred: int) -> int:
    """Return the preferred loopback port, or a free one where it is taken."""
    for port in (preferred, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as server:
                return int(server.getsockname()[1])
        except OSError:
            continue
    raise TransientError("no loopback port is free")


def _wait_for(is_there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    started = time.monotonic()
    while not is_there():
        if process.poll() is not None or time.monotonic() - started > READY_S:
            raise TransientError(f"the Dagster UI did not start; its log is {log}")
        time.sleep(0.2)  # noqa: TID251  # another process is waited for by asking


@contextmanager
def _running(command: list[str], environ: Mapping[str, str], **streams: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a session of its own, so that Ctrl-C reaches us first; stop it when the block ends."""
    process = subprocess.Popen(command, env=dict(environ), start_new_session=True, **streams)  # type: ignore[call-overload]  # noqa: S603  # our own programs
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
