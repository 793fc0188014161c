"""Where rows come from: the kinds of source, what they share, and the closed union of them all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema

from mappings.spec.soql import ApiName, FieldPaths, FieldTest, Incremental, Soql, parse_query
from mappings.spec.source_words import (
    CELL_RANGE,
    CellRange,
    Days,
    Encodings,
    Header,
    Mark,
    MarkerName,
    Names,
    OptionalMark,
    Size,
    WriteBack,
    checked_path,
    is_address,
    without_secrets,
)
from mappings.strict import Duration, OneOrMany, Pattern, Share, Strict, Text, matching, mistake, union_members

_DAILY = timedelta(days=1)
_NEVER = timedelta(days=36_500)


class Join(Strict):
    """A second file or tab, found by its key: its columns stand beside those of each row, named after `prefix`.

    The table is read before the first row and kept in memory (at most 500,000 rows). Two of its rows with one key are an
    error that names both. Keys are compared trimmed, as text.
    """

    source: SourceSpec
    """The second file: a source like any other."""
    by: Mapping[str, Text] = Field(min_length=1)
    """Columns of the row, and the table's columns that must equal them."""
    prefix: Text = Field(min_length=1)
    """What the names of the table's columns begin with here: "venue."."""
    on_miss: Literal["omit", "reject"] = "omit"
    """Rows whose key the table lacks: they go without its cells, or are rejected."""


class AnySource(Strict):
    """What is said of a source of any kind."""

    kind: str
    required: Names = ()
    """Columns without which the feed must not run."""
    optional: Names = ()
    """Columns that may be absent: their cells are then empty."""
    columns: Mapping[str, Names] = Field(default_factory=dict)
    """Other names of a column, `{TITLE: [Titel, Name]}`: the first that is there is it."""
    empty_if: Names = ()
    """Texts that mean an empty cell, such as "NULL" or "n/a", in every column."""
    empty_in: Mapping[str, Names] = Field(default_factory=dict)
    """The same, by column: `{PRICE: ["-"]}`."""
    json_columns: Names = ()
    """Columns whose cells hold JSON: `details` then gives `details.price`, `details.tags[0]`."""
    join: Annotated[tuple[Join, ...], OneOrMany()] = ()
    """Second files or tabs whose rows are found by a key: `source`, `by`, `prefix`, `on_miss`."""

    @property
    def place(self) -> str:
        """Where its rows are, as its mapping file says it: a path, an address, the name of a table."""
        return self.kind

    @property
    def is_at_hand(self) -> bool:
        """Whether it is on this machine, to be looked into without asking anybody."""
        return False

    @property
    def full_every(self) -> timedelta | None:
        """How often a source that is read by what changed is read from its start all the same; None: it always is."""
        return None

    @property
    def gives_single_rows(self) -> bool:
        """Whether a reading that goes on gives the rows that changed without the others; else it gives all of them, or none."""
        return False


class FileSource(AnySource):
    """What is said of a file of any kind."""

    path: Annotated[str, AfterValidator(checked_path)] = Field(min_length=1, repr=False)
    """Path (relative to the mapping file) or address of the file (`https://`, `sftp://`, `s3://`, ...); `*`, `?` and `[...]`
    match several files, `{date:%Y%m%d}` those of several days, read in the order of their days and names (numbers in them
    count as numbers)."""
    files: Literal["all", "newest", "new"] = "all"
    """Of several files that match: `all` are read as one; the `newest` only, by its day and name; or each `new` one once, and
    again when it changes: deliveries, of which no row vanishes."""
    days: Days = Days()
    """Which days `{date}` stands for: `back`, `ahead` and `zone`."""
    settle: Duration | None = None
    """A file counts once it has not changed for so long (`30s`): its writer may not be done."""
    marker: MarkerName | None = None
    """A file counts once another one lies beside it: "{name}.done", "{stem}.ok"."""
    member: Text = ""
    """Which file of a zip archive is meant, as a pattern: "*/events.csv"; nothing: its only one."""
    largest: Size | None = None
    """How large a file elsewhere may be to be fetched; 2 GB, if nothing is said."""

    @property
    def place(self) -> str:
        """The path, as it stands in the mapping file; of an address no password and no query."""
        return without_secrets(self.path) if is_address(self.path) else self.path

    @property
    def is_at_hand(self) -> bool:
        """Whether the path is one of this machine."""
        return not is_address(self.path)

    @property
    def full_every(self) -> timedelta | None:
        """Files elsewhere are fetched daily, though they say that they have not changed; deliveries are read once each."""
        if self.files == "new":
            return _NEVER
        return _DAILY if is_address(self.path) else None

    @property
    def gives_single_rows(self) -> bool:
        """Only deliveries do; any other file is read whole, unless it is as it was."""
        return self.files == "new"


