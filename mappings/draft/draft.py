"""The first mapping file of a sample of rows, with how sure each guess is, and its examples. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from mappings.compiler.mapper import Directory, RowMapper, compile_with_problems
from mappings.compiler.rows import needs_the_moment
from mappings.draft.calendar import CalendarDraft
from mappings.draft.columns import ColumnSeen, Role, see_columns
from mappings.draft.file import FileDraft
from mappings.draft.moments import Guessed, Moments
from mappings.draft.roles import guess_key, guess_roles
from mappings.draft.write_yaml import block, comment, scalar
from mappings.draft.zones import UNKNOWN, guess_zone
from mappings.outcome import MappedRow, Rejection, RowLocation, RowOutcome, SourceRow
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import LookupShelf, parse_feed

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class SourceSample:
    """Rows of a source as they were read. `source` are the lines of the mapping's `source` block; `title` what people call it.

    `columns` stand in the source's order; `guesses` are what was guessed in order to read it; `joined` what stands
    between the items of columns whose lists were joined.
    """

    title: str
    source: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    guesses: tuple[Guessed, ...] = ()
    joined: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_calendar(self) -> bool:
        """Whether the columns are those of RFC 5545, which says what each means."""
        return any(line.startswith("kind: ics") for line in self.source)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the author has said: the feed's name; the IANA zone and the order of day and month ("" where they have not)."""

    feed: str
    zone: str = ""
    order: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A mapping file's text, and every guess in it."""

    text: str
    guesses: tuple[Guessed, ...]


def draft_feed(sample: SourceSample, wishes: Wishes) -> Draft:
    """Write a first mapping for the sample, without examples."""
    columns = see_columns(sample.columns, sample.rows, sample.joined)
    roles = guess_roles(columns)
    key = guess_key(columns, {role: guess.column for role, guess in roles.items()})
    moments = Moments(roles, columns, wishes.order)
    draft = CalendarDraft if sample.is_calendar else FileDraft
    clocks = UNKNOWN if wishes.zone else guess_zone(columns, roles)
    file = draft(wishes.feed, sample.title, sample.source, key, roles, moments, wishes.zone, clocks)
    text = file.text()
    aside = () if sample.is_calendar else tuple(_left_aside(columns, file))
    return Draft(text, (*sample.guesses, *_overwritten(columns), *file.guesses, *aside))


def _overwritten(columns: Sequence[ColumnSeen]) -> Iterator[Guessed]:
    """Yield a doubt for each name in the header that is one of its own column's values: it may have been typed over."""
    for column in columns:
        times = column.counts[column.name]
        if times:
            why = f"the column's name is also its value in {times:,} rows: typed over? Then say header: {{row: 1, names: [...]}}"
            yield Guessed("source.header", column.name, "unsure", why)


def _left_aside(columns: Sequence[ColumnSeen], file: FileDraft) -> Iterator[Guessed]:
    """Yield the columns with something in them that the draft does not read, so that none is forgotten unseen."""
    told = {name for guess in file.guesses for name in (guess.column, *guess.column.split(", "))}
    silent = {Role.STATUS, Role.ZONE, *([Role.PRICE] if Role.URL in file.roles else [])}
    used = told | {guess.column.name for role, guess in file.roles.items() if role in silent}
    names = [column.name for column in columns if column.filled and column.name not in used]
    if names:
        why = "the draft does not read these columns: map those that matter"
        yield Guessed("left aside", ", ".join(names), "unsure", why)


def feed_name(title: str) -> str:
    """Return a feed's name made of a file's: lower-case words joined by `-`, at most 40 characters."""
    plain = unicodedata.normalize("NFKD", title.replace("ł", "l")).encode("ascii", "ignore").decode().casefold()
    words = _NOT_IN_NAMES.sub("-", plain).strip("-")[:40].strip("-")
    return words if words[:1].isalpha() else f"feed-{words}".strip("-")


