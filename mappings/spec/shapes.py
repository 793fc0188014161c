"""Row shapes that people type: headings above rows, values written once for several rows, days as columns."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mappings.strict import OneOrMany, Pattern, Strict, Text, mistake


class Heading(Strict):
    r"""Rows that are headings of the rows below, such as `MAI 2027`: the only text of a row, in this column, as the pattern says.

    Such a row is no event. Its text stands in the new column of the rows below, up to the next heading. Of several headings the
    first is the highest: one of it clears those after it.
    """

    column: Text = Field(min_length=1)
    """The column of the heading: its name, its letter `A`, or its position `#1`."""
    matches: Pattern
    r"""A pattern that finds the heading in its cell: `^\p{Lu}+ \d{4}$`."""


class Unpivot(Strict):
    """A timetable: each of these columns becomes a row for each filled cell. The row's place is the cell."""

    columns: Annotated[tuple[Text, ...], OneOrMany()] = Field(min_length=1)
    """The columns to turn into rows, by name, letter or position. `optional` names those that may be missing."""
    into: Text = Field(min_length=1)
    """The new column with the column's name, as it is written here; of a letter or position, as it is in the header."""
    cell: Text = Field(min_length=1)
    """The new column with the cell."""
    skip_empty: bool = True
    """An empty cell is no row."""

    def check(self) -> None:
        if len(set(self.columns)) < len(self.columns):
            raise mistake("a column is named twice", "name each column once")
