"""The bench's page: the budgets, the peers, two plots, the machine; for a terminal, the details of every measurement, too.

`benchmarks/README.md` says how to read the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outcome import Details, Line, Result, Standing
from plots import svg
from rich.console import Console
from rich.table import Table

HEADINGS = ("#", "what", "beside it", "eventsync", "ratio", "budget", "standing")
OPENING = """\
# Performance

What the worker takes, beside the floor (the same work without checks or ledger), the script that everybody writes first, and
dlt, drt and a Singer target, on the same rows and against the same server.

{standing}
* Compare only figures of this page: on another machine each is another one. All are medians of their rounds; `us` are
  microseconds of CPU.
* A row has 15 columns and 245 bytes, and becomes an event of 12 fields, with two moments in a zone, two lookups and an offer.
* `make bench` measures all of it in one run, prints the details and writes this page ([Benchmarks](../benchmarks/README.md)).

## Budgets
"""
JUDGED = (Standing.MET, Standing.MISSED)


def write(folder: Path, results: Sequence[Result], machine: Sequence[str]) -> Path:
    """Write `performance.md` and its plots into the folder; return the page."""
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    for plot in (plot for result in results for plot in result.plots):
        (folder / "plots" / f"{plot.name}.svg").write_text(svg(plot), encoding="utf-8")
    page = folder / "performance.md"
    page.write_text("\n".join(_page(results, machine)), encoding="utf-8")
    return page


def _page(results: Sequence[Result], machine: Sequence[str]) -> list[str]:
    text = [_opening(results), *_markdown(HEADINGS, [_cells(line) for line in ordered(results)])]
    for result in results:
        for details in (details for details in result.details if details.note):
            text += ["", f"## {details.caption}", "", *_markdown(details.headings, details.cells), "", details.note]
        text += [f"\n![{plot.title}](plots/{plot.name}.svg)" for plot in result.plots]
    return [*text, "", "## The machine", "", *(f"* {sentence}" for sentence in machine), ""]


def _opening(results: Sequence[Result]) -> str:
    judged = [line for line in ordered(results) if line.standing in JUDGED]
    missed = [line for line in judged if line.standing is Standing.MISSED]
    first = f"* **{len(judged) - len(missed)} of {len(judged)} budgets are met.**"
    losses = [f"* Missed: {line.number}, {line.what}: {_figures(line)}; the budget is {line.budget}." for line in missed]
    return OPENING.format(standing="\n".join([first, *losses] if judged else ["* **So few rows say nothing of the budgets.**"]))


def _figures(line: Line) -> str:
    return ", ".join(filter(None, (line.ours, line.ratio)))


def _markdown(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    rule = "|" + "---|" * len(headings)
    return [f"| {' | '.join(headings)} |", rule, *(f"| {' | '.join(row)} |" for row in cells)]


def ordered(results: Sequence[Result]) -> list[Line]:
    """Return the lines in the order of the budgets."""

    def place(line: Line) -> tuple[int, str]:
        digits = line.number.rstrip("b")
        return int(digits), line.number

    return sorted((line for result in results for line in result.lines), key=place)


def _cells(line: Line) -> tuple[str, ...]:
    return (line.number, line.what, line.beside, line.ours, line.ratio, line.budget, line.standing.value)


def show(console: Console, results: Sequence[Result], machine: Sequence[str]) -> None:
    """Print the budgets and all details."""
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
