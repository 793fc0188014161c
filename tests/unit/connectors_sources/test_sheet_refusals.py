"""What becomes of a reading when Google refuses, stumbles, or asks to wait: never an empty sheet, always the way out."""

from __future__ import annotations

import gzip
import json
import logging
import re
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.test_event_api_tls_and_proxies import LOOPBACK, server_tls
from lookalikes.sheets import ACCOUNT, Fault
from unit.connectors_sources.sheets_at_hand import ID, Desk, sheet_of

from connectors.sources.catalogue import open_source
from connectors.sources.contract import Access, BadSourceError, GoogleAccess, SourceRefusedError, SourceUnavailableError
from connectors.sources.google_sheets.spreadsheet import open_spreadsheet
from mappings.errors import ConfigError, SyncError


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with sheet_of(tmp_path, [["id", "title"], ["1", "Jazz"]]) as found:
        yield found


def refused(desk: Desk, kind: type[SyncError], **words: Any) -> SyncError:
    with pytest.raises(kind) as caught:
        desk.rows(**words)
    return caught.value


def answering(status: int, where: str = "/v4/", times: int = 1, headers: dict[str, str] | None = None, **error: Any) -> Any:
    """What puts an answer in place of the service's own."""
    body = {"error": {"code": status, "message": "x", **error}}
    return lambda desk: desk.google.faults.append(Fault(where, status=status, body=body, times=times, headers=headers or {}))


def no_token(why: str) -> Callable[[Desk], object]:
    return lambda desk: setattr(desk.google, "refusal_of_tokens", why)


