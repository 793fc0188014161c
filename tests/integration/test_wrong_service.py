"""A wrong address, a key that does not do, a channel that is not ours: what is said, and that nothing is lost by it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from integration.desk import Desk, evenings, lines
from integration.service import SECRET, Service
from lookalikes.notices import closed_port
from lookalikes.threaded import Answer, answering_by

pytestmark = pytest.mark.slow

ROWS = 12
ADDRESS, KEY = "EVENT_API_BASE_URL", "EVENT_API_KEY"
PAGE = Answer(b"<!doctype html><title>Welcome</title><h1>Another site</h1>", 200, {"content-type": "text/html"})
WRONG = {
    "no server is at the address": ({ADDRESS: "http://127.0.0.1:{closed}"}, 6, ("no usable answer", "run again")),
    "another site's page": ({ADDRESS: "{site}/page"}, 2, ("not the Event Publishing API", ADDRESS)),
    "another site's 404": ({ADDRESS: "{site}/404"}, 2, ("not the Event Publishing API", ADDRESS)),
    "neither address nor key": ({ADDRESS: "", KEY: ""}, 2, (ADDRESS, KEY)),
    "a revoked key": ({KEY: "sandbox-key-revoked"}, 3, ("revoked", "…oked", KEY)),
    "a key that may not create events": ({KEY: "sandbox-key-reader"}, 3, ("events:create",)),
}


@pytest.fixture(autouse=True)
def _source(desk: Desk) -> None:
    desk.source(lines(ROWS))


def _assert_all_is_well_once_mended(desk: Desk, service: Service) -> None:
    desk.point_to(service)
    desk.run(code=0)
    assert service.titles() == evenings(ROWS)
    assert SECRET.encode() not in desk.written(), "the key has been shown or kept"


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_with_what_would_help_and_nothing_is_lost_by_it(desk: Desk, service: Service, wrong: str) -> None:
    env, code, words = WRONG[wrong]
    with answering_by(lambda request, _: replace(PAGE, status=404 if "/404" in request.path else 200)) as site:
        desk.env |= {name: value.format(closed=closed_port(), site=site) for name, value in env.items()}
        desk.env = {name: value for name, value in desk.env.items() if value}
        said = desk.run()
    said.assert_told(code, *words)
    assert desk.env.get(KEY, SECRET) not in said.words
    assert (service.events(), set(desk.states().values())) == ([], {"pending"} if "create" in wrong else set())
    _assert_all_is_well_once_mended(desk, service)


def test_a_channel_named_by_a_slug_that_the_key_may_not_use_is_an_error_of_the_mapping(desk: Desk, service: Service) -> None:
    desk.mapping(channel="{channel: members-only}")
    desk.run().assert_told(2, "members-only")
    assert service.requests() == []
    desk.mapping()
    _assert_all_is_well_once_mended(desk, service)


def test_rows_of_a_channel_without_access_are_blocked_until_access_is_given(desk: Desk, service: Service) -> None:
    desk.mapping(channel="105")
    said = desk.run(code=1)
    assert said.run["publish"]["blocked"] == ROWS
    assert "blocked" in said.run["message"]
    listed = desk.rows("blocked")
    assert len(listed) == ROWS
    assert all("channel 105" in row["hint"] for row in listed)
    service.change("/channels/access", channel="members-only", allowed=True)
    _assert_all_is_well_once_mended(desk, service)
