"""A sandbox per test without a socket, in memory unless the test says otherwise; its clock is set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from sandbox.server import app_of
from sandbox.service import Environment, open_sandbox
from sandbox.switches import parse_switches

API = "/api/public/v1/"
EVENTS, MEDIA = f"{API}events", f"{API}media"
READER, STARTER = "sandbox-key-reader", "sandbox-key-starter"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@dataclass
class Clock:
    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class InProcess(httpx.BaseTransport):
    """An application without a socket, driven by an event loop of its own."""

    def __init__(self, app: Starlette, client: tuple[str, int] = ("127.0.0.1", 40_000)) -> None:
        self._app = httpx.ASGITransport(app, client=client)
        self._loop = asyncio.Runner()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._loop.run(self._exchange(request))

    async def _exchange(self, request: httpx.Request) -> httpx.Response:
        answer = await self._app.handle_async_request(request)
        return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())

    def close(self) -> None:
        self._loop.close()


@dataclass
class Bench:
    http: httpx.Client
    clock: Clock
    app: Starlette

    def create(self, payload: object, *, key: str = "", secret: str = "", **headers: str) -> httpx.Response:
        return self.http.post(EVENTS, json=payload, headers=_headers(secret, key) | headers)

    def get(self, path: str, secret: str = "", **params: object) -> httpx.Response:
        return self.http.get(API + path, params=params or None, headers=_headers(secret))  # type: ignore[arg-type]  # any

    def upload(self, image: bytes, declared: str = "image/png", secret: str = "", key: str = "") -> httpx.Response:
        return self.http.post(MEDIA, content=image, headers={"Content-Type": declared} | _headers(secret, key))

    def form(self, image: bytes, field: str = "file", key: str = "") -> httpx.Response:
        return self.http.post(MEDIA, files={field: ("cover.bin", image)}, headers=_headers(key=key))

    def switch(self, **switches: object) -> None:
        self.admin("switches", switches)

    def admin(self, path: str, wishes: object) -> Any:
        answer = self.http.post(f"/_sandbox/{path}", json=wishes)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def allow(self, channel: str, *, allowed: bool) -> None:
        self.admin("channels/access", {"channel": channel, "allowed": allowed})

    def stored(self) -> list[dict[str, Any]]:
        return list(self.http.get("/_sandbox/events").json()["events"])

    def requests(self, route: str = "events") -> list[dict[str, Any]]:
        return list(self.http.get("/_sandbox/requests", params={"route": route}).json()["requests"])

    def agenda(self, query: str = "") -> str:
        answer = self.http.get(f"/channels/city-agenda{query}")
        assert answer.status_code == 200
        return answer.text

    def close(self) -> None:
        self.app.state.sandbox.close()


def _headers(secret: str = "", key: str = "") -> dict[str, str]:
    return ({"Authorization": f"Bearer {secret}"} if secret else {}) | ({"Idempotency-Key": key} if key else {})


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of an error envelope."""
    error = answer.json()["error"]
    assert set(error) <= {"code", "message", "requestId", "details"}
    assert error["message"]
    assert error["requestId"].startswith("req_")
    return answer.status_code, error["code"]


Open = Callable[..., Bench]
Event = dict[str, Any]


@pytest.fixture
def open_bench() -> Iterator[Open]:
    with ExitStack() as stack:

        def opened(*words: str, state: Path | None = None, secret: str | None = "a-secret") -> Bench:
            clock = Clock()
            app = app_of(open_sandbox(state, parse_switches(words), secret, Environment(clock=clock)))
            stack.callback(app.state.sandbox.close)
            http = stack.enter_context(httpx.Client(transport=InProcess(app), base_url="http://127.0.0.1"))
            http.headers["Authorization"] = f"Bearer {app.state.sandbox.api_key}"
            return Bench(http, clock, app)

        yield opened


@pytest.fixture
def bench(open_bench: Open) -> Bench:
    return open_bench()


@pytest.fixture
def event() -> Event:
    return {
        "channelId": 101,
        "title": "Jazz & blues",
        "startAt": "2026-05-01T19:30:00+02:00",
        "endAt": "2026-05-01T22:00:00+02:00",
        "timezone": "Europe/Warsaw",
        "status": "published",
        "classifications": ["music"],
        "approxLocation": {"city": {"placeId": "krk", "name": "Kraków", "countryCode": "PL"}},
        "locationName": "Piec Art",
        "offers": [{"name": "Tickets", "url": "https://tickets.example/1", "availability": "available"}],
    }
