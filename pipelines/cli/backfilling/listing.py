"""A feed's backfills for people and for scripts: which there are, how far their slices have come; and cancelling one.

Going through slices is `slices`'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mappings.errors import ConfigError
from mappings.spec.feed import FeedMapping
from pipelines.cli.output import Output
from pipelines.clock import now
from pipelines.run.backfill import BackfillPlan, plan_of_record
from pipelines.settings import Settings
from state.backfills import BackfillRecord, Backfills, BackfillState, SliceRecord, SliceState
from state.database import existing_database

_COLUMNS = ("backfill", "days", "state", "slices", "left", "asked for at")
_SLICE_COLUMNS = ("slice", "days", "state", "read", "new", "delivered", "rejected", "how it ended", "run")


def list_backfills(settings: Settings, mapping: FeedMapping, output: Output) -> int:
    """Show the feed's backfills, and the slices of the one that is open, or else of the last; return 0."""
    with _kept(settings, mapping) as kept:
        records = kept.all() if kept else ()
    output.document({"feed": mapping.feed, "backfills": [document_of(record) for record in records]})
    if not records:
        output.note(f"{mapping.feed}: no backfill was asked for yet")
        return 0
    output.table(f"{mapping.feed}: backfills", _COLUMNS, map(_line, records))
    shown = next((record for record in records if record.state is BackfillState.OPEN), records[0])
    output.table(f"{mapping.feed}: the slices of {shown.backfill_id}", _SLICE_COLUMNS, map(_slice_line, shown.slices))
    if shown.state is BackfillState.OPEN:
        output.note(f"`eventsync backfill {mapping.feed} --resume` goes on, `--cancel` leaves it")
    return 0


def cancel_backfill(settings: Settings, mapping: FeedMapping, plan: BackfillPlan | None, output: Output) -> int:
    """Cancel the open backfill, the one of these days where there are several; return 0.

    Raises:
        ConfigError: there is none, or more than one.
    """
    with _kept(settings, mapping) as kept:
        record = open_one(mapping, kept.all() if kept else (), plan)
        count = kept.cancel(record.backfill_id) if kept else 0
        ended = kept.one(record.backfill_id) if kept else record
    output.document({"feed": mapping.feed, "backfill": document_of(ended)})
    output.note(f"{mapping.feed}: backfill {record.backfill_id} is cancelled, {count} of {len(record.slices)} slices undone")
    if record.is_at_work:
        output.note("a run that is at one of its slices ends that one first; what is staged is sent by the feed's next run")
    return 0


def open_one(mapping: FeedMapping, records: Sequence[BackfillRecord], plan: BackfillPlan | None) -> BackfillRecord:
    """Return the open backfill that is meant; `plan` tells which, where there are several.

    Raises:
        ConfigError: there is none, or more than one.
    """
    found = [one for one in records if one.state is BackfillState.OPEN and plan in {None, plan_of_record(one)}]
    if not found:
        hint = f"`eventsync backfill {mapping.feed} --list` shows what there is; --from and --to begin one"
        raise ConfigError(f"{mapping.feed} has no open backfill" + (f" of {plan}" if plan else ""), hint=hint)
    if len(found) > 1:
        told = "; ".join(f"{one.backfill_id}: {plan_of_record(one)}" for one in found)
        raise ConfigError(f"{mapping.feed} has {len(found)} open backfills: {told}", hint="name its days with --from and --to")
    return found[0]


def document_of(record: BackfillRecord) -> dict[str, Any]:
    """Return a backfill as scripts read it."""
    plan = plan_of_record(record)
    return {
        "id": record.backfill_id,
        "from": plan.window.first,
        "to": plan.window.last,
        "by": plan.window.by,
        "column": plan.window.column,
        "slice": plan.slice,
        "status": plan.status,
        "state": record.state,
        "created_at": record.created_at,
        "left": len(record.left),
        "slices": [_slice_document(one) for one in record.slices],
    }


def _slice_document(one: SliceRecord) -> dict[str, Any]:
    return {
        "number": one.number,
        "from": one.first,
        "to": one.last,
        "state": one.state,
        "run_id": one.run_id,
        "exit_code": one.exit_code,
        "message": one.message,
        "counts": one.counts,
        "started_at": one.started_at,
        "finished_at": one.finished_at,
    }


def _line(record: BackfillRecord) -> tuple[object, ...]:
    told = record.backfill_id, str(plan_of_record(record)), record.state.value
    return (*told, len(record.slices), len(record.left), record.created_at)


def _slice_line(one: SliceRecord) -> tuple[object, ...]:
    days = one.first if one.first == one.last else f"{one.first} to {one.last}"
    counts = (one.counts.get(name, "") for name in ("read", "new", "delivered", "rejected"))
    ended = "" if one.exit_code in {None, 0} else one.message.partition("\n")[0] or f"exit code {one.exit_code}"
    return (one.number, days, _STATES[one.state], *counts, ended, one.run_id)


_STATES = {
    SliceState.LEFT: "left",
    SliceState.WORKING: "at work, or killed",
    SliceState.DONE: "done",
    SliceState.CANCELLED: "cancelled",
}


@contextmanager
def _kept(settings: Settings, mapping: FeedMapping) -> Iterator[Backfills | None]:
    if not settings.base_url:
        hint = "backfills are kept by service, as all that was sent is: set it to the one in question"
        raise ConfigError("EVENT_API_BASE_URL is not set", hint=hint)
    with existing_database(settings.state_url) as engine:
        yield None if engine is None else Backfills(engine, settings.destination, mapping.feed, now)