class GridSource(AnySource):
    """What is said of rows and columns, in a file or elsewhere."""

    header: Header = Header()
    """Where the columns' names stand: `row`, `matches`, `rows` and `names`."""
    comment: Text = ""
    """Rows whose first cell begins so, such as "#", are no rows."""
    footer: int = Field(default=0, ge=0, le=1000)
    """So many rows at the end, blank ones not counted, are no rows."""
    until: Pattern | None = None
    """A pattern: the first row with a cell in which it is found, and all below, are no rows."""
    long_rows: Literal["reject", "cut"] = "reject"
    """Rows with more cells than the header: reject them, or cut the surplus."""


class DelimitedSource(FileSource, GridSource):
    """What is said of a delimited text file."""

    encoding: Encodings = Field(default=("utf-8",), min_length=1)
    """Encodings to try, in order; the first that decodes the whole file wins. A byte order mark goes before all."""
    delimiter: Mark = ","
    """One character; "\\t" for tab."""
    quote: OptionalMark = '"'
    """The quote character; null: quotes mean nothing in this file."""
    escape: OptionalMark = None
    """Escape character, if quotes are not doubled."""

    short_rows: Literal["fill", "reject"] = "fill"
    """Rows with fewer cells than the header: fill them up with empty cells, or reject them."""

    def check(self) -> None:
        marks = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        for mark in filter(None, marks.values()):
            names = [name for name, each in marks.items() if each == mark]
            if len(names) > 1:
                hint = "look at a line of the file; `quote: null` if quotes mean nothing there, no escape if quotes are doubled"
                raise mistake(f"{' and '.join(names)} are the same character, {mark!r}", hint)


class RecordSource(FileSource):
    """What is said of a file of records."""

    encoding: Encodings = ()
    """Encodings to try, in order, where the file itself does not say which it is in."""
    join_lists: Mapping[str, Text] = Field(default_factory=dict)
    """Columns whose lists of plain values become one text: `{tags: "; "}`."""


class SalesforceSource(AnySource):
    """Records of a Salesforce object; the columns are its fields by their API names, in upper or lower case.

    `Venue__r.City__c` is a field of a parent, `BillingAddress.city` a part of an address, `Sessions__r` the child rows named
    under `children`. Whether a record comes over one API or the other, its cells are the same: moments as
    `2026-05-03T17:30:00Z`, days as `2026-05-03`, times of day as `19:30:00`, ids with 18 characters, numbers as they are
    sent without a final `.0`, `true` and `false`; what is null is empty. A multi-select picklist is one text, `A;B`.
    """

    kind: Literal["salesforce"]
    """salesforce: the records of an object in Salesforce."""
    object: ApiName | None = None
    """The object's API name: Event__c."""
    fields: FieldPaths = ()
    """Fields to read besides those that the mapping uses."""
    where: Annotated[tuple[FieldTest, ...], OneOrMany()] = ()
    """Which records to read: those for which each `field`, `op`, `value` holds."""
    children: Mapping[ApiName, FieldPaths] = Field(default_factory=dict)
    """Child rows, and their fields: `{Sessions__r: [Name, Start__c]}` gives a column of JSON, a list of objects."""
    query: Soql | None = None
    """Instead of all that: a query in SOQL, asked as it stands."""
    api: Literal["auto", "rest", "bulk"] = "auto"
    """How to read: in pages, in bulk, or as their number suggests."""
    bulk_above: int = Field(default=10_000, ge=0)
    """More records than that are read in bulk, if `api` is auto."""
    stop_at: Share = 0.95
    """The share of the org's daily requests, used by all programs, at which we stop and go on later."""
    incremental: Incremental | None = None
    """Read only what changed: `by`, `overlap`, `full_every`."""

    @property
    def place(self) -> str:
        """The object, by its API name."""
        return self.object or parse_query(self.query or "").object

    @property
    def full_every(self) -> timedelta | None:
        """How often everything is read, if else only changes are."""
        return self.incremental.full_every if self.incremental else None

    @property
    def gives_single_rows(self) -> bool:
        """Only what changed, where the file says so."""
        return self.incremental is not None

    def check(self) -> None:
        if (self.object is None) == (self.query is None):
            raise mistake("a Salesforce source names an object or a query", 'write "object: Event__c", or a query instead')
        beside = [name for name in ("fields", "where", "children", "incremental") if name in self.model_fields_set]
        if self.query is not None and beside:
            raise mistake(f"{', '.join(beside)} cannot stand beside a query", "write them into the query, or name the object")
        has_children = bool(self.children) or (self.query is not None and not parse_query(self.query).is_plain)
        if self.api == "bulk" and has_children:
            raise mistake("child rows, groups and limits cannot be read in bulk", "write api: rest, or leave them out")


