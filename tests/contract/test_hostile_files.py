"""Small files made to take the memory or the time of whoever reads them: each ends soon, within bounds, in an error that helps.

Each is read in a process of its own, whose peak memory is compared with that of reading a small file of the same kind.
"""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import os
import random
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from contract import measured_read
from contract.measured_read import Reader
from contract.program import program
from integration.desk import WarmStart
from workbooks import write_xlsx

MILLION = 10**6
SHEET, STRINGS, STYLES = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml", "xl/styles.xml"
WORKBOOK, RELATIONS = "xl/workbook.xml", "xl/_rels/workbook.xml.rels"
PLACES = {
    SHEET: b"</sheetData>",
    STRINGS: b"</sst>",
    STYLES: b"<fonts",
    WORKBOOK: b"</sheets>",
    RELATIONS: b"</Relationships>",
}
"""Before what something new may stand in each part."""

Parts = Mapping[str, bytes]


@pytest.fixture(scope="module")
def reading() -> Iterator[Reader]:
    with program(measured_read.__file__) as started:
        yield Reader(started)


@dataclass(frozen=True)
class Attack:
    """`content`: of the hostile file, made of the parts of an honest workbook. `said`: what the error says, "" where the file is
    read; `rows` and `rejected` count then. `most`: megabytes beyond reading a small file."""

    content: Callable[[Parts], bytes]
    said: tuple[str, ...] = ()
    rows: int = 0
    rejected: int = 0
    most: int = 40
    spec: Mapping[str, Any] = field(default_factory=dict)


RECORDS_OF: Mapping[str, Mapping[str, Any]] = {"xml": {"records": "agenda/event"}}
SMALL: Mapping[str, bytes] = {
    "csv": b"id,text\n1,x\n",
    "json": b'[{"id": 1, "text": "x"}]',
    "ndjson": b'{"id": 1, "text": "x"}\n',
    "xml": b"<agenda><event><id>1</id></event></agenda>",
    "ics": b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nEND:VEVENT\nEND:VCALENDAR\n",
}


def swollen() -> bytes:
    return b"id\n" + (b"x" * 1023 + b"\n") * 34 * 1024


