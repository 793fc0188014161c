"""What is known of one route's limit: CUBIC (RFC 9438) over the rate, as TCP uses it over the congestion window.

A 429 is a pause and an estimate of the limit. The rate starts a little below the estimate, comes up to it, stays there for a
time that grows with confidence, and then probes above it, slowly at first. Requests are spaced evenly (GCRA, a token bucket
without a timer). One value of a few hundred bytes says all of this; workers share it, and runs remember it (budget 7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

_DEPTH = 0.06
"""How far below the estimate the rate starts, as a share of it: one minus beta in the RFC."""
_FIRST_HOLD_S, _LONGEST_HOLD_S = 1.0, 16.0
"""When the rate is back at the estimate (K in the RFC): soon after a guess, later once the estimate was confirmed."""
_CONFIRMED = 1.1
"""A rate that differs by less than this factor confirms the estimate."""
_LOWERED, _LOWERED_FROM_A_RAMP = 0.97, 0.85
"""The estimate after a 429, as a share of the rate that met it: slowly grown, or overshot while probing fast."""
_LOWEST_RATE = 1 / 3600
_FIRST_UNPACED = 32
"""So many requests at most may have left before the first answer named a limit."""
_CATCH_UP_S = 0.025
"""How late a request may leave without those after it being put off as well: timers are no more exact than that."""
_ROUND_LENGTHS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
"""How long the windows of limits are, in a world made by people."""
_ROUNDED_UP_S = 1.0
"""A named wait may be rounded up to whole seconds."""
_LATE_S = 0.1
_WINDOW_WAIT_S = 2.0
"""A named wait of this length is for the end of a window; a bucket has its next token sooner."""
_LONGEST_TRUST_S = 900.0
"""Later runs obey a pause of this length; about a longer one their first request asks, and nothing it taught is believed."""
_FORGOTTEN_AFTER_S = 86_400.0
PRESENCE_S = 3.5
"""A worker that has shown itself no later than this ago is there."""


@dataclass(frozen=True, slots=True)
class Permit:
    """A request may leave now. `at`: its slot; `pauses`: how many the route had had; `before`: requests since the last one."""

    at: float = 0.0
    pauses: int = 0
    before: int = 0


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class RateState:
    """All that is known of a route's limit. Times are seconds on one clock; as text, seconds since the text was written.

    `limit` is the estimate (None while no limit was met), `since` when the rate started below it, `hold_s` the time until it
    is back at it; `slot_at` the slot of the last request, `resume_at` the end of the last pause, `began` and `sent` the requests
    since then, `met_began` and `met_sent` those before it; `stated` the rate that the service itself names; `workers` when each
    worker was last seen.
    """

    limit: float | None = None
    hold_s: float = _FIRST_HOLD_S
    since: float = 0.0
    slot_at: float = 0.0
    resume_at: float = 0.0
    began: float = 0.0
    sent: int = 0
    met_began: float = 0.0
    met_sent: int = 0
    pauses: int = 0
    stated: float | None = None
    workers: dict[str, float] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether anything is known of a limit."""
        return self.limit is not None or self.stated is not None

    def rate_at(self, at: float) -> float:
        """Return the rate in requests per second: W(t) = C (t - K)^3 + W_max, but no more than the service states."""
        grown = inf if self.limit is None else self.limit * (1.0 + _DEPTH * (max(at - self.since, 0.0) / self.hold_s - 1.0) ** 3)
        return max(min(grown, self.stated or inf), _LOWEST_RATE)

    def slot(self, at: float) -> float:
        """Return when the next request may leave: evenly spaced once a rate is known, a moment ago at most, never in a pause."""
        if not self.is_known:
            return max(at, self.resume_at)
        return max(self.slot_at + 1.0 / self.rate_at(at), at - _CATCH_UP_S, self.resume_at)

    def granted(self, slot: float) -> RateState:
        """Return the state after a request took `slot`. Time that no request wanted does not let the rate grow."""
        unused_s = slot - max(self.slot_at + 1.0 / self.rate_at(slot), self.resume_at) if self.is_known else 0.0
        return replace(self, slot_at=slot, sent=self.sent + 1, since=self.since + max(unused_s, 0.0))

    def limited(self, permit: Permit, answered_at: float, until: float, *, is_named: bool) -> RateState:
        """Return the state after a 429 to `permit`: the route pauses `until` then, if the service named that time (`is_named`).

        Otherwise until a window of round length would be over, at the latest `until`. Answers to requests that left before
        an earlier pause only prolong the pause, where they ask for more.
        """
        if permit.pauses != self.pauses:
            if until <= self.resume_at:
                return self
            return self.resting(until) if self.sent else self.paused(until)
        is_too_short = not permit.before and self.met_sent > 0
        began, sent = (self.met_began, self.met_sent) if is_too_short else (self.began, max(permit.before, 1))
        if not is_named:
            until = min(until, began + _round_up(answered_at + 0.25 - began - _LATE_S) + _LATE_S)
        until = max(until, self.resume_at)
        as_window = sent / _round_up(until - began - _ROUNDED_UP_S)
        rate, hold_s = self.rate_at(permit.at), _FIRST_HOLD_S
        if self.limit is None:
            limit = min(as_window * max(len(self.workers), 1), rate)
        elif is_too_short:
            limit = max(min(as_window, self.limit), self.limit / 2)
        else:
            limit, mean = rate * _LOWERED, sent / _window_s(until - began)
            if is_named and until - answered_at >= _WINDOW_WAIT_S:
                limit = min(limit, mean)
            elif not self._is_like(rate):
                limit = mean if self._is_like(mean) else rate * _LOWERED_FROM_A_RAMP
            is_confirmed = self._is_like(limit)
            hold_s = min(self.hold_s * 3.0, _LONGEST_HOLD_S) if is_confirmed else _FIRST_HOLD_S
        known = replace(self, limit=limit, hold_s=hold_s, met_began=began, met_sent=sent, pauses=self.pauses + 1)
        return known.paused(until)

    def _is_like(self, rate: float) -> bool:
        return self.limit is not None and 1 / _CONFIRMED < rate / self.limit < _CONFIRMED

    def paused(self, until: float) -> RateState:
        """Return the state with a pause until then, after which the rate starts below the estimate."""
        slot_at = until - 1.0 / self.rate_at(self.since)
        return replace(self, resume_at=until, since=until, began=until, sent=0, slot_at=slot_at)

    def stating(self, rate: float) -> RateState:
        """Return the state once the service has stated its limit; what left before anything was known counts as well."""
        stated = max(rate, _LOWEST_RATE)
        sent_early = 0 if self.is_known else max(min(self.sent, _FIRST_UNPACED) - 1, 0)
        return replace(self, stated=stated, slot_at=self.slot_at + sent_early / stated)

    def resting(self, until: float) -> RateState:
        """Return the state with nothing left until then, as the service stated: no limit was met."""
        return replace(self, resume_at=max(until, self.resume_at), slot_at=max(until, self.slot_at))

    def seen(self, worker: str, at: float) -> RateState:
        """Return the state with `worker` there now, and without those that fell silent."""
        there = {name: seen_at for name, seen_at in self.workers.items() if at - seen_at < PRESENCE_S}
        return replace(self, workers={**there, worker: at})

    def taken_up(self, at: float) -> RateState:
        """Return the state as a later run begins with it: less certain, and forgotten after a day."""
        resume_at = self.resume_at if self.resume_at - at <= _LONGEST_TRUST_S else at
        begins = max(at, resume_at)
        fresh = RateState(slot_at=begins, resume_at=resume_at, began=begins, pauses=self.pauses)
        is_old = at - max(self.slot_at, self.resume_at) > _FORGOTTEN_AFTER_S
        if self.limit is None or is_old or self.resume_at - self.met_began > _LONGEST_TRUST_S:
            return fresh
        known = replace(fresh, limit=self.limit, since=begins, hold_s=max(self.hold_s / 2, _FIRST_HOLD_S))
        return replace(known, slot_at=begins - 1.0 / known.rate_at(begins))

    def shifted(self, by_s: float) -> RateState:
        """Return the same state as a clock that is `by_s` ahead shows it."""
        names = ("since", "slot_at", "resume_at", "began", "met_began")
        times = {name: getattr(self, name) + by_s for name in names}
        return replace(self, workers={name: at + by_s for name, at in self.workers.items()}, **times)


def _round_up(seconds: float) -> float:
    return next((float(length) for length in _ROUND_LENGTHS_S if length >= seconds), seconds)


def _window_s(seconds: float) -> float:
    """Return the round length that `seconds`, of which a part may be rounded up, stand for; `seconds` where there is none."""
    length_s = _round_up(seconds - _ROUNDED_UP_S)
    return min(length_s, seconds)


_STATE = TypeAdapter(RateState)


def as_text(state: RateState) -> str:
    """Write a state as JSON; its times must count from now."""
    return _STATE.dump_json(state).decode()


def from_text(text: str) -> RateState | None:
    """Read what `as_text` wrote; None for nothing, or for what another version wrote in its own way."""
    try:
        return _STATE.validate_json(text) if text else None
    except ValidationError:
        return None


class RateStore(Protocol):
    """Where the workers of one route keep its state as text. Every call raises `SyncError` where it fails."""

    def read(self) -> tuple[str, float]:
        """Return the text ("" at first) and how many seconds ago it was written, below 0 where the clock was set back."""

    def change(self, turn: Callable[[str, float], str]) -> None:
        """Put `turn` of the text and its age in its place, while no other worker can."""
