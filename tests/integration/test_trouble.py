"""A service that limits, pauses, fails or goes away: rows wait or are sent again, and each becomes one event."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from integration.desk import Desk, evenings, lines
from integration.service import Service, serving
from integration.waiting import until

pytestmark = pytest.mark.slow


@pytest.mark.slow(about_s=15)
def test_a_pause_longer_than_the_feeds_patience_ends_the_run_and_says_when_to_come_back(desk: Desk, service: Service) -> None:
    service.switch(rate_events="6/m", rate_burst=5)
    desk.mapping(in_flight=1, max_pause="2s")
    desk.source(lines(20))
    said = desk.run(code=6)
    assert said.run["outcome"] == "paused"
    assert said.run["publish"] | {"delivered": 5, "pending": 15} == said.run["publish"]
    assert "run again after 20" in said.run["hint"], said.run["hint"]
    assert "UTC" in said.run["hint"]

    asked = service.last_number()
    assert desk.run().code == 6, "a pause that still lasts is the next run's, too"
    assert not [one for one in service.requests(after=asked) if one["status"] != 201]
    service.switch(rate_events="off")
    until(lambda: _now() > _named_by(said.run["hint"]), what="the moment that the hint names")
    said = desk.run(code=0)
    assert service.titles() == evenings(20)


def _named_by(hint: str) -> datetime:
    """When the second is over that it names."""
    (moment,) = re.findall(r"run again after (20\S+ \S+) UTC", hint)
    return datetime.fromisoformat(moment).replace(tzinfo=UTC) + timedelta(seconds=1)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # what people would look at


def test_a_pause_that_cannot_be_meant_is_asked_about_by_one_request_of_the_next_run(desk: Desk, service: Service) -> None:
    service.switch(rate_events="1/m", rate_burst=5, retry_after="absurd")
    desk.source(lines(20))
    desk.run(code=6)

    asked = service.last_number()
    assert desk.run().code == 6, "the service still says so"
    assert len([one for one in service.requests(after=asked) if one["status"] == 429]) == 1
    service.switch(rate_events="off")
    desk.run(code=0)
    assert service.titles() == evenings(20)


@pytest.mark.parametrize("retry_after", ["fraction", "date", "garbage"])
def test_a_rate_limit_is_kept_however_the_wait_is_written_and_every_row_delivered(
    desk: Desk, service: Service, retry_after: str
) -> None:
    service.switch(rate_events="40/s", rate_burst=10, retry_after=retry_after)
    desk.source(lines(40))
    desk.run(code=0)
    assert service.titles() == evenings(40)
    assert [one for one in service.requests() if one["status"] == 429], "the limit was never met"


@pytest.mark.slow(about_s=15)
def test_a_service_that_goes_away_ends_the_run_and_gets_the_rest_when_it_is_back(desk: Desk, tmp_path: Path) -> None:
    with serving(tmp_path / "service", latency_ms=30) as own:
        desk.point_to(own)
        desk.mapping(in_flight=4)
        desk.source(lines(200))
        run = desk.start_run()
        until(lambda: len(own.requests()) > 60)
        own.stop(is_sudden=True)
        said = run.ended()

        assert said.code in {1, 6}, said.words
        account = said.run["publish"]
        assert account["delivered"] + account["uncertain"] + account["pending"] == 200
        assert account["refused"] == account["conflict"] == 0
        assert "run again" in said.words

        own.start()
        said = desk.run(code=0)
        assert own.titles() == evenings(200)
        assert set(desk.states().values()) == {"delivered"}
