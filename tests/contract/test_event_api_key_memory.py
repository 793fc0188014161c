"""The service's memory of keys bounds every retry: a request under a forgotten key would create the event again."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from unit.connectors_api.wired import Scripted, Service, api_over, created, intent, told
from virtual_time import at_once

from connectors.retry import RetryPolicy
from mappings.delivery import Intent, Postponed, Receipt, Uncertain, Unconfirmed, Verdict

SILENCE = httpx.ReadTimeout("no answer")


def _delivered(*says: Scripted, memory_s: float, row: Intent | None = None, **policy: float) -> tuple[Verdict, Service]:
    service = Service(says)

    async def main() -> Verdict:
        api, http = api_over(service, policy=RetryPolicy(key_memory_s=memory_s, **policy))  # type: ignore[arg-type]
        async with http:
            return await api.deliver(row or intent())

    return at_once(main), service


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


@pytest.mark.parametrize("says", [SILENCE, told(502, "x"), httpx.Response(201)], ids=["silence", "502", "an empty success"])
def test_each_attempt_that_may_have_been_carried_out_is_a_possible_copy(says: Scripted) -> None:
    verdict, _ = _delivered(says, created(), memory_s=60)
    assert isinstance(verdict, Receipt)
    assert verdict.copies == 2


@pytest.mark.parametrize("says", [told(429, "rate_limited"), told(421, "misdirected"), httpx.ConnectError("refused")])
def test_an_attempt_that_met_a_limit_or_reached_nobody_is_no_possible_copy(says: Scripted) -> None:
    verdict, _ = _delivered(says, created(), memory_s=60)
    assert isinstance(verdict, Receipt)
    assert verdict.copies == 1


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
