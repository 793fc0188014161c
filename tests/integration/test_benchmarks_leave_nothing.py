"""A bench that is stopped, by whatever way, leaves neither processes nor its gigabytes behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from architecture.places import ROOT
from integration.waiting import until

_BENCH = """
import sys
from pathlib import Path
import running
from keeper import kept

scratch = Path(sys.argv[1])
with kept(scratch) as group:
    running.join(group)
    (scratch / "large").write_bytes(b"x")
    with running.server() as service:
        child = running.started([sys.executable, "-c", "import time; time.sleep(600)"])
        print(child.pid, service.url.rpartition(":")[2], flush=True)
        child.wait()
"""


def _is_there(pid: int) -> bool:
    """Whether a process runs: one that has ended and was not waited for counts as gone."""
    return any(one.pid == pid and one.info["status"] != psutil.STATUS_ZOMBIE for one in psutil.process_iter(["status"]))


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_bench_that_is_killed_leaves_no_process_and_no_folder(tmp_path: Path, by: signal.Signals) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", _BENCH, str(scratch)]
    with subprocess.Popen(
        command, cwd=ROOT / "benchmarks", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as bench:
        assert bench.stdout is not None
        child = int(bench.stdout.readline().split()[0])
        assert _is_there(child)
        os.kill(bench.pid, by)
    until(lambda: not scratch.exists(), what="the folder to go")
    until(lambda: not _is_there(child), what="the child to end")
