"""Two runs of two feeds at once, each a process of its own, under one limit that neither knows: they share it, and its pauses."""

from __future__ import annotations

from typing import Any

import pytest
from integration.desk import FEED, Desk, lines
from integration.service import Service
from integration.waiting import until
from postgres import Postgres
from sqlalchemy import text

pytestmark = pytest.mark.slow

RATE = 40
"""So low that sixty rows meet it at full load too: two runs that do not know it yet meet it with all that is in flight."""
ROWS = 120
NIGHT_TITLE = '{join: [{from: TITLE}, " by night"]}'


def _answered(service: Service, after: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    requests = service.requests(after=after)
    return [one for one in requests if one["status"] == 201], [one for one in requests if one["status"] == 429]


def _run_both(desk: Desk) -> None:
    runs = [desk.start("run", feed, "--no-dagster", "--publish-only", "--json") for feed in (FEED, "night-hall")]
    for run in runs:
        said = run.ended()
        assert said.code == 0, said.words


@pytest.fixture(params=["sqlite", "postgres"])
def hall(request: pytest.FixtureRequest, desk: Desk) -> Desk:
    """A desk with two feeds whose rows are staged, on either database, which has seen the limit once."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        desk.env["EVENTSYNC_STATE_URL"] = server.fresh_url()
    desk.mapping(in_flight=8)
    desk.mapping(in_flight=8, name="night.yaml", feed="night-hall", title=NIGHT_TITLE)
    desk.source(lines(ROWS))
    return desk


def test_two_processes_share_one_limit_and_every_pause_and_send_nothing_twice(hall: Desk, service: Service) -> None:
    service.switch(rate_events=f"{RATE}/s", rate_burst=20)
    for feed in (FEED, "night-hall"):
        assert hall.command("run", feed, "--no-dagster", "--stage-only").code == 0
    assert hall.run("--publish-only", "--limit", "60").code in {0, 1}
    assert _answered(service, 0)[1], "the limit was not met yet"
    before = service.last_number()

    _run_both(hall)
    passed, limited = _answered(service, before)
    assert len({one["idempotency_key"] for one in passed}) == len(passed) == 2 * ROWS - 60
    assert len(limited) <= 4
    for one in limited:
        assert not [at for at in (met["at"] for met in passed) if one["at"] + 0.2 < at < one["at"] + 0.95]


def test_a_worker_killed_beside_another_leaves_it_the_whole_limit_and_loses_nothing(desk: Desk, service: Service) -> None:
    service.switch(rate_events=f"{RATE}/s", rate_burst=20)
    desk.mapping(in_flight=8)
    desk.mapping(in_flight=8, name="night.yaml", feed="night-hall", title=NIGHT_TITLE)
    desk.source(lines(ROWS))
    for feed in (FEED, "night-hall"):
        assert desk.command("run", feed, "--no-dagster", "--stage-only").code == 0
    staying, struck = (desk.start("run", feed, "--no-dagster", "--publish-only", "--json") for feed in (FEED, "night-hall"))
    until(lambda: len(service.requests()) > RATE, what="both at work")
    struck.kill()
    said = staying.ended()
    assert said.code == 0, said.words
    assert said.run["pace"]["most_under_way"] <= 8
    assert desk.command("run", "night-hall", "--no-dagster", "--publish-only").code == 0
    created = [one["idempotency_key"] for one in service.requests() if one["outcome"] == "created"]
    assert len(set(created)) == len(created) == 2 * ROWS


def test_a_service_that_only_says_429_pauses_the_run(desk: Desk, service: Service) -> None:
    service.switch(fault_per_mille=1000, faults="error_429", retry_after="fraction")
    desk.mapping(in_flight=8, max_pause="2s")
    desk.source(lines(30))
    said = desk.run()
    assert said.code == 6, said.words
    assert "nothing is lost: run again after 20" in said.words
    assert len(service.requests()) < 60


def test_a_pause_that_one_run_met_is_obeyed_by_a_run_of_another_feed(hall: Desk, service: Service) -> None:
    service.switch(rate_events="3/m", rate_burst=3)
    for feed in (FEED, "night-hall"):
        hall.command("run", feed, "--no-dagster", "--stage-only")
    hall.mapping(in_flight=8, max_pause="2s")
    hall.mapping(in_flight=8, max_pause="2s", name="night.yaml", feed="night-hall", title=NIGHT_TITLE)
    assert hall.run("--publish-only").code == 6
    before = service.last_number()

    said = hall.command("run", "night-hall", "--no-dagster", "--publish-only", "--json")
    assert said.code == 6, said.words
    assert "run again after 20" in said.words
    assert not service.requests(after=before)


def test_two_workers_that_meet_no_limit_rarely_read_the_pace_they_share(desk_on_postgres: Desk, service: Service) -> None:
    desk = desk_on_postgres
    service.switch(latency_ms=100)
    desk.mapping(in_flight=8)
    desk.mapping(in_flight=8, name="night.yaml", feed="night-hall", title=NIGHT_TITLE)
    desk.source(lines(2 * ROWS))
    for feed in (FEED, "night-hall"):
        assert desk.command("run", feed, "--no-dagster", "--stage-only").code == 0

    _run_both(desk)
    with desk.books.engine.connect() as connection:
        read = connection.execute(text("SELECT seq_scan + idx_scan FROM pg_stat_user_tables WHERE relname = 'route_pace'"))
        assert int(read.scalar_one()) < len(service.requests()) / 2
