"""Rows as their source wrote them, what becomes of them, and the reasons why a row or a value cannot be used.

A refusal is raised and caught inside the mapper only: a bad row leaves it as a value, never as an exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mappings.reasons import Reason
from mappings.row_key import NO_KEY, Fingerprint, RowKey


# Made for every row, as are SourceRow and MappedRow: frozen ones take three times as long to make. They are never changed.
@dataclass(slots=True, unsafe_hash=True)
class RowLocation:
    """A place that a person can open: `Programme!A17`, `events.csv:42`, a record id.

    `number` is the row's true number in its source (line of the file, row of the sheet), from 1; 0 if it has none.
    A record of a delimited file that a spreadsheet shows in another row than its line: `events.csv:57 (row 41)`.
    """

    place: str
    number: int = 0

    def __str__(self) -> str:
        return shown_place(self.place)

    @property
    def names(self) -> frozenset[str]:
        """What a person may call this row: its place in either form, or the first part of one, `events.csv:57`."""
        places = (self.place, shown_place(self.place))
        return frozenset((*places, *(place.partition(" (")[0] for place in places)))

    @property
    def shown_number(self) -> str:
        """The number under which the row is shown: in a spreadsheet or, where that is not known, in its source."""
        row = _ROW.fullmatch(self.place)
        return row["row"] if row else str(self.number)

    @property
    def file_and_tab(self) -> tuple[str, str]:
        """The file and the sheet that a row stands in, as its place names them; "" where it names none."""
        if quoted := _QUOTED.fullmatch(self.place):
            return "", quoted["tab"].replace("''", "'")
        if line := _LINE.fullmatch(self.place):
            return line["file"], ""
        cell = _CELL.fullmatch(self.place)
        return (cell["file"] or "", cell["tab"]) if cell else ("", "")


_CELL = re.compile(r"(?:(?P<file>.*?)[#:/])?(?P<tab>[^#:/!]*)![A-Z]*\d+")
_QUOTED = re.compile(r"'(?P<tab>(?:[^']|'')+)'![A-Z]*\d+")
"""A tab whose title a spreadsheet puts in quotes: it may hold any sign."""
_LINE = re.compile(r"(?P<file>.+):\d+(?: \((?:record|row) \d+\))?")
_ROW = re.compile(r"(?P<file>.+):(?P<line>\d+) \(row (?P<row>\d+)\)", re.DOTALL)


def shown_place(place: str) -> str:
    """Return a place as people see the row: `events.csv row 41 (line 57)`; other places as they are."""
    return _ROW.sub(r"\g<file> row \g<row> (line \g<line>)", place)


@dataclass(slots=True, unsafe_hash=True)
class SourceRow:
    """One row as its source wrote it: every cell is text, "" where it is empty.

    `cells` maps the header's names (as matched, trimmed) to raw text. `problems` are what the reader already knows to
    be wrong with the row (ragged, undecodable); a row with problems is rejected, with the mapper's own reasons added.
    `warnings` are what the reader noticed in cells that the mapping does not use: counted and shown, nothing more.
    `is_gone`: the source says that this row was deleted; only the cells of its key mean anything.
    """

    location: RowLocation
    cells: Mapping[str, str]
    problems: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Cover:
    """The cover image that a row asks for: fetched, checked and uploaded just before the event's first attempt."""

    url: str
    on_error: str
    """`omit` (send without it), `draft` (send as a draft without it), `reject` (do not send), or `default` and, after a
    space, the address of the image to send in its place."""

    @property
    def stand_in(self) -> str:
        """The address of the image to use where this one cannot be used, "" if there is none."""
        return self.on_error.partition(" ")[2]


@dataclass(frozen=True, slots=True)
class Silence:
    """What a row says nothing of in this read: its events whose keys begin with `stem` and end in a day after `after`.

    `after` is an ISO day; "" stands for all of the row's events. They have not vanished from the source.
    """

    stem: RowKey
    after: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What part of its row an outcome is, where a row gives several: one of `of`; all but the first are `is_further`."""

    of: int = 1
    is_further: bool = False
    silence: Silence | None = None


WHOLE_ROW = Part()
"""The one outcome of a row."""
Alternatives = tuple[tuple[str, RowKey], ...]
"""Each key that a row fills, of a feed whose rows may be known by several, with what names it: its columns. The surest first."""


@dataclass(slots=True, unsafe_hash=True)
class MappedRow:
    """A row that became an event: `body` is canonical JSON, the very bytes that are sent (before a cover's id).

    `fingerprint` digests the body and the cover's address; `row_digest` the used cells and the mapping;
    `duplicate_digest` (channel, title, start, place), to notice a delivered event under a new row key. `warnings` are
    problems that the mapping tolerates, counted and shown.  `outside`: the label of the window
    or horizon that keeps the event from being sent for the first time, "" if none does.
    """

    location: RowLocation
    row_key: RowKey
    body: bytes
    fingerprint: Fingerprint
    row_digest: bytes
    duplicate_digest: bytes
    channel_id: int
    cells: Mapping[str, str]
    cover: Cover | None = None
    warnings: tuple[Reason, ...] = ()
    part: Part = WHOLE_ROW
    outside: str = ""
    known_as: Alternatives = ()


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row that could not become an event, with all of its reasons. `row_key` is "" where not even that is known."""

    location: RowLocation
    row_key: RowKey
    reasons: tuple[Reason, ...]
    cells: Mapping[str, str]
    part: Part = WHOLE_ROW
    known_as: Alternatives = ()


OVER, TOO_FAR = "already over", "beyond the horizon"
"""Labels of events outside of a window."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row left out by a rule of the mapping; `because` is the rule's label, `rule` its place under `rows:`, from 1.

    `rule` is 0 where no `skip` or `keep` rule left the row out: a blank row, a window, a recurrence without a day to come.

    `row_key` is "" where it is not known; where it is, the ledger knows that the row has not vanished from its source.
    `is_cancelled`: the source says that the event is off, which matters where it was delivered before.
    """

    location: RowLocation
    because: str
    row_key: RowKey = NO_KEY
    is_cancelled: bool = False
    part: Part = WHOLE_ROW
    rule: int = 0
    known_as: Alternatives = ()


class Absorption(StrEnum):
    """How a row went into another one: as the same thing said again, or as a part of one event."""

    DUPLICATE = "duplicate"
    GROUPED = "grouped"


@dataclass(frozen=True, slots=True)
class Absorbed:
    """A row that gives no event of its own: another row of the same key speaks for it."""

    location: RowLocation
    row_key: RowKey
    into: Absorption
    part: Part = WHOLE_ROW
    known_as: Alternatives = ()


@dataclass(frozen=True, slots=True)
class Gone:
    """A row that its source says was deleted; `row_key` is "" where not even that can be read.

    `is_stem`: the row stands for several events, whose keys begin with its own; all of them are gone.
    """

    location: RowLocation
    row_key: RowKey
    is_stem: bool = False
    part: Part = WHOLE_ROW
    known_as: Alternatives = ()


RowOutcome = MappedRow | Rejection | Skipped | Absorbed | Gone


def if_unknown(outcome: RowOutcome) -> RowOutcome:
    """Return what becomes of a row that was never sent before: one outside the window is left out under its label."""
    if isinstance(outcome, MappedRow) and outcome.outside:
        return Skipped(outcome.location, outcome.outside, outcome.row_key, part=outcome.part)
    return outcome
