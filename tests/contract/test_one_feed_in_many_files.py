"""The same rows in files of every kind: the same keys, the same bytes to the service."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import date, time
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
import xlsxwriter

from connectors.sources.catalogue import open_source
from mappings.compiler.mapper import compile_feed
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowOutcome
from mappings.reasons import ReasonCode
from mappings.yaml.loader import parse_feed

COLUMNS = ("REF", "TITLE", "DAY", "HOUR", "PRICE", "POSTCODE", "VENUE")
ROWS = [
    ("918000000000001", "Café, „Jazz“ & Blues", "2026-05-03", "19:30", "12.5", "02134", "Łódź\nul. Piotrkowska 1"),
    ("2", 'Die "Große" Nacht', "2026-06-01", "", "5", "00501", ""),
    ("3", "", "2026-06-01", "20:00", "", "", "no title"),
]

FIRST = (
    '{"approxLocation":{"city":{"countryCode":"DE","name":"Berlin","placeId":"de-berlin"}},"channelId":1,"classifications":["music"],'
    '"locationName":"Łódź, ul. Piotrkowska 1","price":"12.5","reference":"02134","startAt":"2026-05-03T19:30:00+02:00",'
    '"timezone":"Europe/Berlin","title":"Café, „Jazz“ & Blues"}'
)
SECOND = (
    '{"approxLocation":{"city":{"countryCode":"DE","name":"Berlin","placeId":"de-berlin"}},"channelId":1,"classifications":["music"],'
    '"price":"5","reference":"00501","startAt":"2026-06-01T00:00:00+02:00","timezone":"Europe/Berlin",'
    r'"title":"Die \"Große\" Nacht"}'
)

FEED = """
feed: everywhere
source: {SOURCE}
key: REF
let:
  day: {from: DAY, do: [{date: "%Y-%m-%d"}]}
  clock: {from: HOUR, do: [{time: "%H:%M"}], on_empty: omit}
extra: [reference, price]
event:
  channelId: {channel: city-agenda}
  title: TITLE_VALUE
  startAt: {at: {day: $day, clock: $clock, zone: Europe/Berlin, all_day: "00:00"}}
  timezone: Europe/Berlin
  classifications: [music]
  approxLocation.city: {placeId: de-berlin, name: Berlin, countryCode: DE}
  locationName: {from: VENUE, do: [{newlines: ", "}], on_empty: omit}
  reference: {from: POSTCODE, on_empty: omit}
  price: {from: PRICE, on_empty: omit}
