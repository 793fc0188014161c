"""What every source of rows promises, whatever it reads: the doors that a feed's stage walks through.

How one kind of source keeps the promise is that kind's module; which kinds exist is `catalogue`'s.

* **Streams.** Rows are made while they are asked for; memory does not grow with their number.
* **Addresses.** Each row's `Origin` is a place that a person can open, with the row's true number.
* **Every row.** Blank rows are rows too, so that numbers and counts agree with what a person sees; each row has a cell
  for each of `Reading.columns`, "" where the source has none.
* **Text.** A cell is the text that stands in the source: never trimmed, turned into a number, or read as "missing".
* **All or an exception.** A source that cannot be read, ends early, lacks a column or changes meanwhile raises one of
  `connectors.sources.errors`; it never ends quietly with fewer rows. What is wrong with one row only is told in
  `SourceRow.problems`.
* **Closes what it opened**, when the `with` block ends, read to the end or not. Rows are asked for inside the block.
* **Again.** `read()` may be called any number of times; each reading starts from the first row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from mappings.vocabulary import SourceRow


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over a source.

    `columns` are the names in the source's order, spelt as the mapping spells them where it uses them. `rows` is
    consumed once. `stamp` is cheap evidence of the content's version, taken before the first row was read: equal
    stamps of one source mean equal content; "" means that the source gives no evidence.
    """

    columns: tuple[str, ...]
    rows: Iterator[SourceRow]
    stamp: str = ""

    def with_empty(self, columns: tuple[str, ...]) -> Reading:
        """Return the same with columns that the source lacks by leave: empty in every row."""
        if not columns:
            return self
        blank = dict.fromkeys(columns, "")
        rows = (replace(row, cells={**row.cells, **blank}) for row in self.rows)
        return Reading(self.columns + columns, rows, self.stamp)


class Source(Protocol):
    """A place that rows can be read from, as one feed sees it."""

    @property
    def is_whole(self) -> bool:
        """Whether a reading holds every row there is, so that an absent row has vanished."""
        ...

    def read(self) -> AbstractContextManager[Reading]:
        """Open the source and match its columns; rows follow as they are asked for.

        Raises:
            SourceUnavailableError: it did not answer, or changed while it was read; again later may work.
            SourceRefusedError: it is not there, or we may not read it.
            BadSourceError: what is there cannot be read as this kind of source.
            MissingColumnsError: it lacks columns that the feed needs; raised before any row.
        """
        ...
