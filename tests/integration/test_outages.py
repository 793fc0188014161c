"""A service that loses every answer: how many requests leave, what the user reads, how the next runs begin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from integration.desk import Desk, lines
from integration.service import Service

ROWS, IN_FLIGHT, ATTEMPTS = 24, 4, 6
LOST = {"faults": "reset", "fault_moment": "after", "fault_per_mille": 1000}

pytestmark = pytest.mark.slow


@pytest.fixture
def outage(desk: Desk, service: Service) -> Iterator[Desk]:
    """A feed of 24 rows whose service does its work, loses every answer and ignores keys."""
    desk.mapping(in_flight=IN_FLIGHT, max_pause="1s")
    desk.source(lines(ROWS))
    service.switch(idempotency="ignore", **LOST)
    yield desk
    service.switch(idempotency="replay", fault_per_mille=0)


def _possible(desk: Desk) -> dict[str, int]:
    """How many events of each row may exist, by title, as the command says."""
    return {row["event"]["title"]: row["copies"] for row in desk.rows("resent")}


def test_an_outage_costs_few_requests_and_the_run_after_it_sends_one_row_first(outage: Desk, service: Service) -> None:
    said = outage.run(code=6)
    assert "no usable answer" in said.words
    first, possible = Counter(service.titles()), _possible(outage)
    assert first.total() <= IN_FLIGHT + 1 + ATTEMPTS
    assert {title: count for title, count in first.items() if count > 1} == possible
    assert f"may exist up to {max(possible.values())} times" in said.words

    said = outage.run(code=6)
    second = Counter(service.titles()) - first
    assert len(second) == 1
    assert second.keys().isdisjoint(first), "a row that was never sent goes first"
    assert second.total() == ATTEMPTS

    service.switch(fault_per_mille=0)
    said = outage.run(code=0)
    events, possible = Counter(service.titles()), _possible(outage)
    assert len(events) == ROWS, "no row is lost"
    assert {title: count for title, count in events.items() if count > 1} == possible
    assert events.total() == first.total() + ATTEMPTS + ROWS
