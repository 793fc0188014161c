"""Files of records (JSON, NDJSON, XML, iCalendar) as a source: collects columns from the records, then makes rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from connectors.sources.contract import BadSourceError, MissingColumnsError, Reading
from connectors.sources.files.opened_file import OpenedFile, OpenStored, opened
from connectors.sources.rows import BESIDE, LONGEST_NAME, MOST_VALUES, NumberText, checked_row, has_undecodable, short
from mappings.columns import MOST_COLUMNS, ColumnRequest
from mappings.outcome import RowLocation, SourceRow, Unread
from mappings.reasons import Reason, ReasonCode
from mappings.spec.source import NdjsonSource
from mappings.spec.source_base import RecordSource

_SAMPLE = 1000
"""Records from which columns are collected; more are read only while a wanted column is missing."""
_HINT = "correct `source.records`: it should lead to the single events"
_MOST_REPEATS = 100
_DEEPEST = 50
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,6})\]")
OWN_TEXT = ""
"""The key of an object's own text, beside its members."""


class TooDeepError(ValueError):
    """The value nests too deeply."""

    def __init__(self) -> None:
        super().__init__("it nests too deeply")


class TooWideError(ValueError):
    """The record has too many columns or values, or a name that is too long."""


def refuse_many_values(text: str, start: int = 0) -> None:
    """Check that a text cannot have too many values before it is parsed; marks inside strings count too.

    Raises:
        TooWideError: it may have too many.
    """
    if len(text) - start > MOST_VALUES and sum(text.count(mark, start) for mark in ",[{") > MOST_VALUES:
        raise TooWideError(f"it holds more than {MOST_VALUES} values")


class Repeated(str):
    """The different values of a name that occurs twice in one object, as `first | last`; `name` is that name."""

    __slots__ = ("name",)
    name: str

    @classmethod
    def of(cls, name: str, first: object, last: object) -> Repeated:
        """Return both values."""
        try:
            found = cls(short(f"{text_of(first)}{BESIDE}{text_of(last)}"))
        except TooDeepError:
            found = cls()
        found.name = name
        return found


class JsonParser(json.JSONDecoder):
    """Parses JSON texts. `has_repeats`: since it was last reset, a name had two different values in one object."""

    def __init__(self) -> None:
        self.has_repeats = False
        super().__init__(
            parse_float=NumberText, parse_int=NumberText, parse_constant=NumberText, strict=False, object_pairs_hook=self._object
        )

    def parse(self, text: str) -> Any:
        """Parse a whole text.

        Raises:
            ValueError: it is not JSON, nests too deeply, or has too many values.
        """
        refuse_many_values(text)
        try:
            return self.decode(text)
        except RecursionError as error:
            raise TooDeepError from error
        except json.JSONDecodeError as error:
            raise ValueError(f"{error.msg}, at character {error.pos + 1}") from error

    def take_repeats(self) -> bool:
        """Return `has_repeats` and reset it."""
        had, self.has_repeats = self.has_repeats, False
        return had

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        last = dict(found)
        for name, value in pairs:
            # Equal values are no conflict.
            if type(value) is not type(last[name]) or value != last[name]:
                self.has_repeats = True
                found[name] = Repeated.of(name, value, last[name])
        return found


def _repeated_in(value: Any) -> Iterator[Repeated]:
    if isinstance(value, Repeated):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _repeated_in(inner)


def with_repeats(row: SourceRow, values: Mapping[str, Any], wanted: Collection[str]) -> SourceRow:
    """Add a problem for each of the `wanted` columns with a `Repeated` value, and a warning for other columns."""
    problems, warnings = dict[str, Reason](), dict[str, Reason]()
    for column, value in values.items():
        for repeated in islice(_repeated_in(value), 1):
            hint = f'the name "{repeated.name}" occurs twice in one object, with different values: use each name once'
            used = [name for name in wanted if name == column or name.startswith((f"{column}.", f"{column}["))]
            for name in used or [column]:
                (problems if used else warnings)[name] = Reason(ReasonCode.BAD_TEXT, "", name, repeated, hint)
    if len(problems) + len(warnings) > _MOST_REPEATS:
        hint = f"more than {_MOST_REPEATS} names occur twice in its objects, with different values"
        problems, warnings = {"": Reason(ReasonCode.BAD_TEXT, "", "", "", hint)}, {}
    return replace(row, problems=(*row.problems, *problems.values()), warnings=(*row.warnings, *warnings.values()))


