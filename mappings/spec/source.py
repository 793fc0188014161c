"""The `source` block: the kinds of source, their shared settings, and the closed union of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, PlainValidator, Tag, ValidationInfo
from pydantic_core import PydanticOmit

from mappings.columns import ColumnRequest
from mappings.spec.command import check_words
from mappings.spec.plugins import installed_kinds, plugin_model
from mappings.spec.rest import SINCE, Auth, Pages, Template, filled, utc_text
from mappings.spec.soql import ApiName, FieldPaths, FieldTest, Incremental, Soql, parse_query
from mappings.spec.source_base import AnySource, FileSource, GridSource, Join, RecordSource
from mappings.spec.source_words import (
    CellRange,
    Encodings,
    Mark,
    MarkedChanges,
    OptionalMark,
    SecretName,
    WriteBack,
    without_secrets,
)
from mappings.spec.sql import Condition, Query, TableName
from mappings.strict import Duration, OneOrMany, Share, Strict, Text, matching, mistake, union_members

_DAILY = timedelta(days=1)
_LONGEST_SERIES = timedelta(days=20 * 366)


class DelimitedSource(FileSource, GridSource):
    """The settings of delimited text files."""

    encoding: Encodings = Field(default=("utf-8",), min_length=1)
    """Encodings to try in order; the first that decodes the whole file is used. A byte order mark takes precedence. A file of
    UTF-8 is refused if none of them is: it would become other letters.
    """
    delimiter: Mark = ","
    """One character; "\\t" for tab."""
    quote: OptionalMark = '"'
    """The quote character; null if cells are never quoted."""
    escape: OptionalMark = None
    """The escape character, if quotes are not doubled."""
    skip_blanks: bool = False
    """Ignore the blanks after a delimiter, as in `a, "b, c"`: without it, a quote after a blank does not open a quoted cell."""
    short_rows: Literal["fill", "reject"] = "fill"
    """Rows with fewer cells than the header: add empty cells, or reject the rows.

    A last row that alone lacks cells, and has no line end, is rejected in any case: the file is cut off.
    """

    def check(self) -> None:
        marks = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        for mark in filter(None, marks.values()):
            names = [name for name, each in marks.items() if each == mark]
            if len(names) > 1:
                hint = "look at a line of the file: write `quote: null` if no cell is quoted, and no escape if quotes are doubled"
                raise mistake(f"{' and '.join(names)} are the same character, {mark!r}", hint)


def _check_query(source: SalesforceSource | SqlSource, name: str, words: frozenset[str]) -> None:
    """Check that a source has a query or the setting `name`, and the query none of the `words` beside it."""
    if (getattr(source, name) is None) == (source.query is None):
        raise mistake(f"a source of kind {source.kind} has `{name}` or `query`", "write one of them")
    if source.query is not None and (beside := sorted(words & source.model_fields_set)):
        raise mistake(f"{', '.join(beside)} cannot stand beside a query", f"write them into the query, or name the {name}")


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

    def changed_between(self, begin: datetime, end: datetime) -> Self:
        """Return the source of the records that changed in a span; Salesforce reads exactly these."""
        begins = FieldTest(field=self.changed_by, op=">=", value=(begin.isoformat(),))
        ends = FieldTest(field=self.changed_by, op="<", value=(end.isoformat(),))
        return self.model_copy(update={"where": (*self.where, begins, ends), "incremental": None})

    def check(self) -> None:
        _check_query(self, "object", frozenset({"fields", "where", "incremental"}))
        if self.api == "bulk" and self.query is not None and not parse_query(self.query).is_plain:
            raise mistake("child rows, groups and limits cannot be read in bulk", "write api: rest, or leave them out")


class SqlSource(AnySource):
    """The rows of a database with a SQLAlchemy dialect; the columns are those of the table or query, in upper or lower case.

    NULL and JSON's `null` are empty. Moments with a zone are `2026-05-03T17:30:00Z`, others have no offset; numbers have all
    their digits, booleans are `true` and `false`, arrays a JSON list. A binary value, `infinity` and a date BC reject the row.
    """

    kind: Literal["sql"]
    """sql: the rows of a database."""
    connection: SecretName
    """The name of the connection: `WAREHOUSE` if the SQLAlchemy address is in `SQL_WAREHOUSE`."""
    table: TableName | None = None
    """A table or view: `events`, `public.events`. Only the columns that the mapping uses are read."""
    where: Condition = ""
    """The condition of the rows to read, in SQL: "status = 'public'"."""
    query: Query | None = None
    """A statement that reads, instead of a table."""
    timeout: Duration = timedelta(hours=1)
    """The longest that the database may work on one statement."""
    incremental: MarkedChanges | None = None
    """Read only what changed: `by`, `overlap`, `full_every`, `deleted`."""

    @property
    def place(self) -> str:
        """The connection's name, with that of the table."""
        return f"{self.connection}.{self.table}" if self.table else self.connection

    def check(self) -> None:
        _check_query(self, "table", frozenset({"where", "incremental"}))


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


