"""A signal to pytest ends the suite, with what its tests have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from integration.waiting import until

TESTS = Path(__file__).parents[1]
TINY = """
import subprocess, sys, time
from pathlib import Path
import pytest
from pipelines.run.signals import signals_deferred, signals_raised

HERE = Path(__file__).parent

@pytest.fixture(scope="session", autouse=True)
def _server():
    server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield server
    server.kill()
    server.wait()

def test_of_a_command_that_stops_in_good_order(_server):
    with signals_deferred():
        (HERE / "note").write_text(str(_server.pid))
        (HERE / "note").rename(HERE / "pid")
        with pytest.raises(KeyboardInterrupt), signals_raised():
            time.sleep(600)

def test_that_comes_next():
    (HERE / "next").touch()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 0), (signal.SIGTERM, 1)])
def test_one_signal_ends_the_suite_and_what_it_started_though_a_command_under_test_took_it(
    tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    (tmp_path / "test_tiny.py").write_text(TINY, "utf-8")
    words = ["-c", TESTS.parent / "pyproject.toml", "-p", "conftest", "-p", "no:cacheprovider", "-n", str(workers), tmp_path]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen([sys.executable, "-m", "pytest", *words], env=env, stdout=subprocess.PIPE, text=True) as suite:
        until((tmp_path / "pid").exists, what="the first test")
        started = psutil.Process(int((tmp_path / "pid").read_text("ascii")))
        suite.send_signal(number)
        said, _ = suite.communicate(timeout=60)
    assert suite.returncode == pytest.ExitCode.INTERRUPTED, said
    assert not started.is_running()
    assert not (tmp_path / "next").exists()
