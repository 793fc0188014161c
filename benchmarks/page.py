"""The bench's page: the budgets beside what was measured, the details, the plots, the machine; and the same for a terminal.

The figures are the measurements'; how to read them is told in `benchmarks/README.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outcome import Details, Line, Result
from plots import svg
from rich.console import Console
from rich.table import Table

HEADINGS = ("#", "what", "floor", "peers", "eventsync", "ratio", "budget", "stretch", "standing")
OPENING = """\
# Performance

Written by `make bench`, which measures all of it in one run: our worker beside the floor, beside the script that everybody writes
first, and beside dlt, drt and a Singer target, on the same rows and against the same server. Only ratios within one run mean
anything. How each figure comes about, and how to read it: [benchmarks/README.md](../benchmarks/README.md).
"""


def write(folder: Path, results: Sequence[Result], machine: Sequence[str]) -> Path:
    """Write `performance.md` and its plots into the folder; return the page."""
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    for plot in (plot for result in results for plot in result.plots):
        (folder / "plots" / f"{plot.name}.svg").write_text(svg(plot), encoding="utf-8")
    page = folder / "performance.md"
    page.write_text("\n".join(_page(results, machine)), encoding="utf-8")
    return page


def _page(results: Sequence[Result], machine: Sequence[str]) -> list[str]:
    text = [OPENING, *(f"* {sentence}" for sentence in machine), "", "## The budgets", ""]
    text += _markdown(HEADINGS, [_cells(line) for line in ordered(results)])
    for result in results:
        for details in result.details:
            text += ["", f"## {details.caption}", "", *_markdown(details.headings, details.cells)]
            text += ["", details.note] if details.note else []
        text += [f"\n![{plot.title}](plots/{plot.name}.svg)" for plot in result.plots]
    return [*text, ""]


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