_SHEET_ADDRESS = re.compile(r"https://docs\.google\.com/(?:a/[^/]+/)?spreadsheets/(?:u/\d+/)?d/([A-Za-z0-9_-]{20,})(?:[/?#].*)?")
_GID = re.compile(r"[?#&]gid=(\d{1,10})")
_ID = re.compile(r"[A-Za-z0-9_-]{25,}")
_NAMED = re.compile(r"[^\W\d]\w{0,249}")


def _range(text: str) -> str:
    plain = text.replace("$", "").upper()
    if not plain or not (CELL_RANGE.fullmatch(plain) or _NAMED.fullmatch(text)):
        raise mistake(f'"{text}" is neither a range of cells nor the name of one', 'write it like "B3:H200" or "Programme"')
    return text


Spreadsheet = Annotated[
    Text,
    matching(
        rf"{_SHEET_ADDRESS.pattern}|(?!.*://).*",
        "the address of a Google spreadsheet",
        "copy it from the browser, like https://docs.google.com/spreadsheets/d/1AbC.../edit#gid=0",
    ),
]
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
    still `Loading...`, rejects the row if the column is used. `Title.link` is the first link behind the text of `Title`: of the
    cell, a part of its text, or a chip. Hidden rows, and those that a filter hides, are rows. The
    account that `GOOGLE_APPLICATION_CREDENTIALS` names must be allowed to see the spreadsheet.
    """

    kind: Literal["google_sheets"]
    """google_sheets: a tab of a Google spreadsheet."""
    spreadsheet: Spreadsheet = Field(min_length=1)
    """The spreadsheet's address in the browser, its id, or its title (which the Drive API looks up)."""
    tab: Text = ""
    """The tab's name, or its position: `#2`. Nothing: the first, or the one in the address."""
    gid: int | None = Field(default=None, ge=0)
    """The tab's number, as its address ends: it stays when the tab is renamed."""
    range: SheetRange | None = None
    """The part of the tab to read, `B3:H200` or `A:F`, or the name of a range; the header's row is counted in it."""
    merged: Literal["first", "spread"] = "first"
    """Merged cells: the value in the first cell only, or in each of them."""
    write_back: WriteBack | None = None
    """Columns of the sheet to write into what became of its rows: `status`, `event_id`, `problem`. Off by default."""

    def check(self) -> None:
        if self.tab and self.gid is not None:
            raise mistake("the tab is named in two ways", "write one of tab, gid")

    @property
    def place(self) -> str:
        """The spreadsheet, and the tab if it is named."""
        return f"{self.spreadsheet} ({self.tab})" if self.tab else self.spreadsheet

    @property
    def full_every(self) -> timedelta | None:
        """Daily: a spreadsheet is read whole by then, though Drive says that it is as it was."""
        return _DAILY

    @property
    def spreadsheet_id(self) -> str:
        """The spreadsheet's id, "" where only its title is known."""
        if found := _SHEET_ADDRESS.fullmatch(self.spreadsheet):
            return found[1]
        return self.spreadsheet if _ID.fullmatch(self.spreadsheet) else ""

    @property
    def tab_number(self) -> int | None:
        """The number of the tab, None where it is known by name or position only."""
        found = None if self.tab or not _SHEET_ADDRESS.fullmatch(self.spreadsheet) else _GID.search(self.spreadsheet)
        return int(found[1]) if self.gid is None and found else self.gid


