"""Questions about the account as a whole (its channels, the classifications): asked until answered, or raised.

A row's own delivery is `delivery`'s, and never raises; how lists are walked page by page is `listing`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

import httpx

from connectors.admission import Closed
from connectors.event_api import complaints
from connectors.event_api.answers import (
    Failing,
    Foreign,
    KeyUsed,
    Lost,
    Meaning,
    NotReached,
    RateLimited,
    Unreadable,
    foreign_answer,
    interpret_failure,
)
from connectors.event_api.exchange import Exchange, HttpAnswer
from connectors.event_api.route import REFUSED_BY_PROXY, Route
from connectors.retry import Random, RetryPolicy, Sleep, ask_until
from mappings.delivery import Answer
from mappings.errors import SyncError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A 2xx answer, read as what was asked for."""

    value: T
    answer: Answer


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks over one route. Clock, sleep and randomness are handed in; `now` gives the aware time of day."""

    exchange: Exchange
    route: Route
    policy: RetryPolicy
    now: Callable[[], datetime]
    sleep: Sleep
    random: Random

    async def ask(self, request: Callable[[], httpx.Request], read: Callable[[bytes], T | None], asked: str) -> T:
        """Return what `read` makes of a 2xx body; None from it means that the body is not what was asked for.

        Raises `KeyRefusedError`, `ScopeMissingError`, `RequestRefusedError`, `RedirectRefusedError`,
        `NotTheServiceError`, `ServiceUnavailableError` or `PausedError`; `asked` names the question in their texts.
        """
        met = await self.insist(request, read)
        if isinstance(met, Read):
            return met.value
        raise self.complaint(met, asked)

    async def insist(self, request: Callable[[], httpx.Request], read: Callable[[bytes], T | None]) -> Read[T] | Meaning | Closed:
        """Ask until an answer settles the question or the policy is spent; returns the last answer as it was understood."""
        clock = self.route.pacer.clock
        started = clock()
        return await ask_until(
            lambda met: self.route.closed is not None or _is_settled(met),
            lambda: self.route.pass_through(lambda: self._once(request(), read)),
            wait_s=lambda attempt, _: self.policy.wait_s(attempt, self.random),
            is_spent=lambda attempt, wait_s: self.policy.is_spent(attempt, clock() - started, wait_s),
            sleep=self.sleep,
        )

    async def _once(self, request: httpx.Request, read: Callable[[bytes], T | None]) -> Read[T] | Meaning:
        told = await self.exchange(request)
        if not isinstance(told, HttpAnswer):
            return told
        self.route.heed(told.headers, self.now())
        if not 200 <= told.status <= 299:
            return interpret_failure(told.status, told.headers, told.body, self.now())
        value = read(told.body)
        if value is None:
            return Unreadable(foreign_answer(told.status, told.headers, told.body))
        self.route.acquaintance.is_made = True
        return Read(value, Answer(status=told.status))

    def complaint(self, met: Meaning | Closed, asked: str) -> SyncError:
        """Return the error in which an unsettled question reaches people; `asked` names the question."""
        if isinstance(met, Closed):
            return met.cause
        if self.route.closed is not None:
            return self.route.closed
        match met:
            case Unreadable(answer):
                return complaints.not_the_service(answer)
            case Failing(answer) | NotReached(answer) | Lost(answer) | RateLimited(answer):
                return complaints.unavailable(answer, self.policy.attempts)
            case _:
                return complaints.request_refused(met.answer, asked)


def _is_settled(met: object) -> bool:
    if isinstance(met, Foreign):
        return met.answer.status in REFUSED_BY_PROXY
    return not isinstance(met, Failing | NotReached | Lost | Unreadable | KeyUsed)
