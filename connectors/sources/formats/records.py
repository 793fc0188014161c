"""A file of records (JSON, NDJSON, XML, iCalendar) as a source: its columns gathered from the records, then a row for each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from connectors.sources.contract import BadSourceError, Reading
from connectors.sources.files.opened_file import OpenedFile, OpenStored, opened
from connectors.sources.rows import (
    LONGEST_NAME,
    MOST_COLUMNS,
    MOST_VALUES,
    ColumnRequest,
    MatchedColumns,
    checked_row,
    has_undecodable,
    matched,
    short,
    wanted_columns,
)
from mappings.outcome import RowLocation, SourceRow
from mappings.reasons import Reason, ReasonCode
from mappings.spec.source import NdjsonSource, RecordSource

_SAMPLE = 1000
"""Records from which the columns are gathered; more are read only while a wanted column has not been met."""
_HINT = "correct `source.records`: it should lead to the single events"
_MOST_REPEATS = 100
_DEEPEST = 50
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,6})\]")
OWN_TEXT = ""
"""The key under which an object holds a text of its own, beside what stands inside it."""


class Number(str):
    """A number, as the text that stands in the file."""

    __slots__ = ()


class TooDeepError(ValueError):
    """The value nests deeper than any list of events does."""

    def __init__(self) -> None:
        super().__init__("it nests too deeply")


class TooWideError(ValueError):
    """The record has more columns or values than any list of events, or a longer name for one."""


def refuse_many_values(text: str, start: int = 0) -> None:
    """Refuse a text that may hold too many values, before any is built; marks inside of strings count too.

    Raises:
        TooWideError: it does.
    """
    if len(text) - start > MOST_VALUES and sum(text.count(mark, start) for mark in ",[{") > MOST_VALUES:
        raise TooWideError(f"it holds more than {MOST_VALUES} values")


@dataclass(frozen=True, slots=True)
class RepeatedName:
    """A name that stands twice in one object, at `path`, with the two values that contradict each other."""

    path: str
    first: Any
    last: Any

    def is_in(self, column: str) -> bool:
        """Whether a column's cell was made of the repeated value: it is that value, holds it, or stands inside it."""
        # What stands there once is reached as the first of a list too.
        paths = {column, column.replace("[0]", "")}
        is_around = self.path.startswith(f"{column}[") or ("[" in column and self.path.startswith(f"{column}."))
        return is_around or any(path == self.path or path.startswith((f"{self.path}.", f"{self.path}[")) for path in paths)

    def reason(self, column: str) -> Reason:
        """Return what is wrong with a column whose value stands under this name."""
        try:
            found = f"{text_of(self.first)} | {text_of(self.last)}"
        except TooDeepError:
            found = self.path
        hint = f'the name "{self.path}" stands twice in one object and says different things: each name may stand there once'
        return Reason(ReasonCode.BAD_TEXT, "", column, short(found), hint)


class _Repeating(dict[str, Any]):
    """An object with the last value of each name; `earlier` has those that an earlier one contradicts, with that value."""

    earlier: dict[str, Any]


class JsonParser:
    """Parses JSON texts. `has_repeats`: since this was last set to False, a name stood twice in one object."""

    def __init__(self) -> None:
        self.has_repeats = False
        self._decoder = json.JSONDecoder(
            parse_float=Number, parse_int=Number, parse_constant=Number, strict=False, object_pairs_hook=self._object
        )

    def parse_at(self, text: str, place: int) -> tuple[Any, int]:
        """Return the value that begins at a place of a text, and where it ends.

        Raises:
            json.JSONDecodeError: there is none, or it goes on behind the text's end.
            RecursionError: it nests too deeply.
        """
        return self._decoder.raw_decode(text, place)

    def parse(self, text: str) -> Any:
        """Return the value of a whole text.

        Raises:
            ValueError: it is no JSON, nests too deeply, or holds too many values.
        """
        refuse_many_values(text)
        try:
            return self._decoder.decode(text)
        except RecursionError as error:
            raise TooDeepError from error
        except json.JSONDecodeError as error:
            raise ValueError(f"{error.msg}, at character {error.pos + 1}") from error

    def repeats_in(self, value: Any) -> tuple[RepeatedName, ...]:
        """Return the names that stand twice in the value last parsed, and forget them."""
        if not self.has_repeats:
            return ()
        self.has_repeats = False
        return tuple(_repeats(value, "", 0))

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        # To say the same twice does no harm.
        earlier = {name: value for name, value in pairs if type(value) is not type(found[name]) or value != found[name]}
        if not earlier:
            return found
        repeating = _Repeating(found)
        repeating.earlier = earlier
        self.has_repeats = True
        return repeating


