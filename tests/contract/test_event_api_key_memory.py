"""What bounds a row's retries: the service's memory of keys, and a 409 that says that the first attempt is under way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from unit.connectors_api.wired import Handler, Scripted, Service, answers_to, api_over, ask, created, intent, told
from unit.state.world import World, row
from virtual_time import at_once, clock

from connectors.event_api.delivery import EventApi
from connectors.retry import RetryPolicy
from mappings.delivery import Conflict, Intent, Postponed, Receipt, Uncertain, Unconfirmed, Verdict
from mappings.errors import SyncError
from pipelines.run.images import CoverImages
from pipelines.run.publish import GRACE_S, Drain

SILENCE = httpx.ReadTimeout("no answer")


def _delivered(*says: Scripted, memory_s: float, row: Intent | None = None, **policy: Any) -> tuple[Verdict, Service]:
    return answers_to(*says, row=row, policy=RetryPolicy(key_memory_s=memory_s, **policy))


def test_no_request_leaves_once_the_first_unanswered_one_may_be_forgotten() -> None:
    verdict, service = _delivered(SILENCE, memory_s=60, attempts=100, budget_s=600, first_wait_s=16)
    assert isinstance(verdict, Uncertain)
    assert service.times[-1] - service.times[0] < 60


def test_an_attempt_of_an_earlier_run_counts_from_its_own_beginning() -> None:
    row = intent(is_unanswered=True, unanswered_s=50, quiet_s=50)
    verdict, service = _delivered(SILENCE, memory_s=60, attempts=100, first_wait_s=4, row=row)
    assert isinstance(verdict, Uncertain)
    assert service.times[-1] < 10


def test_a_pause_that_outlasts_the_memory_ends_in_uncertain_without_another_request() -> None:
    limited = told(429, "rate_limited", headers={"retry-after": "300"})
    verdict, service = _delivered(SILENCE, limited, created(), memory_s=60)
    assert isinstance(verdict, Uncertain)
    assert verdict.answer.code == "key_memory"
    assert verdict.attempts == 1
    assert len(service.requests) == 2


def test_a_pause_before_the_first_request_costs_nothing() -> None:
    verdict, _ = _delivered(told(429, "rate_limited", headers={"retry-after": "300"}), created(), memory_s=60)
    assert isinstance(verdict, Receipt)


def test_a_request_that_certainly_was_not_carried_out_has_nothing_to_be_forgotten() -> None:
    verdict, _ = _delivered(*[httpx.ConnectError("refused")] * 4, created(), memory_s=1)
    assert isinstance(verdict, Receipt)
    assert verdict.copies == 1


COPIES: dict[str, tuple[Scripted, int]] = {
    "silence": (SILENCE, 2),
    "502": (told(502, "x"), 2),
    "an empty success": (httpx.Response(201), 2),
    "a limit": (told(429, "rate_limited"), 1),
    "a misdirected request": (told(421, "misdirected"), 1),
    "no connection": (httpx.ConnectError("refused"), 1),
}


@pytest.mark.parametrize(("says", "copies"), COPIES.values(), ids=COPIES.keys())
def test_only_an_attempt_that_may_have_been_carried_out_is_a_possible_copy(says: Scripted, copies: int) -> None:
    verdict, _ = _delivered(says, created(), memory_s=60)
    assert isinstance(verdict, Receipt)
    assert verdict.copies == copies


def test_a_row_that_only_ever_met_limits_is_sent_again_after_any_time_and_its_409_is_unconfirmed() -> None:
    row = replace(intent(is_unanswered=True, unanswered_s=90_000), is_limited=True)
    verdict, _ = _delivered(created(), memory_s=60, row=row)
    assert isinstance(verdict, Receipt)
    verdict, _ = _delivered(told(409, "conflict"), memory_s=60, row=row)
    assert isinstance(verdict, Unconfirmed)


def test_a_redirect_is_an_attempt_that_may_have_been_carried_out() -> None:
    verdict, _ = _delivered(httpx.Response(307, headers={"location": "https://elsewhere.example.org"}), memory_s=60)
    assert isinstance(verdict, Postponed)
    assert (verdict.is_unanswered, verdict.copies) == (True, 1)


def test_a_pause_beyond_the_patience_leaves_a_row_that_met_a_limit() -> None:
    verdict, _ = _delivered(told(429, "rate_limited", headers={"retry-after": "7200"}), memory_s=60)
    assert isinstance(verdict, Postponed)
    assert (verdict.is_unanswered, verdict.is_limited, verdict.copies) == (False, True, 0)


UNDER_WAY = told(409, "conflict", headers={"retry-after": "5"})
RESET = httpx.ReadError("connection reset")


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

    drain = Drain(world.outbox(), in_flight, GRACE_S, lambda _: None)
    await drain.publish(open_api, lambda: cast("CoverImages", NoCovers()))
    return clock(), drain.cause


@pytest.mark.parametrize("times", [4, 12])
def test_an_attempt_that_ends_well_within_the_budget_is_delivered_however_often_it_was_asked_about(times: int) -> None:
    verdict, _ = answers_to(RESET, *[UNDER_WAY] * times, created())
    assert isinstance(verdict, Receipt)


def test_an_attempt_that_came_to_nothing_is_made_again() -> None:
    verdict, _ = answers_to(RESET, *[UNDER_WAY] * 5, told(500, "internal_error"), created())
    assert isinstance(verdict, Receipt)


def _timed(answer: httpx.Response) -> tuple[Verdict, float]:
    async def timed(api: EventApi) -> tuple[Verdict, float]:
        return await api.deliver(intent(is_unanswered=True)), clock()

    return ask(Service([answer]), timed)


def test_an_attempt_that_never_ends_is_uncertain_and_not_taken_for_delivered() -> None:
    verdict, took_s = _timed(UNDER_WAY)
    assert isinstance(verdict, Uncertain)
    assert 60.0 < took_s <= 120.0


def test_a_wait_beyond_the_budget_is_left_to_a_later_run() -> None:
    verdict, took_s = _timed(told(409, "conflict", headers={"retry-after": "3600"}))
    assert isinstance(verdict, Uncertain)
    assert took_s < 1.0


def test_without_an_attempt_of_ours_it_is_a_conflict_all_the_same() -> None:
    verdict, _ = answers_to(UNDER_WAY)
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
            raise RESET
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
            raise RESET
        return UNDER_WAY if order.count("first") < 4 else created(999)

    _, cause = at_once(lambda: published(world, service, in_flight=1))
    world.engine.dispose()
    assert cause is None
    assert set(world.states().values()) == {"delivered"}
    assert order[-1] == "first"
