"""A service that answers from a script, and a client wired to it on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import httpx
from pydantic import SecretStr
from virtual_time import at_once, clock, now

from connectors.concurrency_limit import ConcurrencyLimit
from connectors.event_api.answers import AnswerKind, HttpAnswer
from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import Request, ServiceHttp, WireError, open_http
from connectors.rate_limit import RateLimiter
from connectors.retry import RetryPolicy, Timing
from mappings.delivery import Intent, Verdict
from mappings.row_key import IdempotencyKey, RowKey

T = TypeVar("T")
SECRET = "sk_live_9f8e7d6c5b4a_last"


def intent(number: int = 1, **known: Any) -> Intent:
    """A row to send; `known`: what the ledger knows of its earlier attempts."""
    key, body = IdempotencyKey(f"es1-{number:032x}"), b'{"title":"Kammermusik \xc3\xbcber den D\xc3\xa4chern"}'
    return Intent(entry_id=number, row_key=RowKey(f"row {number}"), key=key, body=body, channel_id=7, **known)


def created(event_id: int = 41) -> httpx.Response:
    return httpx.Response(201, json={"doc": {"id": event_id, "title": "An evening"}})


def told(
    status: int, code: str, *, request_id: str = "req_1", headers: dict[str, str] | None = None, **details: str
) -> httpx.Response:
    error = {"code": code, "message": f"{code} it is", "requestId": request_id, "details": details}
    return httpx.Response(status, json={"error": error}, headers=headers)


def page(status: int, html: str = "<html><title>nginx</title></html>", **headers: str) -> httpx.Response:
    return httpx.Response(status, content=html.encode(), headers={"content-type": "text/html"} | headers)


Scripted = httpx.Response | Exception


@dataclass
class Service:
    """Answers each request with the next scripted answer, for ever with the last one; remembers all that arrived."""

    answers: Iterable[Scripted]
    requests: list[httpx.Request] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._script = list(self.answers)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.times.append(clock())
        answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


Handler = Callable[[httpx.Request], Awaitable[httpx.Response] | httpx.Response]


@dataclass
class HandlerWire:
    """A wire to a handler in this process. Only an error of connecting means that nothing was sent."""

    handler: Handler
    renewed: int = 0

    def now_s(self) -> float:
        return 0.0

    async def send(
        self,
        request: Request,
        *,
        since_s: float | None = None,  # noqa: ARG002  # no process is suspended here
        within_s: float = 90.0,
        longest: int = 1 << 30,
    ) -> HttpAnswer:
        asked = httpx.Request(request.method, str(request.url), headers=dict(request.headers), content=request.content)
        try:
            async with asyncio.timeout(within_s):
                answer = self.handler(asked)
                answer = answer if isinstance(answer, httpx.Response) else await answer
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as failure:
            raise WireError(AnswerKind.NOT_REACHED, "no_connection", str(failure)) from failure
        except (httpx.TimeoutException, TimeoutError) as failure:
            raise WireError(AnswerKind.LOST, "timeout", "no whole answer in time") from failure
        except httpx.RequestError as failure:
            raise WireError(AnswerKind.LOST, "connection_lost", str(failure)) from failure
        body = await answer.aread()
        return HttpAnswer(answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, body[:longest])

    def renew(self) -> None:
        self.renewed += 1

    async def aclose(self) -> None:
        """Nothing is open."""


def api_over(
    handler: Handler, *, policy: RetryPolicy | None = None, max_pause_s: float = 900.0, **opened: Any
) -> tuple[EventApi, ServiceHttp]:
    """Wire the client to `handler`, on the running loop's time, with waits drawn at their longest."""
    http = open_http("https://events.example.org", SecretStr(SECRET), wire=HandlerWire(handler), **opened)
    limiter = RateLimiter(Timing(clock, asyncio.sleep, lambda: 1.0, now), max_pause_s=max_pause_s)
    api = EventApi(http, limiter=limiter, policy=policy or RetryPolicy())
    return api, http


def ask(handler: Handler, question: Callable[[EventApi], Awaitable[T]], **wired: Any) -> T:
    """Put a question to the client over `handler`, on virtual time."""

    async def main() -> T:
        api, http = api_over(handler, **wired)
        async with http:
            return await question(api)

    return at_once(main)


def deliver(handler: Handler, *rows: Intent, **wired: Any) -> list[Verdict]:
    """Deliver the rows one after the other."""

    async def one_by_one(api: EventApi) -> list[Verdict]:
        return [await api.deliver(row) for row in rows]

    return ask(handler, one_by_one, **wired)


def answers_to(*says: Scripted, row: Intent | None = None, **wired: Any) -> tuple[Verdict, Service]:
    """Deliver one row to a service that answers from this script."""
    service = Service(says)
    (verdict,) = deliver(service, row or intent(), **wired)
    return verdict, service


def deliver_for_a_minute(handler: Handler, *, in_flight: int) -> None:
    """Keep so many rows in flight, whatever becomes of them."""
    numbers = count(1)

    async def drive(api: EventApi) -> None:
        api.limiter.concurrency = ConcurrencyLimit(in_flight)

        async def work() -> None:
            while clock() < 60:
                await api.deliver(intent(number=next(numbers)))

        await asyncio.gather(*(work() for _ in range(in_flight)))

    ask(handler, drive)
