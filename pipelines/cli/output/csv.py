"""Write rejected rows as CSV for the partner's editor: their own columns, then place, problem and hint."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TextIO

from mappings.errors import ConfigError
from mappings.outcome import REASON_TEXTS, Reason
from pipelines.control_characters import replaced

_ADDED = ("place", "problem", "hint")
_STARTS_A_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # OWASP, "CSV Injection"
_PLAIN_NUMBER = re.compile(r"[+-]?\d[\d .,\u00a0\u202f]*")
_BOM = "\ufeff"
_IN_MEMORY = 4_000_000
"""So many bytes of rows are put aside in memory before they go to a file."""


@dataclass(frozen=True, slots=True)
class CsvRow:
    """A row in the words of the file: where it is, what is wrong with it, what would help, and its own cells."""

    place: str
    problem: str
    hint: str
    cells: Mapping[str, str]


def csv_row(place: str, reasons: Sequence[Reason], cells: Mapping[str, str]) -> CsvRow:
    """Put a rejected row's reasons into words."""
    return CsvRow(place, _problems(reasons), _hints(reasons), cells)


def write_csv(target: Path | TextIO, rows: Iterable[CsvRow]) -> int:
    """Write one line per row to a file or a text stream; return how many there were.

    UTF-8 with a byte order mark, so that Excel reads it right. Rows are looked through first for all columns there are, and
    lie in a file meanwhile: memory does not grow with them. A partner's column called like one of ours keeps its name and
    ours becomes `eventsync place`. Cells that a spreadsheet would run as a formula begin with an apostrophe (`safe_cell`).

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        with SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="ascii") as shelved:
            columns = _shelve(rows, shelved)
            shelved.seek(0)
            if not isinstance(target, Path):
                return _write(target, map(_taken, shelved), columns)
            with target.open("w", encoding="utf-8", newline="", errors="replace") as file:
                return _write(file, map(_taken, shelved), columns)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}", hint="choose another file for --csv") from error


def safe_cell(text: str) -> str:
    """Return text that no spreadsheet takes for a formula: an apostrophe goes before = + - @ TAB CR LF.

    Plain numbers (`-5`, `+48 123`) stay as they are. Harmful characters are `replaced`.
    """
    is_formula = text.startswith(_STARTS_A_FORMULA) and not _PLAIN_NUMBER.fullmatch(text)
    return f"'{replaced(text)}" if is_formula else replaced(text)


def _shelve(rows: Iterable[CsvRow], reader: IO[str]) -> list[str]:
    """Put rows aside, a line each, and return the columns that they have, in the order in which they are met."""
    columns: dict[str, None] = {}
    for row in rows:
        columns.update(dict.fromkeys(row.cells))
        reader.write(json.dumps([row.place, row.problem, row.hint, dict(row.cells)]) + "\n")
    return list(columns)


def _taken(line: str) -> CsvRow:
    return CsvRow(*json.loads(line))


def _write(stream: TextIO, rows: Iterable[CsvRow], columns: Sequence[str]) -> int:
    stream.write(_BOM)
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
    writer.writerow(map(safe_cell, [*columns, *(f"eventsync {name}" if name in columns else name for name in _ADDED)]))
    count = 0
    for row in rows:
        cells = [row.cells.get(column, "") for column in columns]
        writer.writerow(map(safe_cell, [*cells, row.place, row.problem, row.hint]))
        count += 1
    return count


def _problems(reasons: Iterable[Reason]) -> str:
    return " ".join(_about(reason, REASON_TEXTS[reason.code]) for reason in reasons)


def _hints(reasons: Iterable[Reason]) -> str:
    return "; ".join(_about(reason, reason.hint) for reason in reasons if reason.hint)


def _about(reason: Reason, text: str) -> str:
    return f"{reason.column}: {text}" if reason.column else text
