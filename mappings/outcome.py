"""Rows as their source wrote them, what becomes of them, and the reasons why a row or a value cannot be used.

A refusal is raised and caught inside the mapper only: a bad row leaves it as a value, never as an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from rapidfuzz import fuzz, process

from mappings.row_key import NO_KEY, Fingerprint, RowKey

_LONGEST_SHOWN = 500


class Refusal(Exception):  # noqa: N818 - it is an answer about one row, not an error of ours
    """Why a value could not be had; `column`, `found` and `step` are filled in where they are known."""

    def __init__(self, code: ReasonCode, hint: str = "", *, column: str = "", found: str = "", step: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.hint = hint
        self.column = column
        self.found = found
        self.step = step
        self.is_final = False
        """Whether the author chose to reject the row for it, so that no other choice around the value matters."""

    @property
    def is_empty(self) -> bool:
        """True where there was nothing to use, rather than something unusable."""
        return self.code is ReasonCode.REQUIRED

    def about(self, column: str, found: str, step: str) -> Refusal:
        """Fill in what the raiser could not know; what it did know stays."""
        filled = Refusal(self.code, self.hint, column=self.column or column, found=self.found or found, step=self.step or step)
        filled.is_final = self.is_final
        return filled

    def reason(self, field: str) -> Reason:
        """The reason shown to people, for the event's `field`."""
        return Reason(self.code, field, self.column, _showable(self.found), self.hint, self.step)


class Repair(Refusal):
    """A value that is used all the same, while its row is counted and shown: it was not as its source meant it."""

    def __init__(self, value: Any, hint: str) -> None:
        super().__init__(ReasonCode.REPAIRED, hint)
        self.value = value


def _showable(found: str) -> str:
    """A raw value as it can be kept and shown: Unicode, and not a whole page."""
    if not found.isascii():
        found = found.encode("utf-8", "replace").decode()
    return found if len(found) <= _LONGEST_SHOWN else found[:_LONGEST_SHOWN] + "…"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that looks most like `word`, or "" if none is near.

    Whole words are compared first; only then does a known word count that contains it (`Lisbon`, `Europe/Lisbon`).
    """
    words = list(known)
    alike = process.extractOne(word, words, scorer=fuzz.ratio, score_cutoff=60, processor=str.casefold)
    match = alike or process.extractOne(word, words, scorer=fuzz.WRatio, score_cutoff=85, processor=str.casefold)
    return match[0] if match else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean "x"?` for the nearest known word, or ""."""
    near = nearest(word, known)
    return f'did you mean "{near}"?' if near else ""


class ReasonCode(StrEnum):
    """Why a row could not be used. Closed: every code has one sentence for the partner's editor in `REASON_TEXTS`."""

    sentence: str

    def __new__(cls, code: str, sentence: str = "") -> Self:
        """Make a member that is equal to its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    REQUIRED = "required", "A value is needed here, and there is none."
    NOT_A_DATE = "not_a_date", "This is not a date in one of the formats agreed for this feed."
    NOT_A_TIME = "not_a_time", "This is not a time of day in one of the formats agreed for this feed."
    NO_SUCH_TIME = "no_such_time", "The clocks go forward here: this time does not exist on that day."
    AMBIGUOUS_TIME = "ambiguous_time", "The clocks go back here: this time happens twice on that day."
    NOT_A_ZONE = "not_a_zone", "This is not the name of a time zone."
    END_BEFORE_START = "end_before_start", "The event ends before it starts."
    NOT_A_NUMBER = "not_a_number", "This is not a number as this feed writes them."
    NOT_A_URL = "not_a_url", "This is not a web address."
    NOT_IN_LOOKUP = "not_in_lookup", "This value is not in the agreed list."
    NOT_ACCEPTED = "not_accepted", "This value is not one that the service accepts."
    TOO_LONG = "too_long", "This text is longer than agreed."
    BAD_TEXT = "bad_text", "This text cannot be used as it is."
    REPAIRED = "repaired", "This text was damaged by a wrong encoding and has been mended: please look at it."
    BAD_KEY = "bad_key", "The row's identifier cannot be used as it is."
    DUPLICATE_KEY = "duplicate_key", "Another row of the same file has the same identifier and says something else."
    NO_DAY = "no_day", "The row is to happen again and again, and no day comes of it."
    TOO_MANY = "too_many", "The row stands for more events than agreed."
    UNEVEN = "uneven", "The lists of this row belong together and differ in length."
    TWIN = "twin", "An event with the same channel, title, start and place is already known under another identifier."
    RAGGED = "ragged", "The row does not have as many cells as the header has columns."
    UNDECODABLE = "undecodable", "The cell holds bytes that are not text in the agreed encoding."
    ASSERTION = "assertion", "The row breaks a rule agreed for this feed."
    IMAGE = "image", "The image cannot be used."


REASON_TEXTS: Mapping[ReasonCode, str] = {code: code.sentence for code in ReasonCode}


@dataclass(frozen=True, slots=True)
class Reason:
    """One problem of one row, for the person who can mend it.

    `field` is the path in the event (`startAt`, `offers[0].url`) or "" where the row as a whole is meant; `column` the
    source's own column name, "" where there is none; `found` the raw value; `step` the step that refused it, "" if
    none did; `hint` what would be accepted, with the nearest known value where one is near.
    """

    code: ReasonCode
    field: str
    column: str
    found: str
    hint: str
    step: str = ""


# Made for every row, as are SourceRow and MappedRow: frozen ones take three times as long to make. They are never changed.
@dataclass(slots=True, unsafe_hash=True)
class RowLocation:
    """A place that a person can open: `Programme!A17`, `events.csv:42`, a record id.

    `number` is the row's true number in its source (line of the file, row of the sheet), from 1; 0 if it has none.
    """

    place: str
    number: int = 0

    def __str__(self) -> str:
        return self.place


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


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row that could not become an event, with all of its reasons. `row_key` is "" where not even that is known."""

    location: RowLocation
    row_key: RowKey
    reasons: tuple[Reason, ...]
    cells: Mapping[str, str]
    part: Part = WHOLE_ROW


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


@dataclass(frozen=True, slots=True)
class Gone:
    """A row that its source says was deleted; `row_key` is "" where not even that can be read.

    `is_stem`: the row stands for several events, whose keys begin with its own; all of them are gone.
    """

    location: RowLocation
    row_key: RowKey
    is_stem: bool = False
    part: Part = WHOLE_ROW


RowOutcome = MappedRow | Rejection | Skipped | Absorbed | Gone


def if_unknown(outcome: RowOutcome) -> RowOutcome:
    """Return what becomes of a row that was never sent before: one outside the window is left out under its label."""
    if isinstance(outcome, MappedRow) and outcome.outside:
        return Skipped(outcome.location, outcome.outside, outcome.row_key, part=outcome.part)
    return outcome


_MOST_BYTES = 2_000
_SHOWN = 80


def too_long_key(row: MappedRow) -> Rejection | None:
    """Return the rejection of a row that no ledger knows, where its key has more bytes than one may hold; None if it fits."""
    if len(row.row_key) * 4 <= _MOST_BYTES:
        return None
    length = len(row.row_key.encode("utf-8", "backslashreplace"))
    if length <= _MOST_BYTES:
        return None
    hint = f"an identifier of at most {_MOST_BYTES:,} bytes would be accepted, and this one has {length:,}: shorten it"
    reason = Reason(ReasonCode.BAD_KEY, "", "", f"{row.row_key[:_SHOWN]}…", hint)
    return Rejection(row.location, row.row_key, (reason,), row.cells, row.part)
