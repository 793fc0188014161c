"""A 409 that names a time to ask again: the earlier attempt is still under way, and nobody knows yet what comes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import httpx
import pytest
from unit.connectors_api.wired import Handler, Scripted, Service, api_over, created, intent, told
from unit.state.world import World, row
from virtual_time import at_once, clock

from connectors.event_api.client import EventApi
from connectors.retry import RetryPolicy
from mappings.delivery import Conflict, Intent, Receipt, Uncertain, Verdict
from mappings.errors import SyncError
from pipelines.run.images import CoverImages
from pipelines.run.publish import Publisher, PublishJob

UNDER_WAY = told(409, "conflict", headers={"retry-after": "5"})
BROKEN = httpx.ReadError("connection reset")


def _verdict(*answers: Scripted, row: Intent | None = None) -> tuple[Verdict, float]:
    async def main() -> tuple[Verdict, float]:
        api, http = api_over(Service(answers))
        async with http:
            return await api.deliver(row or intent()), clock()

    return at_once(main)


class NoCovers:
    """Rows without images need no more than this."""

    problems: tuple[()] = ()

    async def close(self) -> None:
        """Hold nothing."""


async def published(world: World, service: Handler, *, in_flight: int) -> tuple[float, SyncError | None]:
    """Send all that a ledger owes; return how long it took, and why it ended early, if it did."""

    @asynccontextmanager
    async def open_api(_passage: object) -> AsyncIterator[EventApi]:
        api, http = api_over(service)
        async with http:
            yield api

    job = PublishJob(world.outbox(), open_api, lambda: cast("CoverImages", NoCovers()), in_flight, lambda _: None, clock)
    sending = Publisher(job)
    await sending.run()
    return clock(), sending.drain.cause


@pytest.mark.parametrize("times", [4, 12])
def test_an_attempt_that_ends_well_within_the_budget_is_delivered_however_often_it_was_asked_about(times: int) -> None:
    verdict, _ = _verdict(BROKEN, *[UNDER_WAY] * times, created())
    assert isinstance(verdict, Receipt)


def test_an_attempt_that_came_to_nothing_is_made_again() -> None:
    verdict, _ = _verdict(BROKEN, *[UNDER_WAY] * 5, told(500, "internal_error"), created())
    assert isinstance(verdict, Receipt)


def test_an_attempt_that_never_ends_is_uncertain_and_not_taken_for_delivered() -> None:
    verdict, took_s = _verdict(UNDER_WAY, row=intent(is_unanswered=True))
    assert isinstance(verdict, Uncertain)
    assert 60.0 < took_s <= 120.0


def test_a_wait_beyond_the_budget_is_left_to_a_later_run() -> None:
    verdict, took_s = _verdict(told(409, "conflict", headers={"retry-after": "3600"}), row=intent(is_unanswered=True))
    assert isinstance(verdict, Uncertain)
    assert took_s < 1.0


def test_without_an_attempt_of_ours_it_is_a_conflict_all_the_same() -> None:
    verdict, _ = _verdict(UNDER_WAY)
    assert isinstance(verdict, Conflict)


@pytest.mark.parametrize("rows", [1, 24])
def test_rows_whose_first_answers_were_lost_wait_for_their_409_side_by_side(rows: int, tmp_path: Path) -> None:
    """Each is asked about for as long as its lost attempt may be at work; none of them holds a slot meanwhile."""
    world, seen = World(tmp_path / "state.db"), set[str]()
    world.stage([row(str(number)) for number in range(rows)])

    async def service(request: httpx.Request) -> httpx.Response:
        key = request.headers["idempotency-key"]
        if key not in seen:
            seen.add(key)
            raise BROKEN
        return told(409, "conflict")

    took_s, cause = at_once(lambda: published(world, service, in_flight=4))
    world.engine.dispose()
    assert cause is None
    assert set(world.states().values()) == {"delivered_unconfirmed"}
    assert took_s < RetryPolicy().at_work_s + 15


def test_other_rows_go_on_while_a_row_waits_for_its_409(tmp_path: Path) -> None:
    world, order = World(tmp_path / "state.db"), list[str]()
    world.stage([row(str(number)) for number in range(20)])

    async def service(request: httpx.Request) -> httpx.Response:
        is_first = b"Title of 0" in request.content
        order.append("first" if is_first else "other")
        if not is_first:
            return created(len(order))
        if order.count("first") == 1:
            raise BROKEN
        return UNDER_WAY if order.count("first") < 4 else created(999)

    _, cause = at_once(lambda: published(world, service, in_flight=1))
    world.engine.dispose()
    assert cause is None
    assert set(world.states().values()) == {"delivered"}
    assert order[-1] == "first"
