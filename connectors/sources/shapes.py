"""Row shapes that people type: headings of the rows below, values written once, columns that are rows.

Each is applied to the rows of one file or tab, after `comment` and `until` and before everything else; headings first, then
values from above, then columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from connectors.sources.contract import Ending, MissingColumnsError, Reading, RepeatedColumnsError
from mappings.columns import LINK, ColumnRequest, column_letters, column_number, column_position, folded, is_place
from mappings.outcome import RowLocation, SourceRow
from mappings.patterns import compile_pattern
from mappings.reasons import Reason, ReasonCode
from mappings.spec.shapes import Unpivot
from mappings.spec.source_base import AnySource, GridSource

_CELL = re.compile(r"(.*!)([A-Z]+)(\d+)", re.DOTALL)
_LINE = re.compile(r"(.*:\d+)(?: \((row \d+)\))?", re.DOTALL)


@contextmanager
def read_shaped(
    spec: AnySource, asked: ColumnRequest, open_rows: Callable[[ColumnRequest], AbstractContextManager[Reading]]
) -> Iterator[Reading]:
    """Read the rows of `open_rows` in the shapes that `spec` declares, under the contract of `Source.read`.

    Raises:
        MissingColumnsError: a column of a shape is missing, or the mapping reads one that is unpivoted.
        RepeatedColumnsError: the source has a column of the name that a shape makes.
    """
    if not isinstance(spec, GridSource) or not spec.shaped_columns:
        with open_rows(asked) as reading:
            yield reading
        return
    own = asked.without(spec.made_columns, also=spec.shaped_columns)
    # A place need not be free: the mapping may read its column by name. So it is found below.
    with open_rows(replace(own, optional=own.optional.union(filter(is_place, spec.shaped_columns)))) as reading:
        if not reading.headers:  # nothing has changed
            yield replace(reading, columns=tuple(sorted(asked.columns)))
            return
        shapes = _Shapes(spec, reading, _columns(spec, asked, reading))
        headers = {name: text for name, text in reading.headers.items() if name in shapes.columns}
        yield replace(reading, columns=shapes.columns, rows=shapes.rows(), ending=shapes.ending, headers=headers)


def _columns(spec: GridSource, asked: ColumnRequest, reading: Reading) -> dict[str, str]:
    """Return the reading's column for each name in a shape."""
    present = tuple(name for name in reading.columns if name in reading.headers)
    width = sum(not name.endswith(LINK) or reading.headers[name].casefold().endswith(LINK) for name in present)
    found = {name: name for name in spec.shaped_columns if name in present or name in asked.optional}
    for name in filter(is_place, spec.shaped_columns):
        place = column_position(f"#{name.removeprefix('#')}", width)
        if place is not None:
            found.setdefault(name, present[place])
    if missing := set(spec.shaped_columns).difference(found):
        raise MissingColumnsError(spec.place, missing, present, taken=tuple(asked.columns))
    taken = {folded(text): name for name, text in reading.headers.items()} | {folded(name): name for name in present}
    made = spec.made_columns
    if repeated := {
        name: [f'"{name}" of `source`', *([f'"{taken[folded(name)]}" of {spec.place}'] if folded(name) in taken else ())]
        for name in made
        if folded(name) in taken or made.count(name) > 1
    }:
        raise RepeatedColumnsError(spec.place, repeated, advice="choose another name for the column that is made")
    unpivoted = {found[name] for name in spec.unpivot.columns} if spec.unpivot else set()
    if spec.unpivot and (gone := asked.columns & unpivoted):
        rest = [*(name for name in present if name not in unpivoted), *made]
        advice = f'`source.unpivot` makes rows of it: read "{spec.unpivot.cell}" instead'
        raise MissingColumnsError(spec.place, gone, rest, advice=advice)
    return found


_Above = tuple[str, tuple[Reason, ...]]
"""A text from a row above, with what is wrong in it."""
_NOTHING: _Above = ("", ())


