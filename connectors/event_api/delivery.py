"""From one intent to its verdict: ask, wait, ask again, in the bounds of the policy, as delivery.md's table says.

What an answer means is read in `answers`, how requests share the route is `pacing`'s, the request itself is `client`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import assert_never

from connectors.event_api import complaints
from connectors.event_api.answers import (
    Created,
    Failing,
    Foreign,
    KeyRefused,
    KeyUsed,
    Lost,
    Meaning,
    NoAccess,
    NotReached,
    RateLimited,
    Redirected,
    Refused,
    ScopeMissing,
    Unreadable,
)
from connectors.event_api.route import REFUSED_BY_PROXY, Route
from connectors.pacing import Closed
from connectors.retry import Random, RetryPolicy, Sleep, ask_until
from mappings.delivery import (
    Answer,
    Blocked,
    Conflict,
    Intent,
    Postponed,
    Receipt,
    Refusal,
    Superseded,
    Uncertain,
    Unconfirmed,
    Verdict,
)
from mappings.errors import SyncError

USED_KEY_ASKS = 4
"""How often a 409 is met before we take it that our earlier attempt will not be told to us.

One that names a time to ask again (`Retry-After`) says that the attempt is still under way, and does not count.
"""
_SHORTEST_LOOK_S = 1.0
"""How long to wait at least before asking again about an attempt under way: such asking is not bounded in number."""


@dataclass(slots=True)
class _Case:
    """One intent under way: what this call has seen so far."""

    intent: Intent
    started: float
    attempts: int = 0
    has_left: bool = False
    """An attempt of this call may have been carried out without our seeing its answer."""
    used_key_answers: int = 0
    under_way_answers: int = 0
    sending_s: float = 0.0
    paced_s: float = 0.0
    last: Answer | None = None

    @property
    def may_exist(self) -> bool:
        return self.has_left or self.intent.is_unanswered


class Courier:
    """Carries intents over one route. `post` sends one request and reads its answer; it never raises for an answer."""

    def __init__(
        self,
        post: Callable[[Intent], Awaitable[Meaning]],
        route: Route,
        *,
        policy: RetryPolicy,
        sleep: Sleep,
        random: Random,
    ) -> None:
        self._post = post
        self._route = route
        self._clock = route.pacer.clock
        self._policy = policy
        self._sleep = sleep
        self._random = random
        self._barred: dict[int, Postponed] = {}

    async def deliver(self, intent: Intent) -> Verdict:
        """Return what became of `intent`; every request sends the same key and body. Never raises for a row's fate.

        Once the key lacks the scope for a channel, its further intents are postponed without a request.
        """
        barred = self._barred.get(intent.channel_id)
        if barred is not None:
            return replace(barred, attempts=0)
        case = _Case(intent, started=self._clock())
        met = await ask_until(
            lambda met: self._is_settled(case, met),
            lambda: self._ask(case),
            wait_s=self._wait_s,
            is_spent=lambda attempt, wait_s: self._is_spent(case, attempt, wait_s),
            sleep=self._sleep,
        )
        return self._verdict(case, met)

    async def _ask(self, case: _Case) -> Meaning | Closed:
        """Send one attempt that counts; the time that the route's pace took is not the row's."""
        began, sending_s = self._clock(), case.sending_s
        met = await self._route.pass_through(lambda: self._send(case))
        case.paced_s += self._clock() - began - (case.sending_s - sending_s)
        if not isinstance(met, Closed):
            self._note(case, met)
        return met

    async def _send(self, case: _Case) -> Meaning:
        left = self._clock()
        meaning = await self._post(case.intent)
        case.sending_s += self._clock() - left
        return meaning

    def _note(self, case: _Case, meaning: Meaning) -> None:
        case.attempts += 1
        case.last = meaning.answer
        match meaning:
            case Failing() | Lost() | Unreadable():
                case.has_left = True
            case Foreign(answer):
                case.has_left |= self._route.acquaintance.is_made and answer.status not in REFUSED_BY_PROXY
            case KeyUsed(_, wait_s):
                case.used_key_answers += wait_s is None
                case.under_way_answers += wait_s is not None
            case Created():
                self._route.acquaintance.is_made = True
            case _:
                pass

    def _is_settled(self, case: _Case, met: Meaning | Closed) -> bool:
        match met:
            case Closed() | Created() | Refused() | NoAccess() | ScopeMissing() | KeyRefused() | Redirected():
                return True
            case KeyUsed():
                return not case.may_exist or case.used_key_answers >= USED_KEY_ASKS
            case Foreign(answer):
                return not self._route.acquaintance.is_made or answer.status in REFUSED_BY_PROXY
            case Failing() | Unreadable() | NotReached() | Lost() | RateLimited():
                return False
            case _:
                assert_never(met)

    def _wait_s(self, attempt: int, met: Meaning | Closed) -> float:
        ours = self._policy.wait_s(attempt, self._random)
        match met:
            case KeyUsed(_, None):
                return max(ours, 2.0 ** (attempt - 1))
            case KeyUsed(_, float(asked_s)):
                return max(asked_s, _SHORTEST_LOOK_S)
            case _:
                return ours

    def _is_spent(self, case: _Case, attempt: int, next_wait_s: float) -> bool:
        elapsed_s = self._clock() - case.started - case.paced_s
        return self._policy.is_spent(attempt - case.under_way_answers, elapsed_s, next_wait_s)

    def _verdict(self, case: _Case, met: Meaning | Closed) -> Verdict:
        match met:
            case Created(answer, event_id):
                return Receipt(event_id, answer, case.attempts)
            case Refused(answer):
                return _refusal(case, answer)
            case NoAccess(answer):
                return Blocked(answer, case.attempts)
            case KeyUsed(answer, wait_s):
                return Uncertain(answer, case.attempts) if case.may_exist and wait_s is not None else _used_key(case, answer)
            case Closed(cause):
                return _stopped(case, case.last or Answer(status=0, code="not_sent", message=str(cause)), cause)
            case _:
                return self._unsettled(case, met)

    def _unsettled(self, case: _Case, met: Meaning) -> Verdict:
        if isinstance(met, Foreign) and self._route.acquaintance.is_made and met.answer.status in REFUSED_BY_PROXY:
            return Refusal(met.answer, case.attempts)
        if isinstance(met, ScopeMissing):
            return self._out_of_scope(case, met.answer)
        return _stopped(case, met.answer, self._route.closed or complaints.unavailable(met.answer, case.attempts))

    def _out_of_scope(self, case: _Case, answer: Answer) -> Verdict:
        channel_id = case.intent.channel_id
        cause = self._route.scope_missing(answer, channel_id)
        self._barred.setdefault(channel_id, Postponed(answer, cause))
        return _stopped(case, answer, cause)


def _refusal(case: _Case, answer: Answer) -> Verdict:
    is_replay = bool(answer.request_id) and answer.request_id == case.intent.refused_request_id
    return Superseded(answer, case.attempts) if is_replay else Refusal(answer, case.attempts)


def _used_key(case: _Case, answer: Answer) -> Verdict:
    if case.may_exist:
        return Unconfirmed(answer, case.attempts)
    if case.intent.refused_request_id:
        return Superseded(answer, case.attempts)
    return Conflict(answer, case.attempts)


def _stopped(case: _Case, answer: Answer, cause: SyncError) -> Verdict:
    if case.has_left:
        return Uncertain(answer, case.attempts)
    return Postponed(answer, cause, case.attempts)
