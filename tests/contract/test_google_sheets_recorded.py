"""What Google has really answered, as gspread's own tests recorded it, replayed to our client; and the look-alike beside it.

`recorded/google-sheets/answers.json` holds the answers to GET requests of each recording's last session, without the
spreadsheets' themes. Our requests name the fields that they want, the recorded ones did not: an answer may hold more.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from google.auth.credentials import AnonymousCredentials
from lookalikes.sheets import Google, google_on
from lookalikes.sheets_book import Book, Cell, Place, Sheet, cell_data, day, grid_range
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter
from urllib3 import HTTPResponse

from connectors.masking import Mask
from connectors.sources.contract import Clock, SourceRefusedError
from connectors.sources.formats.sheet_grid import Area, SheetRow, spread
from connectors.sources.google_sheets.client import GoogleClient
from connectors.sources.google_sheets.spreadsheet import GoogleCells, GoogleSpreadsheet, Tab, plain_value
from connectors.sources.rows import read_header
from mappings.columns import column_names
from mappings.spec.source_words import Header

ANSWERS = json.loads((Path(__file__).parent / "recorded" / "google-sheets" / "answers.json").read_text("utf-8"))
OURS = ("valueRenderOption", "dateTimeRenderOption")


class Recording(BaseAdapter):
    """Answers as was recorded: of several answers to one address the last, or those of `session`, in their order."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.answers: list[dict[str, Any]] = list(ANSWERS[name])
        self.asked: list[str] = []
        self.timeouts: set[Any] = set()

    def send(self, request: PreparedRequest, **wishes: Any) -> Response:  # type: ignore[override]
        self.timeouts.add(wishes["timeout"])
        assert request.url is not None
        self.asked.append(request.url)
        found = self._found(request.url)
        response = Response()
        response.status_code, response.request, response.url = found["status"], request, request.url
        response.raw = HTTPResponse(io.BytesIO(json.dumps(found["body"]).encode()), preload_content=False)
        return response

    def _found(self, url: str) -> dict[str, Any]:
        path, query = urlsplit(url).path, parse_qs(urlsplit(url).query)
        same = [one for one in self.answers if unquote(urlsplit(one["uri"]).path) == unquote(path)]
        if not same and path.endswith("/values:batchGet"):
            blocks = [self._block(path.removesuffix(":batchGet"), place, query) for place in query["ranges"]]
            return {"status": 200, "body": {"valueRanges": blocks}}
        assert same, f"nothing was recorded for {url}"
        return same[-1]

    def _block(self, path: str, place: str, query: Mapping[str, list[str]]) -> Any:
        """A batch of ranges was recorded range by range."""
        same = [one for one in self.answers if unquote(urlsplit(one["uri"]).path) == f"{unquote(path)}/{place}"]
        assert same, f"nothing was recorded for {place}"
        asked = [parse_qs(urlsplit(one["uri"]).query) for one in same]
        rendered = [one for one, its in zip(same, asked, strict=True) if all(its.get(name) == query.get(name) for name in OURS)]
        return (rendered or same)[-1]["body"]

    def close(self) -> None:
        pass


def replayed(name: str) -> tuple[GoogleSpreadsheet, Recording]:
    recording = Recording(name)
    credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
    credentials.account = "reader@example.org"
    wire = GoogleClient(credentials, "", Mask(), Clock(sleep=lambda _: None))
    wire.session.mount("https://", recording)
    ids = [
        urlsplit(one["uri"]).path.split("/")[3].partition(":")[0] for one in ANSWERS[name] if "/v4/spreadsheets/" in one["uri"]
    ]
    return GoogleSpreadsheet(wire, ids[-1], name), recording


def test_a_spreadsheet_that_is_not_ours_to_see() -> None:
    sheet, _ = replayed("ClientTest.test_access_private_spreadsheet")
    with pytest.raises(SourceRefusedError, match="The caller does not have permission") as caught:
        sheet.parts()
    assert "share the spreadsheet with reader@example.org" in caught.value.hint


def test_the_time_of_the_last_change() -> None:
    sheet, recording = replayed("SpreadsheetTest.test_get_lastUpdateTime")
    after = sheet.version()
    recording.answers.pop()
    before = sheet.version()
    assert (before, after) == ("modifiedTime=2023-09-06T21:29:57.905Z", "modifiedTime=2023-09-06T21:30:02.174Z")


def test_the_locale_and_the_tabs() -> None:
    sheet, recording = replayed("SpreadsheetTest.test_timezone_and_locale")
    looked = sheet.parts()
    assert recording.timeouts == {(10.0, 180.0)}
    assert looked.locale == "fr_FR"
    recording.answers.pop()
    assert sheet.parts().locale == "en_US"
    tabs = replayed("SpreadsheetTest.test_worksheets")[0].parts()
    assert tabs.tabs == (Tab(0, "Sheet1", 1000, 26), Tab(736036187, "finances", 100, 100))


