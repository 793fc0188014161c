"""Every fault over a real socket: what the caller sees, and what the sandbox has kept by then."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any, get_args

import httpx
import pytest
from integration.waiting import until
from unit.sandbox.bench import EVENTS, Event

from sandbox.server import running
from sandbox.switches import FaultKind, Switches, format_switches, parse_switches

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
    "html": (200, "<!doctype html>"),
    "redirect before": (307, ""),
    "redirect after": (303, ""),
}


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


def test_every_fault_is_tried_here() -> None:
    assert {told.partition(" ")[0] for told in TELLS} == set(get_args(FaultKind))


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