class CsvSource(DelimitedSource):
    """A delimited text file: a path beside the mapping file, an absolute path, or any address that fsspec opens.

    Columns are found by the names in the header, regardless of case, spaces and Unicode form; a column without a name
    is called after its position, `#3`, and of several with one name the later ones are `Name#2`, `Name#3`. The third
    column can always be asked for as `#3` or `#C`.
    """

    kind: Literal["csv"]
    """csv: a delimited text file."""


class TsvSource(DelimitedSource):
    """A text file with tabs between the cells; in all else like `csv`."""

    kind: Literal["tsv"]
    """tsv: a text file with tabs between the cells."""
    delimiter: Mark = "\t"
    """One character; a tab, if nothing is said."""


class WorkbookSource(FileSource, GridSource):
    """A sheet of an Excel workbook (.xlsx, .xlsm). Cells become the text that a person sees in a plain format.

    Text stays as it is. Numbers have no needless digits (`5`, `12.5`), dates and times are ISO (`2026-05-03`, `19:30`,
    `2026-05-03T19:30:00`, as the cell's format shows them), booleans `TRUE` and `FALSE`. An error such as `#REF!` or a
    formula that was never calculated rejects the row if the column is used. `Title.link` is the link behind the text of `Title`:
    of the cell, or in a formula `HYPERLINK("https://...", ...)`. Hidden rows are rows.
    """

    kind: Literal["xlsx"]
    """xlsx: a sheet of an Excel workbook."""
    sheet: Text = Field(default="#1", min_length=1)
    """The sheet's name, or its position: `#2`."""
    range: CellRange | None = None
    """The part of the sheet to read, such as `B3:H200` or `A:F`; the header's row is counted in it."""
    merged: Literal["first", "spread"] = "first"
    """Merged cells: the value in the first cell only, or in each of them."""


class JsonSource(RecordSource):
    """A JSON document; each record is an object of the array that `records` leads to.

    Columns are paths: `venue.address.city`, `images[0].url`. A list is a cell of JSON text unless `join_lists` names it. A
    number is the text that stands there, `null` an empty cell.
    """

    kind: Literal["json"]
    """json: a JSON document."""
    records: Text = ""
    """The way to the records: `data.events`, `days[*].events`; nothing: the document is the array."""


class NdjsonSource(RecordSource):
    """A text file with a JSON object on each line; its columns are those of `json`."""

    kind: Literal["ndjson"]
    """ndjson: a JSON object on each line."""


class XmlSource(RecordSource):
    """An XML document; each record is an element.

    Columns are paths: `venue.city`, an attribute is `@id` or `price.@currency`. An element that stands there several times
    is a list (`image[1].@url`), a cell of JSON text unless `join_lists` names it. Entities are refused.
    """

    kind: Literal["xml"]
    """xml: an XML document."""
    records: Text = Field(min_length=1)
    """The records' element: its name, `event`, or the way to it from the root, `agenda/events/event`."""
    namespaces: Literal["keep", "drop"] = "keep"
    """Names with a prefix, such as `dc:date`: keep it as it stands in the file, or drop it."""


class IcsSource(RecordSource):
    """An iCalendar file (RFC 5545); each record is a VEVENT and its properties are the columns: `UID`, `SUMMARY`, `DTSTART`.

    Dates are ISO: `2026-05-03` (all day), `2026-05-03T19:30:00` (with its zone in `DTSTART.TZID`, or none),
    `2026-05-03T17:30:00Z`. `DTEND` is exclusive, as it stands. `CATEGORIES`, `EXDATE` and `RDATE` are joined by `;`. What is
    said of the calendar as a whole stands in each row: `X-WR-TIMEZONE`, `X-WR-CALNAME`.
    """

    kind: Literal["ics"]
    """ics: an iCalendar file."""


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
"""Every kind by its word, in the order of the reference."""
Join.model_rebuild(_types_namespace={"SourceSpec": SourceSpec})
