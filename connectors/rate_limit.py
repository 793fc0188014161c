"""What a pacer has around it: clock, sleep, randomness and the time of day, handed in as one.

What is done with them is `pacing`'s; how long to insist is `retry`'s.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt

from connectors.errors import PausedError
from connectors.rate_limit_state import Limit, RoutePace, Sharing, Stretch
from connectors.retry import Clock, Hints, Random, RateHint, Sleep
from mappings.errors import SyncError


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`clock` tells seconds and never goes back; `now` tells the aware time of day, only to say when to come back."""

    clock: Clock
    sleep: Sleep
    random: Random
    now: Callable[[], datetime]


_LONGEST_GUESS_S = 60.0
"""The longest pause of our own choosing, where the service names none."""
_LONGEST_DOUBT_S = 5.0
"""The least pause in the end, where the service names shorter ones and then does not keep to them."""
_FAR_FUTURE_S = 366 * 86_400.0
"""A pause that nobody will wait for; longer ones are read as this one."""


@dataclass(frozen=True, slots=True)
class Patience:
    """When to give the whole route up: pauses longer than `max_pause_s`."""

    max_pause_s: float = 900.0


class Pauses:
    """Counts limits in a row. `resume_at` is the end of the last pause, `count` and `total_s` sum them up."""

    def __init__(self, patience: Patience, around: Surroundings, began: float) -> None:
        self._patience = patience
        self._around = around
        self.resume_at = began
        self.count = 0
        self.total_s = 0.0
        self.is_doubtful = False
        self._unbroken_limits = 0
        self._limited_since: float | None = None

    def passed(self, at: float) -> None:
        """An answer came that was no limit and no failure; during a pause it says nothing of the pause."""
        if at >= self.resume_at:
            self.is_doubtful = False
            self._unbroken_limits = 0
            self._limited_since = None

    def wait_s(self, asked_s: float | None) -> float:
        """Return how long to wait after the first 429 of a wave, which asked for `asked_s`, or named no wait.

        A named wait is obeyed exactly, until one turns out to be untrue three times in a row. Whether it is long enough is
        doubtful if it was guessed, or the one before was too short.
        """
        self._unbroken_limits += 1
        self.is_doubtful = asked_s is None or self._unbroken_limits > 1
        ceiling = min(_LONGEST_GUESS_S, 2.0 ** min(self._unbroken_limits - 1, 10))
        guess = ceiling * (0.5 + self._around.random() / 2)
        if asked_s is None:
            return guess
        return min(max(asked_s, min(guess, _LONGEST_DOUBT_S)) if self._unbroken_limits > 3 else asked_s, _FAR_FUTURE_S)

    def begin(self, now: float, until: float) -> PausedError | None:
        """Rest until then, and return why the route is given up if that is longer than anybody waits."""
        if until <= self.resume_at + 0.001:
            return None
        self._limited_since = now if self._limited_since is None else self._limited_since
        since = self._limited_since
        self.count += now >= self.resume_at
        self.total_s += until - max(now, self.resume_at)
        self.resume_at = until
        return self._paused(until - now, now - since) if until - since > self._patience.max_pause_s else None

    def _paused(self, wait_s: float, waited_s: float) -> PausedError:
        resume_at = self._around.now() + timedelta(seconds=wait_s)
        so_far = f" after {waited_s:.0f} s in which it let nothing through" if waited_s else ""
        return PausedError(
            f"the service asks us to pause for {_spoken(wait_s)}{so_far}: longer than this feed's patience "
            f"({_spoken(self._patience.max_pause_s)})",
            hint=f"nothing is lost: run again after {resume_at:%Y-%m-%d %H:%M:%S %Z}, or raise max_pause; "
            "if that cannot be meant, ask whoever runs the service",
            resume_at=resume_at,
            retry_after_s=wait_s,
        )


