"""Rate limiter of a route: when a request may be sent.

The rate follows CUBIC (RFC 9438), as TCP does for the congestion window: a 429 is a pause and an estimate of the limit. The
rate starts a little below the estimate, rises to it, stays there for a time that grows with confidence, and then probes above
it, slowly at first. Requests are spaced evenly (GCRA, a token bucket without a timer). No request is sent before the end of a
pause. If its length was a guess, a single request is sent then, and the others follow once it is answered.

Workers share a route through a store that each of them reads in the background several times a second, and writes at once after
a 429 (budget 7). Each worker takes its share of the rate: the rate divided by the number of workers that are there. No request
waits for the store after the first look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from connectors.concurrency_limit import ConcurrencyLimit
from connectors.retry import Pause, Timing
from mappings.errors import SyncError

_DEPTH = 0.06  # How far below the estimate the rate starts, as a share of it: one minus beta in the RFC.
_FIRST_HOLD_S, _LONGEST_HOLD_S = 1.0, 16.0  # until the rate is back at the estimate (K): longer once confirmed
_CONFIRMED = 1.1  # A rate that differs by less than this factor confirms the estimate.
_LOWERED, _LOWERED_FROM_A_RAMP = 0.97, 0.85  # the estimate after a 429, of the rate that met it: grown slowly or fast
_LOWEST_RATE = 1 / 3600
_FIRST_UNPACED = 32  # So many requests at most may have left before the first answer named a limit.
_CATCH_UP_S = 0.025  # how late a request may leave without putting off those after it: timers are no more exact
_NEAR_S = 0.1  # A slot no further away than this is not put nearer by the growth of the rate.
_ROUND_LENGTHS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
"""Usual lengths of the windows of rate limits."""
_ROUNDED_UP_S = 1.0  # A named wait may be rounded up to whole seconds.
_LATE_S = 0.1  # how late a window may begin for us: requests are on their way for a while
_WINDOW_WAIT_S = 2.0  # A named wait of this length is for the end of a window; a bucket has its next token sooner.
_LONGEST_TRUST_S = 900.0  # later runs obey a pause of this length; about a longer one they ask, and believe nothing it taught
_FORGOTTEN_AFTER_S = 86_400.0
_PRESENT_FOR_S = 3.5  # A worker that has shown itself no later than this ago is there.


@dataclass(frozen=True, slots=True)
class Permit:
    """The permission to send a request now. `at`: its slot; `pauses`: how many pauses the route had, so that a 429 to an older
    permit is known to say nothing new; `before`: requests of this worker since the last one.
    """

    at: float = 0.0
    pauses: int = 0
    before: int = 0


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class RateState:
    """All that is known of a route's limit. Times are seconds on one clock; in the stored text, relative to its writing.

    `limit`: the estimate (None until the first 429). `since`: when the rate started below it; `hold_s`: the time until it is
    back at it. `resume_at`: the end of the last pause; `began`: the start of requests since then; `met_began`, `met_sent`: start
    and number of those before it. `stated`: the rate stated by the service. `workers`: when each worker was last active.
    Each worker has its own `slot_at`, the slot of its last request, and `sent`, the number since the last pause.
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

    @property
    def present(self) -> int:
        """How many workers share the rate."""
        return max(len(self.workers), 1)

    def rate_at(self, at: float) -> float:
        """Return the rate in requests per second: W(t) = C (t - K)^3 + W_max, at most the stated rate."""
        grown = inf if self.limit is None else self.limit * (1.0 + _DEPTH * (max(at - self.since, 0.0) / self.hold_s - 1.0) ** 3)
        return max(min(grown, self.stated or inf), _LOWEST_RATE)

    def interval_s(self, at: float) -> float:
        """Return the time between two requests of one worker."""
        return self.present / self.rate_at(at)

    def in_turn(self, worker: str, since: float) -> RateState:
        """Return the state with the worker's next slot in its turn since then: workers follow each other after a pause."""
        interval_s, rank = self.interval_s(self.resume_at), sum(name < worker for name in self.workers)
        first = self.resume_at + interval_s * rank / self.present
        return replace(self, slot_at=first + interval_s * (max(ceil((since - first) / interval_s), 0) - 1))

    def slot(self, at: float) -> float:
        """Return when the next request may be sent: evenly spaced if a rate is known, never in a pause, with little catching
        up.
        """
        if not self.is_known:
            return max(at, self.resume_at)
        early, late = max(at, self.slot_at), self.slot_at + self.interval_s(at)
        while late - early > _NEAR_S:  # the rate grows until then: at a low one the slot is far nearer than it seems at `at`
            middle = (early + late) / 2
            is_enough = middle >= self.slot_at + self.interval_s(middle)
            early, late = (early, middle) if is_enough else (middle, late)
        return max(late, at - _CATCH_UP_S, self.resume_at)

    def granted(self, slot: float) -> RateState:
        """Return the state after a request took `slot`. The rate does not grow over unused time."""
        unused_s = slot - max(self.slot_at + self.interval_s(slot), self.resume_at) if self.is_known else 0.0
        return replace(self, slot_at=slot, sent=self.sent + 1, since=self.since + max(unused_s, 0.0))

    def limited(self, permit: Permit, answered_at: float, until: float, *, is_named: bool) -> RateState:
        """Return the state after a 429 to `permit`, with a pause until `until` if the service gave that time (`is_named`).

        Otherwise the pause ends when a window of a usual length would end, at the latest at `until`. Answers to requests that
        were sent before an earlier pause can only extend the pause.
        """
        if permit.pauses != self.pauses:
            if until <= self.resume_at:
                return self
            return self.resting(until) if self.sent else self.paused(until)
        # Of several workers' first requests only that of the pause's end says so: the others come after it.
        is_first = not permit.before and (self.present == 1 or permit.at < self.began + _CATCH_UP_S)
        is_too_short = is_first and self.met_sent > 0
        began, sent = (
            (self.met_began, self.met_sent)
            if is_too_short
            else (self.began, max(permit.before * self.present + self.present // 2, 1))
        )
        if not is_named:
            until = min(until, began + _round_up(answered_at + 0.25 - began - _LATE_S) + _LATE_S)
        until = max(until, self.resume_at)
        as_window = sent / _round_up(until - began - _ROUNDED_UP_S)
        rate, hold_s = self.rate_at(permit.at), _FIRST_HOLD_S
        if self.limit is None:
            limit = min(as_window, rate)
        elif is_too_short:
            limit = max(min(as_window, self.limit), self.limit / 2)
        else:
            limit, mean = rate * _LOWERED, sent / min(_round_up(until - began - _ROUNDED_UP_S), max(until - began, _CATCH_UP_S))
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
        """Return the state with a pause until `until`, after which the rate starts below the estimate."""
        slot_at = until - self.interval_s(self.since)
        return replace(self, resume_at=until, since=until, began=until, sent=0, slot_at=slot_at)

    def stating(self, rate: float) -> RateState:
        """Return the state with a limit stated by the service, counting the requests sent before."""
        stated = max(rate, _LOWEST_RATE)
        sent_early = 0 if self.is_known else max(min(self.sent, _FIRST_UNPACED) - 1, 0)
        return replace(self, stated=stated, slot_at=self.slot_at + sent_early * self.present / stated)

    def resting(self, until: float) -> RateState:
        """Return the state with a rest until `until`, because the stated limit is used up; it is not a 429."""
        return replace(self, resume_at=max(until, self.resume_at), slot_at=max(until, self.slot_at))

    def seen(self, worker: str, at: float, is_leaving: bool) -> RateState:
        """Return the state with `worker` active now, or removed if it is leaving, and without inactive workers."""
        others = {name: seen_at for name, seen_at in self.workers.items() if at - seen_at < _PRESENT_FOR_S and name != worker}
        return replace(self, workers=others if is_leaving else {**others, worker: at})

    def taken_up(self, at: float) -> RateState:
        """Return what a run that finds no other worker keeps: pauses up to 15 min, and a limit used in the last day, with half of
        its hold time.
        """
        resume_at = self.resume_at if self.resume_at - at <= _LONGEST_TRUST_S else at
        begins = max(at, resume_at)
        fresh = RateState(slot_at=begins, resume_at=resume_at, began=begins, pauses=self.pauses)
        is_old = at - max(self.slot_at, self.resume_at) > _FORGOTTEN_AFTER_S
        if self.limit is None or is_old or self.resume_at - self.met_began > _LONGEST_TRUST_S:
            return fresh
        known = replace(fresh, limit=self.limit, since=begins, hold_s=max(self.hold_s / 2, _FIRST_HOLD_S))
        return replace(known, slot_at=begins - 1.0 / known.rate_at(begins))

    def shifted(self, by_s: float) -> RateState:
        """Return the state converted to a clock that is `by_s` ahead."""
        names = ("since", "slot_at", "resume_at", "began", "met_began")
        times = {name: getattr(self, name) + by_s for name in names}
        return replace(self, workers={name: at + by_s for name, at in self.workers.items()}, **times)


def _round_up(seconds: float) -> float:
    return next((float(length) for length in _ROUND_LENGTHS_S if length >= seconds), seconds)


_STATE = TypeAdapter(RateState)
Transition = Callable[[RateState], RateState]


class RateStore(Protocol):
    """Stores the state of one route as text for its workers."""

    async def exchange(self, write: Callable[[str, float], str | None], /) -> None:
        """Replace the text by the result of `write` for the text ("" at first) and its age in seconds; leave it if that is None.

        `write` is called again if another worker changes the text meanwhile, and may be called in another thread. The age is
        negative after a clock was set back. Raises `SyncError` if the store fails.
        """


_MOST_IN_FLIGHT = 256  # Requests in flight where nothing bounds them: no feed may have more.
_SYNC_S = 0.1  # between two looks at the store: a pause is known to all in 250 ms (budget 7)
_IDLE_S = 2.0  # A worker that has sent nothing for so long stops looking.
_SHOWN_EVERY_S = 1.0  # How often a worker shows that it is there.
_WRITING_S = 0.25  # How long after it was computed a text may reach the store.
_LONGEST_PROBE_S = 2.0  # How long the others wait for the answer to the first request after a pause.
_STATED_SHARE = 0.98  # How much of a stated limit is used: the rest is for late timers, and requests that overtake others.
_SAME_RATE = 0.01
_SAME_MOMENT_S = 0.5


@dataclass(frozen=True, slots=True)
class RateReport:
    """The results of a rate limiter. `rate_per_s` is None while no limit is known.

    `requests` were sent within `seconds`, and `limited` of them were answered 429; `paused_s` is the sum of the pauses.
    """

    rate_per_s: float | None
    limited: int
    pauses: int
    paused_s: float
    requests: int = 0
    seconds: float = 0.0
    workers: int = 1
    most_in_flight: int = 0

    @property
    def used_share(self) -> float | None:
        """The used share of the allowed rate, 0 to 1; None while no limit is known."""
        allowed = (self.rate_per_s or 0.0) * self.seconds
        return (self.requests - self.limited) / allowed if allowed else None


@dataclass(frozen=True, slots=True)
class Sharing:
    """How workers share a destination: `open_store` returns the store of a route by its name, `worker` is this worker's name.

    If the store fails, `on_trouble` is called with the error, and this worker continues alone.
    """

    open_store: Callable[[str], RateStore]
    worker: str
    on_trouble: Callable[[SyncError], None]


class RateLimiter:
    """The rate limiter of one route. A pause that ends over `max_pause_s` after the first 429 in a row closes the route."""

    def __init__(
        self,
        timing: Timing,
        *,
        max_pause_s: float = 900.0,
        sharing: Sharing | None = None,
        concurrency: ConcurrencyLimit | None = None,
        route: str = "POST /events",
    ) -> None:
        self.timing = timing
        self.clock = timing.clock
        self.concurrency = concurrency or ConcurrencyLimit(_MOST_IN_FLIGHT)
        self.closed: SyncError | None = None
        self._max_pause_s = max_pause_s
        self._sharing = sharing
        self._store = sharing.open_store(route) if sharing else None
        self._worker = sharing.worker if sharing else ""
        self._siblings: list[RateLimiter] = []
        self._began = self.clock()
        self._state = RateState(resume_at=self._began, slot_at=self._began, began=self._began)
        self._pause = Pause(timing, max_pause_s)
        self._text, self._stored, self._own = "", self._state, self._state
        self._synced_at: float | None = None
        self._shown_at = self._used_at = -inf
        self._unsaved: list[Transition] = []
        self._exchanging: asyncio.Task[None] | None = None
        self._is_due, self._is_exchanged = asyncio.Event(), asyncio.Event()
        self._is_leaving = False
        self._queue = asyncio.Lock()
        self._is_answered = asyncio.Event()
        self._is_answered.set()
        self._window_s = self._window_limit = 0.0
        self._requests = self._limited = 0

    @property
    def report(self) -> RateReport:
        """The results so far."""
        return RateReport(
            rate_per_s=min(filter(None, (self._state.limit, self._state.stated)), default=None),
            limited=self._limited,
            pauses=self._pause.count,
            paused_s=self._pause.total_s,
            requests=self._requests,
            seconds=self.clock() - self._began,
            workers=max(len(self._state.workers), 1),
            most_in_flight=self.concurrency.most,
        )

    def sibling(self, route: str = "GET") -> RateLimiter:
        """Return a limiter for another route of the same destination: limits apply per route (spec, Limits)."""
        limit = ConcurrencyLimit(self.concurrency.ceiling)
        one = RateLimiter(self.timing, max_pause_s=self._max_pause_s, sharing=self._sharing, concurrency=limit, route=route)
        self._siblings.append(one)
        return one

    async def leave(self) -> None:
        """Inform the other workers of this route and its siblings that this worker has finished."""
        for one in self._siblings:
            await one.leave()
        if self._store is not None and (self._unsaved or self.clock() - self._shown_at < _PRESENT_FOR_S):
            self._is_leaving = True
            self._is_due.set()
            await self._start_exchanging()

    def close(self, cause: SyncError) -> None:
        """Close the route for `cause`; the first cause is kept."""
        self.closed = self.closed or cause

    async def acquire(self) -> Permit | None:
        """Wait until a request may be sent, first come first served; return None once the route is `closed`. Never grants in a
        pause.
        """
        async with self._queue:
            while self.closed is None:
                await self._await_probe()
                permit = await self._next_permit()
                wait_s = max(permit.at, self._pause.resume_at) - self.clock()
                if wait_s > 0:
                    await self.timing.sleep(min(wait_s, 1.0))
                if wait_s <= 1.0 and self.is_valid(permit) and self.clock() >= permit.at:
                    return self._granted(permit)
            return None

    async def _await_probe(self) -> None:
        if not self._is_answered.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_PROBE_S):
                    await self._is_answered.wait()
            self._is_answered.set()

    def is_valid(self, permit: Permit) -> bool:
        """Return whether a permit is still valid: no pause has begun since it was granted."""
        return self.closed is None and permit.pauses == self._state.pauses and self.clock() >= self._pause.resume_at

    def passed(self) -> None:
        """Record an answer that was neither a 429 nor a failure."""
        self._is_answered.set()
        pause = self._pause
        if self.clock() >= pause.resume_at:  # during a pause it says nothing of the pause
            pause.is_doubtful, pause.limits_in_a_row, pause.limited_since = False, 0, None

    def failed(self) -> None:
        """Record a transient failure, which does not change the rate."""
        self._is_answered.set()

    def limited(self, permit: Permit, wait_s: float | None) -> None:
        """Record a 429 to the request with `permit`; `wait_s`: the time in `Retry-After`, None if absent.

        The first 429 since the last pause starts a pause and lowers the rate; later ones can only extend the pause.
        """
        self._limited += 1
        self._is_answered.set()
        answered_at, is_first = self.clock(), permit.pauses == self._state.pauses
        until = answered_at + (self._pause.wait_s(wait_s) if is_first else wait_s or 0.0)
        self._change(lambda state: state.limited(permit, answered_at, until, is_named=wait_s is not None))

    def stated(self, limit: float, window_s: float | None, reset_s: float | None, rest_s: float) -> None:
        """Record a limit stated in an answer: stay below it, and rest while its window is used up.

        A window of unknown length is taken to be as long as the longest reset.
        """
        if limit != self._window_limit:
            self._window_limit, self._window_s = limit, 0.0
        self._window_s = window_s or max(self._window_s, reset_s or 0.0)
        rate, known = limit / max(self._window_s, 0.001) * _STATED_SHARE, self._state.stated
        if known is None or abs(rate - known) > known * _SAME_RATE:
            self._change(lambda state: state.stating(rate))
        until = self.clock() + rest_s
        if rest_s and until > self._state.resume_at + _SAME_MOMENT_S:
            self._change(lambda state: state.resting(until))

    async def _next_permit(self) -> Permit:
        """Return the next slot of this worker; the first one waits until what the others know has been read."""
        self._used_at = self.clock()
        if self._store is not None:
            self._start_exchanging()
            await self._is_exchanged.wait()
            self._start_exchanging()
        return Permit(self._state.slot(self.clock()), self._state.pauses, self._state.sent)

    def _granted(self, permit: Permit) -> Permit:
        self._began = self._began if self._requests else self.clock()
        self._requests += 1
        if self._pause.is_doubtful:
            self._is_answered.clear()
        self._state = self._state.granted(permit.at)
        return permit

    def _change(self, transition: Transition) -> None:
        """Apply `transition` to our state now, and to the shared one in the background."""
        if self._store is not None:
            self._own = self._own if self._unsaved else self._state
            self._unsaved.append(transition)
            self._start_exchanging()
            self._is_due.set()
        self._adopt(transition(self._state))

    def _start_exchanging(self) -> asyncio.Task[None]:
        """Return the background task, started if it is not running; `_is_exchanged` is then set after its first look.

        Raises the fault that ended the last one, if any.
        """
        if self._exchanging is None or self._exchanging.done():
            if self._exchanging is not None:
                self._exchanging.result()
            self._is_exchanged.clear()
            self._exchanging = asyncio.create_task(self._keep_exchanging())
        return self._exchanging

    async def _keep_exchanging(self) -> None:
        """Exchange news until this worker leaves or has sent nothing for a while."""
        try:
            while True:
                self._is_due.clear()
                is_leaving = self._is_leaving
                await self._exchange(is_leaving=is_leaving)
                self._is_exchanged.set()
                if self._store is None or is_leaving or (not self._unsaved and self.clock() - self._used_at > _IDLE_S):
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SYNC_S):
                        await self._is_due.wait()
        finally:
            self._is_exchanged.set()

    async def _exchange(self, *, is_leaving: bool) -> None:
        """Load the changes of other workers, and store ours: transitions, and that this worker is active."""
        if self._store is None or self._sharing is None:
            return
        unsaved = list(self._unsaved)
        own = self._own if unsaved else self._state
        is_first, is_to_show = self._synced_at is None, self.clock() - self._shown_at >= _SHOWN_EVERY_S

        def write(text: str, age_s: float) -> str | None:
            now = self.clock()
            state = _merged(own, self._loaded(text, age_s, now))
            self._synced_at = now
            if is_first:
                state = self._take_up(state, now)
            for transition in unsaved:
                state = transition(state)
            if not (unsaved or is_to_show or is_leaving):
                return None
            self._stored = state = state.seen(self._worker, now, is_leaving)
            self._text = _STATE.dump_json(state.shifted(-now)).decode()
            return self._text

        try:
            await self._store.exchange(write)
        except SyncError as trouble:
            self._store = None
            self._unsaved.clear()
            self._sharing.on_trouble(trouble)
            return
        self._shown_at = self.clock() if unsaved or is_to_show else self._shown_at
        del self._unsaved[: len(unsaved)]
        self._own = state = _merged(self._own if self._unsaved else self._state, self._stored)
        for transition in self._unsaved:
            state = transition(state)
        self._adopt(state)

    def _loaded(self, text: str, age_s: float, now: float) -> RateState:
        """Return the stored state converted to our clock.

        A text that is new to us is not much older than our last look, so that changes of a machine's clock have no effect.
        """
        if text != self._text:
            self._text, self._stored = text, RateState()
            with suppress(ValidationError):  # nothing yet, or what another version wrote in its own way
                known_s = max(age_s, 0.0) if self._synced_at is None else min(max(age_s, 0.0), now - self._synced_at + _WRITING_S)
                self._stored = _STATE.validate_json(text).shifted(now - known_s)
        return self._stored

    def _take_up(self, state: RateState, now: float) -> RateState:
        """Start with the state of other workers, or with that of an earlier run; a long pause is then verified by a request."""
        if any(now - seen_at < _PRESENT_FOR_S for seen_at in state.workers.values()):
            return state
        taken = state.taken_up(now)
        self._pause.is_doubtful = taken.resume_at < state.resume_at
        return taken

    def _adopt(self, state: RateState) -> None:
        """Use `state` from now on; a pause in it that is new to us begins, whichever worker received the 429."""
        now, before = self.clock(), self._state
        if state.is_known and state.present > 1:
            last = max(now, before.slot_at + state.interval_s(state.resume_at) / 2)
            is_new = state.pauses != before.pauses
            state = state.in_turn(self._worker, last) if is_new else replace(state, slot_at=max(state.slot_at, before.slot_at))
        self._state = state
        cause = self._pause.begin(now, state.resume_at) if state.resume_at > now else None
        if cause is not None:
            self.close(cause)


def _merged(own: RateState, stored: RateState) -> RateState:
    """Return the stored state once it knows a limit or a newer pause; until then our own, with its workers and its pause.

    Between two pauses a worker keeps its own slot and count, and its own growth of the rate.
    """
    if not stored.is_known and stored.pauses <= own.pauses:
        return replace(own, workers=stored.workers, resume_at=max(own.resume_at, stored.resume_at))
    is_same = stored.pauses == own.pauses and abs(stored.began - own.began) < _SAME_MOMENT_S
    if is_same:
        return replace(stored, since=own.since, slot_at=own.slot_at, sent=own.sent)
    return replace(stored, sent=0)
