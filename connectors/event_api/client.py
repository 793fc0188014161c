"""The Event Publishing API as the worker uses it: each question about the account and each delivery is one method."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from connectors.event_api import lists
from connectors.event_api.answers import HttpAnswer, Kind, Meaning, created_id, interpret
from connectors.event_api.delivery import CircuitBreaker, Delivery
from connectors.event_api.lists import Classifications, EventList
from connectors.event_api.media import Image, ImageProblem, Uploader
from connectors.event_api.openapi import NoPage, PageBody, fetch_page
from connectors.event_api.route import REFUSED_BY_PROXY, MayLeave, Route
from connectors.event_api.transport import Exchange, ServiceHttp
from connectors.rate_limit import RateLimiter, RateReport, Timing
from connectors.retry import Random, RetryPolicy, Sleep
from mappings.delivery import Answer, Intent, Verdict
from mappings.errors import SyncError


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
        self._exchange = Exchange(http, attempt_s=policy.attempt_s)
        self._events_url = self._exchange.url("/events")
        timing = Timing(limiter.clock, sleep, random, now)
        self._events = Route(self._exchange, limiter, policy, timing, scope="events:create", has_channels=True)
        self.circuit = CircuitBreaker(limiter.clock, lambda: limiter.concurrency.room)
        self.delivery = Delivery(self._post_event, self._events, self.circuit)
        self._uploader = Uploader(self._events.sibling("POST /media"))

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
        """Return the ids of all channels available to the key's owner, by slug; errors as `Route.get` names them."""
        return await lists.channels(self._events.sibling("GET /channels", "channels:read"))

    async def classifications(self) -> Classifications:
        """Return the classification list, asked without the key first; errors as `Route.get` names them."""
        # A refusal with the key closes a route, one without it must not.
        return await lists.classifications(*(self._events.sibling("GET /classifications") for _ in range(2)))

    async def contract(self, etag: str = "") -> PageBody | NoPage | None:
        """Return the service's OpenAPI page, asked once, without the key; None where it is still the one of `etag`."""
        return await fetch_page(self._exchange, etag)

    def events(self) -> EventList:
        """Return the list of the account's events, to be read once; nothing is asked yet."""
        return EventList(self._events.sibling("GET /events"))

    async def probe(self) -> Meaning:
        """Send one event without any field, which the service must refuse (spec, Event), and return what it answers.

        No idempotency key goes along, so that no row's key is used up.
        """
        headers = {"content-type": "application/json"}
        answer = await self._exchange(self._exchange.request("POST", self._events_url, content=b"{}", headers=headers))
        if isinstance(answer, HttpAnswer):
            return interpret(answer, self._events.timing.now())
        return answer or Meaning(Kind.NOT_REACHED, Answer(0, "not_sent"))

    def expect_upload_in(self, field: str) -> None:
        """Upload images in this field of a form first, as the service's page shows it; "" where it shows none."""
        self._uploader.expect(field)

    async def upload(self, image: Image, key: str) -> int | ImageProblem:
        """Upload one image under the idempotency key `key` and return the id of its media document, or why there is none."""
        return await self._uploader.upload(image, key)

    async def _post_event(self, intent: Intent, may_leave: MayLeave) -> Meaning | None:
        headers = {"content-type": "application/json", "idempotency-key": intent.key}
        request = self._exchange.request("POST", self._events_url, content=intent.body, headers=headers)
        meaning = await self._events.ask_once(request, created_id, may_leave)
        if meaning is not None and meaning.kind is Kind.ANOTHER_HOST and meaning.answer.status in REFUSED_BY_PROXY:
            with suppress(SyncError):  # ask for something harmless: a proxy may refuse this row, another host would refuse all
                await self.classifications()
            return self._events.place(meaning)
        return meaning
