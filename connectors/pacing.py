"""One pacer for each route of a destination: every request asks it when to leave, every answer tells it how it went.

What an answer means is read elsewhere (`event_api.answers`); what a row's fate is, in `event_api.delivery`.

A pause is a promise: no request leaves before its end. After it the route comes back at the rate that it proved to
bear, one request at a time, and then probes for more: slowly near the last limit, faster the longer none is met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt

from connectors.errors import PausedError, ServiceUnavailableError
from connectors.retry import Clock, Random, Sleep
from mappings.errors import SyncError

_BACK_OFF = 0.05
"""Share of the proven rate that is given up after a limit."""
_PLATEAU_S = 30.0
"""Seconds until the rate is back at the last limit; three times as long and it is 1.4 times as high."""
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
        self._next_slot = self._resume_at
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
        """Wait until a request may leave. Never returns `Admitted` during a pause."""
        while self._closed is None:
            slot = self._take_slot()
            while (wait := slot - self.clock()) > 0 and self._closed is None:
                await self._sleep(min(wait, 1.0))
            if slot >= self._resume_at:
                break
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

    def _take_slot(self) -> float:
        slot = max(self.clock(), self._resume_at, self._next_slot)
        if self._curve is not None:
            self._next_slot = slot + 1.0 / self._curve.rate_at(slot)
        return slot

    def _learn(self) -> None:
        """Settle what the route bears: between what got through (a lower bound) and what we tried (an upper one)."""
        now = self.clock()
        resume_at = max(now, self._resume_at)
        proven = max(self._passed, 1) / max(resume_at - self._counting_since, 0.001)
        tried = self._curve.rate_at(now) if self._curve else proven
        self._curve = _Curve(limit=max(sqrt(proven * tried), 1 / _LONGEST_GUESS_S), since=resume_at)
        self._passed = 0
        self._counting_since = resume_at
        self._next_slot = resume_at

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

    def rate_at(self, clock_s: float) -> float:
        distance = (max(clock_s - self.since, 0.0) - _PLATEAU_S) / _PLATEAU_S
        return self.limit * (1.0 + _BACK_OFF * distance**3)


def _outage(failures: int, seconds: float, why: str) -> ServiceUnavailableError:
    return ServiceUnavailableError(
        f"{failures} attempts in a row over {seconds:.0f} s brought no usable answer, the last one: {why}",
        hint="nothing is lost: run again when the service is back; `eventsync check --live` asks it",
    )
