"""The `source` block: the kinds of source, their shared settings, and the closed union of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from mappings.columns import ColumnRequest
from mappings.spec.soql import ApiName, FieldPaths, FieldTest, Incremental, Soql, parse_query
from mappings.spec.source_words import (
    CellRange,
    Days,
    Encodings,
    Header,
    Mark,
    Names,
    OptionalMark,
    WriteBack,
    checked_path,
    is_address,
    without_secrets,
)
from mappings.strict import Duration, OneOrMany, Pattern, Share, Strict, Text, matching, mistake, union_members

_DAILY = timedelta(days=1)
_NEVER = timedelta(days=36_500)
_LONGEST_SERIES = timedelta(days=20 * 366)


class Join(Strict):
    """A second file or tab, joined by key: its columns are added to each row, with `prefix` before their names.

    The table is read before the first row and kept in memory (at most 500,000 rows). Two of its rows with the same key are an
    error that names both. Keys are compared trimmed, as text.
    """

    source: SourceSpec
    """The second file: any kind of source."""
    by: Mapping[str, Text] = Field(min_length=1)
    """Columns of the row, and the table's columns that must equal them."""
    prefix: Text = Field(min_length=1)
    """The prefix of the table's column names: "venue."."""
    on_miss: Literal["omit", "reject"] = "omit"
    """Rows whose key is not in the table: leave out its cells, or reject the row."""


class AnySource(Strict):
    """The settings of every kind of source."""

    kind: str
    required: Names = ()
    """Columns that must be present; the feed does not run without them."""
    optional: Names = ()
    """Columns that may be missing: their cells are then empty."""
    columns: Mapping[str, Names] = Field(default_factory=dict)
    """Other names of a column, `{TITLE: [Titel, Name]}`. A source that has several of them does not run."""
    empty_if: Names = ()
    """Texts that mean an empty cell, such as "NULL", "n/a" or the error "#N/A" of a spreadsheet, in every column."""
    empty_in: Mapping[str, Names] = Field(default_factory=dict)
    """The same, by column: `{PRICE: ["-"]}`."""
    json_columns: Names = ()
    """Columns whose cells hold JSON: `details` adds the columns `details.price`, `details.tags[0]`."""
    join: Annotated[tuple[Join, ...], OneOrMany()] = ()
    """Second files or tabs, joined by key: `source`, `by`, `prefix`, `on_miss`."""

    def request(self, columns: Iterable[str]) -> ColumnRequest:
        """Return the request for a mapping's `columns` with the settings of this source."""
        return ColumnRequest(frozenset(columns).union(self.required), frozenset(self.optional), self.columns)

    @property
    def place(self) -> str:
        """The source's place as the mapping file gives it: a path, an address, the name of a table."""
        return self.kind

    @property
    def is_at_hand(self) -> bool:
        """Whether the source is on this machine, so that it can be probed without a network."""
        return False

    @property
    def full_every(self) -> timedelta | None:
        """How often an incrementally read source is read in full; None if every read is full."""
        return None

    @property
    def gives_single_rows(self) -> bool:
        """Whether an incremental read gives the changed rows only, rather than all rows or none."""
        return False


class FileSource(AnySource):
    """The settings of every kind of file."""

    path: Annotated[str, AfterValidator(checked_path)] = Field(min_length=1, repr=False)
    """Path (relative to the mapping file) or address of the file (`https://`, `sftp://`, `s3://`, ...); `*`, `?` and `[...]`
    match several files, `{date:%Y%m%d}` those of several days, read in the order of their days and names (with numbers in them
    compared as numbers).
    """
    files: Literal["all", "newest", "new"] = "all"
    """If several files match: read `all` as one; the `newest` only, by its day and name; or each `new` one once, and again when
    it changes, so that no row vanishes.
    """
    days: Days = Days()
    """Which days `{date}` covers: `back`, `ahead` and `zone`."""
    settle: Duration | None = None
    """Read a file only once it has not changed for so long (`30s`): its writer may not be done."""
    member: Text = ""
    """Which file of a zip archive to read, as a pattern: "*/events.csv" (default: its only file)."""

    @property
    def place(self) -> str:
        """The path as the mapping file gives it; an address without its password and query."""
        return without_secrets(self.path) if is_address(self.path) else self.path

    @property
    def is_at_hand(self) -> bool:
        """Whether the path is on this machine."""
        return not is_address(self.path)

    @property
    def full_every(self) -> timedelta | None:
        """How often unchanged files are read in full: remote files daily, deliveries never."""
        if self.files == "new":
            return _NEVER
        return _DAILY if is_address(self.path) else None

    @property
    def gives_single_rows(self) -> bool:
        """Whether reads give changed rows only: deliveries do, other files are read whole or not at all."""
        return self.files == "new"


