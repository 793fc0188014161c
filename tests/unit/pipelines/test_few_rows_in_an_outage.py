"""A drain whose few rows all met a service that is down: it is the service that is waited for, and not a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import cast

import httpx
import pytest
from unit.connectors_api.wired import api_over, created, page
from unit.state.world import World, row
from virtual_time import at_once

from connectors.errors import PausedError
from connectors.event_api.client import EventApi
from connectors.retry import RetryPolicy
from mappings.errors import SyncError, TransientError
from pipelines.publishing.covers import Covers
from pipelines.publishing.sending import PublishJob, Sending

IDS = count(1)
Answers = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "state.db")
    yield made
    made.engine.dispose()


@dataclass
class NoCovers:
    """Rows without images need no more than this."""

    problems: tuple[()] = ()

    async def close(self) -> None:
        """Hold nothing."""


def _cause(world: World, rows: int, answers: Answers) -> SyncError | None:
    """Send so many rows to a service, insisting twice, and return why the drain ended."""
    world.stage([row(str(number)) for number in range(rows)])

    async def service(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return answers(request)

    @asynccontextmanager
    async def open_api() -> AsyncIterator[EventApi]:
        api, http = api_over(service, policy=RetryPolicy(attempts=2))
        async with http:
            yield api

    async def main() -> SyncError | None:
        job = PublishJob(world.outbox(), open_api, lambda: cast("Covers", NoCovers()), 4, lambda _: None, lambda: 0.0)
        sending = Sending(job)
        await sending.run()
        return sending.drain.cause

    return at_once(main)


def test_where_no_row_got_an_answer_the_run_comes_back_later(world: World) -> None:
    cause = _cause(world, 5, lambda _: page(502))
    assert isinstance(cause, TransientError)
    assert "6 attempts in a row" in str(cause)


def test_where_the_service_names_a_far_hour_the_run_says_when_to_come_back(world: World) -> None:
    cause = _cause(world, 3, lambda _: page(503, **{"retry-after": "7200"}))
    assert isinstance(cause, PausedError)


def test_a_row_that_the_service_cannot_digest_beside_delivered_ones_is_a_persons(world: World) -> None:
    assert _cause(world, 6, lambda request: page(500) if b"Title of 3" in request.content else created(next(IDS))) is None


def test_a_lonely_row_that_the_service_cannot_digest_is_a_persons(world: World) -> None:
    assert _cause(world, 1, lambda _: page(500)) is None
