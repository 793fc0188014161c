"""A drain whose few rows all met a service that is down: it is the service that is waited for, and not a person."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import cast

import httpx
import pytest
from unit.connectors_api.wired import api_over, created, page, told
from unit.state.world import World, row
from virtual_time import at_once

from connectors.errors import OutageError, PausedError
from connectors.event_api.client import EventApi
from connectors.retry import RetryPolicy
from mappings.errors import SyncError, TransientError
from pipelines.run.images import CoverImages
from pipelines.run.publish import Publisher, PublishJob

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


def _cause(world: World, rows: int, answers: Answers, *, in_flight: int = 4, attempts: int = 2) -> SyncError | None:
    """Send so many rows to a service, insisting so often, and return why the drain ended."""
    world.stage([row(str(number)) for number in range(rows)])

    async def service(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return answers(request)

    @asynccontextmanager
    async def open_api(_passage: object) -> AsyncIterator[EventApi]:
        api, http = api_over(service, policy=RetryPolicy(attempts=attempts))
        async with http:
            yield api

    async def main() -> SyncError | None:
        job = PublishJob(
            world.outbox(), open_api, lambda: cast("CoverImages", NoCovers()), in_flight, lambda _: None, lambda: 0.0
        )
        sending = Publisher(job)
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


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_a_row_that_the_service_never_answers_stops_no_other_row(world: World, in_flight: int) -> None:
    def answers(request: httpx.Request) -> httpx.Response:
        return page(500) if b"Title of 3" in request.content else created(next(IDS))

    assert _cause(world, 8, answers, in_flight=in_flight, attempts=6) is None
    assert Counter(world.states().values()) == {"delivered": 7, "uncertain": 1}


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_rows_that_no_service_digests_are_not_what_every_run_begins_with(world: World, in_flight: int) -> None:
    def answers(request: httpx.Request) -> httpx.Response:
        return page(500) if any(b'Title of %d"' % number in request.content for number in range(4)) else created(next(IDS))

    assert isinstance(_cause(world, 12, answers, in_flight=in_flight, attempts=6), OutageError)
    world.clock.turn(minutes=5)
    for _ in range(4):
        _cause(world, 12, answers, in_flight=in_flight, attempts=6)
    assert Counter(world.states().values())["delivered"] == 8


def test_an_outage_costs_slots_one_more_and_the_attempts_of_one_row(world: World) -> None:
    sent: Counter[str] = Counter()

    def answers(request: httpx.Request) -> httpx.Response:
        sent[request.headers["idempotency-key"]] += 1
        return page(502)

    assert isinstance(_cause(world, 24, answers, attempts=6), OutageError)
    assert sent.total() <= 4 + 1 + 6
    assert sorted(sent.values())[:-1] == [1, 1, 2]
    states = world.states()
    assert Counter(states.values()) == {"pending": 23, "uncertain": 1}
    assert sum(world.known(key).copies for key in states) == sent.total()


def test_a_run_after_an_outage_sends_one_row_first_even_if_a_run_between_was_killed(world: World) -> None:
    _cause(world, 24, lambda _: page(502))
    world.run()
    world.crash()
    sent: list[str] = []

    def answers(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["idempotency-key"])
        return page(502)

    assert isinstance(_cause(world, 24, answers), OutageError)
    assert len(set(sent)) == 1
    assert _cause(world, 24, lambda _: created(next(IDS))) is None
    assert set(world.states().values()) == {"delivered"}
    assert world.outbox().stopped_by == ""


def test_failures_that_the_service_keeps_under_the_keys_of_their_rows_are_no_outage(world: World) -> None:
    def answers(request: httpx.Request) -> httpx.Response:
        return told(500, "internal_error", request_id=f"of {request.headers['idempotency-key']}")

    assert _cause(world, 12, answers, attempts=6) is None
    assert set(world.states().values()) == {"uncertain"}


def test_a_gateway_that_gives_every_failure_one_request_id_is_an_outage(world: World) -> None:
    failure = told(500, "internal_error", request_id="of a gateway")
    assert isinstance(_cause(world, 12, lambda _: failure, attempts=6), OutageError)
