"""Write the status of each row back into its Google sheet: only cells that differ, only in the columns that the owner set aside.

Sheets have no conditional write: if an editor moves rows during a write, texts land in wrong rows. So rows are found by their
key, read again after each write, and corrected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import get_args
from urllib.parse import urlsplit

from connectors.addresses import is_loopback
from connectors.sources.catalogue import open_status_sheet
from connectors.sources.contract import StatusCell, StatusRow, StatusSheet
from mappings.compiler.key import ReadKey, compile_key
from mappings.errors import SyncError
from mappings.reasons import Reason
from mappings.row_key import RowKey, names_of
from mappings.sentences import Words
from mappings.spec.feed import FeedMapping, Language
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_words import WriteBack
from pipelines.run.outcome import REHEARSING, WrittenBack
from pipelines.run.signals import is_stop_asked, signals_raised
from pipelines.settings import Settings
from state.enums import DriftKind, EntryState, ProblemKind
from state.ledger.standing import FeedScope, RowRecord
from state.queries import LedgerQueries, RowFilter

REJECTED, WAITS, DRAFT, PUBLISHED, SENT, ASIDE = "rejected", "waits", "draft", "published", "sent", "set aside"
GRAVEST_FIRST = (REJECTED, WAITS, DRAFT, PUBLISHED, SENT, ASIDE)
_LONGEST = 500
"""Characters of a problem in a cell."""
AT_ONCE = 2 * 1024 * 1024
"""Characters of one request, as Google recommends."""
_BESIDE_A_TEXT = 10
"""Characters that a cell adds to a request, besides its text."""
MOVES = 4
"""How often rows may move between two reads before the run gives up."""

_STOPPED = "the run was asked to stop; the next run writes the rest"
_MOVING = "its rows are being moved; the next run writes the rest"
_STUBBORN = "some cells do not keep what is written: check them for formulas and data validation"
_HELD_LIKE, _VANISHED = "held like", "vanished"
SENTENCES: Mapping[str, str] = {
    DriftKind.TO_PUBLISH: "The event is still a draft; it is published by hand.",
    DriftKind.CANCELLED: "Cancelled here since the event was sent; it is withdrawn by hand.",
    DriftKind.RETURNED: "The event was removed by hand; one of us decides whether it is put online again.",
    DriftKind.EDITED: "Changed here since the event was sent; the event is changed by hand.",
    EntryState.DELIVERED_UNCONFIRMED: "The event is there; its number is not known yet.",
    EntryState.REFUSED: "The service did not accept it.",
    EntryState.PENDING: "Not sent yet.",
    EntryState.BLOCKED: "We have no access to its channel yet.",
    EntryState.UNCERTAIN: "The service has not answered clearly; it will be asked again.",
    EntryState.CONFLICT: "The service knows this row as something else; one of us has to look at it.",
    EntryState.HELD: "It looks like an event that we know already; one of us has to look at it.",
    _HELD_LIKE: "It looks like the event with the identifier {other}; one of us has to look at it.",
    _VANISHED: "Not in the file, or left out, since the read of {day:date}. If it is called off, tell us: we remove it by hand.",
}
"""Sentences for the editor about an event, by its state or by how its row differs from it."""


@dataclass(frozen=True, slots=True)
class RowStatus:
    """The texts for a row's cells: a status word, the ids of its events, and a problem, "" if there is none."""

    status: str
    event_ids: tuple[int, ...] = ()
    problem: str = ""


def write_back_rows(mapping: FeedMapping, settings: Settings, queries: LedgerQueries) -> WrittenBack | None:
    """Write the status of each row into the feed's sheet; None if its mapping file does not ask for it.

    Never fails the run. After a signal, nothing is written: a busy service may block for minutes.
    """
    source, key = mapping.source, compile_key(mapping, [])
    if not isinstance(source, GoogleSheetsSource) or source.write_back is None:
        return None
    if is_loopback(urlsplit(settings.base_url).hostname or "") and not settings.access.google.api_url:
        return WrittenBack(problem=REHEARSING)
    if is_stop_asked():
        return WrittenBack(problem=_STOPPED)
    try:
        with signals_raised(), open_status_sheet(source, key.columns, settings.access) as sheet:
            words, scope = Words(mapping.language), FeedScope(settings.destination, mapping.feed)
            statuses = _read_statuses(queries, scope, words, mapping.key_parts)
            return write_back(sheet, source.write_back, key.read, statuses)
    except SyncError as error:
        return WrittenBack(problem=_with_hint(error))
    except KeyboardInterrupt:
        return WrittenBack(problem=_STOPPED)


def write_back(sheet: StatusSheet, columns: WriteBack, read_key: ReadKey, statuses: Mapping[RowKey, RowStatus]) -> WrittenBack:
    """Write differing cells and read the sheet again, until nothing differs; an error becomes a `problem`."""
    cells, moved = 0, 0
    own: set[str] = set()  # texts that we wrote, which may be deleted from other rows
    tried: set[StatusCell] = set()
    try:
        rows = sheet.read()
        while moved < MOVES:
            wanted = list(_differing(rows, columns, read_key, statuses, own))
            portion = _portion([cell for cell in wanted if cell not in tried])
            if not portion:
                return WrittenBack(cells, _STUBBORN if wanted else "")
            if is_written := sheet.write(portion):
                cells += len(portion)
                tried.update(portion)
                own.update(cell.text for cell in portion if cell.text)
            before, rows = rows, sheet.read()
            keys_before, keys = ({row.number: read_key(row.cells) for row in read} for read in (before, rows))
            if not is_written or keys != keys_before:
                moved += 1
                tried.clear()
    except SyncError as error:
        return WrittenBack(cells, _with_hint(error))
    return WrittenBack(cells, _MOVING)


