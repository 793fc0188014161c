"""What is answered to whom, as switched: keys, scopes, channels, limits, images; and the admin door for tests."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx
import pytest
from unit.sandbox.conftest import API, MEDIA, PNG, READER, STARTER, Bench, Event, InProcess, Open, refusal

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
        *(("k1", 201, "created"), ("k1", 201, "replayed"), ("k2", 400, "refused"), ("k3", 401, "refused"))
    ]
    assert requests[0]["digest"] == hashlib.blake2b(sent.request.content, digest_size=16).hexdigest()
    assert requests[0]["event_id"] == sent.json()["doc"]["id"]
    assert [one["route"] for one in bench.requests("all")] == ["channels", *["events"] * 4]
    overview = bench.http.get("/_sandbox").json()
    assert (overview["events"], overview["outcomes"]["events"]) == (1, {"created": 1, "replayed": 1, "refused": 2})
    page = bench.http.get("/_sandbox/requests", params={"after": requests[0]["number"], "limit": 1}).json()["requests"]
    assert page == requests[1:2]
    assert "<td>4</td><td>2027-01-15 08:00 UTC</td>" in bench.http.get("/developers/keys").text


def test_switches_change_while_it_runs_and_a_wrong_one_changes_nothing(bench: Bench) -> None:
    bench.switch(retry_after="several")
    answer = bench.http.post("/_sandbox/switches", json={"idempotency": "refuse", "latncy_ms": 5, "retry_after": "date"})
    assert answer.status_code == 400
    assert "did you mean `latency_ms`?" in answer.json()["error"]["details"]["issue"]
    assert bench.http.get("/_sandbox").json()["switches"].items() >= {"idempotency": "replay", "retry_after": "several"}.items()


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
    assert bench.http.get("/_sandbox", headers={"Host": "rebound.example"}).status_code == 403
    assert bench.http.post("/_sandbox/reset", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415


FOREIGN = {
    "another host name": {"Host": "rebound.example"},
    "a port that is not ours": {"Host": "127.0.0.1:9"},
    "a page of another site": {"Origin": "http://rebound.example"},
    "a page of another port": {"Origin": "http://127.0.0.1:9"},
    "a page without an origin": {"Origin": "null"},
    "a page under another name": {"Host": "rebound.example", "Origin": "http://rebound.example"},
    "an image in a page of another site": {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "no-cors",
        "Sec-Fetch-Dest": "image",
    },
    "a frame in one": {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
}


@pytest.mark.parametrize("which", FOREIGN)
def test_a_page_of_another_site_reaches_neither_pages_nor_admin_door_nor_the_service(
    bench: Bench, event: Event, which: str
) -> None:
    del bench.http.headers["Authorization"]
    answers = [
        bench.http.get("/", headers=FOREIGN[which]),
        bench.http.post("/_sandbox/reset", json={}, headers=FOREIGN[which]),
        bench.http.post(MEDIA, files={"file": PNG}, headers=FOREIGN[which]),
    ]
    if "Origin" in FOREIGN[which] or "Sec-Fetch-Site" in FOREIGN[which]:
        answers.append(bench.create(event, secret=STARTER, **FOREIGN[which]))
    assert [refusal(answer) for answer in answers] == [(403, "forbidden")] * len(answers)
    assert bench.stored() == []


OPENED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize("headers", [{"Host": "localhost"}, {"Host": "[::1]"}, {"Origin": "http://127.0.0.1"}, OPENED])
def test_the_pages_answer_to_the_names_of_this_machine_and_to_links_of_other_sites(bench: Bench, headers: dict[str, str]) -> None:
    assert bench.http.get("/channels/city-agenda", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("address", "host", "status"),
    [
        ("192.0.2.7:8765", "192.0.2.7:8765", 200),
        ("192.0.2.7:8765", "sandbox.example:8765", 200),
        ("127.0.0.1:8765", "localhost:9000", 200),
        ("127.0.0.1:8765", "rebound.example:8765", 403),
    ],
    ids=["its address", "a name of its network", "a tunnel", "a name that leads to the browser's machine"],
)
def test_a_client_with_a_key_uses_any_name_of_the_machine(bench: Bench, address: str, host: str, status: int) -> None:
    headers = {"Host": host, "Authorization": f"Bearer {READER}"}
    with httpx.Client(transport=InProcess(bench.app), base_url=f"http://{address}") as http:
        assert http.get(f"{API}channels", headers=headers).status_code == status


EVENTS = {
    "event": {},
    "other": {"title": "other"},
    "untitled": {"title": ""},
    "barred": {"channelId": 105},
    "unknown": {"channelId": 999},
    "open": {"status": ...},
}
IMAGES = {"image": PNG, "nothing": b"", "svg": b"<svg/>", "sound": b"RIFF....WAVE", "pdf": b"%PDF-1.7"}
STORIES = """
| event@k event@k untitled@l untitled@l event@l | 201 =201 400:title =400 409:conflict | 1
| event@k other@k | 201 409:conflict | 1
| event@k starter:event@k image@k | 201 201 201 | 2
idempotency=refuse | event@k event@k | 201 409:conflict | 1
idempotency=ignore | event@k event@k | 201 201 | 2
idempotency_memory_s=60 | event@k +59 event@k +1 other@k other@k | 201 =201 201 =201 | 2
| untitled@k event@k barred@l event@l | 400 409 403 201 | 1
rate_events=1/m | wrong:event@k event event@k +60 event@k | 401:invalid_api_key 201 429:rate_limited 201 | 2
list_scope=events:read | starter:events | 403:insufficient_scope | 0
| starter:image | 403:insufficient_scope | 0
rate_events=2/s rate_burst=3 | event event event event +0.5 event event | 201 201 201 429~1 201 429~1 | 4
rate_events=2/m rate_kind=window | +59 event event event +1 event event event | 201 201 429~1 201 201 429~60 | 4
rate_events=2/m rate_kind=sliding | event +30 event event +30 event event | 201 201 429~30 201 429~30 | 3
rate_events=24/m rate_burst=1 retry_after=seconds | event event | 201 429~3 | 1
rate_events=24/m rate_burst=1 retry_after=fraction | event event | 201 429~2.500 | 1
rate_events=24/m rate_burst=1 retry_after=absent | event event | 201 429~ | 1
rate_events=24/m rate_burst=1 retry_after=absurd | event event | 201 429~31536000 | 1
rate_events=24/m rate_burst=1 retry_after=several | event event | 201 429~0,3 | 1
| image file-image svg file-svg nothing file-nothing sound file-sound pdf file-pdf | 201 201 400 400 400 400 400 400 400 400 | 0
| unknown | 404:not_found | 0
| open | 201 | draft
| barred | 403:forbidden | 0
| reader:event | 403:insufficient_scope | 0
| wrong:classifications | 200 | 0
"""


def _answer(bench: Bench, event: Event, step: str) -> httpx.Response:
    """Answer to `who:what@key`; an image may be `field-image`, in a form."""
    who, _, rest = step.rpartition(":")
    what, _, key = rest.partition("@")
    secret, field = {"reader": READER, "starter": STARTER}.get(who, who), what.rpartition("-")[0]
    if what in EVENTS:
        payload = {name: value for name, value in (event | EVENTS[what]).items() if value is not ...}
        return bench.create(payload, key=key.replace("_", " "), secret=secret)
    if field:
        return bench.form(IMAGES[what.rpartition("-")[2]], field)
    return bench.upload(IMAGES[what], secret=secret, key=key) if what in IMAGES else bench.get(what, secret)


@pytest.mark.parametrize("story", STORIES.strip().splitlines())
def test_what_is_answered_is_a_switch(open_bench: Open, event: Event, story: str) -> None:
    words, steps, expected, kept = (part.strip() for part in story.split("|"))
    bench, answers = open_bench(*words.split()), list[httpx.Response]()
    for step in steps.split():
        if step.startswith("+"):
            bench.clock.now += float(step)
        else:
            answers.append(_answer(bench, event, step))
    for number, (answer, word) in enumerate(zip(answers, expected.split(), strict=True)):
        status, colon, code = word.removeprefix("=").partition(":")
        status, tilde, wait = status.partition("~")
        assert answer.status_code == int(status), (number, answer.text)
        assert not word.startswith("=") or answer.content == answers[number - 1].content
        if colon:
            error = answer.json()["error"]
            assert code in (error["code"], error.get("details", {}).get("field"))
        assert not tilde or ",".join(answer.headers.get_list("retry-after")) == wait
    assert kept in (str(len(bench.stored())), *(one["status"] for one in bench.stored()))