""".replace("TITLE_VALUE", "{from: TITLE}")


def _delimited(encoding: str, delimiter: str = ",") -> Callable[[Path], None]:
    def put(path: Path) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=delimiter).writerows([COLUMNS, *ROWS])
        path.write_bytes(text.getvalue().encode(encoding))

    return put


def _put_xlsx(path: Path) -> None:
    """Write what a person would: numbers, dates and times as such, a post code as a number shown with its zero."""
    with xlsxwriter.Workbook(path) as workbook:
        page = workbook.add_worksheet()
        day, clock = workbook.add_format({"num_format": "dd.mm.yyyy"}), workbook.add_format({"num_format": "hh:mm"})
        code = workbook.add_format({"num_format": "00000"})
        page.write_row(0, 0, COLUMNS)
        for number, cells in enumerate(ROWS, start=1):
            page.write_number(number, 0, int(cells[0]))
            page.write_string(number, 1, cells[1])
            page.write_datetime(number, 2, date.fromisoformat(cells[2]), day)
            if cells[3]:
                page.write_datetime(number, 3, time.fromisoformat(cells[3]), clock)
            if cells[4]:
                page.write_number(number, 4, float(cells[4]))
            if cells[5]:
                page.write_number(number, 5, int(cells[5]), code)
            page.write_string(number, 6, cells[6])


def _record(cells: tuple[str, ...]) -> dict[str, object]:
    record: dict[str, object] = dict(zip(COLUMNS, cells, strict=True))
    return {**record, "REF": int(cells[0]), "PRICE": float(cells[4]) if cells[4] else None}


def _put_json(path: Path) -> None:
    path.write_text(json.dumps([_record(cells) for cells in ROWS], indent=1).replace("5.0,", "5,"), "utf-8")


def _put_ndjson(path: Path) -> None:
    path.write_text("".join(f"{json.dumps(_record(cells))}\n" for cells in ROWS).replace("5.0,", "5,"), "utf-8")


def _put_xml(path: Path) -> None:
    def event(ref: str, *cells: str) -> str:
        inside = (f"<{name}>{escape(cell)}</{name}>" for name, cell in zip(COLUMNS[1:], cells, strict=True))
        return f'<event REF="{ref}">{"".join(inside)}</event>'

    events = "".join(event(*cells) for cells in ROWS)
    path.write_text(f'<?xml version="1.0" encoding="utf-16"?><agenda>{events}</agenda>', "utf-16")


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "utf-8": ("{kind: csv, path: a.file}", _delimited("utf-8")),
    "utf-8 with a mark": ("{kind: csv, path: a.file, delimiter: ;}", _delimited("utf-8-sig", ";")),
    "utf-16": ("{kind: csv, path: a.file}", _delimited("utf-16")),
    "utf-16-le without a mark": ("{kind: csv, path: a.file, encoding: utf-16-le}", _delimited("utf-16-le")),
    "gb18030": ("{kind: csv, path: a.file, encoding: [ascii, gb18030]}", _delimited("gb18030")),
    "tsv": ("{kind: tsv, path: a.file}", _delimited("utf-8", "\t")),
    "xlsx": ("{kind: xlsx, path: a.file}", _put_xlsx),
    "json": ("{kind: json, path: a.file}", _put_json),
    "ndjson": ("{kind: ndjson, path: a.file}", _put_ndjson),
    "xml": ('{kind: xml, path: a.file, records: event, columns: {REF: "@REF"}}', _put_xml),
}


def _outcomes(folder: Path, source: str) -> list[RowOutcome]:
    mapping = parse_feed(FEED.replace("{SOURCE}", source), folder / "feed.yaml")
    mapper = compile_feed(mapping, Directory({"city-agenda": 1}, frozenset({"music"})))
    with open_source(mapping.source, folder, mapper.columns).read() as reading:
        return list(mapper.over(reading.rows))


@pytest.mark.parametrize("name", FILES)
def test_the_same_rows_give_the_same_keys_and_bytes_from_a_file_of_any_kind(name: str, tmp_path: Path) -> None:
    source, put = FILES[name]
    put(tmp_path / "a.file")
    first, second, third = _outcomes(tmp_path, source)
    assert isinstance(first, MappedRow)
    assert isinstance(second, MappedRow)
    assert isinstance(third, Rejection)
    assert (first.row_key, second.row_key, third.row_key) == ("918000000000001", "2", "3")
    assert (first.body.decode(), second.body.decode()) == (FIRST, SECOND)
    assert [(reason.field, reason.column) for reason in third.reasons] == [("title", "TITLE")]


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("{kind: csv, path: a.file}", "REF,TITLE,DAY,HOUR,PRICE,POSTCODE,VENUE,NOTE\n1,x,2026-05-03,,,,,{}\n"),
        (
            "{kind: json, path: a.file, optional: [HOUR, PRICE, POSTCODE, VENUE]}",
            '[{{"REF":"1","TITLE":"x","DAY":"2026-05-03","NOTE":"{}"}}]',
        ),
    ],
    ids=["csv", "json"],
)
def test_bytes_that_are_no_text_in_a_column_that_nobody_uses_are_a_warning(source: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "a.file").write_bytes(content.format("caf\udce9").encode("utf-8", "surrogateescape"))
    (row,) = _outcomes(tmp_path, source)
    assert isinstance(row, MappedRow)
    assert [(reason.code, reason.column, reason.found) for reason in row.warnings] == [
        (ReasonCode.UNDECODABLE, "NOTE", "caf\\xe9")
    ]
