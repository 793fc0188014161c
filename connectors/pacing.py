"""One pacer for each route of a destination: every request asks it when to leave, every answer tells it how it went.

What an answer means is read elsewhere (`event_api.answers`); what a row's fate is, in `event_api.delivery`; what the
pace is, in `route_pace`; how workers share it, in `pace_sharing`.

A pause is a promise: no request leaves before its end. After it the route comes back at the rate that it proved to
bear, one request at a time, and then probes for more: slowly near the last limit, faster the longer none is met.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from connectors.admission import Admitted, Closed
from connectors.crowding import Crowd
from connectors.pace_hit import Stretch
from connectors.pace_report import Pace
from connectors.pace_sharing import Sharing
from connectors.pauses import Patience, Pauses
from connectors.rate_hint import Hints, RateHint
from connectors.route_pace import Limit, RoutePace
from connectors.surroundings import Surroundings
from mappings.errors import SyncError

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
