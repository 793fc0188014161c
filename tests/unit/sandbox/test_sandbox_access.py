"""Who is let in: key states, scopes, channel access at the time of the request, and the admin door for tests."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx
import pytest
from unit.sandbox.bench import READER, Bench, Event, InProcess, Open, refusal

NO_KEY = (401, "invalid_api_key")


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic c2FuZGJveA==", "Bearer unknown", "sandbox-secret-for-tests-4321"]
)
def test_a_missing_or_malformed_key_is_refused(bench: Bench, event: Event, header: str) -> None:
    bench.http.headers["Authorization"] = header
    assert refusal(bench.get("channels")) == refusal(bench.create(event)) == NO_KEY


@pytest.mark.parametrize("state", ["revoked", "disabled", "expired"])
def test_a_key_that_is_not_active_is_refused_with_its_state_and_may_work_again(bench: Bench, event: Event, state: str) -> None:
    assert refusal(bench.get("channels", f"sandbox-key-{state}")) == NO_KEY
    bench.admin("keys/default/state", {"state": state})
    answer = bench.create(event)
    assert (refusal(answer), state in answer.json()["error"]["message"]) == (NO_KEY, True)
    bench.admin("keys/default/state", {"state": "active"})
    assert bench.create(event).status_code == 201


def test_a_new_key_starts_with_the_two_scopes_of_the_specification(bench: Bench, event: Event) -> None:
    secret = bench.admin("keys", {"name": "partner"})["secret"]
    assert bench.get("channels", secret).status_code == 200
    assert bench.create(event, secret=secret).status_code == 201


def test_a_secret_is_kept_as_a_digest_and_shown_by_its_last_four_characters(open_bench: Open, tmp_path: Path) -> None:
    bench = open_bench(state=tmp_path, secret="a-secret-of-the-tests-7788")
    shown = bench.http.get("/developers/keys").text + bench.http.get("/_sandbox").text + repr(bench.app.state.sandbox.keys)
    assert ("7788" in shown, "a-secret-of-the-tests" in shown) == (True, False)
    assert len({open_bench(secret=None).app.state.sandbox.api_key for _ in range(2)}) == 2, "without one a new one is made"
    bench.close()
    assert all(b"a-secret-of-the-tests" not in path.read_bytes() for path in tmp_path.iterdir())


def test_every_attempt_is_written_down_and_counted(bench: Bench, event: Event) -> None:
    bench.get("channels")
    sent = bench.create(event, key="k1")
    bench.create(event, key="k1")
    bench.create(event | {"title": ""}, key="k2")
    bench.create(event, key="k3", Authorization="Bearer wrong")
    requests = bench.requests()
    assert [(one["idempotency_key"], one["status"], one["outcome"]) for one in requests] == [
        *(("k1", 201, "created"), ("k1", 201, "replayed"), ("k2", 400, "refused"), ("k3", 401, "refused")),
    ]
    assert requests[0]["digest"] == hashlib.blake2b(sent.request.content, digest_size=16).hexdigest()
    assert requests[0]["event_id"] == sent.json()["doc"]["id"]
    assert [one["route"] for one in bench.requests("all")] == ["channels", *["events"] * 4]
    overview = bench.http.get("/_sandbox").json()
    assert (overview["events"], overview["outcomes"]["events"]) == (1, {"created": 1, "replayed": 1, "refused": 2})
    page = bench.http.get("/_sandbox/requests", params={"after": requests[0]["number"], "limit": 1}).json()["requests"]
    assert page == requests[1:2]
    assert "<td>4</td><td>2027-01-15 08:00 UTC</td>" in bench.http.get("/developers/keys").text


def test_switches_change_while_it_runs_and_a_wrong_one_changes_nothing(bench: Bench, event: Event) -> None:
    bench.switch(success_status=200)
    answer = bench.http.post("/_sandbox/switches", json={"success_status": 201, "latncy_ms": 5, "retry_after": "date"})
    assert answer.status_code == 400
    assert "did you mean `latency_ms`?" in answer.json()["error"]["details"]["issue"]
    assert bench.create(event).status_code == 200


def test_a_reset_forgets_what_callers_left_and_restores_keys_and_access(bench: Bench, event: Event) -> None:
    bench.create(event, key="k1")
    bench.allow("city-agenda", allowed=False)
    assert bench.create(event).status_code == 403
    bench.allow("members-only", allowed=True)
    bench.admin("keys/reader/state", {"state": "revoked"})
    bench.admin("reset", {})
    assert (bench.stored(), bench.requests()) == ([], [])
    assert bench.create(event | {"title": "again"}, key="k1").status_code == 201
    assert bench.create(event | {"channelId": 105}).status_code == 403
    assert bench.get("channels", READER).status_code == 200


@pytest.mark.parametrize(
    ("path", "wishes", "status"),
    [
        ("keys/nobody/state", {"state": "active"}, 404),
        ("keys", {}, 400),
        ("keys", {"name": "x", "scopes": "all"}, 400),
        ("keys/default/state", {"state": "sleepy"}, 400),
        ("channels/access", {"channel": "nowhere", "allowed": True}, 400),
        ("channels/access", {"channel": "city-agenda", "allowed": "yes"}, 400),
        ("switches", ["latency_ms=5"], 400),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(bench: Bench, path: str, wishes: object, status: int) -> None:
    assert bench.http.post(f"/_sandbox/{path}", json=wishes).status_code == status


def test_other_machines_and_web_pages_under_other_names_find_no_admin_door(bench: Bench) -> None:
    with httpx.Client(transport=InProcess(bench.app, ("192.0.2.1", 40_000)), base_url="http://127.0.0.1") as http:
        assert http.get("/_sandbox").status_code == http.post("/_sandbox/reset", json={}).status_code == 404
    assert bench.http.get("/_sandbox", headers={"Host": "rebound.example"}).status_code == 404
    assert bench.http.post("/_sandbox/reset", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