_TOLD = ("title", "startAt", "endAt", "locationName")
_LONGEST_CELL = 200
_TRIED = 300
_ANY_DAY = "2026-01-01T00:00:00+00:00"
_Tried = tuple[Mapping[str, str], RowOutcome]


def with_examples(text: str, path: Path, rows: Sequence[Mapping[str, str]]) -> str:
    """Return the draft with an `examples` block; `path` is where the file will stand.

    Raises:
        MappingFileError: the draft is not a mapping that may run.
    """
    mapping = parse_feed(text, path, LookupShelf())
    mapper, _ = compile_with_problems(mapping, Directory())
    several = [(row, mapper.outcomes(_row(mapper, row))) for row in rows[:_TRIED]]
    outcomes = [(row, each[0]) for row, each in several if len(each) == 1]
    as_of = _moment(outcomes) if needs_the_moment(mapping.rows) else ()
    lines = [*_event(mapper, outcomes, as_of), *_rejections(mapping, mapper, outcomes, as_of)]
    return "\n".join([text.rstrip("\n"), "", "examples:", *lines]) + "\n" if lines else text


def _moment(outcomes: Iterable[_Tried]) -> tuple[str, ...]:
    """Write the moment of a run, for mappings that ask for it: an event's own start."""
    starts = (orjson.loads(outcome.body)["startAt"] for _, outcome in outcomes if isinstance(outcome, MappedRow))
    return (f'    as_of: "{next(starts, _ANY_DAY)}"',)


def _row(mapper: RowMapper, cells: Mapping[str, str]) -> SourceRow:
    """A row as an example gives it: only the columns that the mapping reads."""
    return SourceRow(RowLocation("sample"), {name: cells.get(name, "") for name in mapper.columns})


def _event(mapper: RowMapper, outcomes: Iterable[_Tried], as_of: Iterable[str]) -> Iterator[str]:
    events = [(row, outcome) for row, outcome in outcomes if isinstance(outcome, MappedRow) and _is_handy(mapper, row)]
    if not events:
        return
    row, outcome = max(events, key=lambda event: sum(bool(cell) for cell in event[0].values()))
    payload: dict[str, Any] = orjson.loads(outcome.body)
    yield from _shown(mapper, row)
    yield from as_of
    yield f"    event: {block({name: str(payload[name]) for name in _TOLD if name in payload})}"


def _rejections(mapping: FeedMapping, mapper: RowMapper, outcomes: Sequence[_Tried], as_of: Sequence[str]) -> Iterator[str]:
    for row, outcome in outcomes:
        if isinstance(outcome, Rejection) and _is_handy(mapper, row):
            yield from _rejection(mapper, row, outcome, as_of)
            return
    for row, _ in outcomes[:1]:
        spoilt = {**row, **dict.fromkeys((column.column for column in mapping.key_columns), "")}
        rejected = mapper(_row(mapper, spoilt))
        if isinstance(rejected, Rejection):
            yield "  # no row of the sample is rejected: this one has lost its key"
            yield from _rejection(mapper, spoilt, rejected, as_of)


def _rejection(mapper: RowMapper, row: Mapping[str, str], outcome: Rejection, as_of: Iterable[str]) -> Iterator[str]:
    yield from _shown(mapper, row)
    yield from as_of
    yield f"    rejected: {block({reason.field: reason.code.value for reason in outcome.reasons})}"


def _shown(mapper: RowMapper, row: Mapping[str, str]) -> Iterator[str]:
    yield "  - row:"
    used = [name for name in row if name in mapper.columns and row[name]]
    yield from (f"      {scalar(name)}: {scalar(row[name])}" for name in used)
    if not used:
        yield f'      {scalar(next(iter(sorted(mapper.columns))))}: "" # {comment("a row without a single cell")}'


def _is_handy(mapper: RowMapper, row: Mapping[str, str]) -> bool:
    """Whether a row is fit to be shown: no page of text, nothing that is no text."""
    cells = [row.get(name, "") for name in mapper.columns]
    return all(len(cell) <= _LONGEST_CELL and cell.isascii() | _is_unicode(cell) for cell in cells)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
