"""Filter rows by a window of days: by a column of theirs, or by the start of their events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from mappings.outcome import WHOLE_ROW, MappedRow, Rejection, RowOutcome, SourceRow
from pipelines.run.options import Window


@dataclass(slots=True)
class WindowFilter:
    """Passes the rows of a window on; rows without a day belong to no window, and are counted."""

    window: Window
    without_day: int = 0

    def rows(self, rows: Iterable[SourceRow]) -> Iterable[SourceRow]:
        """Return the rows of the window, where a column says which they are."""
        return self._changed(rows) if self.window.column else rows

    def outcomes(self, outcomes: Iterable[RowOutcome]) -> Iterable[RowOutcome]:
        """Return the outcomes of the window, where their events say which they are; an event counts as a row then."""
        return self._starting(outcomes) if self.window.by == "event" else outcomes

    def notices(self) -> Iterator[str]:
        """Say what was left out."""
        what = {"event": "by the start of their events", "file": "by their files", "cursor": "by when they changed"}
        yield f"only the rows of {self.window} were read, {what[self.window.by]}"
        if self.without_day and self.window.column:
            yield f"rows without a day in {self.window.column}, such as 2026-05-03, which belong to no window: {self.without_day}"
        elif self.without_day:
            yield f"rejected rows, which tell no day and belong to no window: {self.without_day}; `eventsync preview` shows them"

    def _changed(self, rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
        column, holds = self.window.column, self.window.holds
        for row in rows:
            day = _day_in(row.cells[column])
            if day is None:
                self.without_day += 1
            elif holds(day):
                yield row

    def _starting(self, outcomes: Iterable[RowOutcome]) -> Iterator[RowOutcome]:
        holds = self.window.holds
        for outcome in outcomes:
            if isinstance(outcome, Rejection):
                self.without_day += not outcome.part.is_further
            elif isinstance(outcome, MappedRow) and holds(_start_of(outcome.body)):
                yield replace(outcome, part=WHOLE_ROW)


def _day_in(cell: str) -> date | None:
    """Return the day of an ISO date, or that in UTC of an ISO moment; None if the cell holds neither."""
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError:
        return None
    return moment.date() if moment.tzinfo is None else moment.astimezone(UTC).date()


def _start_of(body: bytes) -> date:
    """Return the day on which an event starts, where it happens."""
    event = json.loads(body)
    return datetime.fromisoformat(event["startAt"]).astimezone(ZoneInfo(event["timezone"])).date()
