"""Tables in Markdown, as the pages written from the code have them. What stands in them is each page's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing at all without rows. What would end a cell or a row is made harmless."""
    lines = [_line(row) for row in rows]
    return "\n".join([_line(columns), "|" + "---|" * len(columns), *lines]) if lines else ""


def page(*parts: str) -> str:
    """Parts with an empty line between them; those that are empty are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _line(cells: Sequence[str]) -> str:
    safe = (" ".join(cell.split()).replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(safe)} |"
