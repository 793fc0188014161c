"""What the pages of `staged` and `published` show: metadata and check results.

Every count is a metadata entry, so that Dagster plots it over time. The full list of rejected rows stays in the state DB
(`eventsync rows`), not in the event log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import dagster as dg
import orjson

from mappings.outcome import shown_place
from mappings.row_key import FeedName
from mappings.sentences import Words
from mappings.spec.feed import FeedMapping
from pipelines.orchestration import names
from pipelines.run.brakes import possible_brakes
from pipelines.run.context import RunContext
from pipelines.run.outcome import WAITING, ExitCode, RunOutcome
from pipelines.run.publish import PublishReport
from pipelines.run.stage import Staged
from pipelines.safe_output import replaced
from state.enums import Waiting
from state.ledger.standing import FeedScope, RowRecord
from state.queries import Delivered, LedgerQueries, RowFilter

PUBLISH_CHECKS = {
    "within_limits": "No row is in conflict, and refused, blocked and uncertain ones stay within the feed's limits.",
    "drift": "The source agrees with what was delivered, except for differences that a person ignored.",
    "contract": "By its OpenAPI page, the service accepts what the mapping sends.",
}
HELD_DECISIONS = (
    "`eventsync resolve FEED KEY --same-as`: it is the event that it resembles",
    "`eventsync resolve FEED KEY --release`: it is a separate event, send it",
)
ROWS_SHOWN = 20
EVENTS_SHOWN = 100
WHAT_TO_DO, ACCEPTING = "what to do", "to accept it, in the launchpad"
_PACE_NAMES = {
    "rate_per_s": "allowed rate per second",
    "used_share": "share of the allowed rate used",
    "limited": "answered 429",
    "pauses": "pauses",
    "paused_s": "seconds paused",
    "most_under_way": "most requests under way",
    "workers": "workers",
}


def staged_metadata(staged: Staged, feed: FeedName) -> dict[str, Any]:
    """Return the metadata of `staged`: the account of the read, and tables of the first rejected and held rows."""
    report = staged.report
    counts: dict[str, Any] = dict(asdict(report.account))
    counts |= {"warnings": report.warnings, "vanished": report.vanished, "past": report.past, "withdrawn": report.withdrawn}
    counts |= {"rejected by earlier reads": report.standing, "dagster/row_count": report.account.read}
    if report.rejections:
        words = Words()
        counts["rejected rows"] = _table(
            {
                "place": shown_place(row.origin),
                "column": reason.column,
                "found": reason.found[:200],
                "problem": " ".join(filter(None, (words.problem(reason), words.advice(reason)))),
                "hint for the mapping": reason.hint,
            }
            for row in report.rejections[:ROWS_SHOWN]
            for reason in row.reasons
        )
    if report.held:
        counts["held rows"] = _table(
            {"place": shown_place(row.origin), "row key": row.row_key, "looks like": row.twin_key}
            for row in report.held[:ROWS_SHOWN]
        )
        counts["what a held row waits for"] = _list(one.replace("FEED", feed) for one in HELD_DECISIONS)
    if report.skipped:
        counts["left out, by rule"] = dg.MetadataValue.json({replaced(rule): count for rule, count in report.skipped.items()})
    if staged.notices:
        counts["notices"] = _list(staged.notices)
    counts["brakes"] = _list(f"**{one.name}**: {one.sentence}" for one in staged.brakes)
    return counts


def brake_results(key: dg.AssetKey, staged: Staged, mapping: FeedMapping) -> list[dg.AssetCheckEvaluation]:
    """Return the evaluation of each brake that the feed can trip; an accepted one warns instead of blocking."""
    possible = possible_brakes(mapping)
    return [
        dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=result.name,
            passed=not result.is_tripped,
            severity=dg.AssetCheckSeverity.ERROR if result.stops else dg.AssetCheckSeverity.WARN,
            blocking=True,
            description=replaced(result.sentence),
            metadata={
                "measured": dg.MetadataValue.float(round(result.measured, 4)),
                "allowed": dg.MetadataValue.float(round(result.allowed, 4)),
                "accepted": dg.MetadataValue.bool(result.is_accepted),
                **({WHAT_TO_DO: replaced(result.step), ACCEPTING: accepting([result.name])} if result.stops else {}),
            },
        )
        for result in staged.brakes
        if result.name in possible
    ]


def accepting(brakes: Iterable[str]) -> str:
    """Return the options of a run that passes these brakes, as the launchpad takes them."""
    return f"resources: {{{names.OPTIONS}: {{config: {{accept: [{', '.join(brakes)}]}}}}}}"


def waiting_first(waiting: Mapping[str, int], published: PublishReport) -> dict[str, Any]:
    """Return the counts that the page of `published` shows first; a row on two lists counts twice."""
    others = sum(waiting.get(name, 0) for name in WAITING if name not in {"rejected", "drift", "warning"})
    return {
        "delivered": published.account.delivered,
        "waiting for a person": others,
        "rejected": waiting.get("rejected", 0),
        "changed": waiting.get("drift", 0),
    }


def published_metadata(published: PublishReport, delivered: Delivered) -> dict[str, Any]:
    """Return the metadata of `published`: the account of the drain with the first delivered events, its speed, and what was
    written back.
    """
    account, written = published.account, published.written_back
    counts: dict[str, Any] = dict(asdict(account))
    counts |= speed_metadata(account.new + account.carried_over - account.pending, published.duration_s)
    counts |= {_PACE_NAMES[name]: number for name, number in published.pace.items() if name in _PACE_NAMES}
    counts["dagster/row_count"] = account.delivered
    if delivered.event_ids:
        counts["delivered events"] = dg.MetadataValue.json(list(delivered.event_ids))
    if written.cells or written.problem:
        counts["cells written back"] = written.cells
    if written.problem:
        counts["not written back"] = replaced(written.problem)
    if published.outlook.notices:
        counts["notices"] = _list(published.outlook.notices)
    return counts


def publish_results(
    key: dg.AssetKey, published: PublishReport, outcome: RunOutcome, waiting: Mapping[str, int]
) -> list[dg.AssetCheckEvaluation]:
    """Return the evaluations of the checks of `published`."""
    changed, gone = (waiting.get(name, 0) for name in ("drift", "vanished"))
    drift = f"{changed} changed and {gone} gone since they were delivered; `eventsync diff` shows the differences"
    results = {
        "within_limits": (outcome.exit_code is ExitCode.DONE, outcome.message),
        "drift": (not changed and not gone, drift),
        "contract": (not published.outlook.errors, "\n".join(published.outlook.notices)),
    }
    return [
        dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=name,
            passed=passed,
            severity=dg.AssetCheckSeverity.WARN,
            blocking=False,
            description=PUBLISH_CHECKS[name] if passed else replaced(problem),
            metadata={"drift": dg.MetadataValue.int(changed), "vanished": dg.MetadataValue.int(gone)} if name == "drift" else {},
        )
        for name, (passed, problem) in results.items()
    ]


def waiting_rows(context: RunContext, mapping: FeedMapping) -> tuple[Mapping[str, int], Sequence[Mapping[str, str]]]:
    """Return how many rows of a feed wait, by the value of `rows --state`, and a table of the first that differ.

    Raises:
        SyncError: the state DB does not answer.
    """
    queries, scope = LedgerQueries(context.engine, context.now), FeedScope(context.settings.destination, mapping.feed)
    counts = next((one.waiting for one in queries.status(destination=scope.destination, feed=scope.feed)), {})
    differing: list[Mapping[str, str]] = []
    if counts.get(Waiting.DRIFT):
        drifted = queries.rows(scope, RowFilter(waiting=Waiting.DRIFT), limit=ROWS_SHOWN)
        differing += [_difference(record, record.drift_kind.value if record.drift_kind else "edited") for record in drifted]
    if counts.get(Waiting.VANISHED):
        vanished = queries.rows(scope, RowFilter(waiting=Waiting.VANISHED), limit=ROWS_SHOWN)
        differing += [_difference(record, "vanished") for record in vanished if record.drift_kind is None]
    return counts, differing[:ROWS_SHOWN]


def _difference(record: RowRecord, what: str) -> Mapping[str, str]:
    delivered: dict[str, Any] = orjson.loads(record.shown)
    now: dict[str, Any] = orjson.loads(record.drift_body or record.shown)
    changed = [name for name in sorted(delivered.keys() | now.keys()) if delivered.get(name) != now.get(name)]
    return {
        "place": shown_place(record.origin),
        "row key": record.row_key,
        "event": str(record.event_id or ""),
        "what": what.replace("_", " "),
        "fields": ", ".join(changed),
    }


def waiting_metadata(counts: Mapping[str, int], differing: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return how many rows of each kind wait for a person, with zeros, so that the plot shows when a list was emptied."""
    shown: dict[str, Any] = {f"waiting: {name.replace('_', ' ')}": counts.get(name, 0) for name in WAITING}
    return shown | ({"differs from what was delivered": _table(differing)} if differing else {})


def speed_metadata(rows: int, seconds: float) -> dict[str, float]:
    return {"seconds": round(seconds, 3), "rows per second": round(rows / seconds, 1) if seconds else 0.0}


def _table(rows: Iterable[Mapping[str, str]]) -> dg.MetadataValue[Any]:
    return dg.MetadataValue.table([dg.TableRecord({name: replaced(text) for name, text in row.items()}) for row in rows])


def _list(lines: Iterable[str]) -> dg.MetadataValue[Any]:
    return dg.MetadataValue.md("\n".join(f"* {replaced(line)}" for line in lines))
