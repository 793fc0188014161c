"""What the Dagster UI shows of a feed and its runs: every count as a number, so that it is plotted over time, and short tables.

The whole list of rejected rows is in the state DB (`eventsync rows`), never in the event log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import orjson
from dagster import MetadataValue, TableRecord

from connectors.sources.probe import SourceProbe
from mappings.refusals import REASON_TEXTS
from mappings.spec.feed import FeedMapping
from mappings.spec.source import GoogleSheetsSource, SourceSpec
from mappings.yaml.loader import LoadedFeed
from pipelines.control_characters import replaced
from pipelines.run.context import RunContext
from pipelines.run.publish import PublishReport
from pipelines.run.stage import Staged
from pipelines.run.standing import WAITING
from state.enums import Waiting
from state.ledger.accounts import RejectedRow
from state.ledger.row_record import Book, RowRecord
from state.views.books import Books
from state.views.views import RowFilter

FIRST = 20


@dataclass(frozen=True, slots=True)
class Differing:
    """One row whose source does not say any more what was delivered. `fields`: the payload's that differ."""

    place: str
    row_key: str
    event_id: int | None
    what: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeftOpen:
    """How many rows wait, by the word that `eventsync rows --state` takes, and the first of those that differ."""

    counts: Mapping[str, int] = field(default_factory=dict)
    differing: tuple[Differing, ...] = ()


def left_open(context: RunContext, mapping: FeedMapping) -> LeftOpen:
    """Ask the state DB what waits, of one feed.

    Raises:
        SyncError: the state DB does not answer.
    """
    books, book = Books(context.engine, context.now), Book(context.settings.destination, mapping.feed)
    counts = next((one.waiting for one in books.status(destination=book.destination, feed=book.feed)), {})
    if not counts.get(Waiting.DRIFT) and not counts.get(Waiting.VANISHED):
        return LeftOpen(counts)
    return LeftOpen(counts, tuple(islice(_differing(books, book), FIRST)))


def _differing(books: Books, book: Book) -> Iterator[Differing]:
    for record in books.rows(book, RowFilter(waiting=Waiting.DRIFT), limit=FIRST):
        yield _told(record, record.drift_kind.value if record.drift_kind else "edited")
    for record in books.rows(book, RowFilter(waiting=Waiting.VANISHED), limit=FIRST):
        if record.drift_kind is None:
            yield _told(record, "vanished")


def _told(record: RowRecord, what: str) -> Differing:
    fields = tuple(_changed(record.shown, record.drift_body or record.shown))
    return Differing(record.origin, record.row_key, record.event_id, what.replace("_", " "), fields)


def _changed(delivered: bytes, now: bytes) -> Iterator[str]:
    """Yield the fields of two payloads that differ, in the order of the alphabet."""
    before: dict[str, Any] = orjson.loads(delivered)
    after: dict[str, Any] = orjson.loads(now)
    yield from (name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name))


ROWS_SHOWN = 20
_PACE_NAMES = {
    "rate_per_s": "allowed rate per second",
    "used_share": "share of the allowed rate used",
    "limited": "answered 429",
    "pauses": "pauses",
    "paused_s": "seconds paused",
    "most_under_way": "most requests under way",
    "workers": "workers",
}


def source_metadata(feed: LoadedFeed) -> Mapping[str, Any]:
    """Return where a feed's rows come from, as an address that a click opens where it is one, and which file says so."""
    schedule = feed.mapping.schedule
    address = address_of(feed.mapping.source)
    return {
        "source": MetadataValue.url(address) if address else feed.mapping.source.place,
        "mapping file": MetadataValue.path(feed.path),
        "schedule": str(schedule) if schedule else "none",
    }


