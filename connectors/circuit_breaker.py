"""Circuit breaker of one drain: stops sending when the service fails, and tries it with one row at a time.

It counts attempts over all rows. A **failure** is an attempt after which nothing is known: 408, 425, 5xx, a timeout, no or
a lost connection, an unreadable answer. A **success** is any usable answer, a refusal or a 409 included, and a failure that the
service repeats from under the row's key: it shows that the service works. A 429 is neither.

Each worker has its own circuit breaker. It knows nothing of rates and pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from connectors.errors import OutageError
from connectors.retry import Clock

_EARLIER_RUN = 0
"""Stands among the rows that failed for those of a run before this one."""


class CircuitBreaker:
    """Closed while the service answers; open after one failure more than there are slots, without a success between them.

    Closed, it lets at most so many requests out that they cannot exceed that number. Open, it lets out one request at a
    time, always for the same row (the probe). The first success closes it. If the probe uses up its own budget, and other
    rows have failed as well, it stays open for good: `cause` says why. A row that fails alone is no outage: the next row
    becomes the probe.

    `slots` is the number of rows in hand at a time.
    """

    def __init__(self, clock: Clock, slots: Callable[[], int]) -> None:
        self.is_open = False
        self.cause: OutageError | None = None
        self._clock = clock
        self._slots = slots
        self._failures = 0
        self._failing_since = 0.0
        self._rows: set[int] = set()
        self._in_hand: dict[int, int] = {}
        self._probe: int | None = None
        self._out = 0
        self._change = asyncio.Event()

    def begin_open(self) -> None:
        """Begin as an earlier run ended: one row goes first, and its failure is that run's failure."""
        self.is_open = True
        self._rows.add(_EARLIER_RUN)
        self._failing_since = self._clock()

    def is_probing(self, row: int) -> bool:
        """Return whether the row is the one that tries whether the service is back, after others have failed as well."""
        return self._is_probe(row) and self._is_outage

    async def admit(self, row: int) -> OutageError | None:
        """Wait until a request of the row may leave; return the cause if none will."""
        while self.cause is None and not self._may_leave(row):
            await self._change.wait()
        return self.cause

    def take(self, row: int) -> bool:
        """Let a request of the row out now; return whether it may leave. Each one that leaves must come `back`."""
        if self.cause is not None or not self._may_leave(row):
            return False
        if self.is_open:
            self._probe = row
        self._out += 1
        return True

    def back(self) -> None:
        """Note that a request has its answer, or will have none."""
        self._out -= 1
        self._wake()

    def passed(self) -> None:
        """Note a success."""
        if self.cause is None:
            self.is_open, self._probe, self._failures = False, None, 0
            self._rows.clear()
            self._in_hand.clear()
            self._wake()

    def failed(self, row: int, attempts: int) -> None:
        """Note a failure of the row, which has made so many `attempts`. The row with the fewest becomes the probe."""
        if not self._failures and not self.is_open:
            self._failing_since = self._clock()
        self._failures += 1
        self._rows.add(row)
        self._in_hand[row] = attempts
        if not self.is_open and self._failures > self._slots():
            self.is_open = True
            self._elect()
        self._wake()

    def leave(self, row: int, last: str = "") -> None:
        """Note that the row asks no more. `last`: what its last failure was, where failures have used up its budget."""
        self._in_hand.pop(row, None)
        if not self._is_probe(row):
            return
        if last and self._is_outage:
            self.cause = _outage(self._failures, self._clock() - self._failing_since, last)
        self._elect()
        self._wake()

    @property
    def _is_outage(self) -> bool:
        return len(self._rows) > 1

    def _is_probe(self, row: int) -> bool:
        return self.is_open and self._probe == row

    def _may_leave(self, row: int) -> bool:
        if self.is_open:
            return self._out == 0 and self._probe in {None, row}
        return not self._failures or self._out == 0 or self._failures + self._out <= self._slots()

    def _elect(self) -> None:
        self._probe = min(self._in_hand, key=self._in_hand.__getitem__, default=None)

    def _wake(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


def _outage(failures: int, seconds: float, last: str) -> OutageError:
    return OutageError(
        f"the service gave no usable answer for {seconds:.0f} s, to {failures} attempts in a row; the last one: {last}",
        hint="nothing is lost: run again when the service is back; the next run sends one row first, and the others once it "
        "has passed; if the service never answered, check EVENT_API_BASE_URL",
    )
