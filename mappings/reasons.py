"""Reasons why a value or row is refused: a closed set of codes, each with a sentence for the partner's editor."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as _field
from enum import StrEnum
from typing import Any, Self

from rapidfuzz import fuzz, process

_LONGEST_SHOWN = 500


class ReasonCode(StrEnum):
    """The code of a reason. Closed: every code has a sentence for the partner's editor in `REASON_TEXTS`."""

    sentence: str

    def __new__(cls, code: str, sentence: str = "") -> Self:
        """Create a member that equals its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    REQUIRED = "required", "A value is needed here, and there is none."
    NOT_A_DATE = "not_a_date", "This is not a date in one of the formats agreed for this feed."
    NOT_A_TIME = "not_a_time", "This is not a time of day in one of the formats agreed for this feed."
    NO_SUCH_TIME = "no_such_time", "The clocks go forward here: this time does not exist on that day."
    AMBIGUOUS_TIME = "ambiguous_time", "The clocks go back here: this time happens twice on that day."
    NOT_A_DURATION = "not_a_duration", "This is not a length of time as this feed writes it."
    NOT_A_ZONE = "not_a_zone", "This is not the name of a time zone."
    END_BEFORE_START = "end_before_start", "The event ends before it starts."
    FAR_AHEAD = "far_ahead", "The date is further ahead than events of this feed are planned."
    NOT_A_NUMBER = "not_a_number", "This is not a number as this feed writes them."
    NOT_A_URL = "not_a_url", "This is not a web address."
    NOT_IN_LOOKUP = "not_in_lookup", "This value is not in the agreed list."
    NOT_ACCEPTED = "not_accepted", "This value is not one that the service accepts."
    TOO_LONG = "too_long", "This text is longer than agreed."
    BAD_TEXT = "bad_text", "This text cannot be used as it is."
    REPAIRED = "repaired", "A wrong encoding damaged this text; it was repaired. Please check it."
    BAD_KEY = "bad_key", "The row's identifier cannot be used as it is."
    DUPLICATE_KEY = "duplicate_key", "Another row of the same file has the same identifier and different content."
    NO_DAY = "no_day", "The row is a recurring event without a single day."
    BAD_SERIES = "bad_series", "It cannot be computed when this event happens."
    TOO_MANY = "too_many", "The row makes more events than agreed."
    UNEVEN = "uneven", "The lists of this row belong together and differ in length."
    TWIN = "twin", "An event with the same channel, title, start and place is already known under another identifier."
    RAGGED = "ragged", "The row does not have as many cells as the header has columns."
    UNDECODABLE = "undecodable", "The cell holds bytes that are not text in the agreed encoding."
    ASSERTION = "assertion", "The row breaks a rule agreed for this feed."
    IMAGE = "image", "The image cannot be used."
    INTERNAL_ERROR = "internal_error", "A fault of our program stopped this row. Nothing is known to be wrong with the row."


class Detail(StrEnum):
    """The sentence to show for a refused value if its code alone is too general."""

    UNUSABLE = "unusable"
    NO_DATE = "no_date"
    NO_SUCH_DAY = "no_such_day"
    WRONG_WEEKDAY = "wrong_weekday"
    WRONG_YEAR = "wrong_year"
    BUDDHIST_YEAR = "buddhist_year"
    ENDS_FIRST = "ends_first"
    SEVERAL_RANGES = "several_ranges"
    NO_TIME = "no_time"
    MIDNIGHT = "midnight"
    NO_HALF = "no_half"
    NEAR_LOOKUP = "near_lookup"
    SOME_OF_LOOKUP = "some_of_lookup"
    NOT_OUR_HOST = "not_our_host"
    NO_MAILBOX = "no_mailbox"
    TOO_SHORT = "too_short"
    OWN_RULE = "own_rule"
    CUT_OFF = "cut_off"


Particular = str | int | tuple[str, ...]
"""A value in a sentence for the partner's editor: a word, an ISO date, a number, or several words."""
REASON_TEXTS: Mapping[ReasonCode, str] = {code: code.sentence for code in ReasonCode}


