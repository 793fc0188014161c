"""The bench's page: the budgets beside what was measured, the details, the plots, the machine; and the same for a terminal.

The figures are the measurements'; how to read them is told in `benchmarks/README.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outcome import Details, Line, Result, Standing
from plots import svg
from rich.console import Console
from rich.table import Table

HEADINGS = ("#", "what", "floor", "peers", "eventsync", "ratio", "budget", "stretch", "standing")
OPENING = """\
# Performance

How fast the worker is, what it takes, and how that compares: with the floor (what the machine cannot go below for the same work),
with the scripts that everybody writes first, and with dlt, drt and a Singer target, on the same rows and against the same server.

{standing}
* Only ratios within one run mean anything: on another machine every figure is another one. A figure is the median of its rounds,
  with the least and the most in brackets.
* A row has 15 columns and 245 bytes, and becomes an event of 12 fields, with two moments in a zone, two lookups and an offer.
* `us` are microseconds of CPU, start-up taken off, unless it says otherwise; wall time where a person waits.
* How each figure comes about: [Benchmarks](../benchmarks/README.md). `make bench` measures all of it in one run and
  writes this page; every table below tells more about a line of the first one.

## The machine
"""
LEGEND = """\
`floor`: what is done without any check, ledger or message. `ratio`: ours beside the floor, or the peers beside ours. `stretch`:
what is aimed at beyond the budget. In the plots eventsync is blue, floors and peers are grey, and a dashed line is the budget."""
JUDGED = (Standing.STRETCH, Standing.MET, Standing.MISSED)
WHERE = {"5": "publish", "5a": "publish", "1": "unchanged", "2": "exported anew", "4": "stage", "9": "start-up"}
"""The column of the table of profiles that shows where the time of a budget goes."""
WHY = {"6": "throughput-under-latency", "8": "1000000-rows-run-after-run"}
"""The part of the page that says why a budget may be missed of which no profile tells."""


def write(folder: Path, results: Sequence[Result], machine: Sequence[str]) -> Path:
    """Write `performance.md` and its plots into the folder; return the page."""
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    for plot in (plot for result in results for plot in result.plots):
        (folder / "plots" / f"{plot.name}.svg").write_text(svg(plot), encoding="utf-8")
    page = folder / "performance.md"
    page.write_text("\n".join(_page(results, machine)), encoding="utf-8")
    return page


def _page(results: Sequence[Result], machine: Sequence[str]) -> list[str]:
    text = [_opening(results), *(f"* {sentence}" for sentence in machine), "", "## The budgets", ""]
    text += _markdown(HEADINGS, [_cells(line) for line in ordered(results)])
    text += ["", LEGEND]
    for result in results:
        for details in result.details:
            text += ["", f"## {details.caption}", "", *_markdown(details.headings, details.cells)]
            text += ["", details.note] if details.note else []
        text += [f"\n![{plot.title}](plots/{plot.name}.svg)" for plot in result.plots]
    return [*text, ""]


def _opening(results: Sequence[Result]) -> str:
    judged = [line for result in results for line in result.lines if line.standing in JUDGED]
    missed = [line for line in judged if line.standing is Standing.MISSED]
    stretched = sum(line.standing is Standing.STRETCH for line in judged)
    better = f", {stretched} of them as far as the stretch" if stretched else ""
    first = f"* **{len(judged) - len(missed)} of {len(judged)} budgets are met**{better}."
    told = [f"* Missed: {line.number}, {line.what} ({line.ours}; {line.ratio or line.budget}).{_where(line)}" for line in missed]
    return OPENING.format(standing="\n".join([first, *told] if judged else ["* **So few rows say nothing of the budgets.**"]))


def _where(line: Line) -> str:
    if path := WHERE.get(line.number):
        return f" Where the time goes, and what half of it would take: [under a profile](#where-the-time-goes), {path}."
    anchor = WHY.get(line.number)
    return f" Why: [below](#{anchor})." if anchor else ""


def _markdown(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    rule = "|" + "---|" * len(headings)
    return [f"| {' | '.join(headings)} |", rule, *(f"| {' | '.join(row)} |" for row in cells)]


def ordered(results: Sequence[Result]) -> list[Line]:
    """Return the lines in the order of the budgets."""

    def place(line: Line) -> tuple[int, str]:
        digits = line.number.rstrip("abc")
        return int(digits), line.number

    return sorted((line for result in results for line in result.lines), key=place)


def _cells(line: Line) -> tuple[str, ...]:
    return (
        *(line.number, line.what, line.floor, line.peers, line.ours, line.ratio, line.budget, line.stretch),
        line.standing.value,
    )


def show(console: Console, results: Sequence[Result], machine: Sequence[str]) -> None:
    """Print the same for a person at a terminal."""
    for details in (details for result in results for details in result.details):
        console.print(_table(details))
    table = Table(title="The budgets", show_lines=True)
    for heading in HEADINGS:
        table.add_column(heading)
    for line in ordered(results):
        table.add_row(*(cell.replace("**", "") for cell in _cells(line)))
    console.print(table)
    for sentence in machine:
        console.print(sentence)


def _table(details: Details) -> Table:
    table = Table(title=details.caption)
    for place, heading in enumerate(details.headings):
        table.add_column(heading, justify="right" if place else "left")
    for row in details.cells:
        table.add_row(*(cell.replace("**", "") for cell in row))
    return table
