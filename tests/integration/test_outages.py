"""A service that limits, pauses or loses every answer: what leaves, what the user reads, how the next runs begin."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from integration.desk import Desk, evenings, lines
from integration.service import Service
from integration.waiting import until

ROWS, IN_FLIGHT, ATTEMPTS = 24, 4, 6

pytestmark = pytest.mark.slow


def _possible(desk: Desk) -> dict[str, int]:
    """How many events of each row may exist, by title, as the command says."""
    return {row["event"]["title"]: row["copies"] for row in desk.rows("resent")}


def test_an_outage_costs_few_requests_and_the_run_after_it_sends_one_row_first(desk: Desk, service: Service) -> None:
    desk.mapping(in_flight=IN_FLIGHT, max_pause="1s")
    desk.source(lines(ROWS))
    service.switch(idempotency="ignore", faults="reset", fault_moment="after", fault_per_mille=1000)
    said = desk.run(code=6)
    assert "no usable answer" in said.words
    first, possible = Counter(service.titles()), _possible(desk)
    assert first.total() <= IN_FLIGHT + 1 + ATTEMPTS
    assert {title: count for title, count in first.items() if count > 1} == possible
    assert f"may exist up to {max(possible.values())} times" in said.words

    desk.run(code=6)
    second = Counter(service.titles()) - first
    assert len(second) == 1
    assert second.keys().isdisjoint(first), "a row that was never sent goes first"
    assert second.total() == ATTEMPTS

    service.switch(fault_per_mille=0)
    desk.run(code=0)
    events = Counter(service.titles())
    assert len(events) == ROWS, "no row is lost"
    assert {title: count for title, count in events.items() if count > 1} == _possible(desk)
    assert events.total() == first.total() + ATTEMPTS + ROWS


@pytest.mark.slow(about_s=15)
def test_a_pause_longer_than_the_feeds_patience_ends_the_run_and_says_when_to_come_back(desk: Desk, service: Service) -> None:
    service.switch(rate_events="6/m", rate_burst=5)
    desk.mapping(in_flight=1, max_pause="2s")
    desk.source(lines(20))
    said = desk.run(code=6)
    assert said.run["outcome"] == "paused"
    assert said.run["publish"] | {"delivered": 5, "pending": 15} == said.run["publish"]
    (named,) = re.findall(r"run again after (20\S+ \S+) UTC", said.run["hint"])

    asked = service.last_number()
    assert desk.run().code == 6, "a pause that still lasts is the next run's, too"
    assert not [one for one in service.requests(after=asked) if one["status"] != 201]
    service.switch(rate_events="off")
    over = datetime.fromisoformat(named).replace(tzinfo=UTC) + timedelta(seconds=1)
    until(lambda: datetime.now(UTC) > over, what="the moment that the hint names")  # noqa: TID251  # what people would look at
    desk.run(code=0)
    assert service.titles() == evenings(20)
