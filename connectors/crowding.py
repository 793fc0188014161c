"""How many requests of one route may be under way at once: few at first, more while that brings more answers a second.

When each one leaves is `pacing`'s. A fixed number is only begun with slowly; an adapting one goes down as well, when
answers take longer the more of them are asked for at once (the service, or this machine, is full), or go wrong.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import sqrt

_FIRST = 4
_TOLERANCE, _SLACK_S = 1.5, 0.002
"""How much longer than in the best round answers may take before there are too many: a share, and a timer's width."""
_FORGETTING = 1.02
"""How the best round fades while few are under way: a service that has become slower for good is not crowded for ever."""
_FEWEST_IN_A_ROUND = 8
_SHRINK = 0.7
_EARNED_BY = 24
"""So many answers make room for one more at most: all that are under way when an unknown limit is met are refused."""


class Crowd:
    """Room for requests under way: at most `ceiling`. Where it `adapts`, the room follows the latency, down to one."""

    def __init__(self, ceiling: int, *, adapts: bool = False) -> None:
        self.ceiling = ceiling
        self._adapts = adapts
        self._room = float(min(_FIRST, ceiling))
        self._is_doubling = True
        self._inside = 0
        self._sending = 0
        self._well = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._round = _Round()
        self._best_s: float | None = None
        self.most = 0

    @property
    def room(self) -> int:
        """How many requests may be under way now, those that wait for their turn to leave included."""
        return int(self._room)

    async def enter(self) -> None:
        """Wait for room, in the order of asking. Whoever returns from here must `leave`."""
        if self._inside < self.room and not self._queue:
            self._inside += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave()
            elif turn in self._queue:  # unless somebody who left meanwhile has passed over it
                self._queue.remove(turn)
            raise

    def leave(self) -> None:
        """Make room for the next."""
        self._inside -= 1
        self._let_in()

    def sent(self) -> None:
        """A request goes out."""
        self._sending += 1
        self.most = max(self.most, self._sending)
        self._round.peak = max(self._round.peak, self._sending)

    def back(self, seconds: float, *, is_well: bool) -> None:
        """It came back after so many seconds; `is_well`: with an answer that is no sign of overload."""
        self._sending -= 1
        self._round.add(seconds)
        self._well += is_well
        if not is_well:
            self._shrink()
        elif self._is_doubling and not self._adapts:
            self._widen(self._room + 1.0)
        if self._round.answers >= max(self.room, _FEWEST_IN_A_ROUND):
            self._end_round()

    def withdraw(self) -> None:
        """It was not sent after all."""
        self._sending -= 1

    def _end_round(self) -> None:
        ended, self._round = self._round, _Round(peak=self._sending)
        if self._adapts:
            self._follow(ended)
        elif ended.peak >= self.room:
            self._widen(self._room + 1.0)

    def _follow(self, ended: _Round) -> None:
        took_s = ended.mean_s
        fading = _FORGETTING if self.room <= _FIRST else 1.0
        self._best_s = took_s if self._best_s is None else min(took_s, self._best_s * fading)
        bearable_s = self._best_s * _TOLERANCE + _SLACK_S
        if took_s > bearable_s:
            self._is_doubling = False
            self._room = max(1.0, self._room * max(bearable_s / took_s, _SHRINK))
        elif ended.peak >= self.room and not ended.has_shrunk:
            self._widen(self._room * 2 if self._is_doubling else self._room + 1.0)

    def _shrink(self) -> None:
        """Once a round: what went wrong together went wrong for one reason."""
        self._is_doubling = False
        if self._adapts and not self._round.has_shrunk:
            self._round.has_shrunk = True
            self._room = max(1.0, self._room * _SHRINK)

    def _widen(self, room: float) -> None:
        self._room = max(
            min(room, float(self.ceiling), _FIRST + max(sqrt(self._well / 2), self._well / _EARNED_BY)),
            min(self._room, float(self.ceiling)),
        )
        self._let_in()

    def _let_in(self) -> None:
        while self._queue and self._inside < self.room:
            turn = self._queue.popleft()
            if not turn.done():
                self._inside += 1
                turn.set_result(None)


class _Round:
    """The answers to about as many requests as there was room for: one step of adapting."""

    __slots__ = ("answering_s", "answers", "has_shrunk", "peak")

    def __init__(self, peak: int = 0) -> None:
        self.answers = 0
        self.answering_s = 0.0
        self.peak = peak
        self.has_shrunk = False

    @property
    def mean_s(self) -> float:
        return self.answering_s / self.answers

    def add(self, seconds: float) -> None:
        self.answers += 1
        self.answering_s += seconds
