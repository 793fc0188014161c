"""One pacer for each route of a destination: every request asks it when to leave, every answer tells it how it went.

What an answer means is read elsewhere (`event_api.answers`); what a row's fate is, in `event_api.delivery`.

A pause is a promise: no request leaves before its end. After it the route comes back at the rate that it proved to
bear, one request at a time, and then probes for more: slowly near the last limit, faster the longer none is met.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt

from connectors.errors import PausedError, ServiceUnavailableError
from connectors.retry import Clock, Random, Sleep
from mappings.errors import SyncError

_BACK_OFF = 0.05
"""Share of the proven rate that is given up after a limit."""
_FIRST_PLATEAU_S = 2.5
"""Seconds until the rate is back at the limit after the first one met; three times as long and it is 1.4 times as high."""
_LONGEST_PLATEAU_S = 20.0
"""The same once some limits were met: each one makes us surer of it, and probing twice as slow."""
_CATCH_UP_S = 0.02
"""How late a request may leave without those after it being put off as well: timers are no more exact than that."""
_LONGEST_GUESS_S = 60.0
"""The longest pause of our own choosing, where the service names none."""
_LONGEST_DOUBT_S = 5.0
"""The least pause in the end, where the service names shorter ones and then does not keep to them."""
_LOWEST_RATE = 1 / 60
"""Requests per second that are always tried."""
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
    """What the pacer has learned. `rate_per_s` is None while no limit was ever met; `paused_s` counts asked-for waits."""

    rate_per_s: float | None
    limited: int
    pauses: int
    paused_s: float


@dataclass(frozen=True, slots=True)
class Admitted:
    """Leave now. `wave` numbers the limits met so far, so that late answers to earlier requests are told from new ones."""

    wave: int


@dataclass(frozen=True, slots=True)
class Closed:
    """Do not leave, now or later: the whole route has stopped for `cause`."""

    cause: SyncError


class Pacer:
    """Spaces the requests of one route. Clock (seconds, never going back), sleep, randomness and `now` are handed in.

    `now` gives the aware time of day, used only to say when to come back.
    """

    def __init__(
        self, *, clock: Clock, sleep: Sleep, random: Random, now: Callable[[], datetime], patience: Patience | None = None
    ) -> None:
        self.clock = clock
        self._sleep = sleep
        self._random = random
        self._now = now
        self._patience = patience or Patience()
        self._closed: SyncError | None = None
        self._resume_at = clock()
        self._last_slot = self._resume_at
        self._turn = asyncio.Lock()
        self._wave = 0
        self._pauses = 0
        self._paused_s = 0.0
        self._limited = 0
        self._unbroken_limits = 0
        self._limited_since: float | None = None
        self._failing_since: float | None = None
        self._failures = 0
        self._curve: _Curve | None = None
        self._passed = 0
        self._counting_since = self._resume_at

    @property
    def closed(self) -> SyncError | None:
        """Why the whole route has stopped, or None while it is open."""
        return self._closed

    @property
    def pace(self) -> Pace:
        """What has been learned so far, for reports."""
        rate = self._curve.rate_at(self.clock()) if self._curve else None
        return Pace(rate, self._limited, self._pauses, self._paused_s)

    def sibling(self) -> Pacer:
        """Return a pacer for another route of the same destination: limits are applied per route (spec, Limits)."""
        return Pacer(clock=self.clock, sleep=self._sleep, random=self._random, now=self._now, patience=self._patience)

    async def admit(self) -> Admitted | Closed:
        """Wait until a request may leave, in the order of asking. Never returns `Admitted` during a pause."""
        async with self._turn:
            while self._closed is None and (wait := self._slot() - self.clock()) > 0:
                await self._sleep(min(wait, 1.0))
            self._last_slot = self._slot()
            return Closed(self._closed) if self._closed else Admitted(self._wave)

    def passed(self) -> None:
        """An answer came that was no limit and no failure."""
        self._passed += 1
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

    def limited(self, admitted: Admitted, wait_s: float | None) -> None:
        """The request let go with `admitted` was told to come later; `wait_s` as `Retry-After` asked, None if it did not.

        The first such answer of a wave starts a pause and lowers the rate; later ones only lengthen the pause, where
        they ask for more. A named wait is obeyed exactly, until one turns out to be untrue three times in a row.
        """
        self._limited += 1
        if admitted.wave == self._wave:
            self._wave += 1
            self._unbroken_limits += 1
            self._pause(self._first_wait_s(wait_s))
            self._learn()
        elif wait_s is not None:
            self._pause(wait_s)

    def close(self, cause: SyncError) -> None:
        """Stop the whole route for `cause`; the first cause stands."""
        self._closed = self._closed or cause

    def _pause(self, wait_s: float) -> None:
        now = self.clock()
        until = now + min(wait_s, _FAR_FUTURE_S)
        self._limited_since = now if self._limited_since is None else self._limited_since
        if until - self._limited_since > self._patience.max_pause_s:
            self.close(self._paused(until - now, now - self._limited_since))
        if until > self._resume_at:
            self._pauses += now >= self._resume_at
            self._paused_s += until - max(now, self._resume_at)
            self._resume_at = until

    def _first_wait_s(self, asked_s: float | None) -> float:
        ceiling = min(_LONGEST_GUESS_S, 2.0 ** min(self._unbroken_limits - 1, 10))
        guess = ceiling * (0.5 + self._random() / 2)
        if asked_s is None:
            return guess
        return max(asked_s, min(guess, _LONGEST_DOUBT_S)) if self._unbroken_limits > 3 else asked_s

    def _slot(self) -> float:
        """The clock's time at which the next request may leave: evenly spaced once a rate is known."""
        now = self.clock()
        if self._curve is None:
            return max(now, self._resume_at)
        even = self._last_slot + 1.0 / self._curve.rate_at(now)
        return max(even, now - _CATCH_UP_S, self._resume_at)

    def _learn(self) -> None:
        """Settle what the route bears: between what got through, its pause included, and what was tried when it refused.

        The longer it went well, the more what was tried is the truth; shortly after a pause it may be far above.
        """
        now = self.clock()
        resume_at = max(now, self._resume_at)
        passed, lasted_s = max(self._passed, 1), max(now - self._counting_since, 0.001)
        proven = passed / max(resume_at - self._counting_since, 0.001)
        if self._curve is None:
            self._curve = _Curve(sqrt(proven * passed / lasted_s), since=resume_at, plateau_s=_FIRST_PLATEAU_S)
        else:
            trust = 0.5 + min(lasted_s / _LONGEST_PLATEAU_S, 1.0) / 2
            limit = max(proven ** (1 - trust) * self._curve.rate_at(now) ** trust, _LOWEST_RATE)
            self._curve = _Curve(limit, since=resume_at, plateau_s=min(self._curve.plateau_s * 2, _LONGEST_PLATEAU_S))
        self._passed = 0
        self._counting_since = resume_at

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


@dataclass(frozen=True, slots=True)
class _Curve:
    """A rate over time: a little under `limit` (requests per second) at first, at it after the plateau, then above."""

    limit: float
    since: float
    plateau_s: float

    def rate_at(self, clock_s: float) -> float:
        distance = max(clock_s - self.since, 0.0) / self.plateau_s - 1.0
        return self.limit * (1.0 + _BACK_OFF * distance**3)


def _outage(failures: int, seconds: float, why: str) -> ServiceUnavailableError:
    return ServiceUnavailableError(
        f"{failures} attempts in a row over {seconds:.0f} s brought no usable answer, the last one: {why}",
        hint="nothing is lost: run again when the service is back; if it never answered, check EVENT_API_BASE_URL",
    )
