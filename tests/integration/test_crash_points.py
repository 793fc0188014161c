"""Whatever kills a run, the next one goes on: every row becomes one event, under one key, with one body."""

from __future__ import annotations

import signal

import pytest
from integration.desk import Desk, evenings, lines, mid_way
from integration.service import Service

ROWS = 2_300  # staged in more chunks than one
IN_FLIGHT = 16

pytestmark = pytest.mark.slow


def test_a_service_that_ignores_keys_sees_no_more_twice_than_were_in_flight(any_desk: Desk, service: Service) -> None:
    service.switch(idempotency="ignore")
    assert mid_way(any_desk, service, 300, after=100, latency_ms=100).kill().code == -signal.SIGKILL
    service.switch(latency_ms=0)
    any_desk.run(code=0)
    assert {*service.titles()} == {*evenings(300)}
    assert len(service.events()) <= 300 + IN_FLIGHT


def test_a_mapping_that_was_edited_after_a_crash_changes_only_what_was_never_sent(desk: Desk, service: Service) -> None:
    assert mid_way(desk, service, ROWS, after=ROWS // 3, latency_ms=10).kill().code == -signal.SIGKILL
    sent = service.bodies()
    service.switch(latency_ms=0)

    desk.mapping(title="{join: [Festival, {from: TITLE, do: [collapse]}], with: ': '}")
    desk.run(code=0)

    assert not [request for request in service.requests() if request["status"] == 409]
    assert {len(bodies) for bodies in service.bodies().values()} == {1}
    events = service.events()
    assert len(events) == ROWS
    first = [event["title"] for event in events if event["idempotencyKey"] in sent]
    later = [event["title"] for event in events if event["idempotencyKey"] not in sent]
    assert all(title.startswith("Evening ") for title in first)
    assert 0 < len(later) <= ROWS - len(sent)
    # A row whose claim was written down before the kill, while its request had not left yet, counts as sent.
    kept = [title for title in later if title.startswith("Evening ")]
    assert len(kept) <= IN_FLIGHT
    assert len({title.removeprefix("Festival: ") for title in first + later}) == ROWS


def test_an_empty_state_db_leads_to_the_same_keys_and_no_event_twice(any_desk: Desk, service: Service) -> None:
    any_desk.run_with(lines(ROWS), code=0)
    first = service.bodies().keys()
    any_desk.forget()
    assert any_desk.run(code=0).run["publish"]["delivered"] == ROWS
    assert len(service.events()) == ROWS
    assert service.bodies().keys() == first
    assert service.outcomes() == {"created": ROWS, "replayed": ROWS}
