"""A loop whose time jumps instead of passing, and a service that answers from a script: what these tests are wired to.

No claim about the worker stands here; those are the tests'.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import httpx
from pydantic import SecretStr

from connectors.event_api.client import EventApi
from connectors.event_api.http import ServiceHttp, open_http
from connectors.pacing import Pacer
from connectors.pauses import Patience
from connectors.retry import RetryPolicy
from mappings.delivery import Intent
from mappings.vocabulary import IdempotencyKey, RowKey

T = TypeVar("T")
SECRET = "sk_live_9f8e7d6c5b4a_last"
EPOCH = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class _Jumping(selectors.DefaultSelector):
    jumped = 0.0
    threads_at_work = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.threads_at_work:  # they take real time, and wake the loop when they are done
            return super().select(timeout)
        ready = super().select(0)
        if not ready and timeout:
            self.jumped += timeout
        return ready


class InstantLoop(asyncio.SelectorEventLoop):
    """Sleeping takes no time and moves the clock, so that hours of waiting are tested in milliseconds."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.jumped

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # any will do
        future = super().run_in_executor(executor, func, *args)
        self._jumping.threads_at_work += 1
        future.add_done_callback(self._is_done)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109  # from Python 3.12 on
        """Wait for its threads without a limit: the runner's would be over at once."""
        await super().shutdown_default_executor()

    def _is_done(self, _: object) -> None:
        self._jumping.threads_at_work -= 1


def at_once(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main` on a loop whose time jumps."""

    async def run() -> T:
        return await main()

    with asyncio.Runner(loop_factory=InstantLoop) as runner:
        return runner.run(run())


def clock() -> float:
    return asyncio.get_running_loop().time()


def now() -> datetime:
    return EPOCH + timedelta(seconds=clock())


def intent(
    *,
    is_unanswered: bool = False,
    refused_request_id: str = "",
    number: int = 1,
    unanswered_s: float = 0.0,
    quiet_s: float = 0.0,
) -> Intent:
    return Intent(
        entry_id=number,
        row_key=RowKey(f"row {number}"),
        key=IdempotencyKey(f"es1-{number:032x}"),
        body=b'{"title":"Kammermusik \xc3\xbcber den D\xc3\xa4chern"}',
        channel_id=7,
        is_unanswered=is_unanswered,
        refused_request_id=refused_request_id,
        unanswered_s=unanswered_s,
        quiet_s=quiet_s,
    )


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


Handler = Callable[[httpx.Request], Awaitable[httpx.Response]]


def api_over(
    handler: Handler, *, policy: RetryPolicy | None = None, patience: Patience | None = None, **opened: Any
) -> tuple[EventApi, ServiceHttp]:
    """Wire the client to `handler`, on the running loop's time, with waits drawn at their longest."""
    http = open_http("https://events.example.org", SecretStr(SECRET), transport=httpx.MockTransport(handler), **opened)
    pacer = Pacer(clock=clock, sleep=asyncio.sleep, random=lambda: 1.0, now=now, patience=patience)
    api = EventApi(http, pacer=pacer, policy=policy or RetryPolicy(), now=now, sleep=asyncio.sleep, random=lambda: 1.0)
    return api, http
