"""How a step, a value or a lookup says no to a row, before that becomes a `Reason`.

Raised and caught inside the mapper only: a bad row leaves it as a value, never as an exception.
"""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz import fuzz, process

from mappings.vocabulary import Reason, ReasonCode


class Refusal(Exception):  # noqa: N818 - it is an answer about one row, not an error of ours
    """Why a value could not be had; `column`, `found` and `step` are filled in where they are known."""

    def __init__(self, code: ReasonCode, hint: str = "", *, column: str = "", found: str = "", step: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.hint = hint
        self.column = column
        self.found = found
        self.step = step

    @property
    def is_empty(self) -> bool:
        """True where there was nothing to use, rather than something unusable."""
        return self.code is ReasonCode.REQUIRED

    def about(self, column: str, found: str, step: str) -> Refusal:
        """Fill in what the raiser could not know; what it did know stays."""
        return Refusal(self.code, self.hint, column=self.column or column, found=self.found or found, step=self.step or step)

    def reason(self, field: str) -> Reason:
        """The reason shown to people, for the event's `field`."""
        return Reason(self.code, field, self.column, self.found, self.hint, self.step)


def nearest(word: str, known: Iterable[str], *, at_least: float = 65) -> str:
    """Return the known word that looks most like `word`, or "" if none is near."""
    match = process.extractOne(word, list(known), scorer=fuzz.WRatio, score_cutoff=at_least, processor=str.casefold)
    return match[0] if match else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean "x"?` for the nearest known word, or ""."""
    near = nearest(word, known)
    return f'did you mean "{near}"?' if near else ""
