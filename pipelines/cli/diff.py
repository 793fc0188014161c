"""`eventsync diff`: what was delivered against what the source says now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.completion import waiting_words
from pipelines.cli.options import IS_WORKING, AsJson, OneFeed

if IS_WORKING:
    from pipelines.cli.feed_session import FeedSession, open_feed_session, typed_key
    from pipelines.cli.output.console import Output
    from pipelines.cli.payload_diff import FieldDiff, payload_diff, shown
    from pipelines.settings import current_settings
    from state.enums import DriftKind, EntryState, Waiting
    from state.ledger.standing import RowRecord
    from state.queries import RowFilter, RunRecord


def diff(
    feed: OneFeed,
    row: Annotated[
        str | None, typer.Argument(metavar="[ROW]", help="One row key: the row in full.", autocompletion=waiting_words)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many rows (100).")] = None,
    as_json: AsJson = False,
) -> int:
    """Show, field by field, where the source differs from what the service shows as far as we know.

    For example:

        # All that differ
        eventsync diff lisbon-agenda
        # One row in full
        eventsync diff lisbon-agenda A-17

    Rows are edited, to be published by hand (sent as drafts, published in the source), cancelled, removed by hand and back in
    the source, vanished from it, or have earlier events to remove; ignored ones come last, marked. The service has no way to
    change or remove an event: that is done by hand on its pages; `eventsync resolve FEED KEY --applied` or `--removed` then
    records it, and `--ignore` takes the row off the lists until it changes again. As of the last read: only the state DB is
    asked, neither the source nor the service. Exit codes: 0, or 2 if there is no such row.
    """
    settings, output = current_settings(), Output(json=as_json)
    with open_feed_session(settings, feed) as session:
        (status,) = session.books.status(destination=session.book.destination, feed=session.book.feed)
        if row is not None:
            return _show_one(output, session, row, status.last_read)
        records = _differing(session)
        most = limit or _SHOWN
        documents = [_document(record) for record in islice(records, most)]
        is_more = next(records, None) is not None
        ignored = sum(session.books.count(session.book, replace(which, is_ignored=True)) for which in _DIFFERING)
    edited = status.drifted - status.to_publish - status.cancelled - status.returned
    counts = {_EDITED: edited, _TO_PUBLISH: status.to_publish, _CANCELLED: status.cancelled, _RETURNED: status.returned}
    counts |= {_VANISHED: status.vanished, _EARLIER: status.waiting.get(Waiting.EARLIER, 0), "ignored": ignored}
    as_of = _as_of(status.last_read)
    output.document(Differences(feed=session.book.feed, as_of=as_of, counts=counts, rows=documents, is_more=is_more))
    output.note(f"{session.book.feed}: {_sentence(counts)}; {_as_of_words(status.last_read)}")
    if documents:
        lines = [line for document in documents for line in _lines(document)]
        output.table(f"{session.book.feed}: delivered against the source", _LIST, lines)
    if is_more:
        output.note(f"the first {most}; --limit shows more")
    return 0


class AsOf(TypedDict):
    """The read of the source that the differences are from."""

    run_id: str
    read_at: datetime
    is_whole: bool


class Differing(TypedDict):
    """A row whose source says something else than the service shows, and in which fields. `earlier_event_ids`: events of the row
    to be removed by hand; `is_set_aside`: a person has ignored it.
    """

    row_key: str
    kind: str
    state: EntryState
    event_id: int | None
    place: str
    vanished_at: datetime | None
    vanished_by: str
    earlier_event_ids: Sequence[int]
    is_set_aside: bool
    changed: Sequence[FieldDiff]


class DifferingWhole(Differing):
    """The same with every field, also those that are alike."""

    fields: Sequence[FieldDiff]


class Differences(TypedDict):
    """All rows that differ, with their number by kind."""

    feed: str
    as_of: AsOf | None
    counts: Mapping[str, int]
    rows: Sequence[Differing]
    is_more: bool


class OneDifference(TypedDict):
    """One row in full."""

    feed: str
    as_of: AsOf | None
    row: DifferingWhole


_SHOWN = 100
_LIST = ("what", "row key", "event", "field", "delivered", "now")
_ONE = ("", "field", "delivered", "now")
_TO_PUBLISH, _EDITED, _VANISHED, _SAME = "to be published by hand", "edited", "vanished", "as delivered"
_CANCELLED, _RETURNED, _EARLIER = "cancelled at the source", "removed by hand, back in the source", "earlier events"


if IS_WORKING:
    _KINDS = {
        DriftKind.EDITED: _EDITED,
        DriftKind.TO_PUBLISH: _TO_PUBLISH,
        DriftKind.CANCELLED: _CANCELLED,
        DriftKind.RETURNED: _RETURNED,
    }


if IS_WORKING:
    _WAITING = tuple(RowFilter(waiting=kind) for kind in (Waiting.DRIFT, Waiting.VANISHED, Waiting.EARLIER))


if IS_WORKING:
    _DIFFERING = (RowFilter(is_drifted=True), RowFilter(is_vanished=True), RowFilter(has_earlier=True))


def _show_one(output: Output, session: FeedSession, row: str, last_read: RunRecord | None) -> int:
    found = session.books.rows(session.book, RowFilter(row_key=typed_key(row)))
    if not found:
        raise session.unknown([row])
    (record,) = found
    fields = payload_diff(record.shown, record.drift_body or record.shown)
    document = DifferingWhole(**_document(record), fields=fields)
    output.document(OneDifference(feed=session.book.feed, as_of=_as_of(last_read), row=document))
    event = f"event {record.event_id}" if record.event_id is not None else record.state.value.replace("_", " ")
    output.note(f"{record.row_key} ({record.origin}; {event}): {document['kind']}; {_as_of_words(last_read)}")
    lines = [("≠" if one.is_changed else "", one.path, shown(one.delivered), shown(one.now)) for one in fields]
    output.table(f"{session.book.feed}: {record.row_key}", _ONE, lines)
    return 0


def _differing(session: FeedSession) -> Iterator[RowRecord]:
    """Yield what waits of each kind, then what a person has ignored; an entry of several kinds stands there once."""
    listed = set[int]()
    for which in (*_WAITING, *(replace(one, is_ignored=True) for one in _DIFFERING)):
        for record in session.books.every_row(session.book, which):
            is_listed = record.entry_id in listed or (_is_of_vanished(which) and record.drift_kind is not None)
            if record.earlier_event_ids:
                listed.add(record.entry_id)
            if not is_listed:
                yield record


def _is_of_vanished(which: RowFilter) -> bool:
    return which.is_vanished or which.waiting is Waiting.VANISHED


def _document(record: RowRecord) -> Differing:
    changed = [one for one in payload_diff(record.shown, record.drift_body or record.shown) if one.is_changed]
    return Differing(
        row_key=record.row_key,
        kind=_kind(record),
        state=record.state,
        event_id=record.event_id,
        place=record.origin,
        vanished_at=record.vanished_at,
        vanished_by=record.vanished_by,
        earlier_event_ids=record.earlier_event_ids,
        is_set_aside=record.is_set_aside,
        changed=changed,
    )


def _kind(record: RowRecord) -> str:
    if record.vanished_at is not None:
        return _VANISHED
    if record.drift_kind is not None:
        return _KINDS[record.drift_kind]
    if record.removed_at is not None:
        return "removed by hand"
    if record.state is not EntryState.DELIVERED:
        return f"as it was pinned ({record.state.value})"
    return _SAME if record.baseline_body is None else "as changed by hand"


def _lines(document: Differing) -> Iterator[tuple[str, ...]]:
    """Yield one line for each field, the row on its first line only; then its earlier events."""
    event = "" if document["event_id"] is None else str(document["event_id"])
    kind = f"{document['kind']} by {document['vanished_by']}" if document["vanished_by"] else document["kind"]
    head = (f"{kind} (ignored)" if document["is_set_aside"] else kind, document["row_key"], event)
    changed = document["changed"]
    if not changed:
        yield (*head, "its cover image" if document["kind"] in {_EDITED, _TO_PUBLISH} else "", "", "")
    for number, one in enumerate(changed):
        yield (*(head if number == 0 else ("", "", "")), one.path, shown(one.delivered), shown(one.now))
    for earlier in document["earlier_event_ids"]:
        yield f"earlier event {earlier}: remove by hand", "", str(earlier), "", "", ""


def _sentence(counts: dict[str, int]) -> str:
    terms = [f"{count:,} {name}" for name, count in counts.items() if count]
    return ", ".join(terms) if terms else "the source says what was delivered"


def _as_of(last_read: RunRecord | None) -> AsOf | None:
    if last_read is None:
        return None
    return AsOf(run_id=last_read.run_id, read_at=last_read.started_at, is_whole=bool(_is_whole(last_read)))


def _as_of_words(last_read: RunRecord | None) -> str:
    if last_read is None:
        return "the source was never read"
    part = "" if _is_whole(last_read) else ", of a part of it"
    return f"as of the read of {last_read.started_at:%Y-%m-%d %H:%M:%S} UTC{part}"


def _is_whole(read: RunRecord) -> bool:
    return read.stage_report is not None and read.stage_report.is_whole
