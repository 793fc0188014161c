"""What the Dagster UI shows of a feed and its runs: every count as a number, so that it is plotted over time, and short tables.

The whole list of rejected rows stays in the state DB (`eventsync rows`), never in the event log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg
import orjson

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
from state.ledger.standing import FeedScope, RowRecord
from state.views.books import Books
from state.views.views import RowFilter

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


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """How many rows wait, by the word that `eventsync rows --state` takes; and a table of the first that differ."""

    counts: Mapping[str, int] = field(default_factory=dict)
    differing: tuple[Mapping[str, str], ...] = ()


def waiting_rows(context: RunContext, mapping: FeedMapping) -> WaitingRows:
    """Return what waits in the state DB, of one feed.

    Raises:
        SyncError: the state DB does not answer.
    """
    books, book = Books(context.engine, context.now), FeedScope(context.settings.destination, mapping.feed)
    counts = next((one.waiting for one in books.status(destination=book.destination, feed=book.feed)), {})
    if not counts.get(Waiting.DRIFT) and not counts.get(Waiting.VANISHED):
        return WaitingRows(counts)
    drifted = books.rows(book, RowFilter(waiting=Waiting.DRIFT), limit=ROWS_SHOWN)
    vanished = books.rows(book, RowFilter(waiting=Waiting.VANISHED), limit=ROWS_SHOWN)
    differing = [_difference(record, record.drift_kind.value if record.drift_kind else "edited") for record in drifted]
    differing += [_difference(record, "vanished") for record in vanished if record.drift_kind is None]
    return WaitingRows(counts, tuple(differing[:ROWS_SHOWN]))


def _difference(record: RowRecord, what: str) -> Mapping[str, str]:
    delivered: dict[str, Any] = orjson.loads(record.shown)
    now: dict[str, Any] = orjson.loads(record.drift_body or record.shown)
    changed = [name for name in sorted(delivered.keys() | now.keys()) if delivered.get(name) != now.get(name)]
    return {
        "place": record.origin,
        "row key": record.row_key,
        "event": str(record.event_id or ""),
        "what": what.replace("_", " "),
        "fields": ", ".join(changed),
    }


def source_metadata(feed: LoadedFeed) -> Mapping[str, Any]:
    """Return where a feed's rows come from, as a link where it is one, and which file says so."""
    schedule = feed.mapping.schedule
    address = address_of(feed.mapping.source)
    return {
        "source": dg.MetadataValue.url(address) if address else feed.mapping.source.place,
        "mapping file": dg.MetadataValue.path(feed.path),
        "schedule": str(schedule) if schedule else "none",
    }


def staged_metadata(staged: Staged, seconds: float) -> Mapping[str, Any]:
    """Return the account of a read that took so long, and the first rejected rows with what would be right."""
    report = staged.report
    counts: dict[str, Any] = dict(asdict(report.account))
    counts |= {"warnings": report.warnings, "vanished": report.vanished, "past": report.past, "withdrawn": report.withdrawn}
    counts |= {"rejected by earlier reads": report.standing, "dagster/row_count": report.account.read}
    counts |= {"seconds": round(seconds, 3), "rows per second": _per_second(report.account.read, seconds)}
    if report.rejections:
        counts["rejected rows"] = _table(
            {
                "place": row.origin,
                "column": reason.column,
                "found": reason.found[:200],
                "problem": REASON_TEXTS[reason.code],
                "hint": reason.hint,
            }
            for row in report.rejections[:ROWS_SHOWN]
            for reason in row.reasons
        )
    if report.held:
        counts["held rows"] = _table(
            {"place": row.origin, "row key": row.row_key, "looks like": row.twin_key} for row in report.held[:ROWS_SHOWN]
        )
    if report.skipped:
        counts["left out, by rule"] = dg.MetadataValue.json({replaced(rule): count for rule, count in report.skipped.items()})
    if staged.notices:
        counts["notices"] = _list(staged.notices)
    counts["brakes"] = _list(f"**{one.name}**: {one.sentence}" for one in staged.brakes)
    return counts


def observed_metadata(staged: Staged, seconds: float) -> Mapping[str, Any]:
    """Return what a read saw of its source: how many rows, in what time, and its version."""
    rows = staged.report.account.read
    return {
        "dagster/row_count": rows,
        "rows": rows,
        "seconds": round(seconds, 3),
        "rows per second": _per_second(rows, seconds),
        "read": "all rows" if staged.report.is_whole else "a part: what changed, or what was asked for",
        **({"version": staged.version} if staged.version else {}),
    }


def probe_metadata(probe: SourceProbe) -> Mapping[str, Any]:
    """Return what a probe saw of a source: how many files or sheets, or why it says nothing."""
    return {"glance": probe.blind} if probe.blind else {"files": len(probe.marks)}


def published_metadata(published: PublishReport, waiting: WaitingRows) -> Mapping[str, Any]:
    """Return the account of a drain, its speed in rows per second, and what waits for a person after it."""
    account = published.account
    counts: dict[str, Any] = dict(asdict(account))
    counts["seconds"] = round(published.duration_s, 3)
    counts["rows per second"] = _per_second(account.new + account.carried_over - account.pending, published.duration_s)
    counts |= {_PACE_NAMES[name]: number for name, number in published.pace.items() if name in _PACE_NAMES}
    counts["dagster/row_count"] = account.delivered
    if published.written_back.cells or published.written_back.problem:
        counts["cells written back"] = published.written_back.cells
    if published.written_back.problem:
        counts["not written back"] = replaced(published.written_back.problem)
    if published.outlook.notices:
        counts["notices"] = _list(published.outlook.notices)
    return counts | waiting_metadata(waiting)


def waiting_metadata(waiting: WaitingRows) -> dict[str, Any]:
    """Return how many rows of each kind wait for a person, zeros too: the plot then shows when they were worked off."""
    counts: dict[str, Any] = {f"waiting: {name.replace('_', ' ')}": waiting.counts.get(name, 0) for name in WAITING}
    if waiting.differing:
        counts["differs from what was delivered"] = _table(waiting.differing)
    return counts


def _per_second(rows: int, seconds: float) -> float:
    return round(rows / seconds, 1) if seconds else 0.0


def _table(rows: Iterable[Mapping[str, str]]) -> dg.MetadataValue[Any]:
    return dg.MetadataValue.table([dg.TableRecord({name: replaced(text) for name, text in row.items()}) for row in rows])


def _list(lines: Iterable[str]) -> dg.MetadataValue[Any]:
    return dg.MetadataValue.md("\n".join(f"* {replaced(line)}" for line in lines))


def address_of(source: SourceSpec) -> str:
    """Return the address of a source on the web, without any secret; "" where it has none that a browser opens."""
    if isinstance(source, GoogleSheetsSource):
        tab = "" if source.tab_number is None else f"/edit#gid={source.tab_number}"
        return f"https://docs.google.com/spreadsheets/d/{source.spreadsheet_id}{tab}" if source.spreadsheet_id else ""
    return source.place if source.place.startswith(("http://", "https://")) else ""
