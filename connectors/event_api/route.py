"""One route of the service as all of its requests share it: permits, pauses, its end for all; and questions asked over it.

Also the errors in which a refusal of the whole route reaches people: what we tried, what came back, what would help.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Generic, Protocol, TypeVar, cast

import httpx

from connectors.errors import (
    KeyRefusedError,
    NotTheServiceError,
    RedirectRefusedError,
    RequestRefusedError,
    ScopeMissingError,
    ServiceUnavailableError,
)
from connectors.event_api.answers import (
    Failing,
    Foreign,
    KeyRefused,
    KeyUsed,
    Lost,
    Meaning,
    NotReached,
    RateLimited,
    Redirected,
    ScopeMissing,
    Unreadable,
    foreign_answer,
    in_short,
    interpret_failure,
)
from connectors.event_api.transport import Exchange, HttpAnswer
from connectors.rate_limit import Permit, RateLimiter
from connectors.retry import Random, RetryPolicy, Sleep, ask_until, rate_hint
from mappings.delivery import Answer
from mappings.errors import SyncError


def key_refused(answer: Answer, key_tail: str) -> KeyRefusedError:
    """401, for the key named by its tail."""
    return KeyRefusedError(
        f"the service refused the API key {key_tail}: {in_short(answer)}",
        hint="it may be revoked, disabled, expired or mistyped: see the service's page /developers/keys, then set EVENT_API_KEY",
    )


def scope_missing(answer: Answer, key_tail: str, scope: str, channel_id: int | None = None) -> ScopeMissingError:
    """403 insufficient_scope; `scope` as the spec names it, "" where it names none; `channel_id` where one was asked for."""
    wanted = f"`{scope}`" if scope else "for this request"
    where = "" if channel_id is None else f" for channel {channel_id}"
    return ScopeMissingError(
        f"the API key {key_tail} lacks the scope {wanted}{where}: {in_short(answer)}",
        hint="add the scope on the page of the key, or use a key that has it" + (" and may use that channel" if where else ""),
    )


def redirect_refused(answer: Answer, location: str) -> RedirectRefusedError:
    """3xx; `location` without its query."""
    return RedirectRefusedError(
        f"the service's address redirects ({answer.status}) to {location or 'nowhere'}: not followed, as the key would go along",
        hint="if that is the service's true address, set EVENT_API_BASE_URL to it",
    )


def not_the_service(answer: Answer) -> NotTheServiceError:
    """An answer in words that the service does not use."""
    return NotTheServiceError(
        f"what answers there is not the Event Publishing API: {in_short(answer)}",
        hint="check EVENT_API_BASE_URL (host and path), and whether a proxy answers in its place",
    )


def unavailable(answer: Answer, attempts: int) -> ServiceUnavailableError:
    """No usable answer within the budget."""
    return ServiceUnavailableError(
        f"no usable answer after {attempts} attempts, the last one: {in_short(answer)}",
        hint="nothing is lost: run again when the service is back; if it never answered, check EVENT_API_BASE_URL",
    )


def request_refused(answer: Answer, asked: str) -> RequestRefusedError:
    """A definitive refusal of a question about the account as a whole; `asked` names the question."""
    return RequestRefusedError(
        f"the service refused to tell {asked}: {in_short(answer)}",
        answer=answer,
        hint="check EVENT_API_BASE_URL, and that the key's owner may see it; quote the request id to the service's support",
    )


MayLeave = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Closed:
    """No request leaves any more: the whole route has stopped for `cause`."""

    cause: SyncError


class Understood(Protocol):
    """Any answer that was read: it keeps what people may want to know of it."""

    @property
    def answer(self) -> Answer: ...  # the class says it


M = TypeVar("M", bound=Understood)
REFUSED_BY_PROXY = frozenset({400, 413, 414, 415, 422, 431})
"""What a proxy in front of the service refuses in its own words, before the service has seen it."""


@dataclass(slots=True)
class Acquaintance:
    """Whether the service has answered in its own words yet: until then, other words mean another host."""

    is_made: bool = False

    def note(self, answer: Answer) -> None:
        """Take note of an answer in the service's own words: an envelope with its code, or what was asked for."""
        self.is_made = self.is_made or (answer.status > 0 and bool(answer.code))


