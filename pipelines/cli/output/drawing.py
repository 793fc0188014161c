"""Draw tables, errors and progress bars with rich. The only module that imports rich."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TextIO

from rich import box
from rich.cells import cell_len
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
from pipelines.control_characters import replaced

_WIDTH_OF_A_PIPE = 160
_WIDER_THAN_ANY = 100_000
"""rich measures no more than it is offered."""
_COMMAND = re.compile(r"eventsync [^`;\n]+")
"""What a person copies in one go."""
_SHORT = 24
"""Cells up to this width stand side by side in a paragraph."""


def console_on(stream: TextIO) -> Console:
    """Return rich's way to a stream. A pipe has no width: it gets a wide one, or `COLUMNS`."""
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH_OF_A_PIPE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def safe_text(text: str, style: str = "") -> Text:
    """Return text of strangers that a terminal can only show."""
    return Text(replaced(text), style=style, overflow="fold")


def drawn_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], console: Console | None = None
) -> Table | Text:
    """Return a table whose long cells fold; a sentence where there are no rows.

    Where the console is too narrow for it, each row is a paragraph instead: words are not broken there, and a command
    stays on one line, so that it can be copied.
    """
    body = [list(row) for row in rows]
    if not body:
        return safe_text(f"{title}: none")
    cells = [[_cell(value) for value in row] for row in body]
    table = Table(title=safe_text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, values in zip(columns, zip(*body, strict=True), strict=True):
        is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        table.add_column(safe_text(name), justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(safe_text, row))
    is_narrow = console is not None and _is_cramped(table, cells, console)
    return _paragraphs(title, columns, cells) if is_narrow else table


def _is_cramped(table: Table, cells: Sequence[Sequence[str]], console: Console) -> bool:
    """Whether a table would break words or commands."""
    unbound = console.options.update(max_width=_WIDER_THAN_ANY)
    if Measurement.get(console, unbound, table).minimum > console.width:
        return True
    lines = ["".join(part.text for part in line) for line in console.render_lines(table, console.options)]
    commands = {command for row in cells for cell in row for command in _COMMAND.findall(cell)}
    return not all(any(command in line for line in lines) for command in commands)


def _paragraphs(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Text:
    """Return the rows one below the other: what is short side by side, what is long on lines of its own with its name."""
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


def drawn_error(error: SyncError) -> Text:
    """Return what went wrong and what would help; of a mapping file every problem, its line and the spot in it."""
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
    """Draw a bar of one task while the block runs; without `is_counted` what is waited for, and since when."""
    bar = (BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn(compact=True))
    text = TextColumn("{task.description}")
    columns = (text, *bar) if is_counted else (SpinnerColumn(), text, TimeElapsedColumn())
    # The bar lives on stderr; what is written to stdout meanwhile must stay there.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as progress:
        progress.add_task(safe_text(description).plain, total=total)
        yield progress


class _Rate(ProgressColumn):
    """How many are done in a second, lately."""

    def render(self, task: Task) -> Text:
        """Return the rate, or nothing before there is one."""
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