@dataclass(frozen=True, slots=True)
class Flattener:
    """Converts nested values of a source to cells.

    `picks`: wanted columns that may reach into lists (`images[0].url`), with their steps; `separators`: how to join the lists of
    plain values of a column.
    """

    picks: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict)
    separators: Mapping[str, str] = field(default_factory=dict)

    def values(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a record by column.

        Raises:
            TooDeepError: it nests too deeply.
            TooWideError: it has too many names, or too long ones.
        """
        found: dict[str, Any] = {}
        self._put(found, "", record, 0)
        for column, steps in self.picks.items():
            picked = None if column in found else _picked(record, steps)
            if picked is not None and ("[" in column or not isinstance(picked, dict)):
                found[column] = picked
        return found

    def _put(self, found: dict[str, Any], path: str, value: Any, depth: int) -> None:
        if len(path) > LONGEST_NAME:
            raise TooWideError(f'the name "{path[:100]}…" is longer than {LONGEST_NAME} characters')
        if len(found) > MOST_COLUMNS:
            raise TooWideError(f"it has more than {MOST_COLUMNS} different names, too many for columns")
        if isinstance(value, dict):
            if depth > _DEEPEST:
                raise TooDeepError
            for key, inner in value.items():
                self._put(found, (f"{path}.{key}" if path else key) if key else path or "#text", inner, depth + 1)
        else:
            # `{"a": {"b": 1}, "a.b": 2}`: both are the column `a.b`.
            found[path] = value if found.get(path, value) == value else Repeated.of(path, found[path], value)

    def text(self, column: str, value: Any) -> str:
        """Return the cell for a value; raises TooDeepError."""
        if type(value) is str:
            return value
        if isinstance(value, list) and column in self.separators and not any(isinstance(item, dict | list) for item in value):
            return self.separators[column].join(filter(None, map(text_of, value)))
        return text_of(value)


def picks_among(columns: Iterable[str], holder: str = "") -> dict[str, tuple[str | int, ...]]:
    """Return the columns that may reach into a list, with their steps; `holder` is the first step of all of them."""
    first = (holder,) if holder else ()
    nested = (column for column in sorted(columns) if "[" in column or "." in column)
    return {column: (*first, *steps) for column in nested if (steps := _steps(column.removeprefix(holder)))}


def _steps(path: str) -> tuple[str | int, ...]:
    steps = tuple(int(match[2]) if match[2] else match[1] for match in _STEP.finditer(path))
    return steps if "".join(match[0] for match in _STEP.finditer(path)) == path else ()


def _picked(value: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if isinstance(step, int):
            # A single element counts as a list of one: its author meant a list.
            items = value if isinstance(value, list) else [value]
            value = items[step] if step < len(items) else None
        else:
            only = value[0] if isinstance(value, list) and len(value) == 1 else value
            value = only.get(step) if isinstance(only, dict) else None
    return value.get(OWN_TEXT, value) if isinstance(value, dict) else value


def text_of(value: Any, depth: int = 0) -> str:
    """Return a value as a cell's text: lists and objects as JSON, `null` as "".

    Raises:
        TooDeepError: it nests too deeply.
    """
    if depth > _DEEPEST:
        raise TooDeepError
    if isinstance(value, dict):
        named = (f"{json.dumps(key or '#text', ensure_ascii=False)}: {text_of(one, depth + 1)}" for key, one in value.items())
        return f"{{{', '.join(named)}}}"
    if isinstance(value, list):
        return f"[{', '.join(text_of(one, depth + 1) for one in value)}]"
    if isinstance(value, NumberText) or (isinstance(value, str) and not depth):
        return str(value)
    return "" if value is None and not depth else json.dumps(value, ensure_ascii=False)


def with_json_cells(rows: Iterator[SourceRow], holders: Sequence[str], wanted: Sequence[str]) -> Iterator[SourceRow]:
    """Add the wanted values inside the JSON cells of the columns `holders`.

    A cell that is not JSON is a problem of its row.
    """
    parser = JsonParser()
    inside = {holder: [name for name in wanted if name.startswith((f"{holder}.", f"{holder}["))] for holder in holders}
    flatteners = {holder: Flattener(picks_among(names, holder)) for holder, names in inside.items()}
    for row in rows:
        found, cells, problems = row, {**row.cells, **dict.fromkeys(wanted, "")}, list[Reason]()
        for holder, names in inside.items():
            text = row.cells.get(holder, "")
            if not text.strip():
                continue
            try:
                values = flatteners[holder].values({holder: parser.parse(text)})
                cells |= {name: flatteners[holder].text(name, values[name]) for name in names if name in values}
            except ValueError as error:
                hint = f"the cell should hold JSON: {error}"
                problems.append(Reason(ReasonCode.BAD_TEXT, "", holder, short(text), hint))
                continue
            if parser.take_repeats():
                found = with_repeats(found, values, names)
        yield replace(found, cells=cells, problems=(*found.problems, *problems))


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a file; `problem`: why it cannot be used, with its text in `found`.

    `has_repeats`: some of its values are `Repeated`. `unread`: it stands for others that are not read.
    """

    origin: RowLocation
    value: Mapping[str, Any]
    problem: str = ""
    found: str = ""
    has_repeats: bool = False
    code: ReasonCode = ReasonCode.BAD_TEXT
    unread: Unread | None = None


ReadRecords = Callable[[OpenedFile], Generator[Record]]
"""Reads the records of an open file from its current position."""


@contextmanager
def read_record_file(spec: RecordSource, open_stored: OpenStored, asked: ColumnRequest, read: ReadRecords) -> Iterator[Reading]:
    """Read a file of records under the contract of `Source.read`. A column that no record has is missing, unless there are no
    records. A record in which several names answer to one of the mapping is rejected.
    """
    with opened(open_stored, spec.member) as file:
        flattener = Flattener(picks_among(asked.columns), spec.join_lists)
        with file.detect_change():
            with closing(read(file)) as records:
                headers = _headers(records, flattener, asked)
            lacking = asked.columns.difference(headers)
            if headers and (missing := lacking - asked.optional):
                present = [name for names in headers.values() for name in names]
                taken = [name for column in asked.columns for name in headers.get(column, ())]
                raise MissingColumnsError(file.name, missing, present, taken=taken)
        file.stream.seek(0)
        with closing(read(file)) as records:
            rows = _rows(records, flattener, tuple(headers), asked, spec.encoding or ("utf-8",))
            # The other formats have an end of their own.
            has_known_end = file.has_known_end or not isinstance(spec, NdjsonSource)
            shown = {column: BESIDE.join(names) for column, names in headers.items()}
            reading = Reading(tuple(headers), file.whole(rows), file.stamp, has_known_end=has_known_end, headers=shown)
            yield reading.with_empty(tuple(sorted(lacking)))


def _headers(records: Iterable[Record], flattener: Flattener, asked: ColumnRequest) -> Mapping[str, Collection[str]]:
    """Return the columns of the first records, and of more while one is missing, each with its names there."""
    spell, present = asked.speller(), dict[str, None]()
    for number, record in enumerate(records, start=1):
        try:
            present |= dict.fromkeys(flattener.values(record.value))
        except TooWideError as error:
            raise BadSourceError(str(record.origin), f"the record cannot be read: {error}", hint=_HINT) from error
        except TooDeepError:
            continue
        if len(present) > MOST_COLUMNS:
            message = f"the records have more than {MOST_COLUMNS} different names, too many for columns"
            raise BadSourceError(str(record.origin), message, hint=_HINT)
        if number % _SAMPLE == 0 and not (asked.columns - asked.optional).difference(map(spell, present)):
            break
    headers: dict[str, dict[str, None]] = {}
    for name in present:
        headers.setdefault(spell(name), {})[name] = None
    return headers


def _rows(
    records: Iterable[Record], flattener: Flattener, columns: Sequence[str], asked: ColumnRequest, encodings: Sequence[str]
) -> Iterator[SourceRow]:
    """Yield a row for each record."""
    spell, wanted, blank = asked.speller(), asked.columns, dict.fromkeys(columns, "")
    for record in records:
        cells, names, problems, has_repeats = blank.copy(), dict[str, str](), dict[str, Reason](), record.has_repeats
        try:
            values = flattener.values(record.value)
            for name, value in values.items():
                column, has_repeats = spell(name), has_repeats or isinstance(value, Repeated)
                if column not in blank or column in problems:
                    continue
                text = flattener.text(name, value)
                if column in names:
                    text = short(f"{short(cells[column])}{BESIDE}{text}")
                    hint = f'"{names[column]}" and "{name}" both answer to the name "{column}": use one of them in each record'
                    problems[column] = Reason(ReasonCode.BAD_TEXT, "", column, text, hint)
                cells[column], names[column] = text, name
        except (TooDeepError, TooWideError) as error:
            values, cells = {}, blank
            problems = {"": Reason(ReasonCode.BAD_TEXT, "", "", short(record.found), f"the record cannot be read: {error}")}
        if record.problem:
            problems = {"": Reason(record.code, "", "", short(record.found), record.problem)}
        reasons = tuple(problems.values())
        text = "".join(cells.values())
        if reasons or has_repeats or "\0" in text or has_undecodable(text):
            row = checked_row(record.origin, cells, wanted, encodings, reasons)
            if has_repeats:
                row = with_repeats(row, {spell(name): value for name, value in values.items()}, wanted)
            yield replace(row, unread=record.unread)
        else:
            yield SourceRow(record.origin, cells, unread=record.unread)
