"""`eventsync diff`: compares what was delivered with the source as last read, by JSON path (`approxLocation.city.name`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, zip_longest
from typing import Annotated, Any

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, OneFeed, waiting_words

if IS_WORKING:
    from mappings.outcome import shown_place
    from mappings.row_key import typed_key
    from pipelines.cli.output.console import Output, document_from, spelt
    from pipelines.cli.state_reader import FeedSession, open_feed_session
    from state.enums import DriftKind, EntryState, Waiting
    from state.ledger.standing import RowRecord
    from state.queries import RowFilter, RunRecord


def diff(
    feed: OneFeed,
    row: Annotated[
        str | None, typer.Argument(metavar="[ROW]", help="A row key: show every field of this row.", autocompletion=waiting_words)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many rows (100).")] = None,
    as_json: AsJson = False,
) -> int:
    """Show, field by field, where the source differs from what was delivered.

    For example:

        # All rows that differ
        eventsync diff lisbon-agenda
        # Every field of one row
        eventsync diff lisbon-agenda A-17

    A row is listed if the source has edited or cancelled it since it was sent, if it was sent as a draft and the source now says
    published, if its event was removed by hand and the row is back, or if it vanished from the source. Ignored rows come last.
    The API cannot change or remove an event: do that by hand on the service's pages, then record it with `eventsync resolve FEED
    KEY --applied` or `--removed`. `--ignore` takes the row off the list until it changes again. The comparison uses the last
    read; neither the source nor the service is asked. Exit codes: 0 done, 2 there is no such row.
    """
    output = Output(is_json=as_json)
    with open_feed_session(feed) as session:
        name = session.scope.feed
        (status,) = session.queries.status(destination=session.scope.destination, feed=name)
        as_of = _as_of(status.last_read)
        if row is not None:
            return _show_one(output, session, row, as_of)
        records = _differing(session)
        most = limit or _SHOWN
        documents = [_document(record) for record in islice(records, most)]
        is_more = next(records, None) is not None
        ignored = sum(session.queries.count(session.scope, replace(which, is_ignored=True)) for which in _WAITING)
    edited = status.drifted - status.to_publish - status.cancelled - status.returned
    counts = dict(zip(_KINDS.values(), (edited, status.to_publish, status.cancelled, status.returned), strict=True))
    counts |= {"vanished": status.vanished, "ignored": ignored}
    output.document(Differences(feed=name, as_of=as_of, counts=counts, rows=documents, is_more=is_more))
    terms = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    output.note(f"{name}: {terms or 'the source agrees with what was delivered'}; {_as_of_words(as_of)}")
    if documents:
        output.table(f"{name}: delivered against the source", [line for one in documents for line in _lines(one)])
    if is_more:
        output.note(f"only the first {most} rows are shown; --limit shows more")
    return 0


class AsOf(TypedDict):
    """The read of the source that the differences come from."""

    run_id: str
    read_at: datetime
    is_whole: bool


class Differing(TypedDict):
    """A row whose source differs from what the service shows, with the fields that differ. `is_set_aside`: a person has ignored
    the row.
    """

    row_key: str
    kind: str
    state: EntryState
    event_id: int | None
    place: str
    vanished_at: datetime | None
    vanished_by: str
    is_set_aside: bool
    changed: Sequence[FieldDiff]


class DifferingWhole(Differing):
    """A row that differs, with every field, also those that are equal."""

    fields: Sequence[FieldDiff]


class Differences(TypedDict):
    """All rows that differ, and their number by kind."""

    feed: str
    as_of: AsOf | None
    counts: Mapping[str, int]
    rows: Sequence[Differing]
    is_more: bool


class OneDifference(TypedDict):
    """One row with every field."""

    feed: str
    as_of: AsOf | None
    row: DifferingWhole


_SHOWN = 100
if IS_WORKING:
    _KINDS = {
        DriftKind.EDITED: "edited",
        DriftKind.TO_PUBLISH: "to be published by hand",
        DriftKind.CANCELLED: "cancelled at the source",
        DriftKind.RETURNED: "removed by hand, back in the source",
    }
    _WAITING = tuple(RowFilter(waiting=kind) for kind in (Waiting.DRIFT, Waiting.VANISHED))


def _show_one(output: Output, session: FeedSession, row: str, as_of: AsOf | None) -> int:
    (record,) = session.find([typed_key(row)])
    fields = payload_diff(record.shown, record.drift_body or record.shown)
    document = DifferingWhole(**_document(record), fields=fields)
    output.document(OneDifference(feed=session.scope.feed, as_of=as_of, row=document))
    event = f"event {record.event_id}" if record.event_id is not None else spelt(record.state)
    output.note(f"{record.row_key} ({shown_place(record.origin)}; {event}): {document['kind']}; {_as_of_words(as_of)}")
    lines = ({"": "≠" if one.is_changed else "", **_field_line(one)} for one in fields)
    output.table(f"{session.scope.feed}: {record.row_key}", lines)
    return 0


def _differing(session: FeedSession) -> Iterator[RowRecord]:
    """Yield the rows that wait for a person, then the ignored ones; a row of several kinds appears once."""
    for which in (*_WAITING, *(replace(one, is_ignored=True) for one in _WAITING)):
        for record in session.queries.every_row(session.scope, which):
            if which.waiting is not Waiting.VANISHED or record.drift_kind is None:
                yield record


def _document(record: RowRecord) -> Differing:
    changed = [one for one in payload_diff(record.shown, record.drift_body or record.shown) if one.is_changed]
    return document_from(Differing, record, kind=_kind(record), place=record.origin, changed=changed)


def _kind(record: RowRecord) -> str:
    if record.vanished_at is not None:
        return "vanished"
    if record.drift_kind is not None:
        return _KINDS[record.drift_kind]
    if record.removed_at is not None:
        return "removed by hand"
    if record.state is not EntryState.DELIVERED:
        return f"as recorded for sending ({record.state.value})"
    return "as delivered" if record.baseline_body is None else "as changed by hand"


def _lines(document: Differing) -> Iterator[dict[str, object]]:
    """Yield one table line per field, with the row on its first line only."""
    what = f"{document['kind']} by {document['vanished_by']}" if document["vanished_by"] else document["kind"]
    what = f"{what} (ignored)" if document["is_set_aside"] else what
    head: dict[str, object] = {"what": what, "row key": document["row_key"], "event": str(document["event_id"] or "")}
    is_of_cover = document["kind"] in {_KINDS[DriftKind.EDITED], _KINDS[DriftKind.TO_PUBLISH]}
    changed = document["changed"] or (FieldDiff("its cover image" if is_of_cover else "", None, None, is_changed=True),)
    for one in changed:
        yield {**head, **_field_line(one)}
        head = dict.fromkeys(head, "")


def _field_line(one: FieldDiff) -> dict[str, object]:
    return {"field": one.path, "delivered": shown(one.delivered), "now": shown(one.now)}


def _as_of(last_read: RunRecord | None) -> AsOf | None:
    if last_read is None:
        return None
    is_whole = last_read.stage_report is not None and bool(last_read.stage_report.is_whole)
    return AsOf(run_id=last_read.run_id, read_at=last_read.started_at, is_whole=is_whole)


def _as_of_words(read: AsOf | None) -> str:
    if read is None:
        return "the source was never read"
    return f"as of the read of {read['read_at']:%Y-%m-%d %H:%M:%S} UTC{'' if read['is_whole'] else ', which was incremental'}"


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """One path and its value in each payload; None also if the payload lacks it."""

    path: str
    delivered: Any
    now: Any
    is_changed: bool


def payload_diff(delivered: bytes, now: bytes) -> list[FieldDiff]:
    """Return every path of two JSON payloads, sorted, with both values."""
    return list(_diff("", json.loads(delivered), json.loads(now)))


def shown(value: Any) -> str:
    """Format a JSON value for people: a list of texts joined by commas, null as ""."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


_ABSENT = object()


def _diff(path: str, delivered: Any, now: Any) -> Iterator[FieldDiff]:
    """Compare objects, and lists of objects or lists, by element; compare lists of plain values as a whole."""
    present = [value for value in (delivered, now) if value is not _ABSENT]
    if all(isinstance(value, dict) for value in present):
        for name in sorted({name for value in present for name in value}):
            both = (value.get(name, _ABSENT) if isinstance(value, dict) else _ABSENT for value in (delivered, now))
            yield from _diff(f"{path}.{name}".removeprefix("."), *both)
    elif all(isinstance(value, list) for value in present) and any(
        isinstance(one, dict | list) for value in present for one in value
    ):
        sides_of_all = zip_longest(*([] if value is _ABSENT else value for value in (delivered, now)), fillvalue=_ABSENT)
        for number, sides in enumerate(sides_of_all):
            yield from _diff(f"{path}[{number}]", *sides)
    else:
        ours, theirs = (None if value is _ABSENT else value for value in (delivered, now))
        yield FieldDiff(path, ours, theirs, is_changed=delivered != now)
