"""A spreadsheet of the look-alike for one test, and what a source reads of it; waits are over at once and written down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lookalikes.sheets import ACCOUNT, Google, google_on
from lookalikes.sheets_book import Book, Content, Sheet

from connectors.masking import Mask
from connectors.sources.catalogue import open_source
from connectors.sources.contract import Access, Clock, GoogleAccess, Source
from mappings.outcome import SourceRow
from mappings.spec.source import GoogleSheetsSource

ID = "1lookalike-spreadsheet-of-a-test"


@dataclass
class Desk:
    """`waits` are the seconds that the source asked to wait; its clock, which the service goes by too, moves by them alone."""

    google: Google
    credentials: Path
    book: Book
    waits: list[float] = field(default_factory=list)
    mask: Mask = field(default_factory=Mask)

    @property
    def sheet(self) -> Sheet:
        return self.book.sheets[0]

    @property
    def access(self) -> Access:
        return Access(google=GoogleAccess(self.credentials, self.google.base_url), mask=self.mask)

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: 0.0, clock_s=lambda: sum(self.waits), sleep=self.waits.append, chance=lambda: 0.5)

    def spec(self, **words: Any) -> GoogleSheetsSource:
        return GoogleSheetsSource.model_validate({"kind": "google_sheets", "spreadsheet": ID, **words})

    def source(self, *columns: str, since: str = "", **words: Any) -> Source:
        asked = frozenset(columns)
        return open_source(self.spec(**words), Path(), asked, access=self.access, since=since, clock=self.clock)

    def rows(self, *columns: str, **words: Any) -> list[SourceRow]:
        with self.source(*columns, **words).read() as reading:
            return list(reading.rows)

    def cells(self, *columns: str, **words: Any) -> list[tuple[str, ...]]:
        return [tuple(row.cells.values()) for row in self.rows(*columns, **words)]

    def stamp(self, **words: Any) -> str:
        with self.source(**words).read() as reading:
            return reading.stamp

    def requests(self, part: str = "/v4/") -> list[str]:
        return [asked for asked in self.google.asked if part in asked]


@contextmanager
def sheet_of(base: Path, grid: Sequence[Sequence[Content]], **words: Any) -> Iterator[Desk]:
    """Put a grid into the tab `Programme` of a spreadsheet that is shared with the service account only."""
    tab = Sheet("Programme", [list(row) for row in grid], **words)
    with google_on(Google()) as google:
        book = google.add(Book(ID, "Town programme", [tab], readers={ACCOUNT}))
        desk = Desk(google, google.credentials(base / "account.json"), book)
        google.clock = lambda: sum(desk.waits)
        yield desk
