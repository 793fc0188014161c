"""The partner's file and the feed's mapping as people go on editing them, and all that they have ever said about each row."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from integration.desk import TITLE, Desk, line

FESTIVAL = "{join: [Festival, {from: TITLE, do: [collapse]}], with: ': '}"


@dataclass
class Programme:
    """Rows by number, with their titles. `said`: every title under which a run may have met the row."""

    desk: Desk
    dice: random.Random
    rows: dict[int, str] = field(default_factory=dict)
    said: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    edits: int = 0
    is_festival: bool = False
    _gone: list[int] = field(default_factory=list)

    def begin(self, rows: int) -> None:
        """Write the first version."""
        self._add(rows)
        self._write()

    def edit(self, what: str = "") -> str:
        """Change the rows or the mapping, and tell which."""
        change = what or self.dice.choices(("rows", "mapping"), (4, 1))[0]
        if change == "mapping":
            self.is_festival = not self.is_festival
        else:
            self._edit_rows()
        self.edits += 1
        self._write()
        return change

    def _edit_rows(self) -> None:
        """Add some, reword some, take some out, put one back that was taken out."""
        for number in self.dice.sample(sorted(self.rows), min(20, len(self.rows))):
            self.rows[number] = f"Evening {number} ({self.edits})"
        for number in self.dice.sample(sorted(self.rows), min(5, len(self.rows))):
            del self.rows[number]
            self._gone.append(number)
        if len(self._gone) > 10:
            number = self._gone.pop(self.dice.randrange(len(self._gone)))
            self.rows[number] = f"Evening {number}"
        self._add(self.dice.randint(20, 80))

    def _add(self, rows: int) -> None:
        first = max((*self.rows, *self._gone), default=-1) + 1
        self.rows |= {number: f"Evening {number}" for number in range(first, first + rows)}

    def _write(self) -> None:
        self.desk.mapping(title=FESTIVAL if self.is_festival else TITLE)
        self.desk.source(line(number, title=title) for number, title in sorted(self.rows.items()))
        for number, title in self.rows.items():
            self.said[number].add(f"Festival: {title}" if self.is_festival else title)
