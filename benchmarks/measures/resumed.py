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
        start_s, ours = _worker(room, service, count, kills)
        room.say(f"killing a script that publishes {count:,} rows, {len(kills)} times")
        _, theirs = _script(room, service, count, kills) if is_there(ASYNC_AIOHTTP) else (0.0, [])
    first = _first(ours).median
    line = Line(
        "10",
        f"a publish of {count:,} rows is killed and started again: to the first request",
        f"a start without a kill: {start_s:.2f} s; by hand, aiohttp: {_first(theirs).median:.2f} s"
        if theirs
        else f"a start without a kill: {start_s:.2f} s",
        f"{first:.2f} s",
        f"{first / start_s:.1f} x",
        "1.3 x",
        at_most(first / start_s, 1.3),
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


def _worker(room: Room, service: Server, count: int, kills: Sequence[float]) -> tuple[float, list[Resumption]]:
    folder = room.folder("resumed")
    worker = Worker(folder, service.url)
    worker.prepare(IN_FLIGHT)
    rows.write_rows(worker.source, count)
    worker.sync("--stage-only")
    command = [*COMMAND, "run", "bench", "--no-dagster"]
    found = _killed(service, Doomed(command, worker.env(), folder, count, kills))
    shutil.rmtree(folder)
    return found


def _script(room: Room, service: Server, count: int, kills: Sequence[float]) -> tuple[float, list[Resumption]]:
    folder = room.folder("resumed")
    rows.write_rows(folder / "rows.csv", count)
    rows.write_tables(folder)
    found = _killed(service, Doomed(ASYNC_AIOHTTP.command(service.url, folder), ENV, folder, count, kills))
    shutil.rmtree(folder)
    return found


def _killed(service: Server, doomed: Doomed) -> tuple[float, list[Resumption]]:
    """Kill the command again and again; the run after the last kill goes on to the end, and every row has to be there.

    Return the seconds from the first start to its first request, and what came after each kill.
    """
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
    first, *resumed = found
    return first.first_s, resumed


def _twice(account: Mapping[str, Any]) -> int:
    return int(account["posts"] - account["events"])


def _kill(service: Server, process: subprocess.Popen[bytes], posts: float) -> None:
    """Kill a publish once so many requests have come, of all that were ever sent."""
    while service.posts() < posts:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)  # noqa: TID251  # waits for another process
    process.send_signal(signal.SIGKILL)
