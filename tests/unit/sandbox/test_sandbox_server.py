"""The sandbox over a real socket: starting, stopping, surviving, every fault; and its switches as words."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from integration.service import serving
from integration.waiting import until
from unit.sandbox.conftest import EVENTS, Event, Open

from sandbox.server import Address, running, serve
from sandbox.store import StateInUseError
from sandbox.switches import FaultKind, Rate, SwitchError, Switches, format_switches, parse_switches


def opened(base_url: str) -> httpx.Client:
    return httpx.Client(base_url=base_url, trust_env=False, verify=False, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_in_good_order(number: signal.Signals) -> None:
    with serving() as service:
        assert service.look()
        assert service.process is not None
        service.process.send_signal(number)
        assert service.process.wait(timeout=60) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("--set", "latency=5"), "did you mean `latency_ms`?"), (("--rate", "fast"), "rate such as"), (("--host", "192.0.2.1"), "")],
)
def test_what_cannot_be_started_says_why_and_exits_with_2(arguments: tuple[str, ...], says: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "sandbox", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_was_created_switched_off_and_used_survives_a_restart(open_bench: Open, tmp_path: Path, event: Event) -> None:
    before = open_bench(state=tmp_path)
    first = before.create(event, key="k1")
    before.admin("keys/reader/state", {"state": "revoked"})
    before.allow("members-only", allowed=True)
    before.close()
    after = open_bench(state=tmp_path)
    assert after.create(event, key="k1").content == first.content
    assert after.create(event | {"channelId": 105}).json()["doc"]["id"] > first.json()["doc"]["id"]
    assert after.get("channels", "sandbox-key-reader").status_code == 401


def test_another_secret_for_the_default_key_replaces_the_old_one(open_bench: Open, tmp_path: Path) -> None:
    open_bench(state=tmp_path, secret="old-secret").close()
    bench = open_bench(state=tmp_path, secret="new-secret")
    assert [bench.get("channels", key).status_code for key in ("old-secret", "new-secret")] == [401, 200]


def test_two_sandboxes_cannot_share_a_state_folder(open_bench: Open, tmp_path: Path) -> None:
    open_bench(state=tmp_path)
    with pytest.raises(StateInUseError, match="in use by another sandbox"):
        open_bench(state=tmp_path)


def test_an_address_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        serve(Address("127.0.0.1", taken.getsockname()[1]), tmp_path, Switches(), None, print)


def test_faults_are_the_same_in_every_run_and_a_retry_gets_past_them(event: Event) -> None:
    switches = parse_switches(["fault_per_mille=600", "faults=error_500+error_503+html+empty", "fault_seed=5"])
    headers, runs = {"Authorization": "Bearer k", "Idempotency-Key": "k1"}, []
    for _ in range(2):
        with running(None, switches, "k") as announced, opened(announced.base_url) as http:
            runs.append([http.post(EVENTS, json=event, headers=headers).status_code for _ in range(12)])
    assert runs[0] == runs[1]
    assert {201, 500} <= set(runs[0])


def test_a_client_that_leaves_before_its_body_is_whole_does_no_harm(event: Event) -> None:
    lines = ("POST /api/public/v1/events HTTP/1.1", "Host: x", "Authorization: Bearer k", "Content-Type: application/json")
    head = "\r\n".join((*lines, "Content-Length: 99", "", "{")).encode()
    with running(None, Switches(), "k") as announced, opened(announced.base_url) as http:
        host, port = announced.base_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head)
        assert http.post(EVENTS, json=event, headers={"Authorization": "Bearer k"}).status_code == 201
        outcomes = [one["outcome"] for one in http.get("/_sandbox/requests").json()["requests"]]
    assert outcomes.count("created") == 1
    assert set(outcomes) <= {"created", "refused"}


NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Reading the trusted certificates would take most of a test's time."""
PATIENCE_S = 60.0
TELLS: dict[str, tuple[int, str]] = {
    **{f"error_{status}": (status, "internal_error") for status in (408, 425, 500, 503)},
    **{f"error_{status}": (status, "<!doctype html>") for status in (502, 504, 520)},
    **dict.fromkeys(["reset", "reset_midway", "late"], (0, "ReadError")),
    **dict.fromkeys(["closed", "truncated"], (0, "RemoteProtocolError")),
    "error_429": (429, "rate_limited"),
    "stored_500": (500, "internal_error"),
    "hang": (0, "ReadTimeout"),
    "drip": (0, "blanks"),
    "twice": (201, '"doc"'),
    "empty": (201, ""),
    "no_content": (204, ""),
    "no_doc": (201, "{}"),
    "malformed": (201, "=>"),
    "wrong_id": (201, '"id":'),
    "text_id": (201, '"id":"'),
    "long_header": (201, '"doc"'),
    "error_400": (400, "invalid_request"),
    "error_403": (403, '"requestId":"gateway"'),
    "error_413": (413, "<!doctype html>"),
    "html": (200, "<!doctype html>"),
    "redirect before": (307, ""),
    "redirect after": (303, ""),
}