class _Shapes:
    """The shapes of one reading. `found`: its column for each name in a shape."""

    def __init__(self, spec: GridSource, reading: Reading, found: Mapping[str, str]) -> None:
        self._spec, self._reading = spec, reading
        unpivoted = spec.unpivot.columns if spec.unpivot else ()
        # A place is what the header calls it; a name is what the mapping calls it.
        self._days = {found[name]: reading.headers[found[name]] if is_place(name) else name for name in unpivoted}
        unused = {name for name in found if name not in found.values()}
        self._own = tuple(name for name in reading.columns if name not in unused)
        self.columns = (*(name for name in self._own if name not in self._days), *spec.made_columns)
        self._fill = tuple(dict.fromkeys(found[name] for name in spec.fill_down))
        self._headings = {
            name: (found[heading.column], compile_pattern(heading.matches).finds) for name, heading in spec.headings.items()
        }
        self._unseen = dict.fromkeys(self._headings)
        self._has_rows = False

    def rows(self) -> Iterator[SourceRow]:
        """Return the rows in their shape."""
        rows = self._carried_down()
        return self._unpivoted(rows, self._spec.unpivot) if self._spec.unpivot else rows

    def ending(self) -> Ending:
        """Return the ending of the reading, with a notice for each heading that no row was."""
        ended = self._reading.ending()
        unseen = self._unseen if self._reading.is_whole and self._has_rows else ()
        notices = (f"no row of {self._spec.place} is a heading {name}: correct its `matches`, or remove it" for name in unseen)
        return replace(ended, notices=(*ended.notices, *notices))

    def _carried_down(self) -> Iterator[SourceRow]:
        """Yield the rows that are no headings, with the texts of the headings and values above them."""
        levels: dict[str, _Above] = dict.fromkeys(self._headings, _NOTHING)
        above: dict[str, _Above] = {}
        blank = dict.fromkeys(self._headings, "")
        for row in self._reading.rows:
            cells = {name: row.cells[name] for name in self._own}
            texts = {text.strip() for text in cells.values()} - {""}
            if not texts and not row.problems:
                above.clear()
                yield SourceRow(row.location, cells | blank)
            elif len(texts) == 1 and (level := self._level_of(cells)):
                above.clear()
                self._unseen.pop(level, None)
                names = list(levels)
                levels.update(dict.fromkeys(names[names.index(level) :], _NOTHING))
                levels[level] = self._heading(row, level)
            else:
                self._has_rows = True
                problems = [*row.problems]
                for name in self._fill:
                    own = tuple(problem for problem in row.problems if problem.column == name)
                    if cells[name].strip() or own:
                        above[name] = (cells[name], own)
                    else:
                        cells[name], more = above.get(name, _NOTHING)
                        problems += more
                for name, (text, more) in levels.items():
                    cells[name] = text
                    problems += more
                yield replace(row, cells=cells, problems=tuple(problems))

    def _level_of(self, cells: Mapping[str, str]) -> str:
        """Return the heading that a row with one text is, "" if it is none."""
        texts = ((name, cells[column].strip(), finds) for name, (column, finds) in self._headings.items())
        return next((name for name, text, finds in texts if text and finds(text)), "")

    def _heading(self, row: SourceRow, level: str) -> _Above:
        """Return a heading's text, with the problems for which the rows below it are rejected."""
        text = row.cells[self._headings[level][0]]
        # A heading need not have the cells of a row; what else stands in it is a problem.
        faults = (
            problem
            for problem in row.problems
            if problem.code is not ReasonCode.RAGGED or any(map(str.isalnum, problem.found.replace(text.strip(), "")))
        )
        return text, tuple(
            replace(fault, column=level, hint=f"in the heading at {row.location}: {fault.hint}") for fault in faults
        )

    def _unpivoted(self, rows: Iterator[SourceRow], unpivot: Unpivot) -> Iterator[SourceRow]:
        """Yield a row for each filled cell of the columns that are rows."""
        places = [(self._reading.columns.index(column), column, name) for column, name in self._days.items()]
        nowhere = {unpivot.into: "", unpivot.cell: ""}
        for row in rows:
            rest = {name: text for name, text in row.cells.items() if name not in self._days}
            of_row = tuple(problem for problem in row.problems if problem.column not in self._days)
            is_blank = not row.problems and not any(map(str.strip, row.cells.values()))
            was_yielded = False
            for place, column, name in places if not is_blank else ():
                text = row.cells[column]
                own = tuple(replace(one, column=unpivot.cell) for one in row.problems if one.column == column)
                if own or text.strip() or not unpivot.skip_empty:
                    was_yielded = True
                    cells = {**rest, unpivot.into: name, unpivot.cell: text}
                    yield replace(row, location=_cell_at(row.location, place), cells=cells, problems=(*of_row, *own))
            if is_blank or (of_row and not was_yielded):
                yield replace(row, cells=rest | nowhere, problems=of_row)


def _cell_at(row: RowLocation, place: int) -> RowLocation:
    """Return the location of a cell of a row; `place`: its column's index from 0."""
    if in_sheet := _CELL.fullmatch(row.place):
        sheet, left, number = in_sheet.groups()
        return RowLocation(f"{sheet}{column_letters(column_number(left) + place)}{number}", row.number)
    in_file = _LINE.fullmatch(row.place)
    line, record = in_file.groups() if in_file else (row.place, None)
    return RowLocation(f"{line} ({f'{record}, ' if record else ''}column {column_letters(place + 1)})", row.number)