def _differing(
    rows: Sequence[StatusRow], columns: WriteBack, read_key: ReadKey, statuses: Mapping[RowKey, RowStatus], own: set[str]
) -> Iterator[StatusCell]:
    """Yield the cells to write; for an unknown row, the cells to empty: only our own texts, never the owner's.

    Without a column for problems, the status column includes them.
    """
    for row in rows:
        (key, reasons), texts = read_key(row.cells), dict[str, str]()
        if not reasons and (known := statuses.get(key)):
            is_joined = known.problem and not columns.problem
            texts[columns.status] = f"{known.status}: {known.problem}" if is_joined else known.status
            texts |= {columns.event_id: ", ".join(map(str, known.event_ids)), columns.problem: known.problem}
        elif row.cells.get(columns.status, "").partition(":")[0] in _stale_words():
            texts = dict.fromkeys(columns.names, "")
        else:
            texts = {name: "" for name in columns.names if row.cells.get(name) in own}
        for column, text in texts.items():
            if column and row.cells.get(column, "") != text:
                yield StatusCell(row.number, column, text)


def _portion(cells: Sequence[StatusCell]) -> list[StatusCell]:
    """Return the first cells that fit into one request."""
    sizes = accumulate(len(cell.text) + _BESIDE_A_TEXT for cell in cells)
    return [cell for cell, size in zip(cells, sizes, strict=True) if size <= AT_ONCE]


def _read_statuses(queries: LedgerQueries, scope: FeedScope, words: Words, row_parts: int) -> Mapping[RowKey, RowStatus]:
    """Return by key the status of every row in the ledger or rejected by the last read; a row key has `row_parts` columns."""
    statuses: dict[RowKey, RowStatus] = {}
    for record in queries.every_row(scope, RowFilter()):
        add_status(statuses, record.row_key, status_of(record, words), row_parts)
    for problem in queries.every_problem(scope, ProblemKind.REJECTED):
        if problem.row_key:
            sentences = (_sentence(reason, words) for reason in problem.reasons)
            status = RowStatus(REJECTED, problem=_short("\n".join(sentences)))
            add_status(statuses, problem.row_key, status, row_parts)
    return {key: replace(status, status=words.say(status.status)) for key, status in statuses.items()}


@cache
def _stale_words() -> frozenset[str]:
    """Return the beginnings of a status, in every language, that is deleted once its row is not known any more."""
    return frozenset(Words(language).say(word) for language in get_args(Language) for word in (REJECTED, WAITS))


def add_status(statuses: dict[RowKey, RowStatus], key: RowKey, status: RowStatus, row_parts: int) -> None:
    """Merge the status of one event, or of a rejected row, into that of its row: the graver word, all ids, all problems."""
    row = next(names_of(key, row_parts))
    known = statuses.get(row)
    if known is not None:
        word = min(known.status, status.status, key=GRAVEST_FIRST.index)
        problems = dict.fromkeys(filter(None, (*known.problem.split("\n"), status.problem)))
        status = RowStatus(word, (*known.event_ids, *status.event_ids), "\n".join(problems)[:_LONGEST])
    statuses[row] = status


def status_of(record: RowRecord, words: Words) -> RowStatus:
    """Return the status of an event, its word not yet translated, and the sentence for the editor."""
    is_removed, drift = record.removed_at is not None, record.drift_kind
    ids = () if is_removed or record.event_id is None else (record.event_id,)
    if record.is_set_aside or record.state is EntryState.SUPERSEDED or (is_removed and not drift):
        return RowStatus(ASIDE, ids)
    if is_removed:
        return RowStatus(WAITS, ids, words.say(SENTENCES[DriftKind.RETURNED]))
    if record.state is EntryState.DELIVERED or record.state is EntryState.DELIVERED_UNCONFIRMED:
        shown = record.event.get("status")
        event = str(shown) if shown in {PUBLISHED, DRAFT} else SENT
        sentence = SENTENCES.get(record.state) or (SENTENCES[drift] if drift else "")
        return RowStatus(event, ids, words.say(sentence))
    problem = words.say(SENTENCES[record.state])
    if record.state is EntryState.HELD and record.candidate:
        problem = words.say(SENTENCES[_HELD_LIKE], other=str(record.candidate))
    elif record.state is EntryState.REFUSED and record.answer is not None:
        problem = " ".join(filter(None, (problem, record.answer.issue or record.answer.message)))
    return RowStatus(REJECTED if record.state is EntryState.REFUSED else WAITS, ids, _short(problem))


def standing_of(record: RowRecord, words: Words) -> str:
    """Return the sentence for the editor about a row's event, also if the row itself is gone."""
    if problem := status_of(record, words).problem:
        return problem
    if record.vanished_at is not None:
        return words.say(SENTENCES[_VANISHED], day=record.vanished_at.date())
    return ""


def _sentence(reason: Reason, words: Words) -> str:
    place = f"{name}: " if (name := words.place(reason)) else ""
    return " ".join(filter(None, (place + words.problem(reason), words.advice(reason))))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _with_hint(error: SyncError) -> str:
    return f"{error}; {error.hint}" if error.hint else str(error)
