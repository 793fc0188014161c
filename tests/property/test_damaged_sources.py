"""Damaged files, and damaged answers of Google and Salesforce: reading ends in rows or in one of the errors of the contract.

`EVENTSYNC_TEST_DAMAGES` says how many mutants of each sample are read; `EVENTSYNC_TEST_MUTANTS_SEED` gives others.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import random
import tracemalloc
import zipfile
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
from property.mutants import delete, double, rename, replace
from unit.connectors_sources.reading import SPEC, Waits
from workbooks import write_xlsx

from connectors.sources import contract
from connectors.sources.catalogue import open_source
from connectors.sources.contract import Access, GoogleAccess
from connectors.sources.google_sheets.source import read_google_sheet
from connectors.sources.salesforce.source import probe_salesforce, read_salesforce
from mappings.errors import SyncError
from mappings.spec.source import GoogleSheetsSource, SalesforceSource

MUTANTS = int(os.environ.get("EVENTSYNC_TEST_DAMAGES", "100"))
SEED = os.environ.get("EVENTSYNC_TEST_MUTANTS_SEED", "1")
MOST_MEMORY = 64 * 2**20
"""Bytes that reading one mutant may take: what may come out of a small packed file, and as much again."""
NAME = "partner-events.file"

EXPECTED = tuple(error for error in vars(contract).values() if isinstance(error, type) and issubclass(error, SyncError))
"""Every error that a source may end in."""

HEAD = ["id", "title", "starts", "price", "note"]
ROWS = [
    HEAD,
    *([str(n), f"Konzert am Fluß {n}, früh", f"2026-05-{n:02}T19:30:00", f"{n}.50", f'say "{n}"\nand go'] for n in range(1, 13)),
]


@dataclass(frozen=True)
class Sample:
    """A sound file, and what stands under `source` to read it."""

    content: bytes
    spec: Mapping[str, Any]


def delimited(mark: str) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=mark).writerows(ROWS)
    return text.getvalue()


def records() -> list[dict[str, Any]]:
    return [{**dict(zip(HEAD, row, strict=True)), "venue": {"city": "Köln", "tags": ["a", {"b": 1.5}, None]}} for row in ROWS[1:]]


def agenda(encoding: str = "utf-8") -> str:
    inside = "".join(
        f'<event id="{row[0]}"><title>{row[1]}</title><starts>{row[2]}</starts><note><![CDATA[{row[4]}]]></note></event>\n'
        for row in ROWS[1:]
    )
    return f'<?xml version="1.0" encoding="{encoding}"?>\n<agenda>{inside}</agenda>'


def calendar() -> str:
    inside = "".join(
        f"BEGIN:VEVENT\r\nUID:{row[0]}\r\nDTSTART;TZID=Europe/Berlin:202605{int(row[0]):02}T193000\r\nDURATION:PT2H\r\n"
        f"SUMMARY:{row[1]}\r\n  and more\r\nEXDATE:20260603T193000,20260604T193000\r\nCATEGORIES:a,b\\,c\r\nEND:VEVENT\r\n"
        for row in ROWS[1:]
    )
    moved = "BEGIN:VEVENT\r\nUID:1\r\nRECURRENCE-ID:20260503T193000\r\nEND:VEVENT\r\n"
    return f"BEGIN:VCALENDAR\r\nX-WR-TIMEZONE:Europe/Berlin\r\n{inside}{moved}END:VCALENDAR\r\n"


def zipped(members: Mapping[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=how)
    return packed.getvalue()


def workbook(folder: Path) -> bytes:
    path = folder / "plain.xlsx"
    write_xlsx(path, ROWS)
    return path.read_bytes()


def stored_workbook(folder: Path) -> bytes:
    """A workbook whose parts are not packed: a flipped byte then reaches the XML, and each part has its sum anew."""
    with zipfile.ZipFile(io.BytesIO(workbook(folder))) as archive:
        return zipped({name: archive.read(name) for name in archive.namelist()}, zipfile.ZIP_STORED)


CSV: Mapping[str, Any] = {"kind": "csv"}
SAMPLES: Mapping[str, Callable[[Path], Sample]] = {
    "csv": lambda _: Sample(delimited(",").encode(), CSV),
    "csv-utf-16": lambda _: Sample(delimited(",").encode("utf-16"), CSV),
    "tsv": lambda _: Sample(delimited("\t").encode(), {"kind": "tsv"}),
    "json": lambda _: Sample(json.dumps({"data": {"events": records()}}).encode(), {"kind": "json", "records": "data.events"}),
    "json-plain": lambda _: Sample(json.dumps(records(), ensure_ascii=False, indent=1).encode(), {"kind": "json"}),
    "ndjson": lambda _: Sample("".join(json.dumps(one) + "\n" for one in records()).encode(), {"kind": "ndjson"}),
    "xml": lambda _: Sample(agenda().encode(), {"kind": "xml", "records": "agenda/event"}),
    "xml-utf-16": lambda _: Sample(agenda("utf-16").encode("utf-16"), {"kind": "xml", "records": "event"}),
    "ics": lambda _: Sample(calendar().encode(), {"kind": "ics"}),
    "xlsx": lambda folder: Sample(workbook(folder), {"kind": "xlsx", "merged": "spread"}),
    "xlsx-stored": lambda folder: Sample(stored_workbook(folder), {"kind": "xlsx"}),
    "zip": lambda _: Sample(zipped({"a/events.csv": delimited(",").encode(), "read me": b"x"}), {**CSV, "member": "*/*.csv"}),
    "zip-xlsx": lambda folder: Sample(zipped({"a.xlsx": workbook(folder)}), {"kind": "xlsx", "member": "*.xlsx"}),
    "gzip": lambda _: Sample(gzip.compress(delimited(",").encode(), mtime=0), CSV),
    "gzip-ics": lambda _: Sample(gzip.compress(calendar().encode(), mtime=0), {"kind": "ics"}),
    "bz2": lambda _: Sample(bz2.compress(delimited(",").encode()), CSV),
    "xz": lambda _: Sample(lzma.compress(delimited(",").encode()), CSV),
}
ENCODINGS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "ascii", "cp932", "shift_jis_2004"),
    *("gb18030", "hz", "iso2022_jp", "cp037", "big5hkscs", "windows-1252", "euc-kr"),
)
DECLARED = (*ENCODINGS, "utf-7", "idna", "punycode", "undefined", "unicode_escape", "hex", "rot13", "no-such", "zlib")


def cut(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content) + 1) :]


def flipped(content: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 2, 8, 40))):
        content[chance.randrange(len(content))] = chance.randrange(256)


def doubled(content: bytearray, chance: random.Random) -> None:
    start, size = chance.randrange(len(content)), chance.choice((1, 7, 100, 1000))
    place = chance.randrange(len(content) + 1)
    content[place:place] = content[start : start + size] * chance.choice((1, 1, 3, 30))


def with_nuls(content: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(content) + 1)
    content[place:place] = bytes(chance.choice((1, 2, 3, 512)))


def swapped(content: bytearray, chance: random.Random) -> None:
    first, second = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    size = chance.choice((1, 4, 64, 500))
    one, other = content[first : first + size], content[second : second + size]
    content[second : second + size] = one
    content[first : first + size] = other


def swallowed(content: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(content))
    del content[place : place + chance.choice((1, 2, 30, 400))]


def redeclared(content: bytearray, chance: random.Random) -> None:
    """Let XML declare another encoding; elsewhere insert a byte order mark."""
    head = bytes(content[:200])
    if b'encoding="utf-8"' in head:
        content[:] = content.replace(b'encoding="utf-8"', f'encoding="{chance.choice(DECLARED)}"'.encode(), 1)
    else:
        content[:0] = chance.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\0\0\xfe\xff"))


_SIGNATURES = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")


def header_fields(content: bytearray, chance: random.Random) -> None:
    """Change the fields behind the signatures of packed files; elsewhere the file's beginning."""
    places = [at for mark in _SIGNATURES for at in range(len(content)) if content.startswith(mark, at)] or [0]
    start = chance.choice(places) + chance.randrange(4, 46)
    width = chance.choice((1, 2, 4))
    content[start : start + width] = chance.choice((bytes(width), b"\xff" * width, chance.randbytes(width)))