def _repeats(value: Any, path: str, depth: int) -> Iterator[RepeatedName]:
    if depth > _DEEPEST:
        return
    if isinstance(value, _Repeating):
        for name, first in value.earlier.items():
            yield RepeatedName(_inner(path, name), first, value[name])
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _repeats(inner, _inner(path, name), depth + 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _repeats(inner, f"{path}[{place}]", depth + 1)


def _inner(path: str, name: str) -> str:
    """Return the path of a value inside an object, as columns are named."""
    return (f"{path}.{name}" if path else name) if name else path or "#text"


@dataclass(frozen=True, slots=True)
class Flattener:
    """How one source's nested values become cells.

    `picks` are the wanted columns that reach into lists (`images[0].url`), with their steps; `separators` join the lists of
    plain values of some columns into one text.
    """

    picks: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict)
    separators: Mapping[str, str] = field(default_factory=dict)

    def cells(self, value: Mapping[str, Any]) -> dict[str, str]:
        """Return the cells of a record.

        Raises:
            TooDeepError: it nests too deeply.
            TooWideError: it has too many names, or too long ones.
        """
        found: dict[str, str] = {}
        self._put(found, "", value, 0)
        for column, steps in self.picks.items():
            picked = _picked(value, steps)
            if picked is not None:
                found[column] = picked if isinstance(picked, str) else text_of(picked)
        return found

    def _put(self, found: dict[str, str], path: str, value: Any, depth: int) -> None:
        if len(path) > LONGEST_NAME:
            raise TooWideError(f'the name "{path[:100]}…" is longer than {LONGEST_NAME} characters')
        if len(found) > MOST_COLUMNS:
            raise TooWideError(f"it has more than {MOST_COLUMNS} different names; so many columns are never meant")
        if isinstance(value, dict):
            if depth > _DEEPEST:
                raise TooDeepError
            for key, inner in value.items():
                self._put(found, _inner(path, key), inner, depth + 1)
        elif isinstance(value, list) and path in self.separators and not any(isinstance(item, dict | list) for item in value):
            found[path] = self.separators[path].join(filter(None, map(text_of, value)))
        else:
            found[path] = value if type(value) is str else text_of(value)


def picks_among(columns: Iterable[str], holder: str = "") -> dict[str, tuple[str | int, ...]]:
    """Return the columns that reach into a list, each with its steps; `holder` is the first step of all of them."""
    first = (holder,) if holder else ()
    return {
        column: (*first, *steps) for column in sorted(columns) if "[" in column and (steps := _steps(column.removeprefix(holder)))
    }


def _steps(path: str) -> tuple[str | int, ...]:
    steps = tuple(int(match[2]) if match[2] else match[1] for match in _STEP.finditer(path))
    return steps if "".join(match[0] for match in _STEP.finditer(path)) == path else ()


