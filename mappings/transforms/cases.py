"""Steps that choose between capitals and small letters. What else is done to a text is `text`'s and `shaping`'s."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Literal

from pydantic import Field

from mappings.measures import Switch
from mappings.transforms.step import Run, Shown, Step

Turkic = Literal["az", "tr"]
"""The languages whose letters i and ı are two, each with its own capital; all others share Unicode's rules."""

_TO_LOWER = str.maketrans({"I": "ı", "İ": "i"})
_TO_UPPER = str.maketrans({"i": "İ", "ı": "I"})
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_BEGINNING = re.compile(r"(?:^|[.!?…]\s)\W{0,5}[^\W\d_]")
_LOCALE = "Only for languages with a dotless i: tr or az."


class _Case(Step):
    """What the four share: the language, where it matters."""

    locale: Turkic | None = Field(default=None, description=_LOCALE)

    @property
    def _lower(self) -> Callable[[str], str]:
        return str.lower if self.locale is None else _turkic_lower

    @property
    def _upper(self) -> Callable[[str], str]:
        return str.upper if self.locale is None else _turkic_upper


class Lower(_Case):
    """Write in lower case."""

    name: ClassVar[str] = "lower"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("lower", "JAZZ", "jazz"),
        Shown("{lower: true, locale: tr}", "IŞIK", "ışık"),
    )
    switch: Switch = Field(default=True, alias="lower")

    def function(self) -> Run:
        """Return the step's function."""
        return self._lower


class Upper(_Case):
    """Write in upper case."""

    name: ClassVar[str] = "upper"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("upper", "jazz", "JAZZ"),
        Shown("{upper: true, locale: tr}", "izmir", "İZMİR"),
    )
    switch: Switch = Field(default=True, alias="upper")

    def function(self) -> Run:
        """Return the step's function."""
        return self._upper


class Title(_Case):
    """Begin every word with a capital, the rest in lower case; apostrophes do not begin a word."""

    name: ClassVar[str] = "title"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("title", "THE DEVIL'S VIOLIN", "The Devil's Violin"),
        Shown("{title: true, locale: tr}", "İSTANBUL ŞENLİĞİ", "İstanbul Şenliği"),
    )
    switch: Switch = Field(default=True, alias="title")

    def function(self) -> Run:
        """Return the step's function."""
        if self.locale is None:
            return lambda text: _WORD.sub(lambda word: word[0].capitalize(), text)
        return lambda text: _WORD.sub(lambda word: _turkic_upper(word[0][0]) + _turkic_lower(word[0][1:]), text)


class Sentence(_Case):
    """Begin every sentence with a capital, the rest in lower case: for texts that are written in capitals throughout."""

    name: ClassVar[str] = "sentence"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("sentence", "JAZZ AND BLUES. «LIVE» ON STAGE!", "Jazz and blues. «Live» on stage!"),
    )
    switch: Switch = Field(default=True, alias="sentence")

    def function(self) -> Run:
        """Return the step's function."""
        lower, upper = self._lower, self._upper
        return lambda text: _BEGINNING.sub(lambda found: upper(found[0]), lower(text))


def _turkic_lower(text: str) -> str:
    return text.translate(_TO_LOWER).lower()


def _turkic_upper(text: str) -> str:
    return text.translate(_TO_UPPER).upper()
