"""What every source of rows promises.

* **Streams.** Rows are made while they are asked for; memory does not grow with their number.
* **Addresses.** Each row's `RowLocation` is a place that a person can open, with the row's true number.
* **Every row.** Blank rows are rows too, so that numbers and counts agree with what a person sees; each row has a cell
  for each of `Reading.columns`, "" where the source has none.
* **Text.** A cell is the text that stands in the source: never trimmed, turned into a number, or read as "missing".
* **All or an exception.** A source that cannot be read, ends early, lacks a column or changes meanwhile raises one of
  `connectors.sources.errors`; it never ends quietly with fewer rows. What is wrong with one row only stands in
  `SourceRow.problems`.
* **Closes what it opened**, when the `with` block ends, read to the end or not. Rows are asked for inside the block.
* **Again.** `read()` may be called any number of times; each reading starts from the first row, or, where the source
  was opened to go on from an earlier reading's cursor, from the same one.
* **Cursors**, where a kind has them: its model says in `AnySource.full_every` how often it is read from the start all the
  same. A cursor that means nothing to the source (any more) leads to a reading from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from mappings.outcome import SourceRow


@dataclass(frozen=True, slots=True)
class Ending:
    """How a reading ended that ended well.

    `cursor`: from where a later reading may go on, "" if the source knows no such place; it covers exactly the rows that
    were given, and is worth keeping only once they are. `notices`: what the operator should know, such as that
    the reading was cut short by a limit of the source and goes on in the next run. `is_short`: it was, so that
    rows are missing behind those that were given, and an absent one has not vanished.
    """

    cursor: str = ""
    notices: tuple[str, ...] = ()
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over a source.

    `columns` are the names in the source's order, spelt as the mapping spells them where it uses them. `rows` is
    consumed once. `stamp` is cheap evidence of the content's version, taken before the first row was read: equal
    stamps of one source mean equal content; "" means that the source gives no evidence. `is_whole`: the rows are all
    there are, so that an absent one has vanished; else only those that changed since, and the deleted among them say
    so themselves (`SourceRow.is_gone`). `has_known_end`: something proves that the source came whole; else rows may be missing
    behind those that are given, unnoticed. `ending` is asked once the rows are consumed.
    """

    columns: tuple[str, ...]
    rows: Iterator[SourceRow]
    stamp: str = ""
    is_whole: bool = True
    ending: Callable[[], Ending] = Ending
    has_known_end: bool = True

    def with_empty(self, columns: tuple[str, ...]) -> Reading:
        """Return the same with columns that the source lacks by leave: empty in every row."""
        if not columns:
            return self
        blank = dict.fromkeys(columns, "")
        rows = (replace(row, cells={**row.cells, **blank}) for row in self.rows)
        return replace(self, columns=self.columns + columns, rows=rows)


def unchanged(columns: tuple[str, ...], cursor: str, name: str) -> Reading:
    """Return the reading of a source that has not changed since the reading that gave `cursor`."""
    notice = f"{name} has not changed since it was last read"
    return Reading(columns, iter(()), cursor, is_whole=False, ending=lambda: Ending(cursor, (notice,)))


class Source(Protocol):
    """A place that rows can be read from, as one feed sees it."""

    def read(self) -> AbstractContextManager[Reading]:
        """Open the source and match its columns; rows follow as they are asked for.

        Raises:
            SourceUnavailableError: it did not answer, or changed while it was read; again later may work.
            SourceRefusedError: it is not there, or we may not read it.
            BadSourceError: what is there cannot be read as this kind of source.
            MissingColumnsError: it lacks columns that the feed needs; raised before any row.
        """
        ...


def stamp_of_all(stamps: Sequence[str]) -> str:
    """Return the stamp of a source whose own rows and second tables have these; "" where one gives no evidence."""
    return " ".join(stamps) if all(stamps) else ""
