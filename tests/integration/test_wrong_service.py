"""A wrong address, a key that does not do, a channel that is not ours: what is said, and that nothing is lost by it."""

from __future__ import annotations

import pytest
from integration.desk import Desk, evenings, lines, mid_way
from integration.service import SECRET, Service
from lookalikes.notices import closed_port
from lookalikes.threaded import Answer, answering_by

pytestmark = pytest.mark.slow

ROWS = 12


@pytest.fixture(autouse=True)
def _source(desk: Desk) -> None:
    desk.source(lines(ROWS))


def _assert_all_is_well_once_mended(desk: Desk, service: Service) -> None:
    desk.point_to(service)
    desk.run(code=0)
    assert service.titles() == evenings(ROWS)
    assert SECRET.encode() not in desk.written(), "the key has been shown or kept"


def test_nobody_listens_at_the_address(desk: Desk, service: Service) -> None:
    desk.point_to(f"http://127.0.0.1:{closed_port()}")
    desk.run().assert_told(6, "no usable answer", "run again")
    _assert_all_is_well_once_mended(desk, service)


@pytest.mark.parametrize("status", [200, 404])
def test_another_web_server_answers_at_the_address(desk: Desk, service: Service, status: int) -> None:
    page = Answer(b"<!doctype html><title>Welcome</title><h1>Another site</h1>", status, {"content-type": "text/html"})
    with answering_by(lambda *_: page) as address:
        desk.point_to(address)
        desk.run().assert_told(2, "not the Event Publishing API", "EVENT_API_BASE_URL")
    _assert_all_is_well_once_mended(desk, service)


def test_without_an_address_or_a_key_both_are_asked_for_at_once(desk: Desk, service: Service) -> None:
    desk.env.pop("EVENT_API_BASE_URL")
    desk.env.pop("EVENT_API_KEY")
    desk.run().assert_told(2, "EVENT_API_BASE_URL", "EVENT_API_KEY")
    _assert_all_is_well_once_mended(desk, service)


@pytest.mark.parametrize(
    ("key", "words", "known"),
    [
        ("sandbox-key-revoked", ("revoked", "…oked", "EVENT_API_KEY"), set()),
        ("sandbox-key-reader", ("events:create",), {"pending"}),
    ],
)
def test_a_key_that_does_not_do_ends_the_run_with_the_reason(
    desk: Desk, service: Service, key: str, words: tuple[str, ...], known: set[str]
) -> None:
    desk.point_to(service, key)
    said = desk.run()
    said.assert_told(3, *words)
    assert key not in said.words
    assert (service.events(), set(desk.states().values())) == ([], known)
    _assert_all_is_well_once_mended(desk, service)


def test_a_key_that_is_revoked_in_the_middle_loses_nothing(desk: Desk, service: Service) -> None:
    run = mid_way(desk, service, 300, latency_ms=100)
    service.change("/keys/default/state", state="revoked")
    account = run.ended(3).run["publish"]
    assert account["pending"] > 0 == account["uncertain"]
    service.change("/keys/default/state", state="active")
    service.switch(latency_ms=0)
    desk.run(code=0)
    assert len(service.events()) == 300
    assert SECRET.encode() not in desk.written()


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