class GridSource(AnySource):
    """The settings of every source with rows and columns."""

    header: Header = Header()
    """Where the columns' names are: `row`, `matches`, `rows` and `names`."""
    comment: Text = ""
    """Ignore rows whose first cell begins with this text, such as "#"."""
    until: Pattern | None = None
    """A pattern: ignore the first row with a matching cell, and all rows below."""
    long_rows: Literal["reject", "cut"] = "reject"
    """Rows with more cells than the header: reject them, or cut the extra cells."""


class DelimitedSource(FileSource, GridSource):
    """The settings of delimited text files."""

    encoding: Encodings = Field(default=("utf-8",), min_length=1)
    """Encodings to try in order; the first that decodes the whole file is used. A byte order mark takes precedence."""
    delimiter: Mark = ","
    """One character; "\\t" for tab."""
    quote: OptionalMark = '"'
    """The quote character; null if cells are never quoted."""
    escape: OptionalMark = None
    """The escape character, if quotes are not doubled."""
    skip_blanks: bool = False
    """Ignore the blanks after a delimiter, as in `a, "b, c"`: without it, a quote after a blank does not open a quoted cell."""
    short_rows: Literal["fill", "reject"] = "fill"
    """Rows with fewer cells than the header: add empty cells, or reject the rows."""

    def check(self) -> None:
        marks = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        for mark in filter(None, marks.values()):
            names = [name for name, each in marks.items() if each == mark]
            if len(names) > 1:
                hint = "look at a line of the file: write `quote: null` if no cell is quoted, and no escape if quotes are doubled"
                raise mistake(f"{' and '.join(names)} are the same character, {mark!r}", hint)


class RecordSource(FileSource):
    """The settings of files with records."""

    encoding: Encodings = ()
    """Encodings to try in order, if the file itself does not declare its encoding."""
    join_lists: Mapping[str, Text] = Field(default_factory=dict)
    """Columns whose lists of plain values are joined to one text: `{tags: "; "}`."""


class SalesforceSource(AnySource):
    """Records of a Salesforce object; the columns are its fields by their API names, in upper or lower case.

    `Venue__r.City__c` is a field of a parent, `BillingCity` a part of an address. The cells do not depend on the API used:
    moments are `2026-05-03T17:30:00Z`, days `2026-05-03`, times of day `19:30:00`, ids have 18 characters, numbers are as sent
    without a final `.0`, booleans `true` and `false`; null is empty. A multi-select picklist is one text, `A;B`. Child rows,
    which a `query` may select, are a JSON list of objects.
    """

    kind: Literal["salesforce"]
    """salesforce: the records of an object in Salesforce."""
    object: ApiName | None = None
    """The object's API name: Event__c."""
    fields: FieldPaths = ()
    """Fields to read in addition to those that the mapping uses."""
    where: Annotated[tuple[FieldTest, ...], OneOrMany()] = ()
    """The records to read: those that pass all tests of `field`, `op`, `value`."""
    query: Soql | None = None
    """A SOQL query instead of the settings above, sent as it is."""
    api: Literal["auto", "rest", "bulk"] = "auto"
    """How to read: in pages (rest), in bulk, or in bulk above 10,000 records (auto)."""
    stop_at: Share = 0.95
    """The share of the org's daily requests, used by all programs, at which a read ends; run again in an hour."""
    incremental: Incremental | None = None
    """Read only what changed: `by`, `overlap`, `full_every`."""

    @property
    def place(self) -> str:
        """The API name of the object."""
        return self.object or parse_query(self.query or "").object

    @property
    def full_every(self) -> timedelta | None:
        """How often everything is read, None if every read is full."""
        return self.incremental.full_every if self.incremental else None

    @property
    def gives_single_rows(self) -> bool:
        """Whether reads give changed records only."""
        return self.incremental is not None

    def check(self) -> None:
        if (self.object is None) == (self.query is None):
            raise mistake("a Salesforce source names an object or a query", 'write "object: Event__c", or a query instead')
        beside = [name for name in ("fields", "where", "incremental") if name in self.model_fields_set]
        if self.query is not None and beside:
            raise mistake(f"{', '.join(beside)} cannot stand beside a query", "write them into the query, or name the object")
        if self.api == "bulk" and self.query is not None and not parse_query(self.query).is_plain:
            raise mistake("child rows, groups and limits cannot be read in bulk", "write api: rest, or leave them out")


