"""Who is let in: key states, scopes, and channel access at the time of the request."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from unit.sandbox.bench import Bench, Event, Open

CHANNELS = "/api/public/v1/channels"


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic c2FuZGJveA==", "Bearer nobody-knows-this", "sandbox-secret-for-tests-4321"],
)
def test_a_missing_or_malformed_key_is_refused(bench: Bench, event: Event, header: str) -> None:
    assert code(bench.http.get(CHANNELS, headers={"Authorization": header})) == (401, "invalid_api_key")
    assert code(bench.create(event, Authorization=header)) == (401, "invalid_api_key")


@pytest.mark.parametrize("state", ["revoked", "disabled", "expired"])
def test_a_key_in_any_other_state_than_active_is_refused_told_why_and_may_work_again(
    bench: Bench, event: Event, state: str
) -> None:
    assert code(bench.http.get(CHANNELS, headers=bench.as_key(f"sandbox-key-{state}"))) == (401, "invalid_api_key")
    bench.admin("keys/default/state", {"state": state})
    answer = bench.create(event)
    assert code(answer) == (401, "invalid_api_key")
    assert state in answer.json()["error"]["message"]
    bench.admin("keys/default/state", {"state": "active"})
    assert bench.create(event).status_code == 201


def test_a_key_without_the_scope_is_refused_as_switched(bench: Bench, event: Event) -> None:
    reader = bench.as_key("sandbox-key-reader")
    assert bench.http.get(CHANNELS, headers=reader).status_code == 200
    assert code(bench.create(event, **reader)) == (403, "insufficient_scope")
    bench.switch(missing_scope="forbidden")
    assert code(bench.create(event, **reader)) == (403, "forbidden")


def test_a_new_key_starts_with_the_two_scopes_of_the_specification(bench: Bench, event: Event) -> None:
    made = bench.admin("keys", {"name": "partner"})
    partner = bench.as_key(made["secret"])
    assert bench.http.get(CHANNELS, headers=partner).status_code == 200
    assert bench.create(event, **partner).status_code == 201
    bench.switch(list_scope="events:read")
    assert code(bench.http.get("/api/public/v1/events", headers=partner)) == (403, "insufficient_scope")


@pytest.mark.parametrize(
    ("word", "channel_id", "expected"),
    [
        ("channel_denied=forbidden", 105, (403, "forbidden")),
        ("channel_denied=insufficient_scope", 105, (403, "insufficient_scope")),
        ("channel_denied=not_found", 105, (404, "not_found")),
        ("channel_unknown=not_found", 999, (404, "not_found")),
        ("channel_unknown=forbidden", 999, (403, "forbidden")),
        ("channel_unknown=invalid_request", 999, (400, "invalid_request")),
    ],
)
def test_a_channel_that_is_not_the_owners_is_refused_as_switched(
    open_bench: Open, event: Event, word: str, channel_id: int, expected: tuple[int, str]
) -> None:
    bench = open_bench(word)
    assert code(bench.create(event | {"channelId": channel_id})) == expected
    assert bench.stored() == []


def test_channel_access_is_checked_at_the_time_of_the_request(bench: Bench, event: Event) -> None:
    assert bench.create(event).status_code == 201
    bench.admin("channels/access", {"channel": "city-agenda", "allowed": False})
    assert code(bench.create(event)) == (403, "forbidden")
    bench.admin("channels/access", {"channel": "city-agenda", "allowed": True})
    assert bench.create(event).status_code == 201


@pytest.mark.parametrize(
    ("word", "header", "status"),
    [
        ("classifications_auth=ignored", "Bearer wrong", 200),
        ("classifications_auth=required", "Bearer wrong", 401),
        ("classifications_auth=required", "Bearer sandbox-key-reader", 200),
        ("classifications_auth=rejected", "Bearer sandbox-key-reader", 400),
    ],
)
def test_what_a_key_does_at_the_classifications_is_a_switch(open_bench: Open, word: str, header: str, status: int) -> None:
    answer = open_bench(word).http.get("/api/public/v1/classifications", headers={"Authorization": header})
    assert answer.status_code == status


def test_a_secret_is_kept_as_a_digest_and_shown_by_its_last_four_characters(open_bench: Open, tmp_path: Path) -> None:
    bench = open_bench(state=tmp_path, secret="a-secret-of-the-tests-7788")
    shown = bench.http.get("/developers/keys").text + bench.http.get("/_sandbox").text + repr(bench.app.state.sandbox.keys)
    assert "7788" in shown
    assert "a-secret-of-the-tests" not in shown
    bench.close()
    assert all(b"a-secret-of-the-tests" not in path.read_bytes() for path in tmp_path.iterdir())


def test_without_a_key_of_ones_own_a_new_secret_is_made(open_bench: Open) -> None:
    first, second = (open_bench(secret=None).app.state.sandbox.api_key for _ in range(2))
    assert first != second
    assert len(first) >= 32


def test_key_use_is_recorded(bench: Bench, event: Event) -> None:
    bench.create(event)
    bench.http.get(CHANNELS)
    page = bench.http.get("/developers/keys").text
    assert "<td>2</td><td>2027-01-15 08:00 UTC</td>" in page
