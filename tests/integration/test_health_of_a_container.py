"""deploy/healthy.sh, which an image's health check runs, about processes that are neither Dagster's: numbers and commands."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from integration.desk import Desk
from integration.waiting import until

HEALTHY = Path(__file__).parents[2] / "deploy" / "healthy.sh"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, as a container has it")]


def is_healthy(process: subprocess.Popen[str], port: int) -> bool:
    """What the health check says of a process, with this interpreter as the image's."""
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "METRICS_PORT": str(port)}
    return subprocess.run([HEALTHY, str(process.pid)], env=environ, capture_output=True, check=False).returncode == 0


def test_what_serves_numbers_is_healthy_as_long_as_it_answers(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    serving = desk.installed("metrics", "--port", str(port))
    try:
        until(lambda: is_healthy(serving, port), what="an answer")
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            assert not is_healthy(serving, int(silent.getsockname()[1]))
    finally:
        serving.terminate()
        serving.communicate(timeout=60)


def test_a_command_is_healthy_as_long_as_it_is_at_work(desk: Desk) -> None:
    sandbox = desk.installed("sandbox", "--port", "0")
    try:
        assert is_healthy(sandbox, 1)
    finally:
        sandbox.terminate()
        sandbox.communicate(timeout=60)
    assert not is_healthy(sandbox, 1)
