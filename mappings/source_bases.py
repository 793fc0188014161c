"""What the kinds of source share: the columns of any, the place of a file, the layout of a grid, the text of records.

The kinds themselves are `source_specs`'; the small values that they are made of are `source_parts`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from mappings.file_names import Days, MarkerName, Size, checked_path, is_address, without_secrets
from mappings.measures import Duration, OneOrMany, Pattern, Text, mistake
from mappings.source_parts import Encoding, Header, Mark, Names, OptionalMark
from mappings.strict import Strict

if TYPE_CHECKING:
    from mappings.source_specs import SourceSpec

_DAILY = timedelta(days=1)
_NEVER = timedelta(days=36_500)


class Join(Strict):
    """A second file or tab, found by its key: its columns stand beside those of each row, named after `prefix`.

    The table is read before the first row and kept in memory (at most 500,000 rows). Two of its rows with one key are an
    error that names both. Keys are compared trimmed, as text.
    """

    source: SourceSpec = Field(description="The second file: a source like any other.")
    by: Mapping[str, Text] = Field(min_length=1, description="Columns of the row, and the table's columns that must equal them.")
    prefix: Text = Field(min_length=1, description='What the names of the table\'s columns begin with here: "venue.".')
    on_miss: Literal["omit", "reject"] = Field(
        default="omit", description="Rows whose key the table lacks: they go without its cells, or are rejected."
    )


class AnySource(Strict):
    """What is said of a source of any kind."""

    kind: str
    required: Names = Field(default=(), description="Columns without which the feed must not run.")
    optional: Names = Field(default=(), description="Columns that may be absent: their cells are then empty.")
    columns: Mapping[str, Names] = Field(
        default_factory=dict, description="Other names of a column, `{TITLE: [Titel, Name]}`: the first that is there is it."
    )
    empty_if: Names = Field(default=(), description='Texts that mean an empty cell, such as "NULL" or "n/a", in every column.')
    empty_in: Mapping[str, Names] = Field(default_factory=dict, description='The same, by column: `{PRICE: ["-"]}`.')
    json_columns: Names = Field(
        default=(), description="Columns whose cells hold JSON: `details` then gives `details.price`, `details.tags[0]`."
    )
    join: Annotated[tuple[Join, ...], OneOrMany()] = Field(
        default=(), description="Second files or tabs whose rows are found by a key: `source`, `by`, `prefix`, `on_miss`."
    )

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
        return self.full_every is not None

    @property
    def can_be_looked_at(self) -> bool:
        """Whether a glance tells that something has come or changed, without reading it."""
        return False


class FileSource(AnySource):
    """What is said of a file of any kind."""

    path: Annotated[str, AfterValidator(checked_path)] = Field(
        min_length=1,
        repr=False,  # an address may hold a password
        description="Path (relative to the mapping file) or address of the file (`https://`, `sftp://`, `s3://`, ...); `*`, `?`"
        " and `[...]` match several files, `{date:%Y%m%d}` those of several days, read in the order of their days and names"
        " (numbers in them count as numbers).",
    )
    files: Literal["all", "newest", "new"] = Field(
        default="all",
        description="Of several files that match: `all` are read as one; the `newest` only, by its day and name; or each"
        " `new` one once, and again when it changes: deliveries, of which no row vanishes.",
    )
    days: Days = Field(default=Days(), description="Which days `{date}` stands for: `back`, `ahead` and `zone`.")
    settle: Duration | None = Field(
        default=None,
        description="A file counts once nobody has changed it for so long (`30s`): somebody may still be writing it.",
    )
    marker: MarkerName | None = Field(
        default=None, description='A file counts once another one lies beside it: "{name}.done", "{stem}.ok".'
    )
    member: Text = Field(
        default="", description='Which file of a zip archive is meant, as a pattern: "*/events.csv"; nothing: its only one.'
    )
    largest: Size | None = Field(
        default=None, description="How large a file elsewhere may be to be fetched; 2 GB, if nothing is said."
    )

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

    @property
    def can_be_looked_at(self) -> bool:
        """Files tell their sizes and times, or a version."""
        return True


class GridSource(AnySource):
    """What is said of rows and columns, in a file or elsewhere."""

    header: Header = Field(default=Header(), description="Where the columns' names stand: `row`, `matches`, `rows` and `names`.")
    comment: Text = Field(default="", description='Rows whose first cell begins so, such as "#", are no rows.')
    footer: int = Field(default=0, ge=0, le=1000, description="So many rows at the end, blank ones not counted, are no rows.")
    until: Pattern | None = Field(
        default=None, description="A pattern: the first row with a cell in which it is found, and all below, are no rows."
    )
    long_rows: Literal["reject", "cut"] = Field(
        default="reject", description="Rows with more cells than the header: reject them, or cut the surplus."
    )


class DelimitedSource(FileSource, GridSource):
    """What is said of a delimited text file, whatever its delimiter."""

    encoding: Annotated[tuple[Encoding, ...], OneOrMany()] = Field(
        default=("utf-8",),
        min_length=1,
        description="Encodings to try, in order; the first that decodes the whole file wins. A byte order mark goes before all.",
    )
    delimiter: Mark = Field(default=",", description='One character; "\\t" for tab.')
    quote: OptionalMark = Field(default='"', description="The quote character; null: quotes mean nothing in this file.")
    escape: OptionalMark = Field(default=None, description="Escape character, if quotes are not doubled.")

    short_rows: Literal["fill", "reject"] = Field(
        default="fill", description="Rows with fewer cells than the header: fill them up with empty cells, or reject them."
    )

    @model_validator(mode="after")
    def _marks_differ(self) -> Self:
        marks = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        for mark in filter(None, marks.values()):
            names = [name for name, each in marks.items() if each == mark]
            if len(names) > 1:
                hint = (
                    "look at a line of the file; `quote: null` if quotes mean nothing there, and no escape if quotes are doubled"
                )
                raise mistake(f"{' and '.join(names)} are the same character, {mark!r}", hint)
        return self


class RecordSource(FileSource):
    """What is said of a file of records."""

    encoding: Annotated[tuple[Encoding, ...], OneOrMany()] = Field(
        default=(), description="Encodings to try, in order, where the file itself does not say which it is in."
    )
    join_lists: Mapping[str, Text] = Field(
        default_factory=dict, description='Columns whose lists of plain values become one text: `{tags: "; "}`.'
    )
