"""The catalogue of source kinds: opens or probes the source that a mapping's `source` block describes.

The module of a kind is imported when a source of it is opened, as some take long to import. mypy reports a missing kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.masking import Mask
from connectors.sources.contract import NO_ACCESS, REAL_CLOCK, Access, Clock, Reading, Source, StatusSheet
from connectors.sources.feed_source import MaskedSource, masked_errors, own_columns, read_feed_source
from connectors.sources.files.choice import FileChoice
from connectors.sources.files.opened_file import OpenStored
from connectors.sources.files.source import choice_of, file_at, file_digest, open_files
from connectors.sources.shapes import read_shaped
from mappings.columns import ColumnRequest
from mappings.errors import ConfigError
from mappings.spec import source as kinds
from mappings.spec.source import (
    CommandSource,
    GoogleSheetsSource,
    PluginSource,
    RestSource,
    SalesforceSource,
    SourceSpec,
    SqlSource,
    WorkbookSource,
)
from mappings.spec.source_base import FileSource, Join
from mappings.spec.source_words import is_address, secrets_of

# ruff: noqa: PLC0415  # a kind is imported when it is opened

if TYPE_CHECKING:
    from connectors.sources.formats.sheet_grid import SheetTop
    from connectors.sources.salesforce.source import ObjectFields, OrgProbe


FileSpec = (
    kinds.CsvSource
    | kinds.TsvSource
    | kinds.WorkbookSource
    | kinds.JsonSource
    | kinds.NdjsonSource
    | kinds.XmlSource
    | kinds.IcsSource
)
"""The kinds of source that are files."""


def open_source(  # noqa: PLR0913  # the parts of one feed's source
    spec: SourceSpec,
    base: Path,
    columns: frozenset[str],
    *,
    access: Access = NO_ACCESS,
    since: str = "",
    clock: Clock = REAL_CLOCK,
    folders: Sequence[Path] = (),
    now: datetime | None = None,
) -> Source:
    """Return the source that `spec` describes; nothing is opened before its `read()`.

    `base`: the mapping file's folder, where relative paths start. `columns`: the columns that the mapping reads, all of which
    must exist. `access`: credentials for services. `since`: the cursor of an earlier read, to read only later changes; a source
    without cursors reads everything. `clock`: time and waiting. `folders`: those beside `base` in which local files may lie.
    `now`: the aware time of the run, around which occurrences of series are read; the clock's if it is None.
    """
    asked = spec.request(columns)
    is_read_once = isinstance(spec, FileSource) and spec.files == "new"
    # A second table may have changed where its rows' own file has not: then all of them are made anew.
    cursor = "" if spec.join and not is_read_once else since

    def open_rows(asked: ColumnRequest) -> AbstractContextManager[Reading]:  # noqa: PLR0911  # one for each kind
        match spec:
            case FileSource():
                choice = choice_of(spec, base, clock, folders)
                moment = now or datetime.fromtimestamp(clock.now(), UTC)

                def read_as(file: OpenStored) -> AbstractContextManager[Reading]:
                    return read_shaped(spec, asked, lambda own: _read_file(spec, file, own, moment))

                read = open_files(choice, asked.columns, read_as, cursor)
                return MaskedSource(read, Mask(secrets_of(spec.path))).read() if is_address(spec.path) else read()
            case GoogleSheetsSource():
                with needed_extra("sheets", f"to read {spec.place}"):
                    from connectors.sources.google_sheets.source import read_google_sheet
                return read_shaped(spec, asked, lambda own: read_google_sheet(spec, own, access, clock, cursor))
            case SalesforceSource():
                with needed_extra("salesforce", f"to read {spec.place}"):
                    from connectors.sources.salesforce.source import read_salesforce
                return read_salesforce(spec, asked, access, cursor, clock)
            case PluginSource():
                return spec.read(asked, access, cursor, clock)
            case CommandSource():
                from connectors.sources.command.source import read_command

                return read_command(spec, base, asked, access, cursor, clock)
            case SqlSource():
                from connectors.sources.sql.source import read_sql

                return read_sql(spec, asked, access, cursor, clock)
            case RestSource():
                from connectors.sources.rest import read_rest

                return MaskedSource(partial(read_rest, spec, asked, access, cursor, clock), Mask(secrets_of(spec.url))).read()

    def open_table(join: Join, columns: frozenset[str]) -> AbstractContextManager[Reading]:
        return open_source(join.source, base, columns, access=access, clock=clock, folders=folders, now=now).read()

    if spec.join or spec.empty_if or spec.empty_in or spec.json_columns:
        return MaskedSource(partial(read_feed_source, spec, asked, open_rows, open_table), access.mask)
    return MaskedSource(partial(open_rows, asked), access.mask)


def _read_file(spec: FileSpec, file: OpenStored, asked: ColumnRequest, now: datetime) -> AbstractContextManager[Reading]:
    match spec:
        case kinds.CsvSource() | kinds.TsvSource():
            from connectors.sources.formats.csv import read_csv

            return read_csv(spec, file, asked)
        case kinds.WorkbookSource():
            from connectors.sources.formats.xlsx import read_workbook

            return read_workbook(spec, file, asked)
        case kinds.JsonSource() | kinds.NdjsonSource():
            from connectors.sources.formats.json import read_json

            return read_json(spec, file, asked)
        case kinds.XmlSource():
            from connectors.sources.formats.xml import read_xml

            return read_xml(spec, file, asked)
        case kinds.IcsSource():
            from connectors.sources.formats.ics import read_ics

            return read_ics(spec, file, asked, now)


def read_sheet_top(
    spec: WorkbookSource | GoogleSheetsSource,
    base: Path,
    most: int,
    *,
    access: Access = NO_ACCESS,
    folders: Sequence[Path] = (),
) -> SheetTop:
    """Read at most `most` rows from the top of a sheet, as they are stored; `folders`: as on opening it.

    Raises:
        SyncError: as on reading the source.
    """
    with masked_errors(access.mask):
        if isinstance(spec, WorkbookSource):
            from connectors.sources.formats import xlsx

            return xlsx.read_top(spec, file_at(spec.path, base, folders), most)
        with needed_extra("sheets", f"to read {spec.place}"):
            from connectors.sources.google_sheets import source
        return source.read_top(spec, access, most)


def describe_object(name: str, *, access: Access = NO_ACCESS) -> ObjectFields:
    """Return the fields of a Salesforce object that are relevant for an event.

    Raises:
        SyncError: the org does not answer, or has no such object that we may see.
    """
    with masked_errors(access.mask):
        with needed_extra("salesforce", f"to read {name}"):
            from connectors.sources.salesforce.source import describe_object as describe
        return describe(name, access)


def open_status_sheet(spec: GoogleSheetsSource, keys: frozenset[str], access: Access) -> AbstractContextManager[StatusSheet]:
    """Return a context manager for a sheet with status columns; `keys` are the columns of a row's key.

    Raises:
        ConfigError: the client is not installed, or there are no credentials.
    """
    with needed_extra("sheets", f"to write back into {spec.place}"):
        from connectors.sources.google_sheets.source import open_google_status_sheet
    return open_google_status_sheet(spec, keys, access)


@contextmanager
def needed_extra(name: str, purpose: str) -> Iterator[None]:
    """Convert a failed import in the block to an error that names the missing extra; `purpose` says what it is needed for.

    Raises:
        ConfigError: the extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{purpose}, the module {error.name} is missing"
        raise ConfigError(message, hint=f"pip install 'eventsync[{name}]'") from error


