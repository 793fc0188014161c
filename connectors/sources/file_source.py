"""A file, or several, as a source: where they are decides how they are come by, their kind how they are read.

Which kinds of source there are besides files is `catalogue`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from connectors.masking import Mask
from connectors.sources.clockwork import REAL, Clockwork
from connectors.sources.contract import Source
from connectors.sources.csv_file import CsvFile
from connectors.sources.deliveries import Deliveries
from connectors.sources.discreet import DiscreetSource
from connectors.sources.fetching import LARGEST_BYTES, Fetching
from connectors.sources.file_choice import FileChoice, Files
from connectors.sources.found_file import OpenStored
from connectors.sources.ics_records import ALWAYS_THERE, IcsRecords
from connectors.sources.json_records import JsonRecords
from connectors.sources.local_files import LocalFiles
from connectors.sources.many_files import ManyFiles
from connectors.sources.names import Asked
from connectors.sources.ndjson_records import NdjsonRecords
from connectors.sources.opened_file import FileAt
from connectors.sources.record_file import RecordFile
from connectors.sources.web_files import WebFiles
from connectors.sources.web_source import WebSource
from connectors.sources.workbook import Workbook
from connectors.sources.xml_records import XmlRecords
from mappings.spec.source import CsvSource, FileSource, IcsSource, JsonSource, NdjsonSource, TsvSource, WorkbookSource, XmlSource
from mappings.spec.source_words import is_address, is_dated, is_pattern, is_web_address, secrets_of

FileSpec = CsvSource | TsvSource | WorkbookSource | JsonSource | NdjsonSource | XmlSource | IcsSource
"""The kinds that are files."""


def open_files(spec: FileSpec, base: Path, asked: Asked, *, since: str = "", clockwork: Clockwork = REAL) -> Source:
    """Return the source of a file, or of several; nothing is opened before its `read()`.

    `since`: the cursor of an earlier reading. Files elsewhere are not fetched while they have not changed since; those
    that are read once each (`files: new`) are read if they came or changed since.
    """
    source = _source(spec, base, asked, since, clockwork)
    return DiscreetSource(source, Mask(secrets_of(spec.path))) if is_address(spec.path) else source


def file_at(path: str, base: Path) -> FileAt:
    """Return a single file as it can be opened, whatever it holds."""
    return FileAt(_files(path, base, Fetching()).at(path))


def choice_of(spec: FileSource, base: Path, clockwork: Clockwork) -> FileChoice:
    """Return the choice of the files that a source means, wherever they are."""
    settle_s = None if spec.settle is None else spec.settle.total_seconds()
    bounds = Fetching(largest=spec.largest or LARGEST_BYTES, settle_s=settle_s, clockwork=clockwork)
    return FileChoice(spec, _files(spec.path, base, bounds), clockwork)


def _source(spec: FileSpec, base: Path, asked: Asked, since: str, clockwork: Clockwork) -> Source:
    choice = choice_of(spec, base, clockwork)
    files = choice.files
    columns = tuple(sorted(asked.columns))

    def open_one(open_stored: OpenStored) -> Source:
        return _read_as(spec, FileAt(open_stored, spec.member), asked)

    if spec.files == "new":
        return Deliveries(choice, open_one, columns, since)
    if not is_pattern(spec.path) and not is_dated(spec.path):
        if isinstance(files, WebFiles):
            return WebSource(spec, files, open_one, columns, since)
        if isinstance(files, LocalFiles) and spec.settle is None and not spec.marker:
            return open_one(files.at(spec.path))
    return ManyFiles(choice, open_one, columns, keeps_versions=not isinstance(files, LocalFiles), since=since)


def _files(path: str, base: Path, bounds: Fetching) -> Files:
    if is_web_address(path):
        return WebFiles(bounds)
    if not is_address(path):
        return LocalFiles(base)
    # Here, as feeds of files at hand need not wait for what knows all stores.
    from connectors.sources.store_files import StoreFiles  # noqa: PLC0415

    return StoreFiles(bounds)


def _read_as(spec: FileSpec, file: FileAt, asked: Asked) -> Source:
    match spec:
        case CsvSource() | TsvSource():
            return CsvFile(spec, file, asked)
        case WorkbookSource():
            return Workbook(spec, file, asked)
        case JsonSource():
            return RecordFile(spec, file, asked, JsonRecords(spec))
        case NdjsonSource():
            return RecordFile(spec, file, asked, NdjsonRecords(spec))
        case XmlSource():
            return RecordFile(spec, file, asked, XmlRecords(spec))
        case IcsSource():
            return RecordFile(spec, file, asked.allowing(ALWAYS_THERE), IcsRecords(spec))
        case _:
            assert_never(spec)
