"""The bounds of fetching a file from another machine: how large, how long, how slow, how often it is tried."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from connectors.retry import RetryPolicy
from connectors.sources.environment import REAL_CLOCK, Clock
from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
from mappings.measures import written

LARGEST_BYTES = 2 * 1024**3

Resolve = Callable[[str, int], Sequence[str]]
"""Returns the IP addresses of a host name; raises `OSError` where there are none."""


def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolve as the operating system does."""
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """`largest`: bytes. `silence_s`: between two pieces; `longest_s`: the whole, retries included. A file that comes slower than
    `slowest_bytes` a second, over any `window_s`, is given up. `hops`: redirects in a row.
    `settle_s`: a file of unknown length is fetched again after so long, and is whole if it is the same; None: it is not.
    """

    largest: int = LARGEST_BYTES
    connect_s: float = 30.0
    silence_s: float = 60.0
    longest_s: float = 3600.0
    slowest_bytes: float = 1024.0
    window_s: float = 60.0
    hops: int = 5
    settle_s: float | None = None
    retries: RetryPolicy = field(default=RetryPolicy(attempts=4, budget_s=120.0))
    clock: Clock = REAL_CLOCK
    resolve: Resolve = resolve_by_system


class TransferLimit:
    """Holds one file to the bounds while it comes in, piece by piece. `shown` is its address without secrets."""

    def __init__(self, bounds: FetchLimits, shown: str) -> None:
        self.bounds = bounds
        self.shown = shown
        self.ends_at = bounds.clock.clock_s() + bounds.longest_s
        self.restart()

    def restart(self) -> None:
        """Begin a new attempt: the pause before it does not count as slowness."""
        self._since, self._bytes = self.bounds.clock.clock_s(), 0

    def count(self, piece: int, total: int) -> None:
        """Count a piece; `total` bytes are there by now.

        Raises:
            SourceRefusedError: it is too large.
            SourceUnavailableError: it comes too slowly.
        """
        self.check_size(total)
        now = self.bounds.clock.clock_s()
        self._bytes += piece
        if now > self.ends_at:
            message = f"{self.shown} was not there after {self.bounds.longest_s:.0f} s ({total} bytes had come)"
            raise SourceUnavailableError(message, hint="ask the partner for a faster server, or a smaller or packed file")
        if now - self._since >= self.bounds.window_s:
            if self._bytes < self.bounds.slowest_bytes * (now - self._since):
                message = f"{self.shown} comes too slowly: {self._bytes} bytes in {now - self._since:.0f} s"
                raise SourceUnavailableError(message, hint="run again later")
            self._since, self._bytes = now, 0

    def check_size(self, total: int) -> None:
        """Refuse a file whose announced or actual size is too large.

        Raises:
            SourceRefusedError: it is.
        """
        if total > self.bounds.largest:
            message = f"{self.shown} is larger than {_in_words(self.bounds.largest)}"
            raise SourceRefusedError(message, hint="is it the right file? If so, say `largest: 5GB` in its source")


def _in_words(size: int) -> str:
    for unit, power in (("GB", 3), ("MB", 2), ("kB", 1)):
        if size >= 1024**power:
            return f"{written(size / 1024**power)} {unit}"
    return f"{size} bytes"
