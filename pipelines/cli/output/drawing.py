"""Draw tables, errors and progress bars with rich; the only module that imports it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from mappings.errors import FileProblem, MappingFileError, SyncError
from mappings.strict import written, written_rate
from pipelines.safe_output import replaced

_WIDTH_OF_A_PIPE = 160
_WIDER_THAN_ANY = 100_000
"""Width to measure a table with: rich measures no wider than the width it is given."""
_COMMAND = re.compile(r"eventsync [^`;\n]+")
"""A command in a sentence, which must stay on one line so that it can be copied."""
_SHORT = 24
"""Columns up to this width are joined on one line when a row is drawn as a paragraph."""


def console_on(stream: TextIO) -> Console:
    """Return a rich console for a stream; a pipe has the width `COLUMNS`, or 160."""
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH_OF_A_PIPE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def safe_text(text: str, style: str = "") -> Text:
    """Return untrusted text with its control characters replaced, and without markup."""
    return Text(replaced(text), style=style, overflow="fold")


def drawn_table(title: str, rows: Iterable[Mapping[str, object]], console: Console) -> Table | Text:
    """Return a table whose long cells fold; one sentence if there are no rows.

    If the console is so narrow that words or commands would break, each row is a paragraph instead.
    """
    body = list(rows)
    if not body:
        return safe_text(f"{title}: none")
    cells = [[_cell(value) for value in row.values()] for row in body]
    table = Table(title=safe_text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in body[0]:
        is_number = all(isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in body)
        table.add_column(safe_text(name), justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(safe_text, row))
    return _paragraphs(title, list(body[0]), cells) if _is_cramped(table, cells, console) else table


def _is_cramped(table: Table, cells: Sequence[Sequence[str]], console: Console) -> bool:
    """Return whether the table would break words or commands at this console's width."""
    unbound = console.options.update(max_width=_WIDER_THAN_ANY)
    if Measurement.get(console, unbound, table).minimum > console.width:
        return True
    lines = ["".join(part.text for part in line) for line in console.render_lines(table, console.options)]
    commands = {command for row in cells for cell in row for command in _COMMAND.findall(cell)}
    return not all(any(command in line for line in lines) for command in commands)


def _paragraphs(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Text:
    """Return each row as a paragraph: short columns joined on one line, long ones on lines of their own with their names."""
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    text = Text(overflow="fold").append_text(safe_text(title, "bold"))
    for row in cells:
        named = list(zip(columns, row, widths, strict=True))
        short = "  ".join(cell for name, cell, width in named if cell and width <= _SHORT)
        text.append_text(safe_text(f"\n\n {short}"))
        for name, cell, width in named:
            if cell and width > _SHORT:
                lines = cell if "\n" not in cell else f"\n{cell}".replace("\n", "\n      ")
                text.append_text(safe_text(f"\n   {name}: ", "dim")).append_text(safe_text(lines))
    return text.append("\n")


def drawn_columns(lines: Iterable[str]) -> Columns:
    """Return short lines side by side, to be read down each column."""
    return Columns(map(safe_text, lines), padding=(0, 3), column_first=True)


def drawn_error(error: SyncError) -> Text:
    """Return an error with its hint; for a mapping file every problem, with its line and a caret under the place."""
    text = Text.assemble(("error: ", "bold red"))
    if isinstance(error, MappingFileError):
        text.append_text(Text("\n").join(map(_problem, error.problems)))
    else:
        text.append_text(safe_text(str(error)))
    if error.hint:
        text.append("\n hint: ", "bold").append_text(safe_text(error.hint))
    return text


def _problem(problem: FileProblem) -> Text:
    text = safe_text(str(problem))
    if problem.snippet:
        text.append_text(safe_text(f"\n    {problem.snippet.replace(chr(9), ' ')}\n    {' ' * (problem.column - 1)}^", "dim"))
    return text


@contextmanager
def drawn_progress(console: Console, description: str, total: int | None, *, is_counted: bool) -> Iterator[Progress]:
    """Draw a bar of one task while the block runs; without `is_counted`, only the description and the time passed."""
    bar = (BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn(compact=True))
    text = TextColumn("{task.description}")
    columns = (text, *bar) if is_counted else (SpinnerColumn(), text, TimeElapsedColumn())
    # The bar lives on stderr; what is written to stdout meanwhile must stay there.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as progress:
        progress.add_task(safe_text(description).plain, total=total)
        yield progress


class _Rate(ProgressColumn):
    """The column of a bar that shows how many are done per second."""

    def render(self, task: Task) -> Text:
        """Return the current rate, "" before it is known."""
        speed = task.finished_speed or task.speed
        return Text(written_rate(speed) if speed else "", style="dim")


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return written(value)
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case _:
            return str(value)