class CommandSource(AnySource):
    """Lines of JSON that a program prints; it is started without a shell, in the folder of the mapping file.

    Only where the environment says EVENTSYNC_ALLOW_COMMANDS=1. No row is read before the program has ended with exit code 0,
    its last line has an end, and the stream has come. Columns are those of `ndjson`. The program sees PATH, HOME, the locale, the
    time zone, proxies and certificates of our environment, and nothing else of it.
    """

    kind: Literal["command"]
    """command: lines of JSON that a program prints."""
    run: Annotated[tuple[Text, ...], Field(min_length=1)]
    """The program and its words. A program with a slash in its name starts at the mapping file's folder, one without is looked
    for in PATH. `{config}` stands for the file with the configuration.
    """
    speaks: Literal["json", "singer", "airbyte"] = "json"
    """What the lines are: records (`json`), or messages of a Singer tap or an Airbyte connector."""
    stream: Text = ""
    """The stream to read, of a tap or connector that sends several."""
    config: SecretName = ""
    """The configuration, a JSON text: `MEETUP` is the environment variable TAP_MEETUP, or the file that TAP_MEETUP_FILE names."""
    resume: tuple[Text, ...] = ()
    """Further words to continue after an earlier read; `{state}` stands for the file with the last STATE. Without them every read
    is full.
    """
    full_read_every: Duration = Field(default=_DAILY, alias="full_every")
    """How often to read everything nevertheless, with `resume`."""
    deleted: Text = ""
    """The column that says that a record is deleted: filled with anything but a false value (`false`, `0`, `no`)."""
    timeout: Duration = timedelta(hours=1)
    """How long the program may take."""
    join_lists: Mapping[str, Text] = Field(default_factory=dict)
    """Columns whose lists of plain values are joined to one text: `{tags: "; "}`."""

    @property
    def place(self) -> str:
        """The program with its words up to the first option, and the stream."""
        words = takewhile(lambda word: not word.startswith(("-", "{")), self.run[1:])
        name = " ".join(PurePath(word).name for word in (self.run[0], *words))
        return f"{name} {self.stream}".rstrip()

    @property
    def full_every(self) -> timedelta | None:
        """How often everything is read, None if every read is full."""
        return self.full_read_every if self.resume else None

    @property
    def gives_single_rows(self) -> bool:
        """Whether reads give what changed since the last STATE only."""
        return bool(self.resume)

    def check(self) -> None:
        check_words(self.run, self.resume, self.speaks, self.stream, self.config)
        if min(self.timeout, self.full_read_every) <= timedelta():
            raise mistake("timeout and full_every must be more than zero", 'write them like "1h" and "1d"')


class PluginSource(AnySource):
    """The settings of a kind of source from an installed package: a subclass with its `kind` and its `read`.

    An entry point of the group `eventsync.sources` names the subclass; its own name is the kind.
    """

    def read(self, asked: ColumnRequest, access: Any, since: str, clock: Any) -> AbstractContextManager[Any]:
        """Open a `Reading` of the columns `asked` for, under the contract of `connectors.sources.contract`.

        `access`: an `Access` with all secrets; `since`: the cursor of an earlier reading, "" for none; `clock`: a `Clock`.
        """
        raise NotImplementedError(self.kind, asked, access, since, clock)


_PLUGIN = "installed"


def _as_plugin(value: Any, info: ValidationInfo) -> PluginSource:
    return value if isinstance(value, PluginSource) else plugin_model(value, PluginSource, info.context)


