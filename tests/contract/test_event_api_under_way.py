"""A 409 that names a time to ask again: the earlier attempt is still under way, and nobody knows yet what comes of it."""

from __future__ import annotations

import httpx
import pytest
from unit.connectors_api.wired import Scripted, Service, api_over, created, intent, told
from virtual_time import at_once, clock

from mappings.delivery import Conflict, Intent, Receipt, Uncertain, Verdict

UNDER_WAY = told(409, "conflict", headers={"retry-after": "5"})
BROKEN = httpx.ReadError("connection reset")


def _verdict(*answers: Scripted, row: Intent | None = None) -> tuple[Verdict, float]:
    async def main() -> tuple[Verdict, float]:
        api, http = api_over(Service(answers))
        async with http:
            return await api.deliver(row or intent()), clock()

    return at_once(main)


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
