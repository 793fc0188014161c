"""Two runs of one feed: the second says who is at work and since when, or waits for it, and no row is sent twice."""

from __future__ import annotations

import pytest
from integration.desk import Desk, lines
from integration.service import Service
from integration.waiting import until

pytestmark = pytest.mark.slow


def test_a_second_run_leaves_and_says_who_holds_the_feed(desk: Desk, service: Service) -> None:
    service.switch(latency_ms=100)
    desk.source(lines(200))
    first = desk.start_run()
    until(service.requests)
    second = desk.run()
    status = desk.command("status", "--json").document["feeds"][0]
    said = first.ended()

    assert second.code == 4, second.words
    assert said.run["run_id"] in second.run["message"], "the holder is named"
    assert f"process {first.pid} on " in second.run["message"]
    assert "since 20" in second.run["message"]
    assert "--wait" in second.run["hint"]
    assert said.run["run_id"] in status["lease"]["name"]
    assert said.code == 0, said.words
    assert len(service.events()) == 200


def test_a_patient_run_waits_for_the_first_and_finds_all_done(desk: Desk, service: Service) -> None:
    service.switch(latency_ms=50)
    desk.source(lines(200))
    first = desk.start_run()
    until(service.requests)
    second = desk.start_run("--wait")
    assert first.ended().code == 0
    said = second.ended()

    assert said.code == 0, said.words
    assert said.run["read"]["unchanged"] == 200
    assert len(service.requests()) == 200


def test_a_killed_runs_lease_does_not_keep_the_next_one_out(desk: Desk, service: Service) -> None:
    service.switch(latency_ms=50)
    desk.source(lines(100))
    first = desk.start_run()
    until(service.requests)
    first.kill()
    said = desk.run()

    assert said.code == 0, said.words
    assert len(service.events()) == 100