MUTATIONS = (cut, flipped, doubled, with_nuls, swapped, swallowed, redeclared, header_fields)


def mutants(sample: Sample, chance: random.Random) -> Iterator[tuple[Sample, Sequence[str]]]:
    for _ in range(MUTANTS):
        content, spec = bytearray(sample.content), dict(sample.spec)
        chosen = [chance.choice(MUTATIONS) for _ in range(chance.choice((1, 1, 2, 3)))]
        for mutate in chosen:
            if content:
                mutate(content, chance)
        if spec["kind"] != "xlsx" and chance.random() < 0.15:
            spec["encoding"] = chance.sample(ENCODINGS, chance.choice((1, 2)))
        yield Sample(bytes(content), spec), [mutate.__name__ for mutate in chosen]


def read(sample: Sample, folder: Path) -> None:
    (folder / NAME).write_bytes(sample.content)
    source = open_source(SPEC.validate_python({"path": NAME, **sample.spec}), folder, frozenset())
    try:
        with source.read() as reading:
            hold(reading)
    except EXPECTED as error:
        if NAME not in str(error):
            raise AssertionError(f"the error does not name the file: {error}") from error


def hold(reading: contract.Reading) -> None:
    """Read to the end: each row has the columns that were promised."""
    for row in reading.rows:
        assert set(row.cells) == set(reading.columns), row.location
    reading.ending()


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_damaged_file_ends_in_rows_or_in_an_error_that_names_it(tmp_path: Path, kind: str) -> None:
    sample = SAMPLES[kind](tmp_path)
    read(sample, tmp_path)
    tracemalloc.start()
    try:
        for number, (mutant, how) in enumerate(mutants(sample, random.Random(f"{SEED} {kind}"))):  # no secret
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                read(mutant, tmp_path)
                assert tracemalloc.get_traced_memory()[1] - before < MOST_MEMORY
            except Exception as error:
                error.add_note(f"mutant {number} of {kind}: {', '.join(how)}; {dict(mutant.spec)}; {mutant.content!r:.2000}")
                raise
    finally:
        tracemalloc.stop()


MOST = 2_000
"""Requests of one reading: more mean that it does not end."""
ODD: Sequence[Any] = (None, True, -1, 0, 2**70, 1.5, 1e300, "", "x", "\ud800", [], [[]], [None], {}, {"a": 1}, "5", "1e5", "E")
RESHAPED = (*[partial(replace, atoms=ODD)] * 2, delete, rename, double)


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
            with read_google_sheet(spec, spec.request(frozenset()), access, Waits().clockwork) as reading:
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
    asked = spec.request(set())
    reader = reader_of(org_of(records, fields))
    with proxy_before(reader.server.base_url) as proxy:
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
