"""The service as a test sees it: a client without a socket, a clock that is set by hand, the admin door beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette

SECRET = "sandbox-secret-for-tests-4321"
API = "/api/public/v1/"
EVENTS, MEDIA = f"{API}events", f"{API}media"
READER, STARTER = "sandbox-key-reader", "sandbox-key-starter"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@dataclass
class Clock:
    now: float = 1_800_000_000.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


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
        extra = {"Idempotency-Key": key} if key else {}
        return self.http.post(EVENTS, json=payload, headers={**extra, **_as(secret), **headers})

    def get(self, path: str, secret: str = "", **params: object) -> httpx.Response:
        return self.http.get(API + path, params=params or None, headers=_as(secret))  # type: ignore[arg-type]  # numbers and texts

    def upload(self, image: bytes, declared: str = "image/png", secret: str = "", key: str = "") -> httpx.Response:
        """Send an image as it is."""
        extra = {"Idempotency-Key": key} if key else {}
        return self.http.post(MEDIA, content=image, headers={"Content-Type": declared, **extra, **_as(secret)})

    def form(self, image: bytes, field: str = "file", key: str = "") -> httpx.Response:
        return self.http.post(MEDIA, files={field: ("cover.bin", image)}, headers={"Idempotency-Key": key} if key else {})

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
        """The page of the channel that events are created in."""
        answer = self.http.get(f"/channels/city-agenda{query}")
        assert answer.status_code == 200
        return answer.text

    def close(self) -> None:
        self.app.state.sandbox.close()


def _as(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of an error envelope."""
    error = answer.json()["error"]
    assert set(error) <= {"code", "message", "requestId", "details"}
    assert error["message"]
    assert error["requestId"].startswith("req_")
    return answer.status_code, error["code"]


Open = Callable[..., Bench]
Event = dict[str, Any]
