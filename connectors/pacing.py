"""One pacer for each route of a destination: every request asks it when to leave, every answer tells it how it went.

What an answer means is read elsewhere (`event_api.answers`); what a row's fate is, in `event_api.delivery`; what the
pace is, in `route_pace`; how workers share it, in `pace_sharing`.

A pause is a promise: no request leaves before its end. After it the route comes back at the rate that it proved to
bear, one request at a time, and then probes for more: slowly near the last limit, faster the longer none is met.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from connectors.crowding import Crowd
from connectors.errors import PausedError, ServiceUnavailableError
from connectors.pace_curve import Stretch
from connectors.pace_sharing import Sharing
from connectors.retry import Clock, Random, Sleep
from connectors.route_pace import RoutePace
from mappings.errors import SyncError

_MOST_UNDER_WAY = 256
"""Requests under way at once where nobody bounds them: no feed may have more."""
_LONGEST_GUESS_S = 60.0
"""The longest pause of our own choosing, where the service names none."""
_LONGEST_DOUBT_S = 5.0
"""The least pause in the end, where the service names shorter ones and then does not keep to them."""
_FAR_FUTURE_S = 366 * 86_400.0
"""A pause that nobody will wait for; longer ones are read as this one."""


@dataclass(frozen=True, slots=True)
class Patience:
    """When to give the whole route up: pauses longer than `max_pause_s`, or nothing but failures for `outage_s`.

    An outage takes at least `outage_failures` failures in a row, so that one slow row does not end a run.
    """

    max_pause_s: float = 900.0
    outage_s: float = 180.0
    outage_failures: int = 20


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


OpenSharing = Callable[[str], Sharing | None]
"""Opens what the workers of a destination share of a route, by its name; None where it is not shared."""


class Pacer:
    """Spaces the requests of one route. Clock (seconds, never going back), sleep, randomness and `now` are handed in.

    `now` gives the aware time of day, used only to say when to come back. `sharing` opens what other workers share.
    `crowd` is the room for requests under way.
    """

    def __init__(  # noqa: PLR0913  # the surroundings are handed in one by one
        self,
        *,
        clock: Clock,
        sleep: Sleep,
        random: Random,
        now: Callable[[], datetime],
        patience: Patience | None = None,
        sharing: OpenSharing | None = None,
        crowd: Crowd | None = None,
        route: str = "POST /events",
    ) -> None:
        self.clock = clock
        self.crowd = crowd or Crowd(_MOST_UNDER_WAY)
        self._sleep = sleep
        self._random = random
        self._now = now
        self._patience = patience or Patience()
        self._open_sharing = sharing
        self._sharing = sharing(route) if sharing else None
        self._siblings: list[Pacer] = []
        self._closed: SyncError | None = None
        self._began = clock()
        self._route_pace = RoutePace(resume_at=self._began, slot_at=self._began, stretch=Stretch(self._began))
        self._resume_at = self._began
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._requests = 0
        self._pauses = 0
        self._paused_s = 0.0
        self._limited = 0
        self._unbroken_limits = 0
        self._limited_since: float | None = None
        self._failing_since: float | None = None
        self._failures = 0

    @property
    def closed(self) -> SyncError | None:
        """Why the whole route has stopped, or None while it is open."""
        return self._closed

    @property
    def pace(self) -> Pace:
        """What has been learned so far, for reports."""
        curve = self._route_pace.curve
        rate = curve.limit if curve else None
        seconds = self.clock() - self._began
        workers = 1 + (self._sharing.others if self._sharing else 0)
        return Pace(rate, self._limited, self._pauses, self._paused_s, self._requests, seconds, workers, self.crowd.most)

    def sibling(self, route: str = "GET") -> Pacer:
        """Return a pacer for another route of the same destination: limits are applied per route (spec, Limits)."""
        one = Pacer(
            clock=self.clock,
            sleep=self._sleep,
            random=self._random,
            now=self._now,
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
        self._unbroken_limits = 0
        self._limited_since = None
        self._failing_since = None
        self._failures = 0

    def failed(self, why: str) -> None:
        """A transient failure; unbroken for long enough, it closes the route."""
        now = self.clock()
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._failures += 1
        if self._failures >= self._patience.outage_failures and now - self._failing_since >= self._patience.outage_s:
            self.close(_outage(self._failures, now - self._failing_since, why))

    def limited(self, admitted: Admitted, wait_s: float | None, hinted: float | None = None) -> None:
        """The request let go with `admitted` was told to come later; `wait_s` as `Retry-After` asked, None if it did not.

        The first such answer of a wave starts a pause and lowers the rate; later ones only lengthen the pause, where
        they ask for more. A named wait is obeyed exactly, until one turns out to be untrue three times in a row.
        `hinted` is the rate in requests per second that the service's headers name.
        """
        self._limited += 1
        now = self._time()
        if admitted.wave == self._route_pace.wave:
            self._unbroken_limits += 1
            until = now + min(self._first_wait_s(wait_s), _FAR_FUTURE_S)
        else:
            until = now + min(wait_s or 0.0, _FAR_FUTURE_S)
        self._change(lambda pace: _after_limit(pace, admitted, until, hinted))

    def close(self, cause: SyncError) -> None:
        """Stop the whole route for `cause`; the first cause stands."""
        self._closed = self._closed or cause

    async def _admitted(self) -> Admitted | Closed:
        while self._closed is None:
            self._meet()
            slot, before = self._next_slot()
            wait = slot - self._time()
            if wait > 0:
                await self._sleep(min(wait, 1.0))
            elif self._is_still_due():
                return self._let_go(slot, before)
        return Closed(self._closed)

    def _meet(self) -> None:
        if self._sharing:
            self._adopt(self._sharing.meet(self._route_pace))

    def _next_slot(self) -> tuple[float, int]:
        pace = self._route_pace
        if self._is_beside_others and pace.curve is not None and self._sharing:
            pace, slot, before = self._sharing.next_slot(pace, self._waiting)
            self._adopt(pace)
            return max(slot, self._own_resume), before
        return max(pace.slot(self._time()), self._own_resume), pace.stretch.sent

    def _is_still_due(self) -> bool:
        """Whether no other worker has met a pause while we waited for our slot."""
        if not self._is_beside_others or self._sharing is None:
            return True
        wave = self._route_pace.wave
        self._adopt(self._sharing.look(self._route_pace))
        return wave == self._route_pace.wave

    def _let_go(self, slot: float, before: int) -> Admitted:
        self._requests += 1
        pace = self._route_pace
        if self._is_beside_others and pace.curve is not None and self._sharing:
            self._sharing.take()
        else:
            self._route_pace = pace.granted(slot, self._time())
        return Admitted(pace.wave, slot, before)

    @property
    def _is_beside_others(self) -> bool:
        return self._sharing is not None and self._sharing.others > 0

    @property
    def _own_resume(self) -> float:
        """The end of the pause on the pace's clock, as our own clock has it: the time of day may be put forward."""
        return self._resume_at + (self._sharing.offset_s if self._sharing else 0.0)

    def _time(self) -> float:
        return self.clock() + (self._sharing.offset_s if self._sharing else 0.0)

    def _change(self, transition: Callable[[RoutePace], RoutePace]) -> None:
        if self._sharing:
            self._adopt(self._sharing.change(self._route_pace, transition))
        else:
            self._adopt(transition(self._route_pace))

    def _adopt(self, pace: RoutePace) -> None:
        """Go by `pace` from now on; a pause in it that is new to us begins, whoever met it."""
        self._route_pace = pace
        left_s = pace.resume_at - self._time()
        if left_s > 0:
            self._pause(left_s)

    def _pause(self, wait_s: float) -> None:
        now = self.clock()
        until = now + wait_s
        if until <= self._resume_at + 0.001:
            return
        self._limited_since = now if self._limited_since is None else self._limited_since
        if until - self._limited_since > self._patience.max_pause_s:
            self.close(self._paused(until - now, now - self._limited_since))
        self._pauses += now >= self._resume_at
        self._paused_s += until - max(now, self._resume_at)
        self._resume_at = until

    def _first_wait_s(self, asked_s: float | None) -> float:
        ceiling = min(_LONGEST_GUESS_S, 2.0 ** min(self._unbroken_limits - 1, 10))
        guess = ceiling * (0.5 + self._random() / 2)
        if asked_s is None:
            return guess
        return max(asked_s, min(guess, _LONGEST_DOUBT_S)) if self._unbroken_limits > 3 else asked_s

    def _paused(self, wait_s: float, waited_s: float) -> PausedError:
        resume_at = self._now() + timedelta(seconds=wait_s)
        so_far = f" after {waited_s:.0f} s in which it let nothing through" if waited_s else ""
        return PausedError(
            f"the service asks us to pause for {wait_s:.0f} s{so_far}: longer than this feed's patience "
            f"({self._patience.max_pause_s:.0f} s)",
            hint=f"nothing is lost: run again after {resume_at:%Y-%m-%d %H:%M:%S %Z}, or raise max_pause",
            resume_at=resume_at,
            retry_after_s=wait_s,
        )


def _after_limit(pace: RoutePace, admitted: Admitted, until: float, hinted: float | None) -> RoutePace:
    if pace.wave == admitted.wave:
        return pace.limited(admitted.at, admitted.before, until, hinted)
    return pace.still_limited(admitted.at, admitted.before, until, admitted.wave)


def _outage(failures: int, seconds: float, why: str) -> ServiceUnavailableError:
    return ServiceUnavailableError(
        f"{failures} attempts in a row over {seconds:.0f} s brought no usable answer, the last one: {why}",
        hint="nothing is lost: run again when the service is back; if it never answered, check EVENT_API_BASE_URL",
    )
