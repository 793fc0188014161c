"""Budget 10: a publish is killed half-way; how soon after the next start its first request arrives, and what came twice.

The server's clock is this machine's monotonic one, so that the two compare.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import rows
from bench_room import Room
from contenders import ASYNC_AIOHTTP, ENV, is_there
from outcome import Details, Line, Result, Spread, at_most, spread
from running import Server, cores, pin, run, server
from worker import COMMAND, Worker

HALF_WAY = 0.3
IN_FLIGHT = 32


@dataclass(frozen=True, slots=True)
class Resumption:
    first_s: float
    extra: int


def measure(room: Room) -> Result:
    count = room.sizes.killed
    ours, theirs = [], []
    with server() as service:
        for turn in range(room.sizes.rounds):
            room.say(f"killing a publish of {count:,} rows, round {turn + 1}")
            ours.append(_worker(room, service, count))
            if is_there(ASYNC_AIOHTTP):
                theirs.append(_script(room, service, count))
    first = _first(ours)
    line = Line(
        "10",
        f"resume after a kill in a publish of {count:,} rows: from start to the first request",
        "reading the pending rows",
        f"by hand, aiohttp: {_first(theirs).says('{:.2f}')} s" if theirs else "not installed",
        f"{first.says('{:.2f}')} s",
        "",
        "2 s",
        "1 s",
        at_most(first.median, 2, 1),
    )
    cells = [
        (who, _first(all_of).says("{:.2f}"), spread([one.extra for one in all_of]).says())
        for who, all_of in (("**eventsync**", ours), ("by hand, asyncio, aiohttp", theirs))
        if all_of
    ]
    headings = ("who", "first request after s", "requests sent twice, under the same key")
    return Result((line,), (Details("One kill -9, and the next run", headings, tuple(cells)),))


def _first(all_of: Sequence[Resumption]) -> Spread:
    return spread([one.first_s for one in all_of])


def _worker(room: Room, service: Server, count: int) -> Resumption:
    folder = room.folder("resumed")
    worker = Worker(folder, service.url)
    worker.prepare(IN_FLIGHT)
    rows.write_rows(worker.source, count)
    worker.sync("--stage-only")
    found = _killed(service, count, [*COMMAND, "run", "bench", "--no-dagster", "--publish-only"], worker.env(), folder)
    shutil.rmtree(folder)
    return found


def _script(room: Room, service: Server, count: int) -> Resumption:
    folder = room.folder("resumed")
    rows.write_rows(folder / "rows.csv", count)
    rows.write_tables(folder)
    found = _killed(service, count, ASYNC_AIOHTTP.command(service.url, folder), ENV, folder)
    shutil.rmtree(folder)
    return found


def _killed(service: Server, count: int, command: Sequence[str], env: dict[str, str], folder: Path) -> Resumption:
    service.forget()
    doomed = subprocess.Popen(
        command,
        env={**os.environ, **env},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: pin(cores()[1]),  # noqa: PLW1509  # no threads here
    )
    while service.posts() < count * HALF_WAY:
        assert doomed.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)  # noqa: TID251  # waits for another process
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    service.mark()
    began = time.monotonic()
    run(command, env, folder)
    account = service.account()
    assert account["events"] == count, account
    return Resumption(account["first_s"] - began, account["posts"] - count)
