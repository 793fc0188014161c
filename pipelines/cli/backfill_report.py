"""How a backfill is shown: the JSON document, and lines for people. The same for the state DB's record and for one of Dagster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Literal

from typing_extensions import TypedDict

from pipelines.cli.output.console import counted, document_from, publish_line, read_line
from pipelines.cli.run_report import RunReport
from pipelines.run.backfill import plan_of_record
from state.backfills import BackfillRecord, BackfillState, SliceEnd, SliceRecord, SliceState
from state.ledger.accounts import ReadAccount

Days = TypedDict("Days", {"from": date, "to": date})


class BackfillSlice(Days):
    """One slice of a backfill: its days, its state and its run."""

    number: int
    state: SliceState
    run_id: str
    exit_code: int | None
    message: str
    counts: Mapping[str, int]
    started_at: datetime | None
    finished_at: datetime | None


class Backfill(Days):
    """One backfill: its days and its slices; `left` counts the slices that are not done."""

    id: str
    by: str
    column: str
    slice: str
    status: Literal["draft"] | None
    state: BackfillState
    created_at: datetime
    left: int
    slices: Sequence[BackfillSlice]


class BackfillAtWork(TypedDict):
    """The progress of a backfill: rows `read` and `sent` by this command, and the state of the whole backfill."""

    exit_code: int
    feed: str
    read: int
    sent: int
    backfill: Backfill


class BackfillList(TypedDict):
    """The backfills of a feed, newest first."""

    feed: str
    backfills: Sequence[Backfill]


class CancelledBackfill(TypedDict):
    """The backfill that was cancelled."""

    feed: str
    backfill: Backfill


class RehearsedSlice(Days):
    """What a run of one slice would do."""

    outcome: str
    exit_code: int
    message: str
    hint: str
    read: ReadAccount | None
    would_send: int
    brakes: Sequence[str]
    notices: Sequence[str]


class BackfillRehearsal(TypedDict):
    """What a backfill would do, from a dry run."""

    feed: str
    by: str
    slice: str
    exit_code: int
    would_send: int
    slices: Sequence[RehearsedSlice]


def slice_end(report: RunReport, state: SliceState) -> SliceEnd:
    """Return how a slice ended with a run. The counts are both accounts in one: `new` of the publish repeats that of the read."""
    message = "\n".join(filter(None, (report.message, report.hint))) or report.outcome
    published = {name: count for name, count in (report.publish or {}).items() if name != "new"}
    return SliceEnd(state, report.run_id, report.exit_code, message, {**(report.read or {}), **published})


def backfill_document(record: BackfillRecord) -> Backfill:
    """Build the JSON document of a backfill."""
    plan = plan_of_record(record)
    window, left = plan.window, len(record.left)
    slices = [
        document_from(BackfillSlice, one, **{"from": date.fromisoformat(one.first), "to": date.fromisoformat(one.last)})
        for one in record.slices
    ]
    words = {"from": window.first, "to": window.last, "by": window.by, "column": window.column, "slice": plan.slice}
    return document_from(Backfill, record, **words, id=record.backfill_id, status=plan.status, left=left, slices=slices)


def days_text(first: object, last: object) -> str:
    """Return days as text, one day once."""
    return f"{first}" if first == last else f"{first} to {last}"


def progress_text(record: BackfillRecord) -> str:
    """Return how many slices are done."""
    done = sum(one.state is SliceState.DONE for one in record.slices)
    return f"{done} of {counted(len(record.slices), 'slice')} done"


def accounts_text(counts: Iterable[Mapping[str, int]]) -> str:
    """Return both accounts of some slices together, from the counts of their ends, as equations."""
    read, published = Counter[str](), Counter[str]()
    for one in counts:
        read.update(one)
        published.update(one if "pending" in one else {})
    return "; ".join([read_line(read), *([publish_line(published)] if published else [])])


def slice_line(one: SliceRecord) -> dict[str, object]:
    """Return a slice as a line of a table."""
    at_work = "running, or killed" if one.started_at else "queued"
    state = at_work if one.state is SliceState.WORKING else one.state.value
    line = {"slice": one.number, "days": days_text(one.first, one.last), "state": state}
    line |= {name: one.counts.get(name, "") for name in ("read", "new", "delivered", "rejected")}
    ended = one.message.partition("\n")[0] or f"exit code {one.exit_code}" if one.exit_code else ""
    return {**line, "how it ended": ended, "run": one.run_id}
