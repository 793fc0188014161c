"""The client's share of budget 5: what one request costs, over several clients, with no delay at the server.

It shows why the transport is the one that it is; no budget of its own stands on it.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

from bench_room import Room
from outcome import Bar, Details, Plot, Result, Spread, spread
from running import HERE, Server, run, server

IN_FLIGHT = (8, 32, 128)
CONTENDERS = (
    ("raw streams", "asyncio"),
    ("eventsync", "asyncio"),
    ("eventsync", "uvloop"),
    ("httpx over aiohttp", "asyncio"),
    ("httpx over pyreqwest", "asyncio"),
    ("httpx as it comes", "asyncio"),
)


def measure(room: Room) -> Result:
    numbers = (32,) if room.sizes.is_quick else IN_FLIGHT
    with server() as service:
        found = {one: [_cost(room, service, *one, number) for number in numbers] for one in CONTENDERS if _is_there(*one)}
    cells = [(who, loop, *(cost.says() for cost in costs)) for (who, loop), costs in found.items()]
    headings = ("client", "loop", *(f"{number} in flight" for number in numbers))
    details = Details("CPU of one request, no delay at the server, us", headings, tuple(cells))
    at = numbers.index(32)
    bars = [Bar(f"{who}, {loop}", costs[at].median, is_ours=who == "eventsync") for (who, loop), costs in found.items()]
    plot = Plot("wire", "One request, 32 in flight, CPU", "us", tuple(bars), is_logarithmic=True)
    return Result((), (details,), (plot,))


def _is_there(who: str, loop: str) -> bool:
    return not ("pyreqwest" in who and find_spec("pyreqwest") is None) and not (loop == "uvloop" and find_spec("uvloop") is None)


def _cost(room: Room, service: Server, who: str, loop: str, in_flight: int) -> Spread:
    room.say(f"one request: {who}, {loop}, {in_flight} in flight")
    count = 600 if who == "httpx as it comes" or room.sizes.is_quick else 5000
    command = [sys.executable, str(HERE / "client.py"), who, service.url, "--in-flight", str(in_flight), "--requests", str(count)]
    command += ["--uvloop"] if loop == "uvloop" else []
    found = []
    for _ in range(room.sizes.rounds):
        service.forget()
        found.append(float(json.loads(run(command).out)["cpu_us"]))
    return spread(found)
