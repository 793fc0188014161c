"""The Event Publishing API as the worker uses it: each question about the account and each delivery is one method."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import cast

from connectors.event_api import lists
from connectors.event_api.answers import Foreign, Lost, Meaning, NotReached, interpret
from connectors.event_api.delivery import CircuitBreaker, Delivery
from connectors.event_api.lists import Classifications, EventList
from connectors.event_api.media import Image, ImageProblem, Uploader
from connectors.event_api.openapi import NoPage, PageBody, fetch_page
from connectors.event_api.route import REFUSED_BY_PROXY, Acquaintance, MayLeave, Questions, Route
from connectors.event_api.transport import Exchange, HttpAnswer, ServiceHttp, key_tail
from connectors.rate_limit import RateLimiter, RateReport
from connectors.retry import Random, RetryPolicy, Sleep
from mappings.delivery import Intent, Verdict
from mappings.errors import SyncError

_SLUGS = "GET /classifications"


class EventApi:
    """Asks and delivers through `http` (see `open_http`), which stays the caller's to close.

    `limiter` spaces the creation of events, one for all requests in flight; the other routes get limiters of its kind, as
    limits are applied per route (spec, Limits). `now` gives the aware time of day, `random` numbers from 0 up to 1.
    Its `circuit` breaker stops the creation of events in an outage.
    """

    def __init__(
        self,
        http: ServiceHttp,
        *,
        limiter: RateLimiter,
        policy: RetryPolicy,
        now: Callable[[], datetime],
        sleep: Sleep,
        random: Random,
    ) -> None:
        self.circuit = CircuitBreaker(limiter.clock, lambda: limiter.concurrency.room)
        self._exchange = Exchange(http, attempt_s=policy.attempt_s)
        self._events_url = self._exchange.url("/events")
        self._policy = policy
        self._now = now
        self._sleep = sleep
        self._random = random
        self._key_tail = key_tail(http)
        self._acquaintance = Acquaintance()
        self._events = Route(limiter, self._acquaintance, key_tail=self._key_tail, scope="events:create", has_channels=True)
        self.delivery = Delivery(self._post_event, self._events, self.circuit, policy=policy, sleep=sleep, random=random)
        self._uploader = Uploader(self._questions("POST /media"))

    @property
    def stopped(self) -> SyncError | None:
        """Why no event is sent any more (key, redirect, pause, outage), or None while the route is open."""
        return self._events.closed or self.circuit.cause

    def stop(self, cause: SyncError) -> None:
        """Let no further event be sent: what waits for a permit, or for the end of a pause, gets `cause`."""
        self._events.limiter.close(cause)

    @property
    def pace(self) -> RateReport:
        """What was learned about the rate at which events may be created."""
        return self._events.limiter.report

    @property
    def room(self) -> int:
        """How many events may be on their way at once, now."""
        return self._events.limiter.concurrency.room

    async def deliver(self, intent: Intent) -> Verdict:
        """Create one event, insisting within the policy. Never raises for the row's fate; cancelling it is safe.

        A cancelled call may have created the event: its intent is unanswered.
        """
        return await self.delivery.deliver(intent)

    async def channels(self) -> dict[str, int]:
        """Return the ids of all channels available to the key's owner, by slug; errors as `Questions.ask` names them."""
        return await lists.channels(self._questions("GET /channels", "channels:read"))

    async def classifications(self) -> Classifications:
        """Return the classification list, asked without the key first; errors as `Questions.ask` names them."""
        return await lists.classifications(self._questions(_SLUGS), self._questions(_SLUGS))

    async def contract(self, etag: str = "") -> PageBody | NoPage | None:
        """Return the service's OpenAPI page, asked once, without the key; None where it is still the one of `etag`."""
        return await fetch_page(self._exchange, etag)

    def events(self) -> EventList:
        """Return the list of the account's events, to be read once; nothing is asked yet."""
        return EventList(self._questions("GET /events"))

    async def probe(self) -> Meaning:
        """Send one event without any field, which the service must refuse (spec, Event), and return what it answers.

        No idempotency key goes along, so that no row's key is used up.
        """
        headers = {"content-type": "application/json"}
        told = await self._exchange(self._exchange.request("POST", self._events_url, content=b"{}", headers=headers))
        if isinstance(told, HttpAnswer):
            return interpret(told.status, told.headers, told.body, self._now())
        return cast("NotReached | Lost", told)

    def expect_upload_in(self, field: str) -> None:
        """Upload images in this field of a form first, as the service's page shows it; "" where it shows none."""
        self._uploader.expect(field)

    async def upload(self, image: Image, key: str) -> int | ImageProblem:
        """Upload one image under the idempotency key `key` and return the id of its media document, or why there is none."""
        return await self._uploader.upload(image, key)

    async def _post_event(self, intent: Intent, may_leave: MayLeave) -> Meaning | None:
        request = self._exchange.request(
            "POST",
            self._events_url,
            content=intent.body,
            headers={"content-type": "application/json", "idempotency-key": intent.key},
        )
        told = await self._exchange(request, may_leave)
        if not isinstance(told, HttpAnswer):
            return told
        now = self._now()
        self._events.heed(told.headers, now)
        meaning = interpret(told.status, told.headers, told.body, now)
        if isinstance(meaning, Foreign) and meaning.answer.status in REFUSED_BY_PROXY and not self._acquaintance.is_made:
            await self._get_acquainted()
        return meaning

    async def _get_acquainted(self) -> None:
        """Ask for something harmless, to know a row that a proxy refuses from another host that would refuse them all."""
        with suppress(SyncError):
            await self.classifications()

    def _questions(self, name: str, scope: str = "") -> Questions:
        route = Route(self._events.limiter.sibling(name), self._acquaintance, key_tail=self._key_tail, scope=scope)
        return Questions(self._exchange, route, self._policy, self._now, self._sleep, self._random)
