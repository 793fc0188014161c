"""Asking for the service's OpenAPI page: once, briefly and without the key; whatever comes back is a value.

How the page is read is `contract_page`'s; what it says of us `contract`'s.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from connectors.event_api.contract_page import NoPage
from connectors.event_api.exchange import Exchange, HttpAnswer

PATH = "/api/developer/openapi/public-api-v1"
"""Where the page is: public, YAML (spec, Versioning)."""
PATIENCE_S = 3.0
"""The longest that a run waits for it."""
_LONGEST_ETAG = 200


@dataclass(frozen=True, slots=True)
class PageBody:
    """The page's bytes as they came, and the `ETag` to ask with next time, "" if there was none."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class PageUnchanged:
    """It is still the page of the `etag` handed in."""


PageAnswer = PageBody | PageUnchanged | NoPage


async def ask_page(exchange: Exchange, etag: str = "", *, patience_s: float = PATIENCE_S) -> PageAnswer:
    """Ask once for the page; with `etag`, only if it is another one by now. Never raises for what comes back."""
    headers = {"accept": "application/yaml, text/yaml, */*;q=0.1"} | ({"if-none-match": etag} if etag else {})
    request = exchange.request("GET", exchange.url(PATH, prefix=""), headers=headers, has_key=False)
    try:
        async with asyncio.timeout(patience_s):
            told = await exchange(request)
    except TimeoutError:
        return NoPage(f"the page did not come within {patience_s:.0f} seconds")
    if not isinstance(told, HttpAnswer):
        return NoPage(f"the page could not be fetched: {told.answer.message}")
    return _meaning(told, etag)


def _meaning(told: HttpAnswer, etag: str) -> PageAnswer:
    if told.status == 304 and etag:
        return PageUnchanged()
    if told.status != 200:
        return NoPage(f"{PATH} answers {told.status}")
    tag = told.headers.get("etag", "")
    return PageBody(told.body, tag if tag.isascii() and tag.isprintable() and len(tag) <= _LONGEST_ETAG else "")
