"""The door for tests: what was sent, changes while it runs, and who may use it."""

from __future__ import annotations

import hashlib

import httpx
import pytest
from unit.sandbox.bench import Bench, Event, InProcess


def test_every_attempt_is_written_down_with_key_digest_and_outcome(bench: Bench, event: Event) -> None:
    sent = bench.create(event, key="k1")
    bench.create(event | {"title": ""}, key="k2")
    bench.create(event, key="k3", Authorization="Bearer wrong")
    requests = bench.requests()
    assert [(one["idempotency_key"], one["status"], one["outcome"]) for one in requests] == [
        ("k1", 201, "created"),
        ("k2", 400, "refused"),
        ("k3", 401, "refused"),
    ]
    assert requests[0]["digest"] == hashlib.blake2b(sent.request.content, digest_size=16).hexdigest()
    assert requests[0]["event_id"] == sent.json()["doc"]["id"]


def test_other_routes_are_written_down_too(bench: Bench, event: Event) -> None:
    bench.http.get("/api/public/v1/channels")
    bench.create(event)
    assert [one["route"] for one in bench.requests("all")] == ["channels", "events"]


def test_the_dump_can_be_read_in_pieces(bench: Bench, event: Event) -> None:
    numbers = [bench.create(event).json()["doc"]["id"] for _ in range(3)]
    page = bench.http.get("/_sandbox/events", params={"after": numbers[0], "limit": 1}).json()
    assert [one["id"] for one in page["events"]] == [numbers[1]]


def test_the_overview_counts_events_and_outcomes(bench: Bench, event: Event) -> None:
    bench.create(event, key="k1")
    bench.create(event, key="k1")
    overview = bench.http.get("/_sandbox").json()
    assert (overview["events"], overview["outcomes"]["events"]) == (1, {"created": 1, "replayed": 1})


def test_switches_change_while_it_runs_and_a_wrong_one_changes_nothing(bench: Bench, event: Event) -> None:
    bench.switch(success_status=200)
    answer = bench.http.post("/_sandbox/switches", json={"success_status": 201, "latncy_ms": 5, "retry_after": "date"})
    assert answer.status_code == 400
    assert "did you mean `latency_ms`?" in answer.json()["error"]["details"]["issue"]
    assert bench.create(event).status_code == 200


def test_a_reset_forgets_what_callers_left_and_restores_keys_and_access(bench: Bench, event: Event) -> None:
    bench.create(event, key="k1")
    bench.admin("channels/access", {"channel": "city-agenda", "allowed": False})
    bench.admin("channels/access", {"channel": "members-only", "allowed": True})
    bench.admin("keys/reader/state", {"state": "revoked"})
    bench.admin("reset", {})
    assert (bench.stored(), bench.requests()) == ([], [])
    assert bench.create(event | {"title": "again"}, key="k1").status_code == 201
    assert bench.create(event | {"channelId": 105}).status_code == 403
    assert bench.http.get("/api/public/v1/channels", headers=bench.as_key("sandbox-key-reader")).status_code == 200


@pytest.mark.parametrize(
    ("path", "wishes"),
    [
        ("keys/nobody/state", {"state": "active"}),
        ("keys", {}),
        ("keys", {"name": "x", "scopes": "all"}),
        ("keys/default/state", {"state": "sleepy"}),
        ("channels/access", {"channel": "nowhere", "allowed": True}),
        ("channels/access", {"channel": "city-agenda", "allowed": "yes"}),
        ("switches", ["latency_ms=5"]),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(bench: Bench, path: str, wishes: object) -> None:
    assert bench.http.post(f"/_sandbox/{path}", json=wishes).status_code == (404 if "nobody" in path else 400)


@pytest.mark.parametrize("host", ["10.0.0.7", "192.0.2.1"])
def test_other_machines_find_no_admin_door(bench: Bench, host: str) -> None:
    with httpx.Client(transport=InProcess(bench.app, (host, 40_000)), base_url="http://127.0.0.1") as http:
        assert http.get("/_sandbox").status_code == 404
        assert http.post("/_sandbox/reset", json={}).status_code == 404


def test_a_web_page_under_a_name_of_its_own_finds_no_admin_door(bench: Bench) -> None:
    assert bench.http.get("/_sandbox", headers={"Host": "rebound.example"}).status_code == 404
    assert bench.http.post("/_sandbox/reset", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