def zipped(members: Mapping[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def zip_that_lies() -> bytes:
    """Return an archive which says that its first member takes a million packed bytes, the second one's among them."""
    members = {"a.csv": swollen(), "b.csv": random.Random(1).randbytes(1_200_000)}
    changed = bytearray(zipped(members))
    struct.pack_into("<I", changed, 18, MILLION)
    struct.pack_into("<I", changed, changed.index(b"PK\1\2") + 20, MILLION)
    return bytes(changed)


def zip_in_another_way() -> bytes:
    changed = bytearray(zipped({"a.csv": SMALL["csv"]}))
    changed[8] = changed[changed.index(b"PK\1\2") + 10] = 9
    return bytes(changed)


def zip_of_many_members() -> bytes:
    archive = zipped({"a": b"id\n1\n"}, zipfile.ZIP_STORED)
    begun, end = archive.index(b"PK\1\2"), archive.index(b"PK\5\6")
    directory = archive[begun:end] * 300_000
    return archive[:begun] + directory + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 9, 9, len(directory), begun, 0)


def gz(*pieces: bytes) -> bytes:
    return gzip.compress(b"".join(pieces), 1)


def names(count: int, form: str) -> bytes:
    return "".join(map(form.format, range(count))).encode()


def record_of_names(number: int) -> bytes:
    return b"{" + names(999, f'"n{{}}x{number}":1,') + b'"n":1}'


def doctype(inside: bytes) -> bytes:
    return b"<!DOCTYPE agenda [" + inside + b"]><agenda>"


def agenda(inside: bytes) -> bytes:
    return gz(b"<agenda>\n<event>", inside, b"</event></agenda>")


def calendar(inside: bytes, before: bytes = b"") -> bytes:
    return gz(b"BEGIN:VCALENDAR\n", before, b"BEGIN:VEVENT\nUID:1\n", inside, b"END:VEVENT\nEND:VCALENDAR\n")


def changed(parts: Parts, part: str, new: bytes) -> bytes:
    """Return the workbook with something new at a fitting place of one of its parts."""
    before = PLACES[part]
    assert before in parts[part]
    return zipped({**parts, part: parts[part].replace(before, new + before, 1)})


def endless(parts: Parts, part: str) -> bytes:
    return changed(parts, part, b" " * 34 * MILLION)


def with_row(parts: Parts, inside: bytes) -> bytes:
    return changed(parts, SHEET, b"<row>" + inside + b"</row>")


def merging(parts: Parts, area: bytes, times: int) -> bytes:
    merged = b"<mergeCells>" + b'<mergeCell ref="%s"/>' % area * times + b"</mergeCells></worksheet>"
    return zipped({**parts, SHEET: parts[SHEET].replace(b"</worksheet>", merged)})


def columns(count: int) -> bytes:
    """Return cells in columns of five letters, each in another one."""
    letters = itertools.islice(itertools.product(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", repeat=5), count)
    return b"".join(b'<c r="%s"/>' % bytes(name) for name in letters)


EVENTS: Mapping[str, Any] = {"records": "events"}
SPREAD: Mapping[str, Any] = {"merged": "spread"}
MOVED = b"BEGIN:VEVENT\nUID:1\nRECURRENCE-ID:20260503\nEND:VEVENT\n"
MANY_ZEROS = (
    b'<styleSheet><numFmts><numFmt numFmtId="200" formatCode="' + b"0" * 500_000 + b'"/></numFmts>'
    b'<cellXfs><xf numFmtId="200"/></cellXfs></styleSheet>'
)
LARGE = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**30, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3}]
UNPACKS, WINDOW, VALUES = "unpacks to more than 32 million bytes", "takes more than 128 MB", "more than 200000"
MARKUP, SMALLER = "longer than 1 million bytes", "smaller dictionary"
LIE = "damaged" if hasattr(zipfile.ZipInfo, "_end_offset") else UNPACKS
"""Later versions of Python, and Debian's 3.11.2, see that a member would lie over the next one before anything is unpacked."""
JSON = {
    "numbers in a record": Attack(lambda _: gz(b'[{"a": [', b"1," * MILLION, b"1]}]"), (":1", VALUES, "records")),
    "lists in lists in a record": Attack(lambda _: gz(b'[{"a": [', b"[[[[]]]]," * MILLION, b"1]}]"), (":1", VALUES)),
    "numbers behind a long text": Attack(
        lambda _: gz(b'[{"a": "', b"x" * 4 * MILLION, b'", "b": [', b"1," * MILLION, b"1]}]"), (":1", VALUES), most=96
    ),
    "names in a record": Attack(lambda _: gz(b"[{", names(400_000, '"n{}":1,'), b'"n":1}]'), (":1", VALUES), most=96),
    "names around the records": Attack(
        lambda _: gz(b"{", names(120_000, '"n{}":1,'), b'"events":[{"id":1}]}'), rows=1, most=12, spec=EVENTS
    ),
    "a list beside the records": Attack(
        lambda _: gz(b'{"a": [', b"123," * 210_000, b'1], "events":[{"id":1}]}'), rows=1, most=12, spec=EVENTS
    ),
    "names and no way to the records": Attack(
        lambda _: gz(b"{", names(120_000, '"n{}":1,'), b'"events":[{"id":1}]}'), ("there are lists under events",), most=12
    ),
    "a long name that holds others": Attack(
        lambda _: gz(b'[{"', b"x" * 100_000, b'": {', names(15_000, '"n{}":1,'), b'"n": 1}}]'), (":1", "longer than 1000")
    ),
    "names in all records together": Attack(
        lambda _: gz(b"[", b",".join(map(record_of_names, range(500))), b"]"), ("more than 16384 different names",)
    ),
    "names that all stand twice": Attack(lambda _: gz(b"[{", names(5_000, '"n{0}":1,"n{0}":2,'), b'"n":1}]'), rows=1, rejected=1),
    "deep nesting": Attack(lambda _: gz(b'[{"a":', b"[" * 100_000, b"]" * 100_000, b"}]"), (":1", "nests too deeply")),
    "a text without an end": Attack(lambda _: b'[{"a": "' + b"x" * 10 * MILLION, ("ends too early",), most=64),
    "a wrong mark before many records": Attack(
        lambda _: gz(b'[\n{"a": nope},\n', b'{"a":1},' * 400_000, b"{}]"), (":2", "Expecting value"), most=12
    ),
    "numbers on a line": Attack(
        lambda _: gz(b'{"id": 1}\n{"id": [', b"1," * MILLION, b'1]}\n{"id": 3}\n'), rows=3, rejected=1, spec={"kind": "ndjson"}
    ),
}
XML = {
    "elements in a record": Attack(lambda _: agenda(b"<a/>" * MILLION), (":2", VALUES, "records")),
    "attributes in a record": Attack(lambda _: agenda((b"<a " + names(99, 'b{}="" ') + b"/>") * 10_000), (":2", VALUES)),
    "attributes of an element": Attack(lambda _: agenda(b"<a " + names(500_000, 'a{}="" ') + b"/>"), (":2", MARKUP)),
    "names": Attack(lambda _: agenda(b"</event>" + names(150_000, "<n{}/>") + b"<event>"), ("100000 different names",)),
    "a long name": Attack(lambda _: agenda(b"<" + b"a" * 500_000 + b"/>"), (":2", "longer than 1000")),
    "sentences in sentences": Attack(
        lambda _: agenda(b"x<a>" * 190 + b"x" * 2 * MILLION + b"</a>" * 190), (":2", "64 million characters"), most=160
    ),
    "an attribute without an end": Attack(lambda _: agenda(b'<a b="' + b"x" * 20 * MILLION), (":2", MARKUP)),
    "a comment without an end": Attack(lambda _: agenda(b"<!-- " + b"x" * 20 * MILLION), (":2", MARKUP)),
    "a document type without an end": Attack(
        lambda _: gz(b"<!DOCTYPE agenda [", names(100_000, "<!ELEMENT n{} ANY>")), (MARKUP,)
    ),
    "defaults of attributes": Attack(
        lambda _: gz(doctype(b'<!ATTLIST a b CDATA "' + b"x" * 500_000 + b'">'), b"<a/>" * MILLION), ("values to attributes",)
    ),
    "entities in entities": Attack(
        lambda _: gz(doctype(b'<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;&b;">'), b"&c;"), ("entity of its own",)
    ),
    "UTF-7": Attack(lambda _: gz(b'<?xml version="1.0" encoding="utf-7"?><agenda>+', b"A" * 20 * MILLION), ("utf-7",)),
}
ICS = {
    "properties of an event": Attack(lambda _: calendar(b"COMMENT:x\n" * 210_000), (VALUES, "properties")),
    "lists of an event": Attack(lambda _: calendar(b"CATEGORIES:x,y\n" * 40_000), rows=1),
    "parameters of a property": Attack(lambda _: calendar(b"COMMENT" + b";a" * 4 * MILLION + b":x\n"), (":4", VALUES)),
    "values of a property": Attack(lambda _: calendar(b"CATEGORIES:" + b"ab," * 4 * MILLION + b"\n"), (":4", VALUES)),
    "a calendar's long name": Attack(lambda _: calendar(b"", b"X-WR-CALNAME:" + b"x" * MILLION + b"\n"), (":2", "CALNAME")),
    "days of a series": Attack(lambda _: calendar(b"END:VEVENT\n" + MOVED * 11_000 + b"BEGIN:VEVENT\n"), rows=2, rejected=True),
}
CODECS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": partial(lzma.compress, preset=0)}
CSV = {
    **{name: Attack(lambda _, pack=pack: pack(swollen()), (UNPACKS,)) for name, pack in CODECS.items()},
    **{f"{name} in empty parts": Attack(lambda _, pack=pack: pack(b"") * 20_000, ("empty",)) for name, pack in CODECS.items()},
    "deflate in zip": Attack(lambda _: zipped({"a.csv": swollen()}), ("/a.csv", UNPACKS)),
    "a zip that lies about sizes": Attack(lambda _: zip_that_lies(), ("/a.csv", LIE), spec={"member": "a.csv"}),
    "xz that wants a gigabyte": Attack(lambda _: lzma.compress(SMALL["csv"], filters=LARGE), (WINDOW, SMALLER)),
    "a zip of 300,000 members": Attack(lambda _: zip_of_many_members(), ("directory is larger",)),
    "deflate64 in zip": Attack(lambda _: zip_in_another_way(), ("/a.csv", "with Deflate64", "deflate")),
    "gzip in gzip": Attack(lambda _: gzip.compress(gzip.compress(SMALL["csv"])), ("compressed with gzip",)),
    "zip in zip": Attack(lambda _: zipped({"a": zipped({"b": SMALL["csv"]})}), ("a workbook or a zip archive",)),
    "cells of a row": Attack(lambda _: gz(b"id\n1\n", b"xy," * 4 * MILLION), (":3", VALUES, "cells")),
    "columns of a header": Attack(lambda _: gz(b"xy," * 4 * MILLION), (":1", VALUES, "cells")),
    "cells of a row of many lines": Attack(lambda _: gz(b"id\n1\n", b'xy,xy,xy,"\n",' * MILLION), (":3", VALUES), most=64),
    "a quote that is never closed": Attack(lambda _: gz(b'id\n1\n"', b"x\n" * 4 * MILLION), (":3", VALUES, "never closed")),
    "large cells in one row": Attack(
        lambda _: b"id\n1\n" + (b'"' + (b"x" * 999 + b"\n") * 9_000 + b'",') * 8, (":3", "64 million"), most=280
    ),
}
XLSX = {
    "deflate in a workbook": Attack(lambda parts: endless(parts, SHEET), (SHEET, UNPACKS)),
    "a workbook in zip": Attack(
        lambda parts: zipped({"a.xlsx": endless(parts, SHEET)}), (SHEET, UNPACKS), spec={"member": "*.xlsx"}
    ),
    "cells of a row": Attack(lambda parts: with_row(parts, b"<c><v>1</v></c>" * 210_000), rows=2, rejected=1, most=16),
    "rows of one number": Attack(
        lambda parts: changed(parts, SHEET, b'<row r="3"/>' * 210_000), (SHEET, VALUES, "number of an earlier one")
    ),
    "a large cell": Attack(
        lambda parts: with_row(parts, b'<c t="str"><v>' + b"x" * 20 * MILLION + b"</v></c>"), ("row 3", "10 million")
    ),
    "a large shared text": Attack(
        lambda parts: changed(parts, STRINGS, b"<si><t>" + b"x" * 20 * MILLION + b"</t></si>"), ("10 million characters",)
    ),
    "shared texts": Attack(lambda parts: changed(parts, STRINGS, b"<si><t>ab</t></si>" * 300_000), rows=1, most=12),
    "merged areas": Attack(lambda parts: merging(parts, b"A1:B2", 210_000), (SHEET, VALUES, "mergeCell"), spec=SPREAD),
    "merged areas over one another": Attack(lambda parts: merging(parts, b"A1:XFD6", 20_000), rows=1, spec=SPREAD),
    "a merged area of 5,000 digits": Attack(lambda parts: merging(parts, b"A1:A" + b"9" * 5000, 1), rows=1, spec=SPREAD),
    "relations": Attack(
        lambda parts: changed(parts, RELATIONS, names(210_000, '<Relationship Id="x{}" Target="a"/>')), (RELATIONS, VALUES)
    ),
    "sheets": Attack(lambda parts: changed(parts, WORKBOOK, names(210_000, '<sheet name="x{}"/>')), (WORKBOOK, VALUES)),
    "number formats": Attack(
        lambda parts: changed(parts, STYLES, names(210_000, '<numFmt numFmtId="{}" formatCode="0"/>')), (STYLES, VALUES)
    ),
    "a column of 300,000 letters": Attack(
        lambda parts: with_row(parts, b'<c r="' + b"A" * 300_000 + b'3"><v>1</v></c><c r="A3"><v>1</v></c>'), rows=2
    ),
    "columns that there are not": Attack(lambda parts: with_row(parts, columns(200_000)), rows=1, most=12),
    "a number format of many zeros": Attack(
        lambda parts: with_row({**parts, STYLES: MANY_ZEROS}, b'<c s="0"><v>1</v></c>' * 1_000), rows=2, rejected=1
    ),
}
NONSENSE: Mapping[bytes, int] = {
    b'<row r="99999999999999999999"><c r="A99999999999999999999"><v>1</v></c></row>': 2,
    b'<row r="x"><c r="?!"><v>1</v></c></row>': 2,
    b'<row r="3"><c r="A3" t="s"><v>' + b"9" * 5000 + b"</v></c></row>": 2,
    b'<row r="3"><c r="A3" s="99"><v>1e999</v></c></row>': 2,
    b'<row r="3"><c r="ZZZZ3"><v>1</v></c></row>': 1,
    b'<row r="3"><c r="A3" t="unheard-of"><v>1</v></c></row>': 2,
    b'</sheetData><mergeCells><mergeCell ref="A1:XFD1048576"/></mergeCells><sheetData>': 1,
    b'<row r="50000"><c r="XFD50000" t="inlineStr"><is><t>far</t></is></c></row>': 49_999,
}
"""What may stand below the rows of a sheet, and how many rows there are then."""
for number, (row, count) in enumerate(NONSENSE.items()):
    put = partial(changed, part=SHEET, new=row)
    XLSX[f"nonsense {number}"] = Attack(put, rows=count, rejected=b"XFD50000" in row, most=16, spec=SPREAD)
GROUPS = {"json": JSON, "xml": XML, "ics": ICS, "csv": CSV, "xlsx": XLSX}
ATTACKS = {f"{kind}: {name}": attack for kind, attacks in GROUPS.items() for name, attack in attacks.items()}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """The parts of an honest workbook."""
    path = tmp_path_factory.mktemp("plain") / "plain.xlsx"
    write_xlsx(path, [["id", "text"], ["1", "x"]])
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_small_hostile_file_ends_within_its_bounds(tmp_path: Path, reading: Reader, parts: Parts, name: str) -> None:
    attack, group = ATTACKS[name], name.partition(":")[0]
    spec = {"kind": group, **RECORDS_OF.get(group, {}), **attack.spec}
    small = SMALL.get(spec["kind"]) or zipped(parts)
    if attack.spec == EVENTS:
        small = b'{"events": ' + small + b"}"
    (tmp_path / "small.file").write_bytes(zipped({"a.xlsx": small}) if "member" in attack.spec else small)
    (tmp_path / "events.file").write_bytes(attack.content(parts))
    found = reading.read(tmp_path, "small.file", "events.file", spec)
    if attack.said:
        assert found.kind in {"BadSourceError", "CutOffError", "EmptySourceError"}, found
        assert found.error.startswith("events.file")
        assert [part for part in attack.said if part not in found.error] == [], found.error
    else:
        assert (found.error, found.rows, found.rejected) == ("", attack.rows, attack.rejected)
    assert found.megabytes < attack.most


LONG = 100_000
SEARCHED = 20_000
FEED = """\
feed: hostile
source:
  kind: csv
  path: rows.csv
  header: {{matches: '{pattern}|^ID$'}}
  until: '{pattern}|^END$'
key: [ID]
rows:
  - skip: {{column: TEXT, matches: '{pattern}', ignore: [case]}}
    because: matches
event:
  channelId: "7"
  title: {{first_of: [{{from: TEXT, do: [{{regex_extract: '({pattern})'}}], on_error: omit}}, untitled]}}
  startAt: "2031-05-03T20:00:00+01:00"
  timezone: Europe/Lisbon
  classifications:
    {{from: TEXT, do: [{{regex_split: '{pattern}'}}, {{map: {{x: music}}, on_miss: omit}}], on_empty: {{use: [music]}}}}
  approxLocation.city.placeId: {{from: TEXT, do: [{{lookup: cities.csv, match: regex}}], on_error: {{use: lisboa}}}}
  locationName:
    {{from: TEXT, do: [{{regex_replace: '{pattern}', with: x}}, {{regex_all: '{pattern}'}}, {{join: ' '}}], on_empty: omit}}
"""


@pytest.mark.slow(about_s=4)
@pytest.mark.parametrize(
    ("pattern", "cell"),
    [
        ("^(?:a|a)*$", "a" * LONG + "b"),
        ("(?:a?){40}a{40}$", "a" * LONG + "b"),
        ("^(?:.*?,){15}P", "1," * (LONG // 2)),
        ("(?:a+)+$", "a" * LONG + "b"),
        (r"^(?:\s*\w+\s*)+$", "é " * (LONG // 2) + "-"),
    ],
)
def test_no_pattern_takes_long_wherever_it_stands(warm: WarmStart, tmp_path: Path, pattern: str, cell: str) -> None:
    (tmp_path / "feed.yaml").write_text(FEED.format(pattern=pattern), "utf-8")
    (tmp_path / "cities.csv").write_text(f'key,placeId\n"{pattern}",lisboa\n', "utf-8")
    rows = "".join(f'2-{number},"{cell[-SEARCHED:]}"\n' for number in range(3))
    (tmp_path / "rows.csv").write_text(f'"{cell}",-\nID,TEXT\n1-x,"{cell}"\n{rows}END,\n', "utf-8")
    command = warm.start(["preview", str(tmp_path / "feed.yaml"), "--json"], os.environ, tmp_path, tmp_path / "preview")
    done = command.ended(within_s=60)  # of seconds
    assert done.code in (0, 1), done.words
    assert done.document, done.err