class _AnyBlock:
    """The JSON Schema of a block whose kind is from a package that is installed here, if there is one."""

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        if not (kinds := [kind for kind in installed_kinds() if kind not in SOURCES]):
            raise PydanticOmit
        return {"type": "object", "properties": {"kind": {"enum": kinds}}, "required": ["kind"]}


class RestSource(AnySource):
    """The records of a JSON API that gives them in pages; it has the same columns as `json`.

    No row is made before the last page has come. `{since}` in `url`, `params` or `body` is the moment from which changes are
    read (`2026-05-03T17:30:00Z`): a full read leaves out the parameters, and the members of the body, that need it.
    """

    kind: Literal["rest"]
    """rest: the records of a JSON API."""
    url: Annotated[Text, matching("https?://.+", "a web address", "write it like https://example.org/api/events")] = Field(
        repr=False
    )
    """The address of the first page."""
    params: Mapping[str, Text] = Field(default_factory=dict, repr=False)
    """Parameters to add to the address: `{per_page: 100}`."""
    headers: Mapping[str, Text] = Field(default_factory=dict, repr=False)
    """Headers to send; secrets belong into `auth`."""
    method: Literal["GET", "POST"] = "GET"
    """How to ask."""
    body: Mapping[str, Template] | None = Field(default=None, repr=False)
    """The JSON to send with `method: POST`; `50` and `true` have no quotes in it, `'"50"'` has."""
    auth: Auth = Field(default_factory=Auth)
    """How the API lets us in: `bearer`, `basic`, `header`, `param`, `oauth2`."""
    records: Text = ""
    """The path to the list of records: `data.events` (default: the answer is the list)."""
    pages: Pages
    """How the pages follow one another: `link`, `next_url`, `cursor`, `offset` or `page`."""
    join_lists: Mapping[str, Text] = Field(default_factory=dict)
    """Columns whose lists of plain values are joined to one text: `{tags: "; "}`."""
    incremental: MarkedChanges | None = None
    """Read only what changed, by `{since}`: `by`, `overlap`, `full_every`, `deleted`."""

    @property
    def place(self) -> str:
        """The address without its secrets."""
        return without_secrets(self.url)

    def changed_between(self, begin: datetime, end: datetime) -> Self:
        """Return the source of the records that changed in a span: asked for since its begin, and cut off at its end."""
        return super().changed_between(begin, end).since(utc_text(begin))

    def since(self, moment: str) -> Self:
        """Return the source with the moment in place of `{since}`; "": with all records."""
        filled_in = {name: filled(getattr(self, name), moment) for name in ("params", "body")}
        return self.model_copy(update={"url": self.url.replace(SINCE, moment or "1970-01-01T00:00:00Z"), **filled_in})

    def check(self) -> None:
        if (SINCE in str((self.url, self.params, self.body))) != bool(self.incremental):
            hint = 'write them like params: {modified_after: "{since}"}, incremental: {by: updated_at}'
            raise mistake("incremental and a place for {since} belong together", hint)
        if self.body is not None and self.method != "POST":
            raise mistake("a body belongs to POST", "write method: POST")


def _kind_of_source(value: object) -> str:
    if isinstance(value, PluginSource):
        return f"kind:{_PLUGIN}"
    if isinstance(value, AnySource):
        return f"kind:{value.kind}"
    if isinstance(value, dict):
        kind = value.get("kind", "block")
        is_plugin = isinstance(kind, str) and kind not in SOURCES and kind in installed_kinds()
        return f"kind:{_PLUGIN if is_plugin else kind}"
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
    | Annotated[SalesforceSource, Tag("kind:salesforce")]
    | Annotated[CommandSource, Tag("kind:command")]
    | Annotated[SqlSource, Tag("kind:sql")]
    | Annotated[RestSource, Tag("kind:rest")]
    | Annotated[PluginSource, PlainValidator(_as_plugin), _AnyBlock(), Tag(f"kind:{_PLUGIN}")],
    Discriminator(_kind_of_source),
]
"""The union of source kinds, discriminated by `kind`: ours, and those of installed packages."""
SOURCES: Mapping[str, type[AnySource]] = {name: kind for name, kind in union_members(SourceSpec).items() if name != _PLUGIN}
"""The model of each kind of our own, in the order of the reference page."""
Join.model_rebuild(_types_namespace={"SourceSpec": SourceSpec})