_SHEET_ADDRESS = re.compile(r"https://docs\.google\.com/(?:a/[^/]+/)?spreadsheets/(?:u/\d+/)?d/([A-Za-z0-9_-]{20,})(?:[/?#].*)?")
_GID = re.compile(r"[?#&]gid=(\d{1,10})")
_ID = re.compile(r"[A-Za-z0-9_-]{25,}")
Spreadsheet = Annotated[
    Text,
    matching(
        rf"{_SHEET_ADDRESS.pattern}|{_ID.pattern}",
        "the address of a Google spreadsheet",
        "copy it from the browser, like https://docs.google.com/spreadsheets/d/1AbC.../edit#gid=0",
    ),
]
"""A spreadsheet's address in the browser, or its id."""


class GoogleSheetsSource(GridSource):
    """A tab of a Google spreadsheet. Cells become the same text as with `xlsx`, decimals as the spreadsheet writes them.

    Text is unchanged: `02134`, `12,50`. Numbers have all their digits, the decimal mark of the spreadsheet's locale (`5`,
    `12,5`; `12.5` in an English one), and zeros if the format adds them (`12,50`; `00000` gives `02134`). Dates and times are
    ISO as the cell's format shows them, booleans `TRUE` and `FALSE`. An error such as `#REF!`, or a formula that is still
    `Loading...`, rejects the row if the column is used. `Title.link` is the first link behind the text of `Title`: of the cell,
    a part of its text, or a chip. Hidden and filtered rows are read too. The account in `GOOGLE_APPLICATION_CREDENTIALS` must
    be allowed to see the spreadsheet.
    """

    kind: Literal["google_sheets"]
    """google_sheets: a tab of a Google spreadsheet."""
    spreadsheet: Spreadsheet = Field(min_length=1)
    """The spreadsheet's address in the browser, or its id."""
    tab: Text = ""
    """The tab's name, or its position: `#2`. Default: the tab in the address, or the first."""
    gid: int | None = Field(default=None, ge=0)
    """The tab's number, at the end of its address: it does not change when the tab is renamed."""
    range: CellRange | None = None
    """The part of the tab to read, `B3:H200` or `A:F`; it includes the header."""
    merged: Literal["first", "spread"] = "first"
    """Merged cells: the value in the first cell only, or in each of them."""
    write_back: WriteBack | None = None
    """Columns of the sheet in which to write the outcome of each row: `status`, `event_id`, `problem`. Off by default."""

    def check(self) -> None:
        if self.tab and self.gid is not None:
            raise mistake("the tab is named in two ways", "write one of tab, gid")

    @property
    def place(self) -> str:
        """The spreadsheet, and the tab if it is named."""
        return f"{self.spreadsheet} ({self.tab})" if self.tab else self.spreadsheet

    @property
    def full_every(self) -> timedelta | None:
        """How often an unchanged spreadsheet is read in full: daily, in case Drive did not report a change."""
        return _DAILY

    @property
    def spreadsheet_id(self) -> str:
        """The spreadsheet's id."""
        found = _SHEET_ADDRESS.fullmatch(self.spreadsheet)
        return found[1] if found else self.spreadsheet

    @property
    def tab_number(self) -> int | None:
        """The number of the tab, None if only its name or position is known."""
        found = None if self.tab or not _SHEET_ADDRESS.fullmatch(self.spreadsheet) else _GID.search(self.spreadsheet)
        return int(found[1]) if self.gid is None and found else self.gid


class CsvSource(DelimitedSource):
    """A delimited text file: a path beside the mapping file, an absolute path, or any address that fsspec opens.

    Columns are found by the names in the header, regardless of case, spaces and Unicode form. A column without a name is named
    after its position, `#3`. The third column can always be written as `#3` or `#C`. Columns with one name are `Name#1`,
    `Name#2`: a feed that uses plain `Name` then stops before it reads a row.
    """

    kind: Literal["csv"]
    """csv: a delimited text file."""


class TsvSource(DelimitedSource):
    """A text file with tabs between the cells; otherwise like `csv`."""

    kind: Literal["tsv"]
    """tsv: a text file with tabs between the cells."""
    delimiter: Mark = "\t"
    """One character (default: tab)."""


class WorkbookSource(FileSource, GridSource):
    """A sheet of an Excel workbook (.xlsx, .xlsm). Cells become the text that a plain format shows.

    Text is unchanged. Numbers have no needless digits (`5`, `12.5`), dates and times are ISO (`2026-05-03`, `19:30`,
    `2026-05-03T19:30:00`, as the cell's format shows them), booleans `TRUE` and `FALSE`. An error such as `#REF!` or a formula
    that was never calculated rejects the row if the column is used. `Title.link` is the link behind the text of `Title`: of the
    cell, or in a formula `HYPERLINK("https://...", ...)`. Hidden rows are read too.
    """

    kind: Literal["xlsx"]
    """xlsx: a sheet of an Excel workbook."""
    sheet: Text = Field(default="#1", min_length=1)
    """The sheet's name, or its position: `#2`."""
    range: CellRange | None = None
    """The part of the sheet to read, such as `B3:H200` or `A:F`; it includes the header."""
    merged: Literal["first", "spread"] = "first"
    """Merged cells: the value in the first cell only, or in each of them."""


