"""Which kinds of source there are: the one place where a mapping's `source` becomes something that can be read.

Each kind lives in its own module; a kind that is missing here is a type error.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from connectors.sources.access import NO_ACCESS, Access
from connectors.sources.contract import Source
from connectors.sources.csv_file import CsvFile
from connectors.sources.discreet import DiscreetSource
from connectors.sources.feed_source import FeedSource
from connectors.sources.ics_records import ALWAYS_THERE, IcsRecords
from connectors.sources.json_records import JsonRecords
from connectors.sources.many_files import ManyFiles, files_of, is_pattern
from connectors.sources.names import Asked
from connectors.sources.ndjson_records import NdjsonRecords
from connectors.sources.record_file import RecordFile
from connectors.sources.workbook import Workbook
from connectors.sources.xml_records import XmlRecords
from mappings.source_bases import Join
from mappings.source_specs import CsvSource, IcsSource, JsonSource, NdjsonSource, SourceSpec, TsvSource, WorkbookSource, XmlSource


def open_source(spec: SourceSpec, base: Path, columns: frozenset[str], *, access: Access = NO_ACCESS, since: str = "") -> Source:  # noqa: ARG001 # kinds with cursors read it
    """Return the source that `spec` describes; nothing is opened before its `read()`.

    `base` is the folder of the mapping file, where relative paths start. `columns` are the columns that the mapping
    reads: they are matched with the source's own, and all must be there. `access`: who we are to the services that ask.
    `since`: the cursor of an earlier reading, to read only what changed after it; a source without cursors reads all.
    """
    asked = Asked.of(spec, columns)

    def open_file(asked: Asked) -> Source:
        if is_pattern(spec.path):
            return ManyFiles(lambda: files_of(spec, base), lambda path: _file(spec, path, base, asked))
        return _file(spec, spec.path, base, asked)

    def open_table(join: Join, columns: frozenset[str]) -> Source:
        return open_source(join.source, base, columns, access=access)

    if spec.join or spec.null or spec.null_in or spec.json_columns:
        return DiscreetSource(FeedSource(spec, asked, open_file, open_table), access.mask)
    return DiscreetSource(open_file(asked), access.mask)


def _file(spec: SourceSpec, path: str, base: Path, asked: Asked) -> Source:
    match spec:
        case CsvSource() | TsvSource():
            return CsvFile(spec, path, base, asked)
        case WorkbookSource():
            return Workbook(spec, path, base, asked)
        case JsonSource():
            return RecordFile(spec, path, base, asked, JsonRecords(spec))
        case NdjsonSource():
            return RecordFile(spec, path, base, asked, NdjsonRecords(spec))
        case XmlSource():
            return RecordFile(spec, path, base, asked, XmlRecords(spec))
        case IcsSource():
            return RecordFile(spec, path, base, asked.allowing(ALWAYS_THERE), IcsRecords(spec))
        case _:
            assert_never(spec)
