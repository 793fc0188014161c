"""The end of a run of a feed whose source is written back to: the ledger is asked what became of each row, the sheet is told.

How the sheet is told is `write_back`'s, in which words `row_marks`'.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import structlog

from connectors.loopback import is_loopback
from connectors.sources.boards import open_board
from mappings.errors import SyncError
from mappings.keys import compile_key
from mappings.spec.feed import FeedMapping
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_words import WriteBack
from pipelines.row_marks import marks_of
from pipelines.settings import Settings
from pipelines.stopping.interrupts import window
from pipelines.wiring import Workshop
from pipelines.write_back import WriteBackJob, WrittenBack, write_back
from state.books import Books
from state.views import Book

NOTHING = WrittenBack()
_REHEARSING = "nothing was written back into the sheet: the service is one of this machine, and the sheet is Google's own"
_STOPPED = "somebody asked to stop: what is missing will be written by the next run"


def mark_rows(workshop: Workshop, mapping: FeedMapping, run_id: str) -> WrittenBack:
    """Write back into the feed's source what became of each of its rows, where its mapping file asks for it.

    Never fails the run: what goes wrong is told in the log, and as a notice on the run's page. Whoever asks to stop does not
    wait for the sheet; one who has asked already has it left alone.
    """
    match mapping.source:
        case GoogleSheetsSource(write_back=WriteBack() as columns) if workshop.leaves_traces:
            told = _unless_stopped(workshop, mapping, mapping.source, columns)
        case _:
            return NOTHING
    log = structlog.get_logger().bind(feed=mapping.feed, run_id=run_id)
    log.info("written back", cells=told.cells, problem=told.problem)
    if told.problem:
        workshop.put_down(mapping, run_id, [_notice(told)])
    return told


def _unless_stopped(workshop: Workshop, mapping: FeedMapping, sheet: GoogleSheetsSource, columns: WriteBack) -> WrittenBack:
    """Write back where signals are heard: a busy service may keep us waiting for minutes."""
    try:
        with window():
            return _marked(workshop, mapping, sheet, columns)
    except KeyboardInterrupt:
        return WrittenBack(problem=_STOPPED)


def _marked(workshop: Workshop, mapping: FeedMapping, sheet: GoogleSheetsSource, columns: WriteBack) -> WrittenBack:
    settings, keys = workshop.settings, mapping.key_columns
    if _is_rehearsed(settings):
        return WrittenBack(problem=_REHEARSING)
    try:
        with open_board(sheet, frozenset(column.column for column in keys), settings.access) as board:
            marks = marks_of(Books(workshop.engine, workshop.now), Book(settings.destination, mapping.feed), len(keys))
            return write_back(WriteBackJob(board, columns, compile_key(keys), marks))
    except SyncError as error:
        return WrittenBack(problem=f"{error}; {error.hint}" if error.hint else str(error))


def _is_rehearsed(settings: Settings) -> bool:
    """Whether events go to a service of this machine, and the sheet is not: a partner would read of events that are nowhere."""
    return is_loopback(urlsplit(settings.base_url).hostname or "") and not settings.access.google.api_url


def _notice(told: WrittenBack) -> str:
    return told.problem if told.problem == _REHEARSING else f"the sheet does not say all that became of its rows: {told.problem}"
