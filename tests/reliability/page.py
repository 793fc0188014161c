"""docs/reliability.md: its table is written from lines that were played, and read back by the test that holds it to them.

What is said around the table is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from reliability.line import Line

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
_HEAD = (
    *("what goes wrong", "the service", "rows", "events", "doubled", "lost", "keys", "bodies per key", "resent", "unconfirmed"),
    *("runs", "promise"),
)
_BEGINS, _ENDS = "<!-- the table, written by `make reliability` -->", "<!-- the end of the table -->"


def write_table(lines: Iterable[Line]) -> None:
    """Put these lines in the place of the page's table."""
    before, _, rest = PAGE.read_text("utf-8").partition(_BEGINS)
    _, _, after = rest.partition(_ENDS)
    PAGE.write_text(f"{before}{_BEGINS}\n{_table(lines)}\n{_ENDS}{after}", "utf-8")


def read_table() -> list[dict[str, str]]:
    """Return the lines of the page's table, by the words of its head."""
    _, _, rest = PAGE.read_text("utf-8").partition(_BEGINS)
    rows = [_cells(row) for row in rest.partition(_ENDS)[0].strip().splitlines()]
    head, _, *body = rows
    return [dict(zip(head, row, strict=True)) for row in body]


def told(line: Line) -> dict[str, str]:
    """Return a line as the page tells it."""
    return dict(zip(_HEAD, map(str, _values(line)), strict=True))


def _table(lines: Iterable[Line]) -> str:
    return "\n".join(_rows(lines))


def _rows(lines: Iterable[Line]) -> Iterator[str]:
    yield _row(_HEAD)
    yield _row("---" for _ in _HEAD)
    for line in lines:
        yield _row(map(str, _values(line)))


def _values(line: Line) -> tuple[object, ...]:
    place = line.place
    return (
        *(place.trouble.name, place.keys.said, line.rows, line.events, line.doubled, line.lost, line.keys, line.bodies),
        *(line.resent, line.unconfirmed, line.runs, line.verdict),
    )


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]
