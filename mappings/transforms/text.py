"""Steps that tidy one text. What gives it another form is `shaping`'s, its capitals are `cases`', mark-up `markup`'s."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import Field

from mappings.measures import OneOrMany, Switch, Text, Texts
from mappings.tables import Ignorable, normaliser
from mappings.transforms.step import Run, Shown, Step

INVISIBLE = "\u200b\u200c\u2060\ufeff\u180e\u00ad"
_BLANKS = re.compile(rf"[\s{INVISIBLE}]+")
_LINES = re.compile(rf"(?<![ \t])[ \t]*+(?:\r\n|[\n\r\v\f\x85\u2028\u2029])[\s{INVISIBLE}]*")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + INVISIBLE
"""Every Unicode space, and the invisible characters that look like none."""


class Trim(Step):
    """Remove white space of every kind (also no-break and zero-width) from both ends."""

    name: ClassVar[str] = "trim"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown("trim", " \u00a0Jazz\u200b ", "Jazz"),)
    switch: Switch = Field(default=True, alias="trim")

    def function(self) -> Run:
        """Return the step's function."""
        return lambda text: text.strip(SPACES)


class Collapse(Step):
    """Turn every run of white space, line ends included, into one space, and trim."""

    name: ClassVar[str] = "collapse"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown("collapse", "Jazz \u00a0 &\n blues ", "Jazz & blues"),)
    switch: Switch = Field(default=True, alias="collapse")

    def function(self) -> Run:
        """Return the step's function."""
        return collapse


def collapse(text: str) -> str:
    """Turn every run of white space into one space, and trim."""
    if text.isprintable() and "  " not in text:  # then a single space is all the white space there is
        return text.strip(" ")
    if text.isascii():
        return " ".join(text.split())
    return _BLANKS.sub(" ", text).strip()


class Newlines(Step):
    """Replace every line end (with the space around it) by a text."""

    name: ClassVar[str] = "newlines"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown('{newlines: ", "}', "Rua A\r\nLisboa\n", "Rua A, Lisboa"),)
    by: Text = Field(alias="newlines", description="What stands between the lines instead.")

    def function(self) -> Run:
        """Return the step's function."""
        by = self.by.replace("\\", "\\\\")
        return lambda text: _LINES.sub(by, text.strip(SPACES))


class StripPrefix(Step):
    """Remove the first of these texts that the value begins with."""

    name: ClassVar[str] = "strip_prefix"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown('{strip_prefix: ["Local: ", "Sala: "]}', "Sala: Azul", "Azul"),)
    prefixes: Texts = Field(alias="strip_prefix", description="The beginnings to remove.")

    def function(self) -> Run:
        """Return the step's function."""
        prefixes = self.prefixes

        def strip_prefix(text: str) -> str:
            return next((text.removeprefix(prefix) for prefix in prefixes if text.startswith(prefix)), text)

        return strip_prefix


class StripSuffix(Step):
    """Remove the first of these texts that the value ends with."""

    name: ClassVar[str] = "strip_suffix"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown('{strip_suffix: " (repeat)"}', "Hamlet (repeat)", "Hamlet"),)
    suffixes: Texts = Field(alias="strip_suffix", description="The endings to remove.")

    def function(self) -> Run:
        """Return the step's function."""
        suffixes = self.suffixes

        def strip_suffix(text: str) -> str:
            return next((text.removesuffix(suffix) for suffix in suffixes if text.endswith(suffix)), text)

        return strip_suffix


class Replace(Step):
    """Replace every occurrence of a text by another."""

    name: ClassVar[str] = "replace"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown("{replace: ' - ', with: ' – '}", "Hamlet - premiere", "Hamlet – premiere"),)
    old: Text = Field(alias="replace", min_length=1, description="The text to look for, taken literally.")
    new: Text = Field(default="", alias="with", description="What stands there instead (default: nothing).")

    def function(self) -> Run:
        """Return the step's function."""
        old, new = self.old, self.new
        return lambda text: text.replace(old, new)


class StripControl(Step):
    """Remove control characters, except tab and line ends."""

    name: ClassVar[str] = "strip_control"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown("strip_control", "Ja\u0007zz", "Jazz"),)
    switch: Switch = Field(default=True, alias="strip_control")

    def function(self) -> Run:
        """Return the step's function."""
        return lambda text: _CONTROLS.sub("", text)


class Truncate(Step):
    """Shorten to at most so many characters, at a word's end where there is one, with an ellipsis."""

    name: ClassVar[str] = "truncate"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{truncate: 14}", "Jazz and the blues", "Jazz and the…"),
        Shown("{truncate: 40}", "Jazz and the blues", "Jazz and the blues"),
    )
    length: int = Field(alias="truncate", ge=2, le=100_000, description="The most characters, the ellipsis included.")
    ellipsis: Text = Field(default="…", max_length=10, description="What marks the cut.")

    def function(self) -> Run:
        """Return the step's function."""
        length, ellipsis = self.length, self.ellipsis

        def truncate(text: str) -> str:
            if len(text) <= length:
                return text
            head = text[: max(length - len(ellipsis), 0) + 1]
            whole_words = head.rsplit(None, 1)[0] if len(head.split()) > 1 else head[:-1]
            return (whole_words.rstrip(" ,;:-–") + ellipsis)[:length]

        return truncate


class Default(Step):
    """Use this text where the value is empty by now."""

    name: ClassVar[str] = "default"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown("{default: Bilhetes}", "", "Bilhetes"), Shown("{default: x}", "5 €", "5 €"))
    text: Text = Field(alias="default", min_length=1, description="The text to use.")

    def function(self) -> Run:
        """Return the step's function."""
        fallback = self.text
        return lambda text: fallback if not text or text.isspace() else text

    @property
    def works_on_empty(self) -> bool:
        """It is the one step meant for empty values."""
        return True


class EmptyIf(Step):
    """Take these texts for an empty value: how this partner writes that there is nothing."""

    name: ClassVar[str] = "empty_if"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{empty_if: [NA, "-"]}', " - ", ""),
        Shown("{empty_if: n/a, ignore: [case]}", "N/A", ""),
        Shown("{empty_if: NA}", "NA ja", "NA ja"),
    )
    texts: Texts = Field(alias="empty_if", min_length=1, description="The texts that mean nothing.")
    ignore: Annotated[tuple[Ignorable, ...], OneOrMany()] = Field(default=(), description="Differences that do not count.")

    def function(self) -> Run:
        """Return the step's function."""
        same = normaliser(self.ignore)
        empty = frozenset(map(same, self.texts))
        return lambda text: "" if same(text) in empty else text