ELSEWHERE = {"Location": "http://127.0.0.1:9/elsewhere"}
DISABLED = [{"reason": "SERVICE_DISABLED", "metadata": {"activationUrl": "https://console.example/sheets"}}]
SCOPE = [{"reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}]
REFUSALS: dict[str, tuple[Callable[[Desk], object], str, str]] = {
    "it is not shared": (lambda desk: setattr(desk.book, "readers", set()), ID, f"share the spreadsheet with {ACCOUNT}"),
    "the API is off": (answering(403, details=DISABLED), "403", "https://console.example/sheets"),
    "the scope is another": (answering(403, details=SCOPE), "403", "made without the right to read spreadsheets"),
    "it is an office file": (lambda desk: setattr(desk.book, "is_office_file", True), "", "save it as Google Sheets"),
    "the key was deleted": (no_token("invalid_grant"), "invalid_grant", "make a new key"),
    "the account may not ask for these rights": (no_token("invalid_scope"), "does not give us the rights", ""),
    "the answer leads elsewhere": (answering(302, headers=ELSEWHERE), "redirects elsewhere", "sent to no other address"),
    "no token is good for long": (answering(401, "ranges=", times=9), "", "not accepted"),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_each_refusal_is_named_with_its_own_way_out(desk: Desk, why: str) -> None:
    happens, said, hint = REFUSALS[why]
    happens(desk)
    error = refused(desk, SourceRefusedError)
    assert said in str(error)
    assert hint in error.hint
    assert "key" not in error.hint or why != "the account may not ask for these rights"
    assert not desk.waits


def test_an_answer_that_unpacks_without_end_is_given_up(desk: Desk) -> None:
    body = gzip.compress(b" " * 140 * 10**6, 1)
    desk.google.faults.append(Fault("rowData", status=200, body=body, headers={"content-encoding": "gzip"}))
    error = refused(desk, BadSourceError)
    assert "Google: an answer is larger than 128 million bytes" in str(error)
    assert "source.range" in error.hint
    assert not desk.waits


@pytest.mark.parametrize("where", ["gridProperties", "rowData"])
@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"null", b'{"error": {"code": 503}}', b'{"sheets": []}', b'{"sheets": [{}]}', b'{"sheets": [null]}']
)
def test_an_answer_of_another_shape_is_asked_for_again_and_never_an_empty_sheet(desk: Desk, where: str, body: bytes) -> None:
    desk.google.faults.append(Fault(where=where, status=200, body=body))
    assert desk.cells() == [("1", "Jazz")]
    desk.google.faults.append(Fault(where=where, status=200, body=body, times=99))
    assert "cut off" in str(refused(desk, SourceUnavailableError, header={"names": ["id", "title"], "row": 0}))


RATE_LIMIT = {"error": {"code": 403, "message": "Rate Limit Exceeded", "errors": [{"reason": "userRateLimitExceeded"}]}}


@pytest.mark.parametrize(
    "fault",
    [
        *(Fault("/v4/", status=status, body=b"<html>oops</html>", times=3) for status in (408, 425, 500, 502, 503, 504)),
        Fault("ranges=", "cut", times=3),
        Fault("ranges=", "drop", times=3),
        Fault("/v4/", status=403, body=RATE_LIMIT, times=3),
        Fault("/v4/", status=503, headers={"Retry-After": "17"}),
    ],
    ids=lambda fault: f"{fault.kind} {fault.status} {fault.headers}",
)
def test_a_passing_failure_a_broken_answer_and_a_rate_limit_are_asked_again(desk: Desk, fault: Fault) -> None:
    desk.google.faults.append(fault)
    assert desk.cells() == [("1", "Jazz")]
    assert desk.waits == ([17] if fault.headers else [0.5, 1.0, 2.0])


def test_a_quota_storm_is_sat_out_within_the_minute(desk: Desk) -> None:
    desk.google.per_minute = 1
    assert desk.cells() == [("1", "Jazz")]
    assert 60 <= sum(desk.waits) <= 64


LASTING: dict[str, tuple[Callable[[Desk], object], int | None, str]] = {
    "a failure": (lambda desk: desk.google.faults.append(Fault("ranges=", times=10**9)), None, "503.*run again"),
    "the quota": (lambda desk: setattr(desk.google, "per_minute", 0), 60, "60 requests a minute"),
    "a long pause": (
        lambda desk: desk.google.faults.append(Fault("/v4/", status=429, headers={"Retry-After": "3600, 60"}, times=10**9)),
        *(3600, "a pause of 3,600 s"),
    ),
}


@pytest.mark.parametrize("what", LASTING)
def test_what_lasts_ends_within_bounds_with_the_time_to_come_back_and_is_no_empty_sheet(desk: Desk, what: str) -> None:
    happens, retry_after_s, said = LASTING[what]
    happens(desk)
    error = refused(desk, SourceUnavailableError)
    assert getattr(error, "retry_after_s", 0) == retry_after_s
    assert re.search(said, f"{error} {error.hint}")
    assert sum(desk.waits) <= (0 if what == "a long pause" else 240)
    assert what != "a failure" or len(desk.waits) == 8


def test_our_own_pace_keeps_below_the_quota(desk: Desk) -> None:
    desk.google.per_minute = 60
    with open_spreadsheet(desk.spec(), desk.access, clock=desk.clock) as sheet:
        for _ in range(120):
            sheet.parts()
        assert len(desk.requests("/v4/")) == 120
    assert desk.waits == [60, 60]


def test_a_token_that_ends_before_its_time_is_renewed(desk: Desk) -> None:
    with desk.source().read() as reading:
        desk.google.tokens.clear()
        assert len(list(reading.rows)) == 1
    desk.google.faults.append(Fault("ranges=", status=401))
    assert desk.cells() == [("1", "Jazz")]


def test_a_person_may_lend_their_own_leave_to_read(desk: Desk, tmp_path: Path) -> None:
    desk.book.readers = {"person@example.org"}
    desk.credentials = desk.google.person(tmp_path / "person.json")
    assert desk.cells() == [("1", "Jazz")]


NOT_WHOLE = "not a whole file of credentials"
BROKEN_KEY = {"type": "service_account", "client_email": "a@b", "token_uri": "https://x", "private_key": "zzz"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "it is not JSON"),
        ("[]", 'its type is "None"'),
        ('{"type": "external_account"}', 'its type is "external_account"'),
        ('{"type": "service_account"}', NOT_WHOLE),
        (json.dumps(BROKEN_KEY), NOT_WHOLE),
        ('{"type": "authorized_user", "refresh_token": "1//x"}', NOT_WHOLE),
        (None, "GOOGLE_APPLICATION_CREDENTIALS: cannot read"),
    ],
)
def test_a_file_that_is_no_credentials_is_a_mistake_of_configuration(
    desk: Desk, tmp_path: Path, content: str | None, said: str
) -> None:
    desk.credentials = tmp_path / "credentials.json"
    if content is not None:
        desk.credentials.write_text(content, "utf-8")
    error = refused(desk, ConfigError)
    assert said in str(error)
    assert content is None or "docs/sources.md" in error.hint
    assert not desk.google.asked


def test_without_any_credentials_the_variable_is_named(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    source = open_source(desk.spec(), tmp_path, frozenset(), access=Access(google=GoogleAccess(None, desk.google.base_url)))
    with pytest.raises(ConfigError) as caught, source.read():
        pytest.fail("the block was entered")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.hint


def test_a_netrc_file_does_not_replace_our_token(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password elsewhere\n", "utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert desk.cells() == [("1", "Jazz")]


def test_nobody_but_the_service_itself_is_asked(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        desk.rows()
    connections = [record.getMessage() for record in caplog.records if "Starting new" in str(record.msg)]
    assert connections
    assert not [one for one in connections if "127.0.0.1" not in one]
    assert not [thread.name for thread in threading.enumerate() if "Regional" in type(thread).__name__]


def test_a_certificate_that_is_not_trusted_needs_a_person(desk: Desk, tmp_path: Path) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as other:
        other.socket = server_tls(tmp_path, LOOPBACK).wrap_socket(other.socket, server_side=True)
        threading.Thread(target=other.serve_forever, daemon=True).start()
        address = f"https://127.0.0.1:{other.server_address[1]}"
        desk.credentials.write_text(desk.credentials.read_text("utf-8").replace(desk.google.base_url, address), "utf-8")
        error = refused(desk, SourceRefusedError)
        other.shutdown()
    assert "the certificate of Google is not trusted: self-signed certificate" in str(error)
    assert "SSL_CERT_FILE" in error.hint
