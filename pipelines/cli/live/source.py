"""What the source says of itself when it is asked: is it there, are its columns, and those that we are to write into.

What it is read for is the runs' matter; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from connectors.sources.catalogue import look_at_org, open_source
from connectors.sources.errors import MissingColumnsError
from connectors.sources.names import Asked, matched
from mappings.compiler.mapper import Directory, compile_with_problems
from mappings.errors import SyncError
from mappings.salesforce_specs import SalesforceSource
from mappings.schema import FeedMapping
from mappings.sheet_specs import GoogleSheetsSource
from mappings.source_parts import WriteBack
from pipelines.cli.findings import LiveFinding, unwise, well
from pipelines.cli.live.service import refused
from pipelines.cli.source_words import source_words
from pipelines.run.outcome import faults_as_errors
from pipelines.settings import Settings


def of_source(settings: Settings, mapping: FeedMapping) -> Iterator[LiveFinding]:
    """Yield what is found by opening a feed's source and asking for its first row."""
    try:
        with faults_as_errors(lambda: f"asking for the source of {mapping.feed}"):
            yield from _of_source(settings, mapping)
    except SyncError as error:
        yield refused("source", error)


def _of_source(settings: Settings, mapping: FeedMapping) -> Iterator[LiveFinding]:
    columns = compile_with_problems(mapping, Directory())[0].columns
    if isinstance(mapping.source, SalesforceSource):
        yield _of_org(settings, mapping.source, columns)
        return
    with open_source(mapping.source, mapping.path.parent, columns, access=settings.access).read() as reading:
        has_rows, present = next(reading.rows, None) is not None, reading.columns
    told = f"{source_words(mapping.source)}: {len(present)} columns, among them the {len(columns)} that the mapping reads"
    yield well("source", told if has_rows else f"{told}; no rows")
    yield from _of_write_back(mapping, present)


def _of_org(settings: Settings, spec: SalesforceSource, columns: frozenset[str]) -> LiveFinding:
    """Return what an org says: asking for a first row would make it run the whole query."""
    look = look_at_org(spec, columns, access=settings.access)
    told = f"salesforce {look}"
    return well("source", told) if look.is_enough else unwise("source", f"{told}: too few for a whole reading today")


def _of_write_back(mapping: FeedMapping, present: Sequence[str]) -> Iterator[LiveFinding]:
    """Yield whether the columns that were given to us are there; whether we may write, only writing shows."""
    match mapping.source:
        case GoogleSheetsSource(write_back=WriteBack() as written):
            missing = matched(present, Asked(frozenset(written.names))).missing
            if missing:
                error = MissingColumnsError(source_words(mapping.source), missing, present, advice="add them to the sheet")
                yield unwise("write_back", f"{error}; {error.hint}; runs are as good as without, and say so each time")
            else:
                named = ", ".join(f'"{name}"' for name in written.names)
                yield well("write_back", f"the sheet has {named}; that we may write there shows in a run")
        case _:
            return