class Route:
    """Lets requests go at the route's pace. `scope` is what the spec wants of the key here, "" where it names none.

    `has_channels`: a missing scope may be missing for one channel only (spec, Authentication 5), and closes nothing.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        acquaintance: Acquaintance,
        *,
        key_tail: str,
        scope: str,
        has_channels: bool = False,
    ) -> None:
        self.limiter = limiter
        self.acquaintance = acquaintance
        self._key_tail = key_tail
        self._scope = scope
        self._has_channels = has_channels

    @property
    def closed(self) -> SyncError | None:
        """Why no request leaves any more, or None."""
        return self.limiter.closed

    def scope_missing(self, answer: Answer, channel_id: int | None = None) -> SyncError:
        """Return the error in which a missing scope reaches people."""
        return scope_missing(answer, self._key_tail, self._scope, channel_id)

    def heed(self, headers: Mapping[str, str], now: datetime) -> None:
        """Keep to what the headers of an answer state of the route's limit, if they do; they have lower-case names."""
        hint = rate_hint(headers, now)
        if hint is not None:
            self.limiter.hinted(hint)

    async def pass_through(self, send: Callable[[MayLeave], Awaitable[M | None]]) -> M | Closed:
        """Send when the rate allows, again after each 429, and return the first answer that is no 429.

        `send` gets what says, right before the request leaves, whether it still may; it returns None where it did not.

        An answer that concerns every request (401, mostly a missing scope, a redirect, another host) closes the route.
        """
        await self.limiter.concurrency.enter()
        try:
            while True:
                permit = await self.limiter.acquire()
                if permit is None:
                    return Closed(cast("SyncError", self.limiter.closed))
                meaning = await self._sent(permit, send)
                if meaning is not None and not isinstance(meaning, RateLimited):
                    return meaning
        finally:
            self.limiter.concurrency.leave()

    async def _sent(self, permit: Permit, send: Callable[[MayLeave], Awaitable[M | None]]) -> M | None:
        """Send, and return what came back; None where a pause began before anything was written."""
        began, is_well = self.limiter.clock(), None
        self.limiter.concurrency.sent()
        try:
            meaning = await send(lambda: self.limiter.is_valid(permit))
            if meaning is None:
                return None
            is_well = not isinstance(meaning, RateLimited | Failing | Lost | NotReached)
        finally:
            if is_well is None:
                self.limiter.concurrency.withdraw()
            else:
                self.limiter.concurrency.back(self.limiter.clock() - began, is_well=is_well)
        self.acquaintance.note(meaning.answer)
        self._report(permit, meaning)
        return meaning

    def _report(self, permit: Permit, meaning: Understood) -> None:
        match meaning:
            case RateLimited(_, wait_s):
                self.limiter.limited(permit, wait_s)
            case Failing(_, wait_s):
                self.limiter.failed()
                if wait_s is not None:
                    self.limiter.limited(permit, wait_s)
            case NotReached() | Lost() | Unreadable():
                self.limiter.failed()
            case Foreign(answer) if self.acquaintance.is_made and answer.status not in REFUSED_BY_PROXY:
                self.limiter.failed()
            case _:
                self._close_or_pass(meaning)

    def _close_or_pass(self, meaning: Understood) -> None:
        match meaning:
            case Foreign(answer) if not self.acquaintance.is_made:
                self.limiter.close(not_the_service(answer))
            case KeyRefused(answer):
                self.limiter.close(key_refused(answer, self._key_tail))
            case ScopeMissing(answer) if not self._has_channels:
                self.limiter.close(self.scope_missing(answer))
            case Redirected(answer, location):
                self.limiter.close(redirect_refused(answer, location))
            case _:
                self.limiter.passed()


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
        clock = self.route.limiter.clock
        started = clock()
        send: Callable[[MayLeave], Awaitable[Read[T] | Meaning | None]] = partial(self._once, request, read)

        async def ask() -> Read[T] | Meaning | Closed:
            return cast("Read[T] | Meaning | Closed", await self.route.pass_through(send))

        return await ask_until(
            lambda met: self.route.closed is not None or _is_settled(met),
            ask,
            wait_s=lambda attempt, _: self.policy.wait_s(attempt, self.random),
            is_spent=lambda attempt, wait_s: self.policy.is_spent(attempt, clock() - started, wait_s),
            sleep=self.sleep,
        )

    async def _once(
        self, request: Callable[[], httpx.Request], read: Callable[[bytes], T | None], may_leave: MayLeave
    ) -> Read[T] | Meaning | None:
        told = await self.exchange(request(), may_leave)
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
                return not_the_service(answer)
            case Failing(answer) | NotReached(answer) | Lost(answer) | RateLimited(answer):
                return unavailable(answer, self.policy.attempts)
            case _:
                return request_refused(met.answer, asked)


def _is_settled(met: object) -> bool:
    if isinstance(met, Foreign):
        return met.answer.status in REFUSED_BY_PROXY
    return not isinstance(met, Failing | NotReached | Lost | Unreadable | KeyUsed)