class JsonSource(RecordSource):
    """A JSON document; each record is an object of the array at the path `records`.

    Columns are paths: `venue.address.city`, `images[0].url`. A list is a cell of JSON text unless `join_lists` names it. A
    number keeps its digits as text; `null` is an empty cell.
    """

    kind: Literal["json"]
    """json: a JSON document."""
    records: Text = ""
    """The path to the records: `data.events`, `days[*].events` (default: the document is the array). `*` is each value of an
    object by any key: `*` for an object of records by id, `days.rooms.*` for the lists below each room of each day. The key is
    the column `#key`; with several `*`, `#key2` is the key of the last but one.
    """


class NdjsonSource(RecordSource):
    """A text file with a JSON object on each line; it has the same columns as `json`."""

    kind: Literal["ndjson"]
    """ndjson: a JSON object on each line."""


class XmlSource(RecordSource):
    """An XML document; each record is an element.

    Columns are paths: `venue.city`, an attribute is `@id` or `price.@currency`. A repeated element is a list (`image[1].@url`),
    a cell of JSON text unless `join_lists` names it. Entities are refused.
    """

    kind: Literal["xml"]
    """xml: an XML document."""
    records: Text = Field(min_length=1)
    """The element of a record: its name, `event`, or its path from the root, `agenda/events/event`."""


class SeriesSpan(Strict):
    """The span in which the occurrences of series are read: whole days, relative to the day of the run in UTC."""

    start: Duration = Field(default=timedelta(days=-30), alias="from")
    """Occurrences that end before are left out; -30d is 30 days ago."""
    end: Duration = Field(default=timedelta(days=365), alias="to")
    """Occurrences that begin later are left for a later run."""

    def check(self) -> None:
        if self.start >= self.end or self.end - self.start > _LONGEST_SERIES:
            raise mistake("`from` is before `to`, by at most 20 years", "write it like {from: -30d, to: 365d}")


class IcsSource(RecordSource):
    """An iCalendar file (RFC 5545). Each single event and each occurrence of a series is a row; the properties of its event are
    the columns: `UID`, `SUMMARY`, `DTSTART`.

    Dates are ISO: `2026-05-03` (all day), `2026-05-03T19:30:00` (with its zone in `DTSTART.TZID`, or none),
    `2026-05-03T17:30:00Z` (also if the file defines the zone otherwise than its name says). `DTEND` is exclusive, as in the file.
    `RECURRENCE-ID` is the time at which an occurrence of a series would have begun, "" for single events: UID and RECURRENCE-ID
    are the key. Of several versions of an event the one with the highest SEQUENCE is read. `CATEGORIES` are joined by `;`.
    Properties of the whole calendar are in each row: `X-WR-TIMEZONE`, `X-WR-CALNAME`.
    """

    kind: Literal["ics"]
    """ics: an iCalendar file."""
    series: SeriesSpan = Field(default_factory=SeriesSpan)
    """Which occurrences of series are read: `{from: -30d, to: 365d}` around the day of the run."""


def _kind_of_source(value: object) -> str:
    if isinstance(value, AnySource):
        return f"kind:{value.kind}"
    if isinstance(value, dict):
        return f"kind:{value.get('kind', 'block')}"
    return f"kind:{type(value).__name__.lower()}"


SourceSpec = Annotated[
    Annotated[CsvSource, Tag("kind:csv")]
    | Annotated[TsvSource, Tag("kind:tsv")]
    | Annotated[WorkbookSource, Tag("kind:xlsx")]
    | Annotated[JsonSource, Tag("kind:json")]
    | Annotated[NdjsonSource, Tag("kind:ndjson")]
    | Annotated[XmlSource, Tag("kind:xml")]
    | Annotated[IcsSource, Tag("kind:ics")]
    | Annotated[GoogleSheetsSource, Tag("kind:google_sheets")]
    | Annotated[SalesforceSource, Tag("kind:salesforce")],
    Discriminator(_kind_of_source),
]
"""The closed union of source kinds, discriminated by `kind`."""
SOURCES: Mapping[str, type[AnySource]] = union_members(SourceSpec)
"""The model of each kind of source, in the order of the reference page."""
Join.model_rebuild(_types_namespace={"SourceSpec": SourceSpec})
