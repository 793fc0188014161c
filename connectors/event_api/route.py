"""A route of the service, shared by all its requests: permits, pauses, permanent stop; and simple requests over it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from connectors.errors import (
    CertificateError,
    KeyRefusedError,
    NotTheServiceError,
    RedirectRefusedError,
    RequestRefusedError,
    ScopeMissingError,
    ServiceUnavailableError,
)
from connectors.event_api.answers import KEY_TAKEN, AnswerKind, HttpAnswer, Meaning, in_short, interpret, rate_hint
from connectors.event_api.transport import Request, ServiceHttp
from connectors.rate_limit import Permit, RateLimiter
from connectors.retry import RetryPolicy, ask_until
from mappings.delivery import Answer
from mappings.errors import SyncError

T = TypeVar("T")
MayLeave = Callable[[], bool]
Read = Callable[[bytes], Any]
FAILURES = frozenset({AnswerKind.FAILING, AnswerKind.FOREIGN, AnswerKind.LOST, AnswerKind.NOT_REACHED, AnswerKind.UNREADABLE})
"""Results after which the effect of a request is unknown."""
_OVERLOAD = frozenset({AnswerKind.RATE_LIMITED, AnswerKind.FAILING, AnswerKind.LOST, AnswerKind.NOT_REACHED})
_UNSENT = frozenset({AnswerKind.CIRCUIT_OPEN, AnswerKind.TOO_LATE})
_UNSETTLED = FAILURES | KEY_TAKEN
REFUSED_BY_PROXY = frozenset({400, 413, 414, 415, 422, 431})
"""Statuses by which a proxy refuses a request before the service receives it."""


def unavailable(answer: Answer, attempts: int) -> ServiceUnavailableError:
    """Return the error for a service without a usable answer within the budget."""
    return ServiceUnavailableError(
        f"no usable answer after {attempts} attempts, the last one: {in_short(answer)}",
        hint="nothing is lost: run again when the service is back; if it never answered, check EVENT_API_BASE_URL",
    )


def not_the_service(answer: Answer) -> NotTheServiceError:
    """Return the error for an answer that does not have the service's format."""
    return NotTheServiceError(
        f"what answers there is not the Event Publishing API: {in_short(answer)}",
        hint="check EVENT_API_BASE_URL (host and path), and whether a proxy answers in its place",
    )


