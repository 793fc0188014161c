"""What the rows read so far come to, for a preview: counts, and each unmapped value once. Nothing is compared with the ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import assert_never

from mappings.outcome import Absorbed, Absorption, Gone, MappedRow, Rejection, Skipped
from pipelines.cli.preview_claims import Foreseen, Held, TakenBack
from pipelines.cli.unmapped import Misses


@dataclass(slots=True)
class PreviewAccount:
    """`read + expanded = events + skipped + absorbed + rejected + held`, as a first run counts. `is_whole`: all was read.

    `expanded`: events that rows gave beyond one each; `absorbed`: rows that another row of their key speaks for, by how;
    `held`: rows that look like copies of others.

    `skipped` counts by the rule's label, `codes` the problems by their code (a row may have several), `warned` the rows
    that became events with a warning.
    """

    read: int = 0
    expanded: int = 0
    events: int = 0
    rejected: int = 0
    held: int = 0
    warned: int = 0
    is_whole: bool = False
    skipped: Counter[str] = field(default_factory=Counter)
    gone: int = 0
    absorbed: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    misses: Misses = field(default_factory=Misses)

    def take(self, outcome: Foreseen) -> None:
        """Count one row, or one of its events."""
        self.read += not outcome.part.is_further
        self.expanded += outcome.part.is_further
        match outcome:
            case MappedRow():
                self.events += 1
                self.warned += bool(outcome.warnings)
                self.misses.take(outcome.warnings)
            case Rejection():
                self.rejected += 1
                self.codes.update(reason.code.value for reason in outcome.reasons)
                self.misses.take(outcome.reasons)
            case Held():
                self.held += 1
            case Skipped():
                self.skipped[outcome.because] += 1
            case Absorbed():
                self.absorbed[outcome.into.value] += 1
            case Gone():
                self.gone += 1
            case _:
                assert_never(outcome)

    def take_back(self, row: TakenBack) -> None:
        """Count an event as the rejected row that it turned out to be."""
        self.events -= 1
        self.warned -= row.was_warned
        self.rejected += 1
        self.codes.update(reason.code.value for reason in row.rejection.reasons)

    def document(self) -> dict[str, object]:
        """Return it as scripts read it."""
        return {
            "read": self.read,
            "is_whole": self.is_whole,
            "expanded": self.expanded,
            "events": self.events,
            "skipped": dict(self.skipped.most_common()),
            "duplicate": self.absorbed[Absorption.DUPLICATE.value],
            "grouped": self.absorbed[Absorption.GROUPED.value],
            "rejected": self.rejected,
            "held": self.held,
            "reasons": dict(self.codes.most_common()),
            "warned": self.warned,
            "unmapped": self.misses.values,
        }
