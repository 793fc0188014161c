"""Files of every format as kinds of source, each written into a folder of the test's own."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from contract.source_kinds import Grid, Kind, in_folder
from workbooks import write_xlsx

from mappings.spec.source import CsvSource, IcsSource, JsonSource, NdjsonSource, SourceSpec, TsvSource, WorkbookSource, XmlSource


def _csv_kind(name: str, *, encoding: str = "utf-8", line_end: str = "\n", **dialect: Any) -> Kind:
    def put(base: Path, grid: Grid) -> SourceSpec:
        spec = CsvSource(kind="csv", path="events.csv", encoding=(encoding,), **dialect)
        with (base / spec.path).open("w", encoding=encoding, newline="") as file:
            how = {"delimiter": spec.delimiter, "quotechar": spec.quote, "escapechar": spec.escape}
            lines = csv.writer(file, **how, doublequote=spec.escape is None, lineterminator=line_end, quoting=csv.QUOTE_ALL)
            lines.writerows(grid)
        return spec

    return Kind(name, in_folder(put), lambda cell: cell.encode(encoding, "ignore").decode(encoding, "ignore") == cell)


def _packed_kind(name: str, pack: Callable[[bytes], bytes], member: str = "") -> Kind:
    def put(base: Path, grid: Grid) -> SourceSpec:
        _write_csv(base, grid)
        path = base / "events.csv"
        path.write_bytes(pack(path.read_bytes()))
        return CsvSource(kind="csv", path=path.name, member=member)

    return Kind(name, in_folder(put))


def _zipped(content: bytes, **others: str) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in others.items():
            file.writestr(zipfile.ZipInfo(name), text)
        file.writestr(zipfile.ZipInfo("export/events.csv"), content, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _write_csv(base: Path, grid: Grid, **dialect: Any) -> None:
    with (base / "events.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, **dialect).writerows(grid)


def _put_tsv(base: Path, grid: Grid) -> SourceSpec:
    _write_csv(base, grid, delimiter="\t")
    return TsvSource(kind="tsv", path="events.csv")


def _plain_kind(name: str, path: str = "events.csv", **rules: Any) -> Kind:
    def put(base: Path, grid: Grid) -> SourceSpec:
        _write_csv(base, grid)
        return CsvSource(kind="csv", path=path, **rules)

    return Kind(name, in_folder(put))


def _put_xlsx(base: Path, grid: Grid) -> SourceSpec:
    if grid:
        write_xlsx(base / "events.csv", grid)
    else:
        (base / "events.csv").write_bytes(b"")
    return WorkbookSource(kind="xlsx", path="events.csv")


def _records(grid: Grid) -> list[dict[str, str]]:
    return [dict(zip(grid[0], cells, strict=True)) for cells in grid[1:]] if grid else []


def _put_json(base: Path, grid: Grid) -> SourceSpec:
    text = json.dumps({"data": {"events": _records(grid)}, "n": 1}) if grid else ""
    (base / "events.csv").write_text(text, "utf-8")
    return JsonSource(kind="json", path="events.csv", records="data.events")


def _put_ndjson(base: Path, grid: Grid) -> SourceSpec:
    text = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in _records(grid))
    (base / "events.csv").write_text(text or "\n" * bool(grid), "utf-8")
    return NdjsonSource(kind="ndjson", path="events.csv")


def _put_xml(base: Path, grid: Grid) -> SourceSpec:
    def element(record: dict[str, str]) -> str:
        cells = (f"<{name}>{escape(cell, {chr(13): '&#13;'})}</{name}>" for name, cell in record.items())
        return f"<event>{''.join(cells)}</event>"

    text = f"<agenda><events>{''.join(map(element, _records(grid)))}</events></agenda>" if grid else ""
    (base / "events.csv").write_text(text, "utf-8")
    return XmlSource(kind="xml", path="events.csv", records="agenda/events/event")


def _put_ics(base: Path, grid: Grid) -> SourceSpec:
    def line(name: str, cell: str) -> str:
        escaped = cell.replace("\\", "\\\\").replace(",", "\\,").replace(";", "\\;").replace("\n", "\\n")
        return "\r\n ".join(textwrap.wrap(f"{name}:", 60) + [escaped[place : place + 60] for place in range(0, len(escaped), 60)])

    def event(record: dict[str, str]) -> list[str]:
        return ["BEGIN:VEVENT", *(line(name, cell) for name, cell in record.items()), "END:VEVENT"]

    lines = ["BEGIN:VCALENDAR", *(one for record in _records(grid) for one in event(record)), "END:VCALENDAR", ""]
    (base / "events.csv").write_bytes("\r\n".join(lines).encode() if grid else b"")
    return IcsSource(kind="ics", path="events.csv")


def _is_xml(text: str) -> bool:
    return all(char in "\t\n\r" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char > "\uffff" for char in text)


def _is_sheet(text: str) -> bool:
    """Workbooks escape what XML cannot say, and keep CR LF as LF."""
    return _is_xml(text) and "\r" not in text and "_x" not in text and len(text) < 32_000


FILE_KINDS = [
    _csv_kind("csv"),
    _csv_kind("csv as Excel writes it", encoding="utf-8-sig", delimiter=";", line_end="\r\n"),
    _csv_kind("csv of an old program", encoding="windows-1252", delimiter=";", quote="'", line_end="\r"),
    _csv_kind("csv with tabs in UTF-16", encoding="utf-16", delimiter="\t", line_end="\r\n"),
    _csv_kind("csv in UTF-16 without a mark", encoding="utf-16-le"),
    _csv_kind("csv in UTF-32", encoding="utf-32"),
    _csv_kind("csv with escapes", escape="\\"),
    _csv_kind("csv in Korean", encoding="cp949", delimiter="|"),
    _csv_kind("csv in Japanese", encoding="shift_jis"),
    Kind("tsv", in_folder(_put_tsv)),
    _packed_kind("csv.gz", lambda content: gzip.compress(content, mtime=0)),  # nothing packed says when it was
    _packed_kind("csv.bz2", bz2.compress),
    _packed_kind("csv.xz", lzma.compress),
    _packed_kind("csv in a zip", _zipped),
    _packed_kind("csv in a zip of several files", lambda content: _zipped(content, readme="see export"), "*/events.csv"),
    _plain_kind("many files", "events*.csv"),
    _plain_kind("a feed's rules for cells", empty_if=("~~~",)),
    Kind("xlsx", in_folder(_put_xlsx), _is_sheet, ends_at_filled=True),
    Kind("json", in_folder(_put_json), first=1, is_grid=False),
    Kind("ndjson", in_folder(_put_ndjson), first=1, is_grid=False),
    Kind("xml", in_folder(_put_xml), _is_xml, first=1, is_grid=False),
    Kind("ics", in_folder(_put_ics), lambda text: "\r" not in text and "\0" not in text, first=None, is_grid=False),
]
