"""A sandbox per test, in memory and in this process unless the test says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from unit.sandbox.bench import SECRET, Bench, Clock, Event, InProcess, Open

from sandbox.server import app_of
from sandbox.service import Environment, open_sandbox
from sandbox.switches import parse_switches


@pytest.fixture
def open_bench() -> Iterator[Open]:
    with ExitStack() as stack:

        def opened(*words: str, state: Path | None = None, secret: str | None = SECRET) -> Bench:
            clock = Clock()
            app = app_of(open_sandbox(state, parse_switches(words), secret, Environment(clock=clock, sleep=clock.sleep)))
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
