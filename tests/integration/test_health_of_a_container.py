"""What a container serves: numbers until it is stopped, and its health by deploy/healthy.sh meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from documents import surprises
from integration.desk import FEED, Desk, lines
from integration.waiting import until
from lookalikes.notices import closed_port
from prometheus import samples

HEALTHY = Path(__file__).parents[2] / "deploy" / "healthy.sh"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, as a container has it")]


def is_healthy(pid: int, port: int) -> bool:
    """What the health check of the image says of a process, with this interpreter as the image's."""
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "METRICS_PORT": str(port)}
    return subprocess.run([HEALTHY, str(pid)], env=environ, capture_output=True, check=False).returncode == 0


def test_numbers_are_served_while_runs_are_at_work_until_the_command_is_stopped(desk: Desk) -> None:
    serving = desk.installed("metrics", "--port", "0", "--json")
    assert serving.stdout is not None
    url = httpx.URL(json.loads("".join(iter(serving.stdout.readline, "}\n")) + "}")["url"])
    labels = {"feed": FEED, "destination": f"{desk.env['EVENT_API_BASE_URL']}#default", "state": "delivered"}

    def served() -> list[float]:
        return samples(httpx.get(url, trust_env=False, verify=False, timeout=60).text, "eventsync_rows", **labels)

    try:
        assert served() == []
        assert is_healthy(serving.pid, url.port or 0)
        assert not is_healthy(serving.pid, closed_port())
        desk.run_with(lines(3), code=0)
        until(lambda: served() == [3], what="the rows of the run")
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.communicate(timeout=60)
    assert serving.returncode == 0


def test_a_command_is_healthy_as_long_as_it_is_at_work_and_the_sandbox_announces_itself_in_one_document(desk: Desk) -> None:
    sandbox = desk.installed("sandbox", "--port", "0", "--json")
    assert sandbox.stdout is not None
    try:
        assert surprises(("sandbox",), json.loads(sandbox.stdout.readline())) == []
        assert is_healthy(sandbox.pid, 1)
    finally:
        sandbox.terminate()
        out, _ = sandbox.communicate(timeout=60)
    assert (out, sandbox.returncode in {0, 130}) == ("", True)
    assert not is_healthy(sandbox.pid, 1)