def _spoken(seconds: float) -> str:
    """Return a length of time as people say it: 45 s, 15 min, 2 h, 365 days."""
    for unit, name in ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class Pace:
    """What the pacer has learned and done. `rate_per_s` is None while no limit was ever met.

    `requests` left within `seconds`, `limited` of them were answered 429; `paused_s` counts the waits asked for.
    """

    rate_per_s: float | None
    limited: int
    pauses: int
    paused_s: float
    requests: int = 0
    seconds: float = 0.0
    workers: int = 1
    most_under_way: int = 0

    @property
    def used_share(self) -> float | None:
        """How much of the learned rate was used, 1.0 being all of it; None where no limit is known."""
        allowed = (self.rate_per_s or 0.0) * self.seconds
        return (self.requests - self.limited) / allowed if allowed else None


@dataclass(frozen=True, slots=True)
class Admitted:
    """Leave now. `wave` numbers the limits met so far, so that late answers to earlier requests are told from new ones.

    `at` is the slot on the pace's own clock, `before` how many requests left since the last pause.
    """

    wave: int
    at: float = 0.0
    before: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """Do not leave, now or later: the whole route has stopped for `cause`."""

    cause: SyncError


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


_MOST_UNDER_WAY = 256
"""Requests under way at once where nobody bounds them: no feed may have more."""
_LIKE = 0.01
"""Rates that differ by a smaller share are told again for nothing."""
_MOMENT_S = 0.5
"""Ends of a window that differ by less are the same one."""
_LONGEST_PROBE_S = 2.0
"""How long the others wait for the answer to the one that tries whether a pause was long enough."""
OpenSharing = Callable[[str], Sharing | None]
"""Opens what the workers of a destination share of a route, by its name; None where it is not shared."""


