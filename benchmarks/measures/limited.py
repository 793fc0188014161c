"""Budget 7: how much of an unknown limit is used, and how often it is met, by a worker that is not told of it.

A minute from the first request, the lesson included; the server counts. In the quick bench it is a few seconds, nearly all of
them lesson. Longer ones and other limits are `pace.py`'s.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import rows
from bench_room import Room
from contenders import ASYNC_AIOHTTP, is_there
from outcome import Bar, Details, Line, Plot, Result, Spread, Standing, at_least, at_most, spread, worst
from running import Server, server
from worker import Worker

PER_S = 100
BURST = 10
SHARE_OF_PEERS = 8
"""A script that learns nothing is as slow at the end as at the beginning: it need not take the whole minute."""
LIMITS = {"bucket": f"bucket:{PER_S}:{BURST}", "fixed window": f"window:{PER_S}", "sliding window": f"sliding:{PER_S}"}


@dataclass(frozen=True, slots=True)
class Use:
    """Of one limit: the share of it that was used, and the share of answers that were 429."""

    limit: str
    used: Spread
    refused: Spread

    @property
    def standing(self) -> Standing:
        return worst([at_least(self.used.median, 0.95, 0.98), at_most(self.refused.median, 0.02, 0.005)])

    def says(self) -> str:
        return f"{self.limit}: {self.used.median:.1%}, {self.refused.median:.2%}"


def measure(room: Room) -> Result:
    ours, theirs = [], []
    for name, words in list(LIMITS.items())[: 1 if room.sizes.is_quick else None]:
        room.say(f"an unknown limit: {name}")
        ours.append(_use(room, name, words, is_ours=True))
        if is_there(ASYNC_AIOHTTP):
            theirs.append(_use(room, name, words, is_ours=False))
    line = Line(
        "7",
        f"an unknown limit of {PER_S}/s: share used, share of answers 429",
        "the limit",
        f"by hand, aiohttp, waiting as told: {'; '.join(one.says() for one in theirs)}" if theirs else "not installed",
        "; ".join(one.says() for one in ours),
        "",
        "95 %, 2 %",
        "98 %, 0.5 %",
        worst([one.standing for one in ours]),
    )
    cells = [
        (one.limit, who, one.used.says("{:.1%}"), one.refused.says("{:.2%}"))
        for who, all_of in (("**eventsync**", ours), ("by hand, asyncio, aiohttp, 32 in flight", theirs))
        for one in all_of
    ]
    details = Details(f"An unknown limit of {PER_S}/s", ("limit", "who", "used", "answered 429"), tuple(cells))
    bars = [Bar(f"{one.limit}: eventsync", one.used.median * 100, is_ours=True) for one in ours]
    bars += [Bar(f"{one.limit}: by hand", one.used.median * 100) for one in theirs]
    return Result((line,), (details,), (Plot("limits", "Share of an unknown limit that is used", "%", tuple(bars), budget=95),))


def _use(room: Room, name: str, words: str, *, is_ours: bool) -> Use:
    used, refused = [], []
    for _ in range(room.sizes.rounds):
        with server("--limit", words) as service:
            count = int(PER_S * room.sizes.seconds * 2) // (1 if is_ours else SHARE_OF_PEERS)
            account = _worker(room, service, count) if is_ours else _peer(room, service, count)
        free = BURST if name == "bucket" else 0
        used.append((count - free) / (PER_S * account["span_s"]))
        refused.append(account["refused"] / account["posts"])
    return Use(name, spread(used), spread(refused))


def _worker(room: Room, service: Server, count: int) -> dict[str, float]:
    folder = room.folder("limited")
    worker = Worker(folder, service.url)
    worker.prepare(32)
    rows.write_rows(worker.source, count)
    worker.sync("--stage-only")
    worker.sync("--publish-only")
    shutil.rmtree(folder)
    return _balanced(service, count)


def _peer(room: Room, service: Server, count: int) -> dict[str, float]:
    _, folder = room.peer(ASYNC_AIOHTTP, service, count)
    shutil.rmtree(folder)
    return _balanced(service, count)


def _balanced(service: Server, count: int) -> dict[str, float]:
    account = service.account()
    assert account["events"] == count, account
    return account
