"""A service that limits, pauses or loses every answer: what leaves, what the user reads, how the next and other runs go on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from integration.desk import FEED, TITLE, Command, Desk, lines
from integration.service import Service

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


def test_a_run_that_ends_by_its_source_has_on_record_what_may_exist_several_times(desk: Desk, service: Service) -> None:
    desk.mapping(in_flight=1, max_pause="1s")
    desk.source(lines(2))
    desk.run("--stage-only", code=0)
    (desk.folder / "events.csv").unlink()
    service.switch(idempotency="ignore", faults="reset", fault_moment="after", fault_per_mille=1000)
    desk.run(code=2)
    (recorded,) = desk.books.runs()
    assert f"may exist up to {max(_possible(desk).values())} times" in recorded.message


RATE = 40
"""So low that a run meets it at full load too: two runs that do not know it yet meet it with all that is in flight."""
OF_EACH = 110
NIGHT_TITLE = '{join: [{from: TITLE}, " by night"]}'


def _answered(service: Service, after: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    requests = service.requests(after=after)
    return [one for one in requests if one["status"] == 201], [one for one in requests if one["status"] == 429]


def _two_feeds(desk: Desk, max_pause: str = "15m") -> None:
    night = {"title": NIGHT_TITLE, "zone": "Europe/London"}
    for name, feed, own in (("town.yaml", FEED, {"title": TITLE}), ("night.yaml", "night-hall", night)):
        desk.mapping(in_flight=8, max_pause=max_pause, name=name, feed=feed, **own)


def _start_both(desk: Desk) -> list[Command]:
    return [desk.start("run", feed, "--no-dagster", "--publish-only", "--json") for feed in (FEED, "night-hall")]


def _stage_both(desk: Desk) -> None:
    _two_feeds(desk)
    desk.source(lines(OF_EACH))
    for feed in (FEED, "night-hall"):
        desk.command("run", feed, "--no-dagster", "--stage-only", code=0)


def test_two_processes_share_one_limit_and_every_pause_and_send_nothing_twice(any_desk: Desk, service: Service) -> None:
    service.switch(rate_events=f"{RATE}/s", rate_burst=20)
    _stage_both(any_desk)
    assert any_desk.run("--publish-only", "--limit", "60").code in {0, 1}
    assert _answered(service, 0)[1], "the limit was not met yet"
    before = service.last_number()

    for run in _start_both(any_desk):
        run.ended(0)
    passed, limited = _answered(service, before)
    assert len({one["idempotency_key"] for one in passed}) == len(passed) == 2 * OF_EACH - 60
    assert len(limited) <= 4
    for one in limited:
        assert not [at for at in (met["at"] for met in passed) if one["at"] + 0.2 < at < one["at"] + 0.95]


def test_a_pause_that_one_run_met_is_obeyed_by_a_run_of_another_feed(any_desk: Desk, service: Service) -> None:
    service.switch(rate_events="3/m", rate_burst=3)
    _stage_both(any_desk)
    _two_feeds(any_desk, max_pause="2s")
    paused = any_desk.run("--publish-only", code=6).run
    assert (paused["outcome"], paused["publish"]["delivered"], paused["publish"]["pending"]) == ("paused", 3, OF_EACH - 3)
    before = service.last_number()

    any_desk.command("run", "night-hall", "--no-dagster", "--publish-only", "--json").assert_told(6, "run again after 20")
    assert not service.requests(after=before)
