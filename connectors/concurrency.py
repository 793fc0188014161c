"""Concurrency limit of one route: how many requests may be in flight (AIMD)."""

from __future__ import annotations

import asyncio
from math import sqrt

_FIRST_IN_FLIGHT = 4
_EARNED_BY = 24
"""So many answers make room for one more at most: all that are in flight when an unknown limit is met are refused."""
_TOLERANCE, _SLACK_S = 1.5, 0.002
"""How much longer than in the best round answers may take before there are too many: a share, and a timer's width."""
_FORGETTING = 1.02
"""How the best round fades while few are in flight: a service that became slower for good can be tried again."""
_FEWEST_IN_A_ROUND = 8
_DECREASE = 0.7


class ConcurrencyLimit:
    """How many requests may be in flight: few at first, more while that brings throughput (AIMD), `ceiling` at most.

    Where it `adapts` it also goes down, to one at the least, when answers take longer the more are in flight, or go wrong.
    """

    def __init__(self, ceiling: int, *, adapts: bool = False) -> None:
        self.ceiling = ceiling
        self.most = 0
        self._adapts = adapts
        self._room = float(min(_FIRST_IN_FLIGHT, ceiling))
        self._free = asyncio.Semaphore(self.room)
        self._surplus = 0
        self._is_doubling = True
        self._in_flight = 0
        self._well = 0
        self._best_s: float | None = None
        self._peak = 0
        self._has_shrunk = False
        self._begin_round()

    @property
    def room(self) -> int:
        """How many requests may be in flight now, those that wait for their slot included."""
        return int(self._room)

    async def enter(self) -> None:
        """Wait for room, in the order of asking. The caller must `leave`."""
        await self._free.acquire()

    def leave(self) -> None:
        """Make room for the next request."""
        if self._surplus:
            self._surplus -= 1
        else:
            self._free.release()

    def sent(self) -> None:
        """Note that a request goes out."""
        self._in_flight += 1
        self.most = max(self.most, self._in_flight)
        self._peak = max(self._peak, self._in_flight)

    def back(self, seconds: float, *, is_well: bool) -> None:
        """Note that it came back after so many seconds; `is_well`: with an answer that is no sign of overload."""
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
        """Note that it was not sent after all."""
        self._in_flight -= 1

    def _begin_round(self) -> None:
        self._answers, self._answering_s = 0, 0.0
        self._peak, self._has_shrunk = self._in_flight, False

    def _end_round(self) -> None:
        took_s, is_full, has_shrunk = self._answering_s / self._answers, self._peak >= self.room, self._has_shrunk
        self._begin_round()
        if self._adapts:
            fading = _FORGETTING if self.room <= _FIRST_IN_FLIGHT else 1.0
            self._best_s = took_s if self._best_s is None else min(took_s, self._best_s * fading)
            bearable_s = self._best_s * _TOLERANCE + _SLACK_S
            if took_s > bearable_s:
                self._is_doubling = False
                self._set_room(self._room * max(bearable_s / took_s, _DECREASE))
                return
        if is_full and not has_shrunk:
            self._set_room(self._room * 2 if self._is_doubling and self._adapts else self._room + 1.0)

    def _set_room(self, room: float) -> None:
        """Change the room; it grows no faster than answers have earned it."""
        before = self.room
        if room > self._room:
            earned = _FIRST_IN_FLIGHT + max(sqrt(self._well / 2), self._well / _EARNED_BY)
            room = max(min(room, earned), self._room)
        self._room = min(max(room, 1.0), float(self.ceiling))
        for _ in range(self.room - before):
            self.leave()
        self._surplus += max(before - self.room, 0)