VALUES: list[tuple[str, list[str], list[list[list[Any]]]]] = [
    (
        "SpreadsheetTest.test_values_batch_get",
        [f"'🌵 test_values_batch_get 1'!{column}:{column}" for column in "ABC"],
        [[["🍇"], ["🍐"]], [["🍉"], ["🍎"]], [["🍋"], ["🍓"]]],
    ),
    ("WorksheetTest.test_batch_get", ["'Sheet1'!A1:B1", "'Sheet1'!B4:D4"], [[["A1", "B1"]], [["B4", "", "D4"]]]),
    ("WorksheetTest.test_get_all_values", ["'Sheet1'"], [[["A1", "B1", "", "D1"], ["", "b2"], [], ["A4", "B4", "", "D4"]]]),
    ("WorksheetTest.test_get_returns_ValueRange_with_metadata", ["'Sheet1'!A1:D4"], [[["1"], [], [], ["", "", "", "2"]]]),
]


@pytest.mark.parametrize(("name", "places", "blocks"), VALUES, ids=[name for name, *_ in VALUES])
def test_values_are_read_block_by_block_with_blank_rows_and_cells_in_between(
    name: str, places: list[str], blocks: list[list[list[Any]]]
) -> None:
    sheet, _ = replayed(name)
    assert sheet.values(places) == blocks


def test_dates_are_numbers_and_become_the_days_that_google_itself_shows() -> None:
    sheet, recording = replayed("WorksheetTest.test_get_all_values_date_time_render_options")
    (values,) = sheet.values(["'Sheet1'"])
    shown = next(one["body"]["values"] for one in recording.answers if "=FORMATTED_VALUE" in one["uri"])
    typed = [[cell_data(one) for one in row] for row in ([2, day(43831), "string", 53], [1.5, 0.12, day(36162)])]
    assert [[GoogleCells().text(one) for one in row] for row in typed] == shown
    assert [[plain_value(one) for one in row] for row in typed] == values == [[2, 43831, "string", 53], [1.5, 0.12, 36162]]


@pytest.mark.parametrize(
    ("name", "columns"),
    [("duplicate_keys", ("A1", "faff#1", "C3", "faff#2")), ("with_all_values_blank", ("a", "b", "c", "d"))],
)
def test_a_header_with_a_name_twice_or_without_rows_loses_no_column(name: str, columns: tuple[str, ...]) -> None:
    sheet, _ = replayed(f"WorksheetTest.test_get_all_records_{name}")
    (values,) = sheet.values(["'Sheet1'"])
    rows = iter(values)
    assert column_names(read_header(Header(), "Sheet1", lambda: next(rows, None))) == columns


def test_merged_cells() -> None:
    sheet, recording = replayed("WorksheetTest.test_get_values_and_combine_merged_cells")
    merged = sheet.piece("'Sheet1'!A1:D4").merged
    assert merged == (Area(1, 1, 2, 2), Area(3, 2, 4, 2), Area(3, 3, 3, 4))
    (values,) = sheet.values(["'Sheet1'"])
    rows = (SheetRow(number, [*row, *[""] * (4 - len(row))]) for number, row in enumerate(values, start=1))
    found = ["|".join(row.cells) for row in spread(rows, merged, Area(1, 1, 4, 4))]
    assert found == ["1|1||", "1|1|title|title", "||2|", "num|val|2|0"]
    assert recording.asked


def test_the_look_alike_answers_as_the_recordings_do() -> None:
    recorded = ANSWERS["WorksheetTest.test_get_values_and_combine_merged_cells"][-1]["body"]
    merged = [(1, 1, 2, 2), (2, 3, 2, 4), (3, 3, 4, 3)]
    tab = Sheet("Sheet1", [], rows=4, columns=4, merged=merged)
    assert recorded["sheets"][0]["properties"] == tab.properties
    for one, told in zip(tab.merged, recorded["sheets"][0]["merges"], strict=True):
        assert grid_range(0, Place(*one)) == {"sheetId": 0, **told}
    typed = [[Cell(2, formula="=4/2"), day(43831), "string", 53], [1.5, 0.12, day(36162), None]]
    with google_on(Google()) as google:
        google.add(Book("1a-book-of-the-look-alike-for-replays", "t", [Sheet("Sheet1", typed)]))
        google.tokens["t"] = ("a", {"https://www.googleapis.com/auth/spreadsheets.readonly"})
        login = AnonymousCredentials()  # type: ignore[no-untyped-call]
        wire = GoogleClient(login, google.base_url, Mask(), Clock())
        with wire.session:
            wire.session.headers["Authorization"] = "Bearer t"
            found = GoogleSpreadsheet(wire, "1a-book-of-the-look-alike-for-replays", "t").values(["'Sheet1'"])
    assert found == [[[2, 43831, "string", 53], [1.5, 0.12, 36162]]]
