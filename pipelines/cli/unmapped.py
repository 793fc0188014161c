"""Values that no lookup of a mapping knows: each once, with the number of rows that have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from mappings.outcome import Reason, ReasonCode
from state.enums import ProblemKind
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries

COLUMNS = ("column", "value", "rows", "hint")
_DISTINCT_VALUES = 500
_MOST_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Unmapped:
    """A value that a lookup of the mapping does not know, the nearest that it knows, and how many rows have it."""

    column: str
    found: str
    hint: str
    count: int

    @property
    def line(self) -> tuple[str, str, int, str]:
        """The same as a line of a table."""
        return self.column, self.found, self.count, self.hint


@dataclass(slots=True)
class Misses:
    """Unmapped values being counted; of more than 500 different ones the later are left out."""

    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _hints: dict[tuple[str, str], str] = field(default_factory=dict)

    def take(self, reasons: Iterable[Reason]) -> None:
        """Count what one row is refused, or warned of, for."""
        for reason in reasons:
            value = (reason.column or reason.field, reason.found)
            is_kept = value in self._counts or len(self._counts) < _DISTINCT_VALUES
            if reason.code is ReasonCode.NOT_IN_LOOKUP and is_kept:
                self._counts[value] += 1
                self._hints.setdefault(value, reason.hint)

    @property
    def values(self) -> tuple[Unmapped, ...]:
        """The unmapped values, the commonest first."""
        return tuple(Unmapped(*value, self._hints[value], count) for value, count in self._counts.most_common())


def unmapped_of(books: LedgerQueries, book: FeedScope, run_id: str | None = None) -> tuple[Unmapped, ...]:
    """Return the unmapped values of a run, or of the last that read the source: of rows rejected and of rows warned about."""
    misses = Misses()
    for kind in (ProblemKind.REJECTED, ProblemKind.WARNING):
        for problem in islice(books.every_problem(book, kind, run_id=run_id), _MOST_ROWS):
            misses.take(problem.reasons)
    return misses.values
