"""Google Sheets as kinds of source: tabs of the look-alike, one of a size that one request reads and one that takes several."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.source_kinds import Grid, Kind, Stand
from lookalikes.sheets import Fault, Google, google_on
from lookalikes.sheets_book import Book, Sheet

from connectors.masking import Mask
from connectors.sources.contract import Access, GoogleAccess
from mappings.spec.source import GoogleSheetsSource, SourceSpec

_ID = "1lookalike-spreadsheet-of-the-contract"


@dataclass
class SheetStand:
    """A spreadsheet with one tab. With `tall` its grid is so tall that it is read in several requests."""

    base: Path
    google: Google
    tall: bool
    place: str = _ID
    port: int = 0
    access: Access = field(init=False)
    environment: Mapping[str, str] = field(init=False)
    secrets: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        file = self.google.credentials(self.base / "account.json")
        key = json.loads(file.read_text("utf-8"))["private_key"].splitlines()[1]
        self.port = self.google.port
        self.access = Access(google=GoogleAccess(file, self.google.base_url), mask=Mask([key]))
        self.environment = {"GOOGLE_APPLICATION_CREDENTIALS": str(file), "EVENTSYNC_SHEETS_URL": self.google.base_url}
        self.secrets = (key, "ya29.")

    def put(self, grid: Grid) -> SourceSpec:
        cells: list[list[Any]] = [[cell or None for cell in row] for row in grid]
        tab = Sheet("Programme", cells, rows=6_000 if self.tall else 1_000, columns=26)
        book = self.google.books.get(_ID) or self.google.add(Book(_ID, "Town programme", []))
        book.sheets = [tab]
        return GoogleSheetsSource(kind="google_sheets", spreadsheet=_ID)

    def take_away(self) -> None:
        self.google.books[_ID].readers = set()

    def break_off(self) -> None:
        self.google.faults.append(Fault("ranges=", "cut", times=10**9))


def _stand(*, tall: bool) -> Callable[[Path], AbstractContextManager[Stand]]:
    @contextmanager
    def stand(base: Path) -> Iterator[Stand]:
        with google_on(Google()) as google:
            yield SheetStand(base, google, tall)

    return stand


SHEET_KINDS = [
    Kind("google_sheets", _stand(tall=False), ends_at_filled=True, is_measured=False, knows_versions=True),
    Kind("google_sheets in several requests", _stand(tall=True), ends_at_filled=True, is_measured=False, knows_versions=True),
]
