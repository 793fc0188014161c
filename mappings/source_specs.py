"""Where a feed's rows come from, as its mapping file says it: one model per kind of source, a closed union.

How a source is read is `connectors.sources`'s; what the kinds share is `source_bases`'.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, Tag

from mappings.choices import OneOf
from mappings.measures import Text
from mappings.salesforce_specs import SalesforceSource
from mappings.sheet_specs import GoogleSheetsSource
from mappings.source_bases import AnySource, DelimitedSource, FileSource, GridSource, Join, RecordSource
from mappings.source_parts import CellRange, Mark


class CsvSource(DelimitedSource):
    """A delimited text file: a path beside the mapping file, an absolute path, or any address that fsspec opens.

    Columns are found by the names in the header, whatever their case, spaces or Unicode form; a column without a name
    is called after its position, `#3`, and of several with one name the later ones are `Name#2`, `Name#3`. The third
    column can always be asked for as `#3` or `#C`.
    """

    kind: Literal["csv"] = Field(description="csv: a delimited text file.")


class TsvSource(DelimitedSource):
    """A text file with tabs between the cells; in all else like `csv`."""

    kind: Literal["tsv"] = Field(description="tsv: a text file with tabs between the cells.")
    delimiter: Mark = Field(default="\t", description="One character; a tab, if nothing is said.")


class WorkbookSource(FileSource, GridSource):
    """A sheet of an Excel workbook (.xlsx, .xlsm). Cells become the text that a person sees in a plain format.

    Text stays as it is. Numbers have no needless digits (`5`, `12.5`), dates and times are ISO (`2026-05-03`, `19:30`,
    `2026-05-03T19:30:00`, as the cell's format shows them), booleans `TRUE` and `FALSE`. An error such as `#REF!` or a
    formula that was never calculated rejects the row if the column is used. Hidden rows are rows.
    """

    kind: Literal["xlsx"] = Field(description="xlsx: a sheet of an Excel workbook.")
    sheet: Text = Field(default="#1", min_length=1, description="The sheet's name, or its position: `#2`.")
    range: CellRange | None = Field(
        default=None, description="The part of the sheet to read, such as `B3:H200` or `A:F`; the header's row is counted in it."
    )
    merged: Literal["first", "spread"] = Field(
        default="first", description="Merged cells: the value in the first cell only, or in each of them."
    )


class JsonSource(RecordSource):
    """A JSON document; each record is an object of the array that `records` leads to.

    Columns are paths: `venue.address.city`, `images[0].url`. A list is a cell of JSON text unless `join_lists` names it. A
    number is the text that stands there, `null` an empty cell.
    """

    kind: Literal["json"] = Field(description="json: a JSON document.")
    records: Text = Field(
        default="", description="The way to the records: `data.events`, `days[*].events`; nothing: the document is the array."
    )


class NdjsonSource(RecordSource):
    """A text file with a JSON object on each line; its columns are those of `json`."""

    kind: Literal["ndjson"] = Field(description="ndjson: a JSON object on each line.")


class XmlSource(RecordSource):
    """An XML document; each record is an element.

    Columns are paths: `venue.city`, an attribute is `@id` or `price.@currency`. An element that stands there several times
    is a list (`image[1].@url`), a cell of JSON text unless `join_lists` names it. Entities are refused.
    """

    kind: Literal["xml"] = Field(description="xml: an XML document.")
    records: Text = Field(
        min_length=1,
        description="The records' element: its name, `event`, or the way to it from the root, `agenda/events/event`.",
    )
    namespaces: Literal["keep", "drop"] = Field(
        default="keep", description="Names with a prefix, such as `dc:date`: keep it as it stands in the file, or drop it."
    )


class IcsSource(RecordSource):
    """An iCalendar file (RFC 5545); each record is a VEVENT and its properties are the columns: `UID`, `SUMMARY`, `DTSTART`.

    Dates are ISO: `2026-05-03` (all day), `2026-05-03T19:30:00` (with its zone in `DTSTART.TZID`, or none),
    `2026-05-03T17:30:00Z`. `DTEND` is exclusive, as it stands. `CATEGORIES`, `EXDATE` and `RDATE` are joined by `;`. What is
    said of the calendar as a whole stands in each row: `X-WR-TIMEZONE`, `X-WR-CALNAME`.
    """

    kind: Literal["ics"] = Field(description="ics: an iCalendar file.")


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
    OneOf(_kind_of_source),
]
"""The closed union of source kinds, discriminated by `kind`."""

SOURCES: tuple[type[AnySource], ...] = (
    CsvSource,
    TsvSource,
    WorkbookSource,
    JsonSource,
    NdjsonSource,
    XmlSource,
    IcsSource,
    GoogleSheetsSource,
    SalesforceSource,
)
"""Every kind, in the order of the reference."""

SHARED: tuple[type[AnySource], ...] = (AnySource, FileSource, GridSource, DelimitedSource, RecordSource)
"""What the kinds share, the widest first."""

Join.model_rebuild(_types_namespace={"SourceSpec": SourceSpec})


def kind_word(model: type[AnySource]) -> str:
    """Return the word that stands for a kind in `kind`."""
    return str(get_args(model.model_fields["kind"].annotation)[0])
