"""What a rehearsal found out, for people and for scripts. How it was found out is `rehearsing`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mappings.row_key import IdempotencyKey, RowKey
from pipelines.cli.output import Output
from pipelines.cli.tables import BRAKE_COLUMNS, REJECTION_COLUMNS, brake_rows, read_line, rejection_rows
from pipelines.run.outcome import Outcome
from pipelines.run.stage import Staged
from state.ledger.accounts import StageReport
from state.ledger.standing import NOTHING, Standing

SHOWN = 10
"""So many of the rows to be sent are shown, and so many rejected ones."""
_SENDING_COLUMNS = ("place", "row key", "status", "startAt", "title")


@dataclass(frozen=True, slots=True)
class Sending:
    """A row that the run would send, with its key and the payload."""

    place: str
    row_key: RowKey
    idempotency_key: IdempotencyKey
    event: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owed:
    """What the run would have to send: `count` rows in all, `first` the first of them; `standing` waits for a decision."""

    count: int
    first: tuple[Sending, ...]
    standing: Standing = NOTHING


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a run of one feed would do. `owed` is None where it would not come to sending.

    `waiting` counts what would wait for a person afterwards, by the word that `rows --state` takes.
    """

    feed: str
    outcome: Outcome
    staged: Staged | None = None
    owed: Owed | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return it as scripts read it."""
        return {
            "feed": self.feed,
            "outcome": self.outcome.name,
            "exit_code": int(self.outcome.exit_code),
            "message": self.outcome.message,
            "hint": self.outcome.hint,
            **(_stage_document(self.staged) if self.staged else {"read": None}),
            "would_send": self.owed.count if self.owed else 0,
            "first": self.owed.first if self.owed else (),
            "waiting": self.waiting,
        }


def show_rehearsals(output: Output, rehearsals: Sequence[Rehearsal]) -> None:
    """Print them: one JSON document, or for people the accounts, the brakes, and the first rows that would be sent."""
    output.document({"rehearsals": [rehearsal.document() for rehearsal in rehearsals]})
    for rehearsal in rehearsals:
        _show(output, rehearsal)
    output.note("a rehearsal: nothing was written or sent")


def _stage_document(staged: Staged) -> dict[str, Any]:
    report = staged.report
    return {
        "read": report.account,
        "skipped": report.skipped,
        "warnings": report.warnings,
        "vanished": report.vanished,
        "past": report.past,
        "withdrawn": report.withdrawn,
        "rejections": report.rejections,
        "brakes": staged.brakes,
    }


def _show(output: Output, rehearsal: Rehearsal) -> None:
    outcome = rehearsal.outcome
    output.note(f"{rehearsal.feed}: {outcome.name}")
    for line in (*outcome.message.splitlines(), *([f"what would help: {outcome.hint}"] if outcome.hint else [])):
        output.note(f"  {line}")
    if rehearsal.staged:
        _show_stage(output, rehearsal.feed, rehearsal.staged)
    if rehearsal.waiting:
        told = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in rehearsal.waiting.items())
        output.note(f"{rehearsal.feed}: would wait for a person: {told}")
    if rehearsal.owed:
        _show_owed(output, rehearsal.feed, rehearsal.owed)


def _show_owed(output: Output, feed: str, owed: Owed) -> None:
    output.note(f"{feed}: a run would send {_rows(owed.count)}")
    if owed.first:
        title = f"{feed}: the first {len(owed.first)} of {_rows(owed.count)} that a run would send"
        output.table(title, _SENDING_COLUMNS, map(_sending_row, owed.first))


def _show_stage(output: Output, feed: str, staged: Staged) -> None:
    report = staged.report
    output.note(f"  {read_line(asdict(report.account))}")
    for line in _notes(report):
        output.note(f"  {line}")
    if report.rejections:
        title = f"{feed}: the first rejected rows"
        output.table(title, REJECTION_COLUMNS, rejection_rows(report.rejections[:SHOWN]))
    output.table(f"{feed}: brakes", BRAKE_COLUMNS, brake_rows(staged.brakes))


def _notes(report: StageReport) -> list[str]:
    notes = []
    if report.skipped:
        notes.append("left out: " + ", ".join(f"{label} {count:,}" for label, count in report.skipped.items()))
    counts = {"warnings": report.warnings, "gone from the source": report.vanished, "gone, being over": report.past}
    counts |= {"to be withdrawn": report.withdrawn}
    notes += [f"{name}: {count:,}" for name, count in counts.items() if count]
    return notes


def _sending_row(sending: Sending) -> tuple[object, ...]:
    event = sending.event
    return sending.place, sending.row_key, event.get("status", ""), event.get("startAt", ""), event.get("title", "")


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
