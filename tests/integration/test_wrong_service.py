"""A wrong address, a key that does not do, a channel that is not ours: what is said, and that nothing is lost by it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from integration.desk import FEED, Desk, lines
from integration.service import SECRET, Service
from integration.waiting import until

pytestmark = pytest.mark.slow

ROWS = 12


@pytest.fixture(autouse=True)
def _source(desk: Desk) -> None:
    desk.source(lines(ROWS))


@contextmanager
def somebody_else(status: int) -> Iterator[str]:
    """A web server that answers everything with an HTML page."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<!doctype html><title>Welcome</title><h1>Another site</h1>"
            self.send_response(status)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  # the name that http.server calls

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _nobody_there() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def _assert_all_is_well_once_mended(desk: Desk, service: Service) -> None:
    desk.point_to(service)
    said = desk.run()
    assert said.code == 0, said.words
    assert service.titles() == sorted(f"Evening {number}" for number in range(ROWS))
    assert SECRET.encode() not in desk.written(), "the key has been shown or kept"


def test_nobody_listens_at_the_address(desk: Desk, service: Service) -> None:
    address = _nobody_there()
    desk.point_to(address)
    said = desk.run()

    assert said.code == 6, said.words
    assert "no usable answer" in said.words
    assert "run again" in said.words
    _assert_all_is_well_once_mended(desk, service)


@pytest.mark.parametrize("status", [200, 404])
def test_another_web_server_answers_at_the_address(desk: Desk, service: Service, status: int) -> None:
    with somebody_else(status) as address:
        desk.point_to(address)
        said = desk.run()

    assert said.code == 2, said.words
    assert "not the Event Publishing API" in said.words
    assert "EVENT_API_BASE_URL" in said.words
    _assert_all_is_well_once_mended(desk, service)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://events.example.org", ["https is required", "plain http"]),
        ("events.example.org", ["https://"]),
        ("https://user:word@events.example.org", ["user name or password"]),
    ],
)
def test_an_address_that_cannot_be_right_is_refused_before_anything_is_sent(
    desk: Desk, service: Service, address: str, words: list[str]
) -> None:
    desk.point_to(address)
    said = desk.run()

    assert said.code == 2, said.words
    assert all(word in said.words for word in words), said.words
    _assert_all_is_well_once_mended(desk, service)


def test_without_an_address_or_a_key_both_are_asked_for_at_once(desk: Desk, service: Service) -> None:
    desk.env.pop("EVENT_API_BASE_URL")
    desk.env.pop("EVENT_API_KEY")
    said = desk.run()

    assert said.code == 2
    assert "EVENT_API_BASE_URL" in said.words
    assert "EVENT_API_KEY" in said.words
    _assert_all_is_well_once_mended(desk, service)


@pytest.mark.parametrize("name", ["revoked", "disabled", "expired"])
def test_a_key_that_is_not_active_ends_the_run_at_once(desk: Desk, service: Service, name: str) -> None:
    desk.point_to(service, f"sandbox-key-{name}")
    said = desk.run()

    assert said.code == 3, said.words
    assert name in said.words, "the service's own words are told"
    assert f"…{name[-4:]}" in said.words
    assert f"sandbox-key-{name}" not in said.words
    assert "EVENT_API_KEY" in said.words
    assert service.requests() == []
    _assert_all_is_well_once_mended(desk, service)


def test_a_key_that_is_revoked_in_the_middle_loses_nothing(desk: Desk, service: Service) -> None:
    desk.source(lines(300))
    service.switch(latency_ms=20)
    run = desk.start_run()
    until(lambda: run.has_ended or len(service.requests()) >= 50)
    service.change("/keys/default/state", state="revoked")
    said = run.ended()

    assert said.code == 3, said.words
    assert said.run["publish"]["pending"] > 0
    assert said.run["publish"]["uncertain"] == 0
    service.change("/keys/default/state", state="active")
    assert desk.run().code == 0
    assert len(service.events()) == 300
    assert SECRET.encode() not in desk.written()


def test_a_key_that_may_not_create_events_is_told_which_scope_it_lacks(desk: Desk, service: Service) -> None:
    desk.point_to(service, "sandbox-key-reader")
    said = desk.run()

    assert said.code == 3, said.words
    assert "events:create" in said.words
    assert "sandbox-key-reader" not in said.words
    assert set(desk.states().values()) == {"pending"}
    _assert_all_is_well_once_mended(desk, service)


def test_a_channel_named_by_a_slug_that_the_key_may_not_use_is_an_error_of_the_mapping(desk: Desk, service: Service) -> None:
    desk.mapping(channel="{channel: members-only}")
    said = desk.run()

    assert said.code == 2, said.words
    assert "members-only" in said.words
    assert service.requests() == []
    desk.mapping()
    _assert_all_is_well_once_mended(desk, service)


def test_rows_of_a_channel_without_access_are_blocked_until_access_is_given(desk: Desk, service: Service) -> None:
    desk.mapping(channel="105")
    said = desk.run()

    assert said.code == 1, said.words
    assert said.run["publish"]["blocked"] == ROWS
    assert "blocked" in said.run["message"]
    listed = desk.command("rows", FEED, "--state", "blocked", "--json").document["rows"]
    assert len(listed) == ROWS
    assert all("channel 105" in row["hint"] for row in listed)

    service.change("/channels/access", channel="members-only", allowed=True)
    _assert_all_is_well_once_mended(desk, service)


def test_the_key_is_in_nothing_that_is_printed_or_kept(desk: Desk, service: Service) -> None:
    for words in (("check", "--live"), ("preview", FEED), ("run", FEED, "--no-dagster"), ("status",), ("rows", FEED)):
        desk.command(*words)
    desk.command("run", FEED, "--no-dagster", EVENT_API_KEY=f"{SECRET}\nInjected: header")
    (desk.folder / "key").write_text(f"{SECRET}\n", "utf-8")
    del desk.env["EVENT_API_KEY"]
    said = desk.run(EVENT_API_KEY_FILE="key")

    assert said.code == 0, said.words
    assert len(service.events()) == ROWS
    assert SECRET.encode() not in desk.written()