def staged_metadata(staged: Staged, seconds: float) -> Mapping[str, Any]:
    """Return the account of a read that took so long, and the first rejected rows with what would be right."""
    report = staged.report
    counts: dict[str, Any] = dict(asdict(report.account))
    counts |= {"warnings": report.warnings, "vanished": report.vanished, "past": report.past, "withdrawn": report.withdrawn}
    counts |= {"rejected by earlier reads": report.standing}
    counts |= {"seconds": round(seconds, 3), "rows per second": round(report.account.read / seconds, 1) if seconds else 0.0}
    counts |= {"dagster/row_count": report.account.read}
    if report.rejections:
        counts["rejected rows"] = _rejections(report.rejections)
    if report.held:
        counts["held rows"] = _table(
            {"place": row.origin, "row key": row.row_key, "looks like": row.twin_key} for row in report.held[:ROWS_SHOWN]
        )
    if report.skipped:
        counts["left out, by rule"] = MetadataValue.json({replaced(rule): count for rule, count in report.skipped.items()})
    if staged.notices:
        counts["notices"] = _list(staged.notices)
    counts["brakes"] = _list(f"**{one.name}**: {one.sentence}" for one in staged.brakes)
    return counts


def observed_metadata(staged: Staged, seconds: float) -> Mapping[str, Any]:
    """Return what a read has seen of its source: how many rows, in what time, and whether it was as before."""
    rows = staged.report.account.read
    return {
        "dagster/row_count": rows,
        "rows": rows,
        "seconds": round(seconds, 3),
        "rows per second": round(rows / seconds, 1) if seconds else 0.0,
        "read": "all rows" if staged.report.is_whole else "a part: what changed, or what was asked for",
        **({"version": staged.version} if staged.version else {}),
    }


def glance_metadata(glance: SourceProbe) -> Mapping[str, Any]:
    """Return what a glance at a source has seen, without reading it: how many files or sheets, or why it says nothing."""
    return {"glance": glance.blind} if glance.blind else {"files": len(glance.marks)}


def published_metadata(published: PublishReport, left: LeftOpen) -> Mapping[str, Any]:
    """Return the account of a drain, its speed in rows per second, and what waits for a person behind it."""
    account = published.account
    counts: dict[str, Any] = dict(asdict(account))
    answered = account.new + account.carried_over - account.pending
    counts["seconds"] = round(published.duration_s, 3)
    counts["rows per second"] = round(answered / published.duration_s, 1) if published.duration_s else 0.0
    counts |= {_PACE_NAMES[name]: number for name, number in published.pace.items() if name in _PACE_NAMES}
    counts["dagster/row_count"] = account.delivered
    if published.written_back.cells or published.written_back.problem:
        counts["cells written back"] = published.written_back.cells
    if published.written_back.problem:
        counts["not written back"] = replaced(published.written_back.problem)
    if published.outlook.notices:
        counts["notices"] = _list(published.outlook.notices)
    return counts | waiting_metadata(left)


def waiting_metadata(left: LeftOpen) -> dict[str, Any]:
    """Return what waits for a person, every kind as a number, also where it is none: a plot shows when it was worked off."""
    counts: dict[str, Any] = {f"waiting: {name.replace('_', ' ')}": left.counts.get(name, 0) for name in WAITING}
    if left.differing:
        counts["differs from what was delivered"] = _table(map(_difference, left.differing))
    return counts


def _difference(one: Differing) -> Mapping[str, str]:
    return {
        "place": one.place,
        "row key": one.row_key,
        "event": str(one.event_id or ""),
        "what": one.what,
        "fields": ", ".join(one.fields),
    }


def _rejections(rows: tuple[RejectedRow, ...]) -> MetadataValue[Any]:
    return _table(
        {
            "place": row.origin,
            "column": reason.column,
            "found": reason.found[:200],
            "problem": REASON_TEXTS[reason.code],
            "hint": reason.hint,
        }
        for row in rows[:ROWS_SHOWN]
        for reason in row.reasons
    )


def _table(rows: Iterable[Mapping[str, str]]) -> MetadataValue[Any]:
    return MetadataValue.table([TableRecord({name: replaced(text) for name, text in row.items()}) for row in rows])


def _list(lines: Iterable[str]) -> MetadataValue[Any]:
    return MetadataValue.md("\n".join(f"* {replaced(line)}" for line in lines))


def address_of(source: SourceSpec) -> str:
    """Return the address of a source on the web, without any secret; "" where it has none that a browser opens."""
    if isinstance(source, GoogleSheetsSource):
        tab = "" if source.tab_number is None else f"/edit#gid={source.tab_number}"
        return f"https://docs.google.com/spreadsheets/d/{source.spreadsheet_id}{tab}" if source.spreadsheet_id else ""
    return source.place if source.place.startswith(("http://", "https://")) else ""
