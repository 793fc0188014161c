"""Starts what is measured: a process of its own on one core, the server on the other; tells its time, CPU and peak memory.

What is started is told elsewhere (`worker.py`, `contenders.py`). Nothing of eventsync is imported, so that a child's peak
memory is its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PATIENCE_S = 3600.0
_GROUP: list[int] = []


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took, its own children included."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    code: int
    out: str


@dataclass(frozen=True, slots=True)
class Server:
    url: str

    def account(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/bench/account", timeout=PATIENCE_S) as answer:
            return dict(json.load(answer))

    def posts(self) -> int:
        """Return how many requests came: cheaper to ask than the whole account."""
        with urllib.request.urlopen(f"{self.url}/bench/posts", timeout=PATIENCE_S) as answer:
            return int(answer.read())

    def forget(self) -> None:
        """Begin anew, as if nothing had come."""
        urllib.request.urlopen(f"{self.url}/bench/forget", timeout=PATIENCE_S).close()

    def mark(self) -> None:
        """Let the next request be told as the first."""
        urllib.request.urlopen(f"{self.url}/bench/mark", timeout=PATIENCE_S).close()


def cores() -> tuple[int, int]:
    """Return the server's core and the client's: the same one where there is only one."""
    known = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return known[0], known[-1]


def join(group: int) -> None:
    """Have every process that is started from now on join this group: `keeper.py` kills it."""
    _GROUP.append(group)


def started(command: Sequence[str], env: Mapping[str, str] | None = None, **where: Any) -> subprocess.Popen[bytes]:
    """Start a command on the client's core; `where` tells its folder and its streams, as `Popen` has them."""
    process = subprocess.Popen(
        command, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, process_group=_group(), **where
    )
    _pin(process.pid, cores()[1])
    return process


def _group() -> int | None:
    return _GROUP[-1] if _GROUP else None


def _pin(pid: int, core: int) -> None:
    """Keep a process to a core, from its first moments on: it has not begun to do anything else."""
    if hasattr(os, "sched_setaffinity"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, {core})


@contextmanager
def server(*words: str) -> Iterator[Server]:
    """Run the benchmark's server with these options for as long as it is needed."""
    command = [sys.executable, str(HERE / "server.py"), "--core", str(cores()[0]), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=_group()) as process:
        assert process.stdout is not None
        try:
            yield Server(f"http://127.0.0.1:{process.stdout.readline().strip()}")
        finally:
            process.terminate()


def run(command: Sequence[str], env: Mapping[str, str] | None = None, folder: Path | None = None) -> Cost:
    """Run a command to its end on the client's core.

    Raises:
        RuntimeError: it ended with a code other than 0 (done) or 1 (eventsync: done, rows need attention); its words are told.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as trouble:
        began = time.perf_counter()
        process = started(command, env, cwd=folder, stdout=out, stderr=trouble)
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        told, complaint = (_text(stream) for stream in (out, trouble))
    if process.returncode not in {0, 1}:
        message = f"{' '.join(command)[:300]} ended with {process.returncode}:\n{told[-2000:]}\n{complaint[-4000:]}"
        raise RuntimeError(message)
    peak_mb = used.ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)
    return Cost(wall_s, used.ru_utime + used.ru_stime, peak_mb, process.returncode, told)


def _text(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read().decode("utf-8", "replace"))
