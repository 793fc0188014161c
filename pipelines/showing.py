"""What the Dagster UI shows of a feed and its runs: every count as a number, so that it is plotted over time, and short tables.

The whole list of rejected rows is in the state DB (`eventsync rows`), never in the event log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dagster import MetadataValue, TableRecord

from mappings.loader import LoadedFeed
from mappings.vocabulary import REASON_TEXTS
from pipelines.places import address_of
from pipelines.sync import Published, Staged
from state.accounts import RejectedRow

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
        "schedule": f"{schedule.cron} ({schedule.timezone})" if schedule else "none",
    }


def staged_metadata(staged: Staged) -> Mapping[str, Any]:
    """Return the account of a read, and the first rejected rows with what would be right."""
    report = staged.report
    counts: dict[str, Any] = dict(asdict(report.account))
    counts |= {"warnings": report.warnings, "vanished": report.vanished, "past": report.past}
    counts |= {"rejected by earlier reads": report.standing} if report.standing else {}
    counts |= {"dagster/row_count": report.account.read}
    if report.rejections:
        counts["rejected rows"] = _rejections(report.rejections)
    if report.skipped:
        counts["left out, by rule"] = MetadataValue.json(dict(report.skipped))
    if staged.notices:
        counts["notices"] = MetadataValue.md("\n".join(f"* {notice}" for notice in staged.notices))
    counts["brakes"] = MetadataValue.md("\n".join(f"* **{one.name}**: {one.sentence}" for one in staged.brakes))
    return counts


def published_metadata(published: Published) -> Mapping[str, Any]:
    """Return the account of a drain, and its speed in rows per second."""
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
        counts["not written back"] = published.written_back.problem
    if published.outlook.notices:
        counts["notices"] = MetadataValue.md("\n".join(f"* {notice}" for notice in published.outlook.notices))
    return counts


def _rejections(rows: tuple[RejectedRow, ...]) -> MetadataValue[Any]:
    records = [
        TableRecord(
            {
                "place": row.origin,
                "column": reason.column,
                "found": reason.found[:200],
                "problem": REASON_TEXTS[reason.code],
                "hint": reason.hint,
            }
        )
        for row in rows[:ROWS_SHOWN]
        for reason in row.reasons
    ]
    return MetadataValue.table(records)