def probe_org(spec: SalesforceSource, columns: frozenset[str], *, access: Access, clock: Clock = REAL_CLOCK) -> OrgProbe:
    """Return what a feed would read from an org, without reading it: fields, number of records, requests left today.

    Raises:
        SyncError: as on reading; missing fields are named with the most similar ones.
    """
    with needed_extra("salesforce", f"to read {spec.place}"):
        from connectors.sources.salesforce.source import probe_salesforce
    with masked_errors(access.mask):
        return probe_salesforce(spec, own_columns(spec, spec.request(columns)), access, clock)


@dataclass(frozen=True, slots=True)
class SourceProbe:
    """The result of a probe. `marks`: a digest of the version of each file or sheet. `blind`: why changes cannot be detected,
    "" if they can.

    `is_growing`: files that disappear do not count as a change.
    """

    marks: frozenset[str] = frozenset()
    is_growing: bool = False
    blind: str = ""

    @property
    def version(self) -> str:
        """A digest of all marks: equal while the source is unchanged; "" if changes cannot be detected."""
        return "" if self.blind else blake2b("\n".join(sorted(self.marks)).encode(), digest_size=8).hexdigest()

    def is_news_to(self, seen: frozenset[str]) -> bool:
        """Return whether there is something new compared with the earlier marks `seen`."""
        return not self.marks <= seen if self.is_growing else self.marks != seen


def probe_source(
    spec: SourceSpec, base: Path, *, access: Access, clock: Clock = REAL_CLOCK, folders: Sequence[Path] = ()
) -> SourceProbe:
    """Probe the files or sheets that a source would read now, including joined tables; `folders`: as on opening it.

    Raises:
        SyncError: it cannot be probed; reading would fail as well.
    """
    with masked_errors(access.mask):
        match spec:
            case FileSource():
                found = choice_of(spec, base, clock, folders)
                with masked_errors(Mask(secrets_of(spec.path))), found.connected() as choice:
                    own = _probe_files(choice)
            case GoogleSheetsSource():
                with needed_extra("sheets", f"to read {spec.place}"):
                    from connectors.sources.google_sheets.spreadsheet import open_spreadsheet
                with open_spreadsheet(spec, access, clock=clock) as sheet:
                    version = sheet.version()
                    digest = blake2b(f"{sheet.id} {version}".encode(), digest_size=9).hexdigest()
                blind = "" if version else f"the Drive API gives no version of {spec.place}"
                own = SourceProbe(frozenset({digest} if version else ()), blind=blind)
            case SalesforceSource() | SqlSource() | RestSource() | CommandSource() | PluginSource():
                own = SourceProbe(blind=f"each run asks a source of kind {spec.kind} what has changed")
        if own.blind or own.is_growing:
            return own
        marks = set(own.marks)
        for place, join in enumerate(spec.join):
            table = probe_source(join.source, base, access=access, clock=clock, folders=folders)
            if table.blind:
                return table
            marks.update(f"{place}:{mark}" for mark in table.marks)
    return replace(own, marks=frozenset(marks))


def _probe_files(choice: FileChoice) -> SourceProbe:
    spec, there = choice.spec, choice.found()
    meant = there[-1:] if spec.files == "newest" else there
    unfinished = choice.unfinished(meant, may_wait=False)
    if spec.files == "new":
        return SourceProbe(frozenset(file_digest(file) for file in meant if file not in unfinished), is_growing=True)
    if unfinished:
        return SourceProbe(blind=next(iter(unfinished.values())))
    for file in meant:
        if not file.version:
            return SourceProbe(blind=f"{file.label} has no version, or has only just been written")
    return SourceProbe(frozenset(map(file_digest, meant)))
