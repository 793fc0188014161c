"""`make month`: a month of schedules played anew, and the table of docs/a-month.md written from it; a test reads it back."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import monotonic

from dagster._core.scheduler.instigation import InstigatorTick, TickStatus
from empty_books import folder_in_memory
from month.story import ZONE, Played, Span, expected_ticks, played, the_month
from written_tables import WrittenTable

from state.queries import RunRecord

TABLE = WrittenTable("a-month.md", "month")
HEAD = ("day", "what happens", "ticks", "runs", "events", "messages")
_LATE = timedelta(minutes=30)
_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def days_of(month: Played) -> Iterator[tuple[str, ...]]:
    cells: dict[date, tuple[list[str], ...]] = defaultdict(lambda: ([], [], [], [], []))
    runs = {run.run_id: run for run in month.runs}
    for happening in month.happened:
        cells[happening.at.date()][0].extend([happening.told] * bool(happening.told))
    for at, told in _ticks(month, runs):
        cells[at.date()][1].append(told)
    for run in month.runs:
        cells[run.started_at.astimezone(ZONE).date()][2].append(_end(run))
    for event in month.service.events():
        cells[datetime.fromtimestamp(event["createdAt"], ZONE).date()][3].append("")
    for at, message in month.office.told:
        cells[at.astimezone(ZONE).date()][4].append(message.title.removeprefix("eventsync: town-hall: "))
    for number in range(month.span.days):
        day = month.span.first + timedelta(days=number)
        happened, ticks, ended, created, told = cells[day]
        named = f"{_WEEK[day.weekday()]} {day.day}"
        yield named, "; ".join(happened), ", ".join(ticks), ", ".join(ended), str(len(created) or ""), "; ".join(told)


def _ticks(month: Played, runs: dict[str, RunRecord]) -> Iterator[tuple[datetime, str]]:
    seen = {datetime.fromtimestamp(tick.timestamp, UTC): tick for tick in month.office.ticks.values()}
    for at in sorted({*seen, *expected_ticks(month.span)}):
        local = at.astimezone(ZONE)
        yield local, f"{local:%H:%M}{_about(at, seen.get(at), runs)}"


def _about(at: datetime, tick: InstigatorTick | None, runs: dict[str, RunRecord]) -> str:
    """Say what became of a tick, where that is not a run at once."""
    if tick is None:
        return " (missed)"
    if tick.status is TickStatus.SKIPPED:
        return " (skipped)"
    began = runs[tick.run_ids[0]].started_at
    return f" (at {began.astimezone(ZONE):%H:%M})" if began - at > _LATE else ""


def _end(run: RunRecord) -> str:
    return str(run.exit_code) if run.exit_code is not None else str(run.outcome)


def main() -> None:
    span, began = Span(date(2026, 3, 1), 31), monotonic()
    with folder_in_memory() as folder, Path(folder, "log").open("w", encoding="utf-8") as log:
        Path(folder, "played").mkdir()
        with (
            redirect_stdout(log),
            redirect_stderr(log),
            played(Path(folder, "played"), span, the_month(span.first, span.days)) as month,
        ):
            table = TABLE.write(HEAD, days_of(month))
    sys.stdout.write(f"{table}\n{monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
