"""The partner: the rows of their agenda as it grows, changes and shrinks, and the file that they lay down each night."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path

_FIRST_DAY = date(2027, 6, 1)
HEADER = "ID,TITLE,DAY,HOUR,GENRE"


@dataclass(frozen=True, slots=True)
class Row:
    """One event of the agenda."""

    number: int
    title: str
    day: str

    def __str__(self) -> str:
        return f"{self.number},{self.title},{self.day},19:30,concert"


@dataclass
class Partner:
    """`rows` is the agenda now, `ever` the title under which each row was first laid down in good order."""

    file: Path
    rows: dict[int, Row] = field(default_factory=dict)
    ever: dict[int, str] = field(default_factory=dict)

    def add(self, count: int, *, day: str = "") -> None:
        """Put new events into the agenda, at its end; each on a day of its own, or all on `day`."""
        first = max(self.ever | dict.fromkeys(self.rows, ""), default=0) + 1
        for number in range(first, first + count):
            self.rows[number] = Row(number, f"Evening {number}", day or str(_FIRST_DAY + timedelta(days=number)))

    def change(self, number: int, **cells: str) -> None:
        """Edit an event."""
        self.rows[number] = replace(self.rows[number], **cells)

    def drop(self, *numbers: int) -> None:
        """Take events out."""
        for number in numbers:
            del self.rows[number]

    def deliver(self, header: str = HEADER) -> None:
        """Lay the file down."""
        self.file.write_text("\n".join([header, *map(str, self.rows.values())]) + "\n", "utf-8")
        self.ever = {number: row.title for number, row in self.rows.items() if row.day.startswith("20")} | self.ever

    def deliver_text(self, text: str) -> None:
        """Lay something else down."""
        self.file.write_text(text, "utf-8")

    def take_away(self) -> None:
        """Leave nothing there."""
        self.file.unlink()
