"""Concurrency limit of a route: how many requests may be in flight (AIMD)."""

from __future__ import annotations

import asyncio
from math import inf, sqrt

_FIRST_IN_FLIGHT = 4
_EARNED_BY = 24  # so many answers earn room for one more: all that are in flight are refused when an unknown limit is met
_TOLERANCE, _SLACK_S = 1.5, 0.002
"""How much slower than the fastest round answers may become before the limit shrinks: a factor, and a timer's precision."""
_FORGETTING = 1.02  # How the best round fades while few are in flight: a service that became slower for good can be tried again.
_FEWEST_IN_A_ROUND = 8
_DECREASE = 0.7


class ConcurrencyLimit:
    """How many requests may be in flight: it starts low and grows while throughput grows (AIMD), up to `ceiling`.

    If it `adapts`, it also shrinks, to one at least, when answers become slower with more in flight, or fail.
    """

    def __init__(self, ceiling: int, *, adapts: bool = False) -> None:
        self.ceiling = ceiling
        self.most = 0
        self._adapts = adapts
        self._room = float(min(_FIRST_IN_FLIGHT, ceiling))
        self._free = asyncio.Semaphore(self.room)
        self._surplus = 0
        self._is_doubling = True
        self._in_flight = self._well = 0
        self._best_s = inf
        self._answers, self._answering_s = 0, 0.0
        self._peak, self._has_shrunk = 0, False

    @property
    def room(self) -> int:
        """How many requests may be in flight now, including those that wait for their slot."""
        return int(self._room)

    async def enter(self) -> None:
        """Wait for a free place, first come first served. The caller must call `leave`."""
        await self._free.acquire()

    def leave(self) -> None:
        """Free a place for the next request."""
        if self._surplus:
            self._surplus -= 1
        else:
            self._free.release()

    def sent(self) -> None:
        """Record that a request was sent."""
        self._in_flight += 1
        self._peak = max(self._peak, self._in_flight)
        self.most = max(self.most, self._peak)

    def back(self, seconds: float, *, is_well: bool) -> None:
        """Record an answer after so many seconds; `is_well`: it is no sign of overload."""
        self._in_flight -= 1
        self._answers += 1
        self._answering_s += seconds
        self._well += is_well
        if not is_well:
            self._is_doubling = False
            if self._adapts and not self._has_shrunk:  # once a round: what went wrong together went wrong for one reason
                self._has_shrunk = True
                self._set_room(self._room * _DECREASE)
        elif self._is_doubling and not self._adapts:
            self._set_room(self._room + 1.0)
        if self._answers >= max(self.room, _FEWEST_IN_A_ROUND):
            self._end_round()

    def withdraw(self) -> None:
        """Record that a request was not sent after all."""
        self._in_flight -= 1

    def _end_round(self) -> None:
        took_s, is_full, has_shrunk = self._answering_s / self._answers, self._peak >= self.room, self._has_shrunk
        self._answers, self._answering_s = 0, 0.0
        self._peak, self._has_shrunk = self._in_flight, False
        if self._adapts:
            fading = _FORGETTING if self.room <= _FIRST_IN_FLIGHT else 1.0
            self._best_s = min(took_s, self._best_s * fading)
            bearable_s = self._best_s * _TOLERANCE + _SLACK_S
            if took_s > bearable_s:
                self._is_doubling = False
                self._set_room(self._room * max(bearable_s / took_s, _DECREASE))
                return
        if is_full and not has_shrunk:
            self._set_room(self._room * 2 if self._is_doubling and self._adapts else self._room + 1.0)

    def _set_room(self, room: float) -> None:
        """Change the limit; growth is bounded by the number of good answers."""
        before = self.room
        if room > self._room:
            earned = _FIRST_IN_FLIGHT + max(sqrt(self._well / 2), self._well / _EARNED_BY)
            room = max(min(room, earned), self._room)
        self._room = min(max(room, 1.0), float(self.ceiling))
        for _ in range(self.room - before):
            self.leave()
        self._surplus += max(before - self.room, 0)