class Pacer:
    """Spaces the requests of one route. `sharing` opens what other workers share; `crowd` is the room for requests under way."""

    def __init__(
        self,
        around: Surroundings,
        *,
        patience: Patience | None = None,
        sharing: OpenSharing | None = None,
        crowd: Crowd | None = None,
        route: str = "POST /events",
    ) -> None:
        self.clock = around.clock
        self.crowd = crowd or Crowd(_MOST_UNDER_WAY)
        self._around = around
        self._patience = patience or Patience()
        self._open_sharing = sharing
        self._sharing = sharing(route) if sharing else None
        self._siblings: list[Pacer] = []
        self._closed: SyncError | None = None
        self._began = self.clock()
        self._route_pace = RoutePace(resume_at=self._began, slot_at=self._began, stretch=Stretch(self._began))
        self._rests = Pauses(self._patience, around, self._began)
        self._turn = asyncio.Lock()
        self._is_answered = asyncio.Event()
        self._is_answered.set()
        self._waiting = 0
        self._hints = Hints()
        self._requests = 0
        self._limited = 0

    @property
    def closed(self) -> SyncError | None:
        """Why the whole route has stopped, or None while it is open."""
        return self._closed

    @property
    def pace(self) -> Pace:
        """What has been learned so far, for reports."""
        curve = self._route_pace.curve
        known = [rate for rate in (curve and curve.limit, self._route_pace.told) if rate]
        rate = min(known, default=None)
        seconds = self.clock() - self._began
        workers = 1 + (self._sharing.others if self._sharing else 0)
        return Pace(
            rate, self._limited, self._rests.count, self._rests.total_s, self._requests, seconds, workers, self.crowd.most
        )

    def sibling(self, route: str = "GET") -> Pacer:
        """Return a pacer for another route of the same destination: limits are applied per route (spec, Limits)."""
        one = Pacer(
            self._around,
            patience=self._patience,
            sharing=self._open_sharing,
            crowd=Crowd(self.crowd.ceiling),
            route=route,
        )
        self._siblings.append(one)
        return one

    def leave(self) -> None:
        """Let the other workers of this route and its siblings know that this one sends no more."""
        for one in self._siblings:
            one.leave()
        if self._sharing:
            self._sharing.leave()

    async def admit(self) -> Admitted | Closed:
        """Wait until a request may leave, in the order of asking. Never returns `Admitted` during a pause."""
        self._waiting += 1
        try:
            async with self._turn:
                return await self._admitted()
        finally:
            self._waiting -= 1

    def may_leave(self, admitted: Admitted) -> bool:
        """Whether a request let go with `admitted`, and not written yet, may still leave: no limit was met meanwhile."""
        return self._closed is None and admitted.wave == self._route_pace.wave

    def passed(self) -> None:
        """An answer came that was no limit and no failure."""
        self._is_answered.set()
        self._rests.passed(self.clock())

    def failed(self) -> None:
        """A transient failure: it says nothing of the pace."""
        self._is_answered.set()

    def limited(self, admitted: Admitted, wait_s: float | None) -> None:
        """The request let go with `admitted` was told to come later; `wait_s` as `Retry-After` asked, None if it did not.

        The first such answer of a wave starts a pause and lowers the rate; later ones only lengthen the pause, where
        they ask for more.
        """
        self._limited += 1
        self._is_answered.set()
        is_first = admitted.wave == self._route_pace.wave
        heard = self.clock()
        until = heard + (self._rests.wait_s(wait_s) if is_first else wait_s or 0.0)
        limit = Limit(admitted.wave, admitted.at, admitted.before, heard, until, is_told=wait_s is not None)
        self._change(lambda pace: pace.met(limit))

    def hinted(self, hint: RateHint) -> None:
        """An answer told of the limit: keep to it without meeting it, and wait for the end of a window that is used up."""
        rate, told = self._hints.rate(hint), self._route_pace.told
        if told is None or abs(rate - told) > told * _LIKE:
            self._change(lambda pace: pace.told_of(rate))
        until = self.clock() + hint.rest_s
        if hint.rest_s and until > self._route_pace.resume_at + _MOMENT_S:
            self._change(lambda pace: pace.resting(until))

    def close(self, cause: SyncError) -> None:
        """Stop the whole route for `cause`; the first cause stands."""
        self._closed = self._closed or cause

    def _close_if(self, cause: SyncError | None) -> None:
        if cause is not None:
            self.close(cause)

    async def _admitted(self) -> Admitted | Closed:
        while self._closed is None:
            await self._probed()
            self._meet()
            slot, before = self._next_slot()
            wait = slot - self.clock()
            if wait > 0:
                await self._around.sleep(min(wait, 1.0))
            elif self._is_still_due():
                return self._let_go(slot, before)
        return Closed(self._closed)

    async def _probed(self) -> None:
        """After a pause that turned out too short, wait for what the first request after the next one is told."""
        if not self._is_answered.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_PROBE_S):
                    await self._is_answered.wait()
            self._is_answered.set()

    def _meet(self) -> None:
        if self._sharing:
            self._adopt(self._sharing.meet(self._route_pace))

    def _next_slot(self) -> tuple[float, int]:
        pace = self._route_pace
        if self._is_beside_others and pace.is_known and self._sharing:
            pace, slot, before = self._sharing.next_slot(pace, self._waiting)
            self._adopt(pace)
            return max(slot, self._rests.resume_at), before
        silent_until = self._sharing.silent_until if self._sharing else 0.0
        return max(pace.slot(self.clock()), self._rests.resume_at, silent_until), pace.stretch.sent

    def _is_still_due(self) -> bool:
        """Whether no other worker has met a pause while we waited for our slot."""
        if not self._is_beside_others or self._sharing is None:
            return True
        wave = self._route_pace.wave
        self._adopt(self._sharing.look(self._route_pace))
        return wave == self._route_pace.wave

    def _let_go(self, slot: float, before: int) -> Admitted:
        self._began = self._began if self._requests else self.clock()
        self._requests += 1
        if self._rests.is_doubtful:
            self._is_answered.clear()
        pace = self._route_pace
        if self._is_beside_others and pace.is_known and self._sharing:
            self._sharing.take()
        else:
            self._route_pace = pace.granted(slot, self.clock())
        return Admitted(pace.wave, slot, before)

    @property
    def _is_beside_others(self) -> bool:
        return self._sharing is not None and self._sharing.others > 0

    def _change(self, transition: Callable[[RoutePace], RoutePace]) -> None:
        if self._sharing:
            self._adopt(self._sharing.change(self._route_pace, transition))
        else:
            self._adopt(transition(self._route_pace))

    def _adopt(self, pace: RoutePace) -> None:
        """Go by `pace` from now on; a pause in it that is new to us begins, whoever met it."""
        self._route_pace = pace
        self._rests.is_doubtful = self._rests.is_doubtful or pace.is_pause_doubtful
        now = self.clock()
        if pace.resume_at > now:
            self._close_if(self._rests.begin(now, pace.resume_at))
