"""What the benchmark's service remembers and allows: events by their keys, and three kinds of rate limit.

The wire is `server.py`'s. Every answer takes microseconds; what a body says is only read when the account is asked for.
"""

from __future__ import annotations

import hashlib
import math
import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import orjson

WHOLE_SECONDS = 2


class Limit(Protocol):
    def admits(self, now_s: float) -> bool: ...


class Unlimited:
    def admits(self, now_s: float) -> bool:
        return now_s >= 0


@dataclass
class Bucket:
    """Tokens drip in at a rate; as many as `burst` wait for whoever comes."""

    per_s: float
    burst: float
    tokens: float = field(init=False)
    seen_s: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def admits(self, now_s: float) -> bool:
        self.tokens = min(self.burst, self.tokens + (now_s - self.seen_s) * self.per_s)
        self.seen_s = now_s
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass
class FixedWindow:
    """So many in each second of the clock."""

    per_s: float
    second: int = -1
    used: int = 0

    def admits(self, now_s: float) -> bool:
        if int(now_s) != self.second:
            self.second, self.used = int(now_s), 0
        self.used += self.used < self.per_s + 1
        return self.used <= self.per_s


@dataclass
class SlidingWindow:
    """So many in any second."""

    per_s: float
    taken: deque[float] = field(default_factory=deque)

    def admits(self, now_s: float) -> bool:
        while self.taken and self.taken[0] <= now_s - 1:
            self.taken.popleft()
        if len(self.taken) >= self.per_s:
            return False
        self.taken.append(now_s)
        return True


def limit_of(words: str) -> Limit:
    """Return the limit that `bucket:200:5`, `window:200` or `sliding:200` says; nothing said is no limit."""
    kind, *numbers = words.split(":")
    match kind, [float(number) for number in numbers]:
        case "", []:
            return Unlimited()
        case "bucket", [per_s, burst]:
            return Bucket(per_s, burst)
        case "window", [per_s]:
            return FixedWindow(per_s)
        case "sliding", [per_s]:
            return SlidingWindow(per_s)
    message = f"no such limit: {words!r}; say bucket:RATE:BURST, window:RATE or sliding:RATE"
    raise SystemExit(message)


@dataclass
class Service:
    """Gives each new key an event, and a key that it knows the same event again."""

    limit: Limit
    clock: Callable[[], float] = time.monotonic
    bodies: dict[bytes, bytes] = field(default_factory=dict)
    ids: dict[bytes, int] = field(default_factory=dict)
    posts: int = 0
    contradicted: int = 0
    first_s: float | None = None
    last_s: float = 0.0
    admitted_s: array[float] = field(default_factory=lambda: array("d"))
    refused_s: array[float] = field(default_factory=lambda: array("d"))

    def create(self, key: bytes, body: bytes) -> int | None:
        """Return the event's id; none where the limit says no."""
        now_s = self.clock()
        self.posts += 1
        if self.first_s is None:
            self.first_s = now_s
        if not self.limit.admits(now_s):
            self.refused_s.append(now_s)
            return None
        self.last_s = now_s
        self.admitted_s.append(now_s)
        known = self.ids.setdefault(key, len(self.ids) + 1)
        self.contradicted += self.bodies.setdefault(key, body) != body
        return known

    def account(self) -> dict[str, object]:
        """Return what came: the digest is of all events, whatever their order and the spelling of their JSON."""
        total = 0
        for key, body in self.bodies.items():
            plain = orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS)
            total ^= int.from_bytes(hashlib.blake2b(plain, digest_size=8).digest()) if key else 0
        return {
            "posts": self.posts,
            "events": len(self.ids) - (b"" in self.ids),
            "bodies": len(set(self.bodies.values())),
            "refused": len(self.refused_s),
            "contradicted": self.contradicted,
            "digest": f"{total:016x}",
            "span_s": self.last_s - (self.first_s if self.first_s is not None else self.last_s),
            "first_s": self.first_s,
            "second_half": self._second_half(),
        }

    def _second_half(self) -> dict[str, float]:
        """Return what came in the whole seconds of the later half: whoever has to find out how fast to go has done so by then.

        Whole seconds of the clock, because a limit by the second is met in bursts; any time, where hardly a second is whole.
        """
        first_s = self.last_s if self.first_s is None else self.first_s
        begin_s, end_s = math.ceil((first_s + self.last_s) / 2), math.floor(self.last_s)
        if end_s - begin_s < WHOLE_SECONDS:
            begin_s, end_s = (first_s + self.last_s) / 2, self.last_s
        admitted, refused = (bisect_left(each, end_s) - bisect_left(each, begin_s) for each in (self.admitted_s, self.refused_s))
        span_s = end_s - begin_s
        return {"admitted": admitted, "refused": refused, "per_s": admitted / span_s if span_s else 0.0}

    def mark(self) -> None:
        """Let the next request be the first one again, of which `first_s` tells; nothing else is forgotten."""
        self.first_s = None

    def forget(self) -> None:
        self.bodies.clear()
        self.ids.clear()
        del self.admitted_s[:], self.refused_s[:]
        self.posts = self.contradicted = 0
        self.first_s = None
