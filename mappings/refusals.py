"""How a step, a value or a lookup says no to a row, before that becomes a `Reason`.

Raised and caught inside the mapper only: a bad row leaves it as a value, never as an exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rapidfuzz import fuzz, process

from mappings.vocabulary import Reason, ReasonCode

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
        told = Refusal(self.code, self.hint, column=self.column or column, found=self.found or found, step=self.step or step)
        told.is_final = self.is_final
        return told

    def reason(self, field: str) -> Reason:
        """The reason shown to people, for the event's `field`."""
        return Reason(self.code, field, self.column, _showable(self.found), self.hint, self.step)


class Repaired(Refusal):
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
