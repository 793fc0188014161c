"""Source rows and the outcomes of mapping them: event, rejection, skip, merged or deleted row.

A `Refusal` is raised and caught inside the mapper only: a bad row is returned as a value, never raised as an exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mappings.delivery import Cover
from mappings.reasons import Reason
from mappings.row_key import NO_KEY, Fingerprint, RowKey


# Made for every row, as are SourceRow and MappedRow: frozen ones take three times as long to make. They are never changed.
@dataclass(slots=True, unsafe_hash=True)
class RowLocation:
    """The location of a row as people find it: `Programme!A17`, `events.csv:42`, a record id.

    `number`: the row's number in its source (line of the file, row of the sheet), from 1; 0 if it has none. If a spreadsheet
    shows the record of a file in another row than its line: `events.csv:57 (row 41)`. A row that was a single cell of a file:
    `timetable.csv:57 (column C)`.
    """

    place: str
    number: int = 0

    def __str__(self) -> str:
        return shown_place(self.place)

    @property
    def names(self) -> frozenset[str]:
        """The names of this location: its place in either form, or the first part of one, such as `events.csv:57`."""
        places = (self.place, shown_place(self.place))
        return frozenset((*places, *(place.partition(" (")[0] for place in places)))

    @property
    def shown_number(self) -> str:
        """The row's number in a spreadsheet or, if that is unknown, in its source."""
        row = _ROW.fullmatch(self.place)
        return row["row"] if row else str(self.number)

    @property
    def file_and_tab(self) -> tuple[str, str]:
        """The file and the tab in the location, "" for what it does not name."""
        if quoted := _QUOTED.fullmatch(self.place):
            return "", quoted["tab"].replace("''", "'")
        if line := _LINE.fullmatch(self.place):
            return line["file"], ""
        cell = _CELL.fullmatch(self.place)
        return (cell["file"] or "", cell["tab"]) if cell else ("", "")


_CELL = re.compile(r"(?:(?P<file>.*?)[#:/])?(?P<tab>[^#:/!]*)![A-Z]*\d+")
_QUOTED = re.compile(r"'(?P<tab>(?:[^']|'')+)'![A-Z]*\d+")
"""A quoted tab title, which may contain any character."""
_LINE = re.compile(r"(?P<file>.+):\d+(?: \((?:(?:(?:record|row) )?\d[\d:TZ-]*)?(?:(?:, )?column [A-Z]+)?\))?")
_ROW = re.compile(r"(?P<file>.+):(?P<line>\d+) \(row (?P<row>\d+)(?P<cell>, column [A-Z]+)?\)", re.DOTALL)


def shown_place(place: str) -> str:
    """Return a location for display: `events.csv row 41 (line 57)`; other forms are unchanged."""
    return _ROW.sub(r"\g<file> row \g<row> (line \g<line>\g<cell>)", place)


@dataclass(frozen=True, slots=True)
class Unread:
    """The occurrences of a series that a source leaves out of a read: those after the ISO day `after`, all if it is "".

    `because`: the label of the row that stands for them, "" if its problems reject it.
    """

    after: str = ""
    because: str = ""


@dataclass(slots=True, unsafe_hash=True)
class SourceRow:
    """One row of a source: all cells are text, "" if empty.

    `cells`: raw texts by trimmed column name. `problems`: what the reader found wrong (ragged row, undecodable cell); such a
    row is rejected together with the mapper's own reasons. `warnings`: problems in cells that the mapping does not use, counted
    and shown only. `is_gone`: the source reports the row as deleted; only its key cells are valid. `unread`: the row is no event,
    but stands for others; its key is theirs without the last part.
    """

    location: RowLocation
    cells: Mapping[str, str]
    problems: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    is_gone: bool = False
    unread: Unread | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    """The events of a row about which this read gives no information: keys that begin with `stem` and, if `after` is an ISO
    day, end in a later day. They are not marked as vanished.
    """

    stem: RowKey
    after: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """The position of an outcome among the `of` outcomes of its row; all but the first are `is_further`."""

    of: int = 1
    is_further: bool = False
    silence: Silence | None = None


WHOLE_ROW = Part()
"""The part of a row with a single outcome."""


@dataclass(slots=True, unsafe_hash=True)
class MappedRow:
    """A row mapped to an event. `body`: canonical JSON, the bytes that are sent (before a cover's id is added).

    `fingerprint`: digest of the body and the cover's address. `row_digest`: digest of the used cells and the mapping.
    `duplicate_digest`: digest of channel, title, start and place, to find the same event under another row key. `warnings`:
    problems that the mapping tolerates, counted and shown. `outside`: the label of the window or horizon that keeps a new event
    from being sent, "" if none.
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


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row that cannot become an event, with all reasons. `row_key` is "" if it has no usable key."""

    location: RowLocation
    row_key: RowKey
    reasons: tuple[Reason, ...]
    cells: Mapping[str, str]
    part: Part = WHOLE_ROW


OVER, TOO_FAR = "already over", "beyond the horizon"
"""Labels of events outside the window."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row left out by the mapping. `because`: the label; `rule`: the rule's number under `rows:`, from 1.

    `rule` is 0 for blank rows, windows and recurrences without a future day. `row_key` is "" if unknown; a known key shows that
    the row has not vanished. `is_cancelled`: the source says that the event is cancelled, which is drift if it was delivered.
    """

    location: RowLocation
    because: str
    row_key: RowKey = NO_KEY
    is_cancelled: bool = False
    part: Part = WHOLE_ROW
    rule: int = 0


class Absorption(StrEnum):
    """How a row was merged into another one: as a duplicate, or as a part of one event."""

    DUPLICATE = "duplicate"
    GROUPED = "grouped"


@dataclass(frozen=True, slots=True)
class Absorbed:
    """A row without an event of its own: another row with the same key is used, or includes it."""

    location: RowLocation
    row_key: RowKey
    into: Absorption
    part: Part = WHOLE_ROW


@dataclass(frozen=True, slots=True)
class Gone:
    """A row that its source reports as deleted; `row_key` is "" if it cannot be read.

    `is_stem`: the row had several events, whose keys begin with its own; all of them are deleted.
    """

    location: RowLocation
    row_key: RowKey
    is_stem: bool = False
    part: Part = WHOLE_ROW


RowOutcome = MappedRow | Rejection | Skipped | Absorbed | Gone


def if_unknown(outcome: RowOutcome) -> RowOutcome:
    """Return the outcome for a row that was never sent: an event outside the window becomes a skip."""
    if isinstance(outcome, MappedRow) and outcome.outside:
        return Skipped(outcome.location, outcome.outside, outcome.row_key, part=outcome.part)
    return outcome
