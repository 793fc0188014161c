"""The settings that kinds of source share: all kinds, files, tables, and files with records; a second table joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field

from mappings.columns import ColumnRequest
from mappings.spec.shapes import Heading, Unpivot
from mappings.spec.source_words import (
    ChangedRows,
    ChangedSpan,
    Days,
    Encodings,
    Header,
    Names,
    checked_path,
    is_address,
    without_secrets,
)
from mappings.strict import Duration, OneOrMany, Pattern, Strict, Text

if TYPE_CHECKING:
    from mappings.spec.source import SourceSpec

_DAILY = timedelta(days=1)
_NEVER = timedelta(days=36_500)


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
    def changes(self) -> ChangedRows | None:
        """How changed rows are read: the setting `incremental`; None if a read gives all rows or none."""
        return getattr(self, "incremental", None)

    @property
    def full_every(self) -> timedelta | None:
        """How often an incrementally read source is read in full; None if every read is full."""
        return self.changes.full_every if self.changes else None

    @property
    def gives_single_rows(self) -> bool:
        """Whether an incremental read gives the changed rows only, rather than all rows or none."""
        return self.changes is not None

    @property
    def changed_by(self) -> str:
        """The column by whose time of change the source can be read, "" if there is none."""
        return self.changes.by if self.changes else ""

    def changed_between(self, begin: datetime, end: datetime) -> Self:
        """Return the source of the rows that changed from `begin` up to, not including, `end`; both are aware.

        Only for a source with `changed_by`. The source gives no other rows: no later step filters them.
        """
        span = ChangedSpan.model_validate({**dict(self.changes or ()), "begin": begin, "end": end})
        return self.model_copy(update={"incremental": span})


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
    headings: Mapping[str, Heading] = Field(default_factory=dict)
    """Rows above others that say something about them, by the name of a new column: `{MONTH: {column: A, matches: "..."}}`."""
    fill_down: Names = ()
    """Columns in which an empty cell means the value above it, up to the next blank row or heading."""
    unpivot: Unpivot | None = None
    """Columns that are rows, such as the days of a timetable: `columns`, `into`, `cell`, `skip_empty`."""

    @property
    def made_columns(self) -> tuple[str, ...]:
        """The columns that `headings` and `unpivot` make."""
        return (*self.headings, *((self.unpivot.into, self.unpivot.cell) if self.unpivot else ()))

    @property
    def shaped_columns(self) -> tuple[str, ...]:
        """The source's own columns from which rows are shaped; none: its rows are read as they are."""
        unpivoted = self.unpivot.columns if self.unpivot else ()
        return (*(heading.column for heading in self.headings.values()), *self.fill_down, *unpivoted)


class RecordSource(FileSource):
    """The settings of files with records."""

    encoding: Encodings = ()
    """Encodings to try in order, if the file itself does not declare its encoding."""
    join_lists: Mapping[str, Text] = Field(default_factory=dict)
    """Columns whose lists of plain values are joined to one text: `{tags: "; "}`."""