ONLY = {
    **dict.fromkeys(("error_400", "error_403", "error_413"), "before"),
    **dict.fromkeys(("twice", "wrong_id", "text_id", "long_header"), "after"),
}
"""Faults that happen at one moment, whatever the switch says."""


def post(http: httpx.Client, event: Event, *, silence_s: float = PATIENCE_S) -> tuple[int, str]:
    """Post an event under one key; return the status and the text, or 0 and what broke."""
    headers = {"Authorization": "Bearer k", "Idempotency-Key": "k1"}
    timeout = httpx.Timeout(PATIENCE_S, read=silence_s)
    try:
        with http.stream("POST", EVENTS, json=event, headers=headers, timeout=timeout) as answer:
            text = b""
            for chunk in answer.iter_raw():
                text += chunk
                if text == b"   ":
                    return 0, "blanks"
            return answer.status_code, text.decode()
    except httpx.TransportError as broken:
        return 0, type(broken).__name__


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with running(None, Switches(), "k") as announced:
        yield announced.base_url


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kind", get_args(FaultKind))
def test_an_attempt_goes_wrong_as_switched_and_the_next_one_goes_well(
    base_url: str, event: Event, kind: str, moment: str
) -> None:
    words = ("fault_per_mille=1000", f"faults={kind}", f"fault_moment={moment}", "fault_attempts=1", "fault_hold_ms=0")
    options: dict[str, Any] = {"base_url": base_url, "trust_env": False, "verify": NO_TLS, "timeout": PATIENCE_S}
    with httpx.Client(**options) as http, httpx.Client(**options) as admin:

        def kept(what: str) -> list[dict[str, Any]]:
            return list(admin.get(f"/_sandbox/{what}").json()[what])

        admin.post("/_sandbox/reset", json={})
        admin.post("/_sandbox/switches", json=format_switches(parse_switches(words)))
        status, text = post(http, event, silence_s=0.3 if kind == "hang" else PATIENCE_S)
        if kind == "hang":  # the caller may leave before the sandbox has begun
            until(lambda: kept("requests"), what="the request that is never answered")
        stored = len(kept("events"))
        copied = post(http, event) if kind == "twice" else None
        again = post(http, event)
        events, requests = kept("events"), kept("requests")
    moment = ONLY.get(kind, moment)
    expected, sign = TELLS[f"{kind} {moment}"] if kind == "redirect" else TELLS[kind]
    assert (status, sign in text) == (expected, True), text
    if kind != "late":  # whose work goes on
        assert stored == (moment == "after")
    assert [one["fault"] for one in requests] == [f"{kind} {moment}", *[""] * (1 + (kind == "twice"))]
    assert copied in {None, (status, text)}, "the copy is taken for the next answer"
    if kind == "stored_500":
        assert (again, len(events)) == ((500, text), moment == "after")
    else:
        assert (again[0], len(events)) == (201, 1)


def test_every_switch_can_be_read_back_as_it_is_written() -> None:
    for switches in (Switches(), Switches(rate_events=Rate(5, "h"), faults=("empty", "reset"), retry_after="date")):
        assert parse_switches(f"{name}={value}" for name, value in format_switches(switches).items()) == switches


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("latency=20", "did you mean `latency_ms`?"),
        ("latency_ms", "has no value"),
        *((f"latency_ms={text}", "a whole number from 0") for text in ("", "-1", "1.5", "٣")),
        ("fault_per_mille=1001", "from 0 to 1000"),
        ("idempotency=refused", "did you mean `refuse`?"),
        ("retry_after=second", "did you mean `seconds`?"),
        *((f"rate_events={text}", "`off` or a rate") for text in ("50", "0/s", "5/d")),
        ("faults=reset+rset", "did you mean `reset`?"),
        ("faults=", "one or several"),
    ],
)
def test_each_word_that_is_no_switch_is_refused_with_what_would_be(word: str, says: str) -> None:
    with pytest.raises(SwitchError) as refused:
        parse_switches(["a=1", "latency_ms=20", word])
    assert (says in str(refused.value), len(refused.value.problems)) == (True, 2)
