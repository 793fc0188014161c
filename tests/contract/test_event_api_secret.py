"""The API key is a bearer secret: it travels in one header, and appears nowhere else."""

from __future__ import annotations

import logging
import traceback
from base64 import b64encode
from urllib.parse import quote

import httpx
import pytest
from pydantic import SecretStr
from unit.connectors_api.wired import SECRET, Scripted, Service, answers_to, ask, intent, page, told

from connectors.errors import BaseUrlError, KeyFormatError
from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import check_base_url, open_http
from mappings.delivery import Postponed

DETAILS = {"field": SECRET, "issue": SECRET}
ECHO = {"error": {"code": f"c {SECRET}", "message": f"Bearer {SECRET}", "requestId": SECRET, "details": DETAILS}}
BASIC = b64encode(f"user:{SECRET}".encode()).decode()
LEAKS: dict[str, list[Scripted]] = {
    "an envelope that repeats the key": [httpx.Response(400, json=ECHO)],
    "a page that repeats the key": [page(404, f"<p>{SECRET}</p>")],
    "a rejected key": [told(401, "invalid_api_key")],
    "a missing scope": [told(403, "insufficient_scope")],
    "a redirect with the key": [httpx.Response(302, headers={"location": f"https://x.example/?key={SECRET}"})],
    "an encoded echo": [page(400, f"{quote(SECRET)} {BASIC} {SECRET.encode().hex()}")],
    "a success that repeats the key": [httpx.Response(201, json={"doc": SECRET}, headers={"x-request-id": SECRET})],
    "a used key, in words that repeat it": [told(409, f"conflict {SECRET}")],
    "a status line that repeats the key": [httpx.RemoteProtocolError(f"no HTTP answer: Bearer {SECRET}")],
    "a proxy that repeats the key": [httpx.ProxyError(f"407 {SECRET}")],
    "silence": [httpx.ReadTimeout("silence")],
    "no connection": [httpx.ConnectError("refused")],
    "an unreadable success": [page(200)],
}


@pytest.mark.parametrize("says", LEAKS.values(), ids=LEAKS.keys())
def test_the_key_is_in_no_verdict_error_or_log(says: list[Scripted], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []

    async def asked(api: EventApi) -> None:
        verdict = await api.deliver(intent())
        texts.extend((repr(verdict), repr(api), repr(api.stopped)))
        if isinstance(verdict, Postponed):
            texts.extend((str(verdict.cause), verdict.cause.hint))
        try:
            await api.channels()
        except Exception as problem:  # noqa: BLE001  # whatever it is, its whole chain is looked through
            texts.append("".join(traceback.format_exception(problem)))

    ask(Service(says), asked)
    texts.append(repr(open_http("https://events.example.org", SecretStr(SECRET))))
    spellings = {SECRET, SECRET[-5:], quote(SECRET), b64encode(SECRET.encode())[:-4].decode(), SECRET.encode().hex()}
    assert not [text for text in [*texts, caplog.text] if any(one in text for one in spellings)]


def test_a_refused_key_is_named_by_its_last_four_characters() -> None:
    verdict, _ = answers_to(told(401, "invalid_api_key"))
    assert isinstance(verdict, Postponed)
    assert ("…last" in str(verdict.cause), SECRET[-5:] in str(verdict.cause)) == (True, False)


@pytest.mark.parametrize("key", ["", "   ", "sk live", "sk\nlive-secret", "sk\r\nx: y", "schlüssel-geheim", "sk_\x00"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    with pytest.raises(KeyFormatError) as raised:
        open_http("https://events.example.org", SecretStr(key))
    assert not key.strip() or key.strip() not in str(raised.value)


GOOD = {
    "https://events.example.org": "https://events.example.org/",
    "https://events.example.org/": "https://events.example.org/",
    " https://events.example.org ": "https://events.example.org/",
    "HTTPS://Events.Example.org:8443/": "https://events.example.org:8443/",
    "https://example.org/events/": "https://example.org/events",
    "https://example.org/events/api/public/v1": "https://example.org/events",
    "https://example.org/api/public/v1/": "https://example.org/",
    "https://bücher.example": "https://xn--bcher-kva.example/",
    **{f"http://{host}": f"http://{host}/" for host in ("localhost:8080", "127.9.9.9", "[::1]:8080", "sandbox.localhost")},
}
BAD = [
    *("", "events.example.org", "ftp://localhost", "https://", "https://[::1", "https://events.example.org:notaport"),
    *("http://events.example.org", "http://10.0.0.1", "http://localhost.example.org", "http://127.0.0.1.example.org"),
    *("https://user:password@events.example.org", "https://events.example.org/?a=b", "https://events.example.org/#x"),
]


@pytest.mark.parametrize(("url", "opened"), GOOD.items(), ids=GOOD.keys())
def test_an_address_is_accepted_in_each_of_its_spellings(url: str, opened: str) -> None:
    assert str(check_base_url(url)) == str(httpx.URL(opened))


@pytest.mark.parametrize("url", BAD, ids=[repr(url) for url in BAD])
def test_an_address_that_would_give_the_key_away_is_refused(url: str) -> None:
    with pytest.raises(BaseUrlError) as raised:
        check_base_url(url)
    assert "password" not in str(raised.value) or "holds a user name" in str(raised.value)
    assert raised.value.hint
