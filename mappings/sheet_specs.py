"""Where a feed's rows come from if that is a spreadsheet on the web: the words of `kind: google_sheets`.

How Google is asked is `connectors.sources`'s; who we are to it comes from the environment.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from mappings.measures import Text, mistake
from mappings.source_bases import GridSource
from mappings.source_parts import CELL_RANGE, WriteBack

_ADDRESS = re.compile(r"https://docs\.google\.com/(?:a/[^/]+/)?spreadsheets/(?:u/\d+/)?d/([A-Za-z0-9_-]{20,})(?:[/?#].*)?")
_GID = re.compile(r"[?#&]gid=(\d{1,10})")
_ID = re.compile(r"[A-Za-z0-9_-]{25,}")
_DAILY = timedelta(days=1)
_NAMED = re.compile(r"[^\W\d]\w{0,249}")


def _spreadsheet(text: str) -> str:
    if "://" in text and not _ADDRESS.fullmatch(text):
        hint = "copy it from the browser, like https://docs.google.com/spreadsheets/d/1AbC.../edit#gid=0"
        raise mistake(f'"{text}" is not the address of a Google spreadsheet', hint)
    return text


def _range(text: str) -> str:
    plain = text.replace("$", "").upper()
    if not plain or not (CELL_RANGE.fullmatch(plain) or _NAMED.fullmatch(text)):
        raise mistake(f'"{text}" is neither a range of cells nor the name of one', 'write it like "B3:H200" or "Programme"')
    return text


Spreadsheet = Annotated[Text, AfterValidator(_spreadsheet)]
"""A spreadsheet's address in the browser, its id, or its title."""
SheetRange = Annotated[
    str, AfterValidator(_range), WithJsonSchema({"type": "string", "examples": ["B3:H200", "A:F", "Programme"]})
]
"""A range of cells, or the name that the spreadsheet's owner has given one."""


class GoogleSheetsSource(GridSource):
    """A tab of a Google spreadsheet. Cells become the text that `xlsx` would make of them, decimals as the spreadsheet writes.

    Text stays as it is: `02134`, `12,50`. Numbers have all their digits, behind the decimal mark of the spreadsheet's locale
    (`5`, `12,5`; `12.5` in an English one), and zeros where the format adds them (`12,50`; `00000` gives `02134`). Dates and
    times are ISO as the cell's format shows them, booleans `TRUE` and `FALSE`. An error such as `#REF!`, or a formula that is
    still `Loading...`, rejects the row if the column is used. Hidden rows, and those that a filter hides, are rows. The
    account that `GOOGLE_APPLICATION_CREDENTIALS` names must be allowed to see the spreadsheet.
    """

    kind: Literal["google_sheets"] = Field(description="google_sheets: a tab of a Google spreadsheet.")
    spreadsheet: Spreadsheet = Field(
        min_length=1, description="The spreadsheet's address in the browser, its id, or its title (which the Drive API looks up)."
    )
    tab: Text = Field(
        default="", description="The tab's name, or its position: `#2`. Nothing: the first, or the one in the address."
    )
    gid: int | None = Field(
        default=None, ge=0, description="The tab's number, as its address ends: it stays when the tab is renamed."
    )
    range: SheetRange | None = Field(
        default=None,
        description="The part of the tab to read, `B3:H200` or `A:F`, or the name of a range; the header's row is counted in it.",
    )
    merged: Literal["first", "spread"] = Field(
        default="first", description="Merged cells: the value in the first cell only, or in each of them."
    )
    write_back: WriteBack | None = Field(
        default=None,
        description="Columns to tell the sheet in what became of its rows: `status`, `event_id`, `problem`. Off by default.",
    )

    @model_validator(mode="after")
    def _one_tab(self) -> Self:
        if self.tab and self.gid is not None:
            raise mistake("the tab is named in two ways", "write one of tab, gid")
        return self

    @property
    def place(self) -> str:
        """The spreadsheet, and the tab if it is named."""
        return f"{self.spreadsheet} ({self.tab})" if self.tab else self.spreadsheet

    @property
    def full_every(self) -> timedelta | None:
        """Daily: a spreadsheet is read whole by then, though Drive says that it is as it was."""
        return _DAILY

    @property
    def gives_single_rows(self) -> bool:
        """It is read whole, unless it is as it was."""
        return False

    @property
    def can_be_looked_at(self) -> bool:
        """Drive tells its version."""
        return True

    @property
    def spreadsheet_id(self) -> str:
        """The spreadsheet's id, "" where only its title is known."""
        if found := _ADDRESS.fullmatch(self.spreadsheet):
            return found[1]
        return self.spreadsheet if _ID.fullmatch(self.spreadsheet) else ""

    @property
    def tab_number(self) -> int | None:
        """The number of the tab, None where it is known by name or position only."""
        found = None if self.tab or not _ADDRESS.fullmatch(self.spreadsheet) else _GID.search(self.spreadsheet)
        return int(found[1]) if self.gid is None and found else self.gid
