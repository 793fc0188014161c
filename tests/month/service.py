"""The sandbox on loopback in the simulated time, behind a door that can be shut, or keep answers back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import closing, contextmanager
from datetime import datetime
from email.utils import formatdate
from time import monotonic
from typing import Any

from integration.service import Service as Sandbox
from integration.waiting import DEADLINE_S
from lookalikes.threaded import app_served
from month.worker import MonthClock
from starlette.responses import Response

from sandbox.answers import ApiError
from sandbox.server import app_of
from sandbox.service import Environment, open_sandbox
from sandbox.switches import parse_switches

SECRET = "sk-month-4tYq8Zw2Lm-0042"
MEMORY_S = 2 * 86_400
"""How long the service remembers a key, in its own time: twice as long as the feed trusts it to."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]


class Service(Sandbox):
    """One service. It is away until `back_at`; of its answers to new events only `room` more get out, None for all."""

    def __init__(self, clock: MonthClock) -> None:
        super().__init__()
        self._clock = clock
        around = Environment(clock=lambda: clock.now().timestamp())
        self.sandbox = open_sandbox(None, parse_switches([f"idempotency_memory_s={MEMORY_S}"]), SECRET, around)
        self._app = app_of(self.sandbox)
        self.back_at: datetime | None = None
        self.room: int | None = None
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def late(message: Scope) -> None:
            if message["type"] == "http.response.start":
                await self._wait_for_room()
            await send(message)

        if scope["type"] == "http" and self.back_at is not None and self._clock.now() < self.back_at:
            await _away(self._clock.now(), self.back_at)(scope, receive, send)
        else:
            is_held = scope["type"] == "http" and scope["method"] == "POST" and scope["path"].endswith("/v1/events")
            await self._app(scope, receive, late if is_held else send)

    def hold_after(self, answers: int) -> None:
        """Let so many answers out, and keep those of all further events back, whose work is done all the same."""
        self.room, self.held = answers, 0

    def let_out(self) -> None:
        self.room = None

    async def _wait_for_room(self) -> None:
        if self.room is not None and self.room > 0:
            self.room -= 1
            return
        self.held += self.room is not None
        late_at = monotonic() + DEADLINE_S
        while self.room is not None and monotonic() < late_at:  # noqa: ASYNC110  # another thread lets them out
            await asyncio.sleep(0.01)
        self.let_out()  # or whoever should have done so waits for an answer itself


def _away(now: datetime, until_then: datetime) -> Response:
    refusal = ApiError("internal_error", "The service is being rebuilt.", status=503).answer("req_away")
    date, then = (formatdate(at.timestamp(), usegmt=True) for at in (now, until_then))
    return Response(refusal.body, refusal.status, {"Date": date, "Retry-After": then}, refusal.media_type)


@contextmanager
def serving(clock: MonthClock) -> Iterator[Service]:
    service = Service(clock)
    with closing(service.sandbox), app_served(service, date_header=False) as service.base_url:
        try:
            yield service
        finally:
            service.let_out()