class Route:
    """Sends requests at the rate of `limiter`.

    `scope`: the scope that the spec requires for this route, "" if it names none. `has_channels`: a scope may be missing for
    one channel only (spec, Authentication 5), which does not close the route.
    """

    def __init__(
        self,
        http: ServiceHttp,
        limiter: RateLimiter,
        policy: RetryPolicy,
        *,
        scope: str = "",
        has_channels: bool = False,
    ) -> None:
        self.http = http
        self.limiter = limiter
        self.policy = policy
        self.timing = limiter.timing
        self._scope = scope
        self._has_channels = has_channels

    def sibling(self, name: str, scope: str = "") -> Route:
        """Return another route of the service, with its own rate limit (spec, Limits)."""
        return Route(self.http, self.limiter.sibling(name), self.policy, scope=scope)

    @property
    def closed(self) -> SyncError | None:
        """Why no request is sent any more, None while the route is open."""
        return self.limiter.closed

    async def pass_through(self, send: Callable[[MayLeave], Awaitable[Meaning | None]]) -> Meaning:
        """Send when the rate allows, again after each 429, and return the first other result.

        `send` gets a function to check right before sending whether the request may still leave; it returns None if it did not.
        An answer that concerns all requests (401, most missing scopes, a redirect, another host) closes the route.
        """
        await self.limiter.concurrency.enter()
        try:
            while True:
                permit = await self.limiter.acquire()
                if permit is None:
                    return Meaning(AnswerKind.CLOSED, Answer(0, "not_sent", str(self.closed)), cause=self.closed)
                meaning = await self._sent(permit, send)
                if meaning is not None and meaning.kind is not AnswerKind.RATE_LIMITED:
                    return meaning
        finally:
            self.limiter.concurrency.leave()

    async def _sent(self, permit: Permit, send: Callable[[MayLeave], Awaitable[Meaning | None]]) -> Meaning | None:
        """Send, and return the result; None if a pause began before anything was written."""
        began, meaning = self.limiter.clock(), None
        self.limiter.concurrency.sent()
        try:
            meaning = await send(lambda: self.limiter.is_valid(permit))
        finally:
            if meaning is None or meaning.kind in _UNSENT:
                self.limiter.concurrency.withdraw()
            else:
                self.limiter.concurrency.back(self.limiter.clock() - began, is_well=meaning.kind not in _OVERLOAD)
        if meaning is not None and meaning.kind not in _UNSENT:
            if meaning.kind is AnswerKind.RATE_LIMITED or (meaning.kind is AnswerKind.FAILING and meaning.wait_s is not None):
                self.limiter.limited(permit, meaning.wait_s)
            elif meaning.kind in FAILURES:
                self.limiter.failed()
            elif cause := self._end(meaning):
                self.limiter.close(cause)
            else:
                self.limiter.passed()
        return meaning

    def _end(self, meaning: Meaning) -> SyncError | None:
        """Return why no further request may be sent after this answer, None if others may succeed."""
        answer = meaning.answer
        match meaning.kind:
            case AnswerKind.ANOTHER_HOST:
                return not_the_service(answer)
            case AnswerKind.UNTRUSTED:
                return CertificateError(
                    answer.message,
                    hint="check the host in EVENT_API_BASE_URL; if your organisation signs certificates itself, set "
                    "SSL_CERT_FILE to its own; an expired one must be renewed by the service",
                )
            case AnswerKind.KEY_REFUSED:
                return KeyRefusedError(
                    f"the service refused the API key {self.http.key_tail}: {in_short(answer)}",
                    hint="it may be revoked, disabled, expired or mistyped: see the service's page /developers/keys, "
                    "then set EVENT_API_KEY",
                )
            case AnswerKind.SCOPE_MISSING if not self._has_channels:
                return self.scope_missing(answer)
            case AnswerKind.REDIRECTED:
                return RedirectRefusedError(
                    f"the service's address redirects ({answer.status}) to {meaning.location or 'nowhere'}: not followed, "
                    "as the key would go along",
                    hint="if that is the service's true address, set EVENT_API_BASE_URL to it",
                )
            case _:
                return None

    def scope_missing(self, answer: Answer, channel_id: int | None = None) -> ScopeMissingError:
        """Return the error for a missing scope; `channel_id`: the requested channel, if any."""
        wanted = f"`{self._scope}`" if self._scope else "for this request"
        where = "" if channel_id is None else f" for channel {channel_id}"
        return ScopeMissingError(
            f"the API key {self.http.key_tail} lacks the scope {wanted}{where}: {in_short(answer)}",
            hint="add the scope on the page of the key, or use a key that has it"
            + (" and may use that channel" if where else ""),
        )

    async def ask_once(self, request: Request, read: Read, may_leave: MayLeave) -> Meaning | None:
        """Send one request, and adapt the limiter to a rate limit stated in the answer. Return None if it was not sent."""
        answer = await self.http.exchange(request, may_leave, attempt_s=self.policy.attempt_s)
        if not isinstance(answer, HttpAnswer):
            return answer
        now = self.timing.now()
        hint = rate_hint(answer.headers, now)
        if hint is not None:
            self.limiter.stated(*hint)
        meaning = interpret(answer, now, read)
        if meaning.kind in {AnswerKind.READ, AnswerKind.WITHOUT_ID} or meaning.answer.code:
            self.http.is_recognised = True
        return meaning if meaning.kind is not AnswerKind.FOREIGN else self.place(meaning)

    def place(self, foreign: Meaning) -> Meaning:
        """Classify an answer without the service's envelope, by whether the service has been recognised before."""
        if not self.http.is_recognised:
            return replace(foreign, kind=AnswerKind.ANOTHER_HOST)
        return replace(
            foreign, kind=AnswerKind.REFUSED_BY_PROXY if foreign.answer.status in REFUSED_BY_PROXY else AnswerKind.FOREIGN
        )

    async def get(self, path: str, read: Callable[[bytes], T | None], asked: str, *, has_key: bool = True) -> T:
        """Return the document at `path`, converted by `read`, which returns None for another document.

        Raises `KeyRefusedError`, `ScopeMissingError`, `RequestRefusedError`, `RedirectRefusedError`, `NotTheServiceError`,
        `ServiceUnavailableError` or `PausedError`; `asked` names the document in their texts.
        """
        url = self.http.url(path)
        met = await self.insist(lambda: self.http.request("GET", url, has_key=has_key), read)
        if met.kind is not AnswerKind.READ:
            raise self.complaint(met, asked)
        value: T = met.value
        return value

    async def insist(self, request: Callable[[], Request], read: Read) -> Meaning:
        """Repeat a request until an answer is conclusive or the policy is used up; return the last answer."""
        return await ask_until(
            lambda met: self.closed is not None or met.kind not in _UNSETTLED,
            lambda: self.pass_through(lambda may_leave: self.ask_once(request(), read, may_leave)),
            self.policy,
            sleep=self.timing.sleep,
            random=self.timing.random,
            clock=self.timing.clock,
        )

    def complaint(self, met: Meaning, asked: str) -> SyncError:
        """Return the error for a request without a conclusive answer; `asked` names what was requested."""
        if met.cause is not None or self.closed is not None:
            return met.cause or self.closed or not_the_service(met.answer)
        if met.kind is AnswerKind.UNREADABLE:
            return not_the_service(met.answer)
        if met.kind in FAILURES - {AnswerKind.FOREIGN}:
            return unavailable(met.answer, self.policy.attempts)
        return RequestRefusedError(
            f"the service refused {asked}: {in_short(met.answer)}",
            answer=met.answer,
            hint="check EVENT_API_BASE_URL, and that the owner of the key has access; quote the request id to the support",
        )