@dataclass(frozen=True, slots=True)
class Reason:
    """One problem of one row, for the person who can correct it.

    `field`: the path in the event (`startAt`, `offers[0].url`), "" for the whole row. `column`: the source's own column name,
    "" if there is none. `found`: the cell as it is in the source. `step`: the step that refused it, "" if none did. `hint`:
    what to do, for the mapping's author, with the nearest known value if one is near. `detail`, `particulars`: choose and fill
    the sentence for the partner's editor. `value`: the refused part of the cell, or what steps made of it, if it differs from
    the cell, else "".
    """

    code: ReasonCode
    field: str
    column: str
    found: str
    hint: str
    step: str = ""
    detail: Detail | ReasonCode | None = None
    particulars: Mapping[str, Particular] = _field(default_factory=dict, hash=False)
    value: str = ""

    def in_cells(self, cells: Mapping[str, str]) -> Reason:
        """Return the reason with the cell as it is in the row, before any steps."""
        cell = cells.get(self.column, "")
        found = _showable(cell)
        if found == self.found or not found.strip():
            return self
        is_same = unicodedata.normalize("NFC", found).strip() == self.found.strip()
        return replace(self, found=found, value="" if is_same else self.found)


class Refusal(Exception):  # noqa: N818 - it is an answer about one row, not an error of ours
    """Raised for an unusable value; `column`, `found` and `step` are filled in once they are known."""

    def __init__(  # noqa: PLR0913 - the parts of a reason
        self,
        code: ReasonCode,
        hint: str = "",
        *,
        column: str = "",
        found: str = "",
        step: str = "",
        detail: Detail | ReasonCode | None = None,
        particulars: Mapping[str, Particular] | None = None,
    ) -> None:
        super().__init__(code)
        self.code = code
        self.hint = hint
        self.column = column
        self.found = found
        self.step = step
        self.detail = detail
        self.particulars = particulars or {}
        self.is_final = False
        """Whether the author chose to reject the row, so that no outer policy applies."""

    @property
    def is_empty(self) -> bool:
        """Whether the value is missing, rather than unusable."""
        return self.code is ReasonCode.REQUIRED

    def about(self, column: str, found: str, step: str) -> Refusal:
        """Return the refusal with the place filled in, where the raiser left it open."""
        places = {"column": self.column or column, "found": self.found or found, "step": self.step or step}
        filled = Refusal(self.code, self.hint, detail=self.detail, particulars=self.particulars, **places)
        filled.is_final = self.is_final
        return filled

    def as_final(self) -> Refusal:
        """Return the refusal as final: no outer policy may replace it."""
        final = self.about("", "", "")
        final.is_final = True
        return final

    def reason(self, field: str) -> Reason:
        """Return the reason for a field of the event."""
        particulars = {name: _showable(one) if isinstance(one, str) else one for name, one in self.particulars.items()}
        return Reason(self.code, field, self.column, _showable(self.found), self.hint, self.step, self.detail, particulars)


def wrong_length(text: str, *, least: int = 0, most: int | None = None) -> Refusal:
    """Return the refusal of a text that has fewer than `least` or more than `most` characters."""
    is_short = len(text) < least
    hint = f"{f'at least {least}' if is_short else f'at most {most}'} characters are allowed, and there are {len(text)}"
    particulars: dict[str, Particular] = {"length": len(text), "least": least}
    if most is not None:
        particulars["most"] = most
    code, detail = (ReasonCode.BAD_TEXT, Detail.TOO_SHORT) if is_short else (ReasonCode.TOO_LONG, None)
    return Refusal(code, hint, detail=detail, particulars=particulars)


class Repair(Refusal):
    """A damaged value that was repaired and is used; its row is counted and shown."""

    def __init__(self, value: Any, hint: str) -> None:
        super().__init__(ReasonCode.REPAIRED, hint)
        self.value = value


def _showable(found: str) -> str:
    """Return a raw value shortened for storage and display, with valid Unicode only."""
    if not found.isascii():
        found = found.encode("utf-8", "replace").decode()
    return found if len(found) <= _LONGEST_SHOWN else found[:_LONGEST_SHOWN] + "…"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word most similar to `word`, "" if none is similar.

    Whole words are compared first; only then does a known word count that contains it (`Lisbon`, `Europe/Lisbon`).
    """
    words = list(known)
    if alike := resembling(word, words, 60):
        return alike
    match = process.extractOne(word, words, scorer=fuzz.WRatio, score_cutoff=85, processor=str.casefold)
    return match[0] if match else ""


def resembling(word: str, known: Iterable[str], least: float) -> str:
    """Return the known word most similar to `word` as a whole, "" if none is similar by `least` of 100."""
    match = process.extractOne(word, list(known), scorer=fuzz.ratio, score_cutoff=least, processor=str.casefold)
    return match[0] if match else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean "x"?` for the nearest known word, or ""."""
    near = nearest(word, known)
    return f'did you mean "{near}"?' if near else ""
