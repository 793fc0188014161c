"""The client's share of budget 5: what one request costs, over several clients, with no delay at the server.

It shows why the transport is the one that it is. Mapping, ledger and start-up are not in it, and no budget stands on it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from bench_room import Room
from outcome import Details, Result, Spread, spread
from running import HERE, Server, run, server

IN_FLIGHT = (8, 32, 128)
CONTENDERS = ("raw streams", "eventsync", "aiohttp as it comes", "httpx over pyreqwest", "httpx as it comes")


def measure(room: Room) -> Iterator[Result]:
    numbers = (32,) if room.sizes.is_quick else IN_FLIGHT
    with server() as service:
        found = {who: [_cost(room, service, who, number) for number in numbers] for who in CONTENDERS if _is_there(who)}
    cells = [(f"**{who}**" if who == "eventsync" else who, *(cost.says() for cost in costs)) for who, costs in found.items()]
    details = Details(
        "CPU of one request, no delay at the server, us",
        ("client", *(f"{number} in flight" for number in numbers)),
        tuple(cells),
    )
    yield Result((), (details,))


def _is_there(who: str) -> bool:
    return "pyreqwest" not in who or find_spec("pyreqwest") is not None


def _cost(room: Room, service: Server, who: str, in_flight: int) -> Spread:
    room.say(f"one request: {who}, {in_flight} in flight")
    count = 600 if who == "httpx as it comes" or room.sizes.is_quick else 3000
    command = [sys.executable, str(HERE / "client.py"), who, service.url, "--in-flight", str(in_flight), "--requests", str(count)]

    def once() -> float:
        service.forget()
        return float(json.loads(run(command).out)["cpu_us"])

    return spread(room.rounds(once))
