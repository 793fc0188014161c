"""A table of a page that is written by a make target, between two marks, and read back by the test that plays it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_ENDS = "<!-- the end of the table -->"


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """The one table of a page of docs/ that `make target` writes."""

    page: str
    target: str

    def write(self, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
        """Put these rows in the place of the page's own, and return the table."""
        before, _, after = self._parts()
        table = table_of(head, rows)
        self._path.write_text(f"{before}{self._begins}\n{table}\n{_ENDS}{after}", "utf-8")
        return table

    def read(self) -> str:
        return self._parts()[1]

    def rows(self) -> list[dict[str, str]]:
        """The page's rows, by the words of its head."""
        head, _, *body = ([cell.strip() for cell in row.strip("|").split("|")] for row in self.read().splitlines())
        return [dict(zip(head, row, strict=True)) for row in body]

    def _parts(self) -> tuple[str, str, str]:
        before, _, rest = self._path.read_text("utf-8").partition(self._begins)
        table, _, after = rest.partition(_ENDS)
        return before, table.strip(), after

    @property
    def _path(self) -> Path:
        return Path(__file__).parents[1] / "docs" / self.page

    @property
    def _begins(self) -> str:
        return f"<!-- the table, written by `make {self.target}` -->"


def table_of(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = [*head]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names), *rows))