def _picked(value: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if isinstance(step, int):
            # What stands there once is a list of one, as far as its author is concerned.
            items = value if isinstance(value, list) else [value]
            value = items[step] if step < len(items) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value.get(OWN_TEXT, value) if isinstance(value, dict) else value


def text_of(value: Any, depth: int = 0) -> str:
    """Return a value as the text of a cell: lists and objects as JSON, `null` as "".

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
    if isinstance(value, Number) or (isinstance(value, str) and not depth):
        return str(value)
    return "" if value is None and not depth else json.dumps(value, ensure_ascii=False)


def with_json_cells(rows: Iterator[SourceRow], holders: Sequence[str], wanted: Sequence[str]) -> Iterator[SourceRow]:
    """Put the wanted values beside the cells of the `holders`, which hold them as JSON.

    A cell that is no JSON is a problem of its row.
    """
    parser = JsonParser()
    inside = {holder: [name for name in wanted if name.startswith((f"{holder}.", f"{holder}["))] for holder in holders}
    flatteners = {holder: Flattener(picks_among(names, holder)) for holder, names in inside.items()}
    for row in rows:
        cells, problems, warnings = {**row.cells, **dict.fromkeys(wanted, "")}, list(row.problems), list(row.warnings)
        for holder, names in inside.items():
            text = row.cells.get(holder, "")
            if not text.strip():
                continue
            try:
                value = {holder: parser.parse(text)}
                found = flatteners[holder].cells(value)
            except ValueError as error:
                hint = f"the cell should hold JSON: {error}"
                problems.append(Reason(ReasonCode.BAD_TEXT, "", holder, short(text), hint))
                continue
            cells |= {name: found[name] for name in names if name in found}
            for repeat in parser.repeats_in(value):
                used = [name for name in names if repeat.is_in(name)]
                (problems if used else warnings).extend(map(repeat.reason, used or [holder]))
        yield replace(row, cells=cells, problems=tuple(problems), warnings=tuple(warnings))


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it stands in its file; `problem` is why it cannot be used, `found` what stands there then.

    `repeats` are the names that stand twice in one of its objects and say different things.
    """

    origin: RowLocation
    value: Mapping[str, Any]
    problem: str = ""
    found: str = ""
    repeats: tuple[RepeatedName, ...] = ()


ReadRecords = Callable[[OpenedFile], Generator[Record]]
"""Reads the records of an open file, from where it stands."""


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of records, as one feed reads it."""

    spec: RecordSource
    open_stored: OpenStored
    asked: ColumnRequest
    read_records: ReadRecords

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`. A column that no record has is missing, unless there are no records."""
        with opened(self.open_stored, self.spec.member) as file:
            flattener = Flattener(picks_among(self.asked.columns), self.spec.join_lists)
            with file.detect_change():
                present = self._present(file, flattener)
                missing = MatchedColumns((), (), tuple(self.asked.columns))
                columns = wanted_columns(present, self.asked, file.name) if present else missing
            file.stream.seek(0)
            with closing(self.read_records(file)) as records:
                rows = self._rows(records, flattener, tuple(zip(columns.names, present, strict=True)))
                # The other formats have an end of their own.
                has_known_end = file.has_known_end or not isinstance(self.spec, NdjsonSource)
                reading = Reading(columns.names, file.whole(rows), file.stamp, has_known_end=has_known_end)
                yield reading.with_empty(columns.absent)

    def _present(self, file: OpenedFile, flattener: Flattener) -> Sequence[str]:
        present: dict[str, None] = {}
        with closing(self.read_records(file)) as records:
            for number, record in enumerate(records, start=1):
                try:
                    present |= dict.fromkeys(flattener.cells(record.value))
                except TooWideError as error:
                    raise BadSourceError(str(record.origin), f"the record cannot be read: {error}", hint=_HINT) from error
                except TooDeepError:
                    continue
                if len(present) > MOST_COLUMNS:
                    message = f"the records have more than {MOST_COLUMNS} different names; so many columns are never meant"
                    raise BadSourceError(str(record.origin), message, hint=_HINT)
                if number % _SAMPLE == 0 and not matched(tuple(present), self.asked).missing:
                    break
        return tuple(present)

    def _rows(self, records: Iterator[Record], flattener: Flattener, pairs: Sequence[tuple[str, str]]) -> Iterator[SourceRow]:
        """Make a row of each record. `pairs`: each column as the mapping spells it and as the records do."""
        encodings = self.spec.encoding or ("utf-8",)
        for record in records:
            problem = record.problem
            try:
                flat = flattener.cells(record.value)
            except (TooDeepError, TooWideError) as error:
                flat, problem = {}, f"the record cannot be read: {error}"
            cells = {name: flat.get(key, "") for name, key in pairs}
            text = "".join(cells.values())
            if problem or record.repeats or "\0" in text or has_undecodable(text):
                reasons = (Reason(ReasonCode.BAD_TEXT, "", "", short(record.found), problem),) if problem else ()
                row = checked_row(record.origin, cells, self.asked.columns, encodings, reasons)
                yield self._with_repeats(row, record.repeats, pairs)
            else:
                yield SourceRow(record.origin, cells)

    def _with_repeats(self, row: SourceRow, repeats: Sequence[RepeatedName], pairs: Sequence[tuple[str, str]]) -> SourceRow:
        """Add what is wrong with the columns that are made of names that stand twice."""
        problems, warnings = list(row.problems), list(row.warnings)
        if len(repeats) > _MOST_REPEATS:
            hint = f"more than {_MOST_REPEATS} names stand twice in its objects and say different things"
            return replace(row, problems=(*problems, Reason(ReasonCode.BAD_TEXT, "", "", "", hint)))
        for repeat in repeats:
            columns = [name for name, key in pairs if repeat.is_in(key)]
            used = [name for name in columns if name in self.asked.columns]
            (problems if used else warnings).extend(map(repeat.reason, used or columns[:1]))
        return replace(row, problems=tuple(problems), warnings=tuple(warnings))
