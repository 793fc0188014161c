"""Budget 10: a publish is killed, again and again; how soon after the next start its first request arrives, and what came twice.

The server's clock is this machine's monotonic one, so that the two compare.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rows
from bench_room import Room
from contenders import ASYNC_AIOHTTP, ENV, is_there
from outcome import Details, Line, Result, Spread, at_most, spread
from running import Server, server, started
from worker import COMMAND, Worker

IN_FLIGHT = 32
KILLS = (0.1, 0.3, 0.5)
"""The shares of the rows that have come when the process is killed: three times in the same publish."""


@dataclass(frozen=True, slots=True)
class Doomed:
    """A command that is killed when these shares of its rows have come, and started again."""

    command: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    count: int
    kills: Sequence[float]


@dataclass(frozen=True, slots=True)
class Resumption:
    first_s: float
    extra: int


def measure(room: Room) -> Iterator[Result]:
    count, kills = room.sizes.killed, KILLS[-1:] if room.sizes.is_quick else KILLS
    with server() as service:
        room.say(f"killing a publish of {count:,} rows, {len(kills)} times")
        ours = _worker(room, service, count, kills)
        room.say(f"killing a script that publishes {count:,} rows, {len(kills)} times")
        theirs = _script(room, service, count, kills) if is_there(ASYNC_AIOHTTP) else []
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
    yield Result((line,), (Details("A publish killed three times by kill -9, and the next runs", headings, tuple(cells)),))


def _first(all_of: Sequence[Resumption]) -> Spread:
    return spread([one.first_s for one in all_of])


def _worker(room: Room, service: Server, count: int, kills: Sequence[float]) -> list[Resumption]:
    folder = room.folder("resumed")
    worker = Worker(folder, service.url)
    worker.prepare(IN_FLIGHT)
    rows.write_rows(worker.source, count)
    worker.sync("--stage-only")
    command = [*COMMAND, "run", "bench", "--no-dagster"]
    found = _killed(service, Doomed(command, worker.env(), folder, count, kills))
    shutil.rmtree(folder)
    return found


def _script(room: Room, service: Server, count: int, kills: Sequence[float]) -> list[Resumption]:
    folder = room.folder("resumed")
    rows.write_rows(folder / "rows.csv", count)
    rows.write_tables(folder)
    found = _killed(service, Doomed(ASYNC_AIOHTTP.command(service.url, folder), ENV, folder, count, kills))
    shutil.rmtree(folder)
    return found


def _killed(service: Server, doomed: Doomed) -> list[Resumption]:
    """Kill the command again and again; the run after the last kill goes on to the end, and every row has to be there."""
    service.forget()
    found = []
    for share in (*doomed.kills, 1.0):
        twice = _twice(service.account())
        service.mark()
        began = time.monotonic()
        process = started(doomed.command, doomed.env, cwd=doomed.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if share < 1:
            _kill(service, process, doomed.count * share)
        process.wait()
        account = service.account()
        found.append(Resumption(account["first_s"] - began, _twice(account) - twice))
    assert account["events"] == doomed.count, account
    return found[1:]  # the first was no resumption


def _twice(account: Mapping[str, Any]) -> int:
    return int(account["posts"] - account["events"])


def _kill(service: Server, process: subprocess.Popen[bytes], posts: float) -> None:
    """Kill a publish once so many requests have come, of all that were ever sent."""
    while service.posts() < posts:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)  # noqa: TID251  # waits for another process
    process.send_signal(signal.SIGKILL)
