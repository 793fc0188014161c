"""How a past run is told: its accounts as equations that balance, its outcome; as lines, as a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pipelines.cli.tables import publish_line, read_line
from pipelines.run.sending import pace_line
from state.enums import Waiting
from state.ledger.standing import OpenRows
from state.views.views import RunRecord

_JUDGED = frozenset({"done", "needs attention", "staged"})


def run_lines(run: RunRecord) -> list[str]:
    """Return the accounts of a run, one line each; none where it came to none."""
    lines = []
    if run.read:
        lines.append(read_line(asdict(run.read)))
    if run.publish:
        lines.append(publish_line(asdict(run.publish)))
    lines += filter(None, [pace_line(run.pace), standing_line(run.book.feed, run.outcome or "", run.standing)])
    return [*lines, *(f"notice: {notice}" for notice in run.notices)]


def standing_line(feed: str, outcome: str, standing: Mapping[Waiting, OpenRows] | None) -> str:
    """Return what waited for a person when a run ended; "" where its message says so."""
    if not standing or outcome in _JUDGED:
        return ""
    named = ", ".join(f"{kind.value.replace('_', ' ')} {rows}" for kind, rows in standing.items())
    return f"waits for a person: {named}: see `eventsync rows {feed}`"


def run_outcome(run: RunRecord) -> str:
    """Return how it ended, or how far it has come."""
    return run.outcome or f"not ended ({run.phase.value})"


def run_head(run: RunRecord) -> str:
    """Return a run as one line: when it started, its feed, how it ended, its whole id to copy."""
    started = run.started_at.isoformat(sep=" ", timespec="seconds")
    return f"{started}  {run.book.feed}  {run_outcome(run)}  (run {run.run_id}, launched by {run.launched_by})"


def run_told(run: RunRecord) -> list[str]:
    """Return a run as lines: its head, then indented its accounts, what came of it, and what would help."""
    return [run_head(run), *(f"  {line}" for line in (*run_lines(run), *run.message.splitlines()))]


def run_document(run: RunRecord) -> dict[str, Any]:
    """Return a run as scripts read it; the details of its stage are left to `runs RUN`."""
    return {
        "feed": run.book.feed,
        "destination": run.book.destination,
        "run_id": run.run_id,
        "dagster_run_id": run.dagster_run_id,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "launched_by": run.launched_by,
        "phase": run.phase,
        "outcome": run.outcome,
        "exit_code": run.exit_code,
        "message": run.message,
        "read": run.read,
        "publish": run.publish,
        "brakes": run.brakes,
        "notices": run.notices,
        "pace": run.pace,
        "standing": run.standing,
    }
