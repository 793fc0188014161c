"""Damaged files: whatever a reader is given, reading ends in rows or in one of the errors of `connectors.sources.contract`.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from unit.connectors_sources.reading import SPEC
from workbooks import write_xlsx

from connectors.sources import contract
from connectors.sources.catalogue import open_source
from mappings.errors import SyncError

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
    "zip-lzma": lambda _: Sample(zipped({"events.csv": delimited(",").encode()}, zipfile.ZIP_LZMA), CSV),
    "zip-bz2": lambda _: Sample(zipped({"events.csv": delimited(",").encode()}, zipfile.ZIP_BZIP2), CSV),
    "gzip": lambda _: Sample(gzip.compress(delimited(",").encode(), mtime=0), CSV),
    "gzip-ics": lambda _: Sample(gzip.compress(calendar().encode(), mtime=0), {"kind": "ics"}),
    "bz2": lambda _: Sample(bz2.compress(delimited(",").encode()), CSV),
    "xz": lambda _: Sample(lzma.compress(delimited(",").encode()), CSV),
    "zst": lambda _: Sample(zstd.compress(delimited(",").encode()), CSV),
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


_SIGNATURES = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")


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


CLAIMING = {"zip-lzma"}
"""Their unpacker sets aside as much as a damaged header claims, without filling it."""


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_damaged_file_ends_in_rows_or_in_an_error_that_names_it(tmp_path: Path, kind: str) -> None:
    sample = SAMPLES[kind](tmp_path)
    read(sample, tmp_path)
    tracemalloc.start()
    try:
        for number, (mutant, how) in enumerate(mutants(sample, random.Random(f"{SEED} {kind}"))):  # no secret
            tracemalloc.reset_peak()
            try:
                read(mutant, tmp_path)
                assert kind in CLAIMING or tracemalloc.get_traced_memory()[1] < MOST_MEMORY
            except Exception as error:
                error.add_note(f"mutant {number} of {kind}: {', '.join(how)}; {dict(mutant.spec)}; {mutant.content!r:.2000}")
                raise
    finally:
        tracemalloc.stop()
