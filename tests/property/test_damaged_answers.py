"""Damaged answers of Google and Salesforce: reading ends in rows or in one of the errors of `connectors.sources.contract`.

A proxy stands before the look-alikes, and damages some of the answers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from lookalikes.salesforce_reader import event, org_of, reader_of
from lookalikes.sheets import Google, google_on, programme
from lookalikes.threaded import Answer, answering_by
from property import mutants
from property.test_damaged_sources import EXPECTED, MUTANTS, SEED, cut, doubled, flipped, hold, swallowed, swapped, with_nuls
from unit.connectors_sources.reading import Waits

from connectors.sources.contract import Access, GoogleAccess
from connectors.sources.google_sheets.source import read_google_sheet
from connectors.sources.rows import ColumnRequest
from connectors.sources.salesforce.source import probe_salesforce, read_salesforce
from mappings.spec.source import GoogleSheetsSource, SalesforceSource

MOST = 2_000
"""Requests of one reading: more mean that it does not end."""
ODD: Sequence[Any] = (None, True, -1, 0, 2**70, 1.5, 1e300, "", "x", "\ud800", [], [[]], [None], {}, {"a": 1}, "5", "1e5", "E")
RESHAPED = (*[partial(mutants.replace, atoms=ODD)] * 2, mutants.delete, mutants.rename, mutants.double)


def reshaped(document: Any, chance: random.Random) -> Any:
    """Put something else in the place of a value, take it out, name it otherwise, or put it there twice."""
    holder = {"document": deepcopy(document)}
    for _ in range(chance.choice((1, 1, 2, 5))):
        chance.choice(RESHAPED)(chance, holder)
    return next(iter(holder.values()), None)


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Reshape a JSON document, or damage its bytes."""
    if chance.random() < 0.7:
        with suppress(ValueError):
            return json.dumps(reshaped(json.loads(content), chance)).encode()
    damage = bytearray(content)
    if damage:
        chance.choice((cut, flipped, doubled, with_nuls, swapped, swallowed))(damage, chance)
    return bytes(damage)


@dataclass
class Proxy:
    """Passes requests on to `upstream`, and damages some answers: each in the same way as often as it is asked for."""

    upstream: str
    seed: str = ""
    url: str = ""
    asked: int = 0

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        self.asked += 1
        if self.asked > MOST:
            return Answer(b"{}", 410, {})
        method, path = request.command, request.path
        own = {
            name: text for name, text in request.headers.items() if name.lower() not in {"host", "accept-encoding", "connection"}
        }
        said = httpx.request(
            method, f"{self.upstream}{path}", headers=own, content=body, trust_env=False, verify=False, timeout=30
        )
        chance = random.Random(f"{self.seed} {method} {path}")  # no secret
        content = said.content.replace(self.upstream.encode(), self.url.encode())
        # A job in an unknown state is asked about for hours.
        likely = 0.02 if method == "GET" and "/jobs/query/" in path and "results" not in path else 0.4
        if "token" not in path and "/Soap/" not in path and chance.random() < likely:
            content = damaged(content, chance)
        kept = {name: said.headers[name] for name in said.headers if name.startswith(("sforce", "content-type"))}
        return Answer(content, said.status_code, kept)


@contextmanager
def proxy_before(upstream: str) -> Iterator[Proxy]:
    proxy = Proxy(upstream)
    with answering_by(proxy.answer) as proxy.url:
        yield proxy


Read = Callable[[], object]


@contextmanager
def google(folder: Path, *, tall: bool) -> Iterator[tuple[Proxy, Read]]:
    with google_on(Google()) as server, proxy_before(server.base_url) as proxy:
        book = server.add(programme())
        book.sheets[0].rows = 6_000 if tall else 1_000
        access = Access(google=GoogleAccess(server.credentials(folder / "account.json"), proxy.url))
        spec = GoogleSheetsSource.model_validate(
            {"kind": "google_sheets", "spreadsheet": book.id, "header": {"matches": "Ref"}, "merged": "spread"}
        )

        def read() -> None:
            with read_google_sheet(spec, ColumnRequest.of(spec, frozenset()), access, Waits().clockwork) as reading:
                hold(reading)

        yield proxy, read


@contextmanager
def salesforce(_: Path, **words: Any) -> Iterator[tuple[Proxy, Read]]:
    records = [
        event(number, Price__c=number + 0.5, When__c="2026-05-01T19:30:00.000+0000", Clock__c="19:30:00.000Z")
        for number in range(1, 30)
    ]
    fields = {"Price__c": "currency", "When__c": "datetime", "Clock__c": "time"}
    spec = SalesforceSource.model_validate({"kind": "salesforce", "object": "Event__c", "fields": sorted(fields), **words})
    asked = ColumnRequest.of(spec, set())
    with reader_of(org_of(records, fields)) as reader, proxy_before(reader.server.base_url) as proxy:
        access = reader.access(instance_url=proxy.url)

        def read() -> None:
            with read_salesforce(spec, asked, access, "", Waits().clockwork) as reading:
                hold(reading)
            probe_salesforce(spec, asked, access, Waits().clockwork)

        yield proxy, read


STANDS: Mapping[str, Callable[[Path], AbstractContextManager[tuple[Proxy, Read]]]] = {
    "google_sheets": lambda folder: google(folder, tall=False),
    "google_sheets in several requests": lambda folder: google(folder, tall=True),
    "salesforce in pages": lambda folder: salesforce(folder, api="rest"),
    "salesforce in bulk": lambda folder: salesforce(folder, api="bulk"),
}


@pytest.mark.slow(about_s=10)
@pytest.mark.parametrize("kind", STANDS)
def test_a_damaged_answer_ends_in_rows_or_in_an_error_of_the_source(tmp_path: Path, kind: str) -> None:
    with STANDS[kind](tmp_path) as (proxy, read):
        for number in range(MUTANTS // 8):
            proxy.seed, proxy.asked = f"{SEED} {kind} {number}", 0
            try:
                with suppress(*EXPECTED):
                    read()
                assert proxy.asked < MOST, "it asks without end"
            except Exception as error:
                error.add_note(f"mutant {number} of {kind}, seed {SEED}")
                raise
