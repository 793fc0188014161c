"""Steps that give one text another form: what is put around it, how much of it stays, how long it must be.

Tidying is `text`'s, single characters are `characters`'.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from mappings.measures import Text, mistake
from mappings.refusals import Refusal
from mappings.strict import Strict
from mappings.transforms.step import Run, Shown, Step
from mappings.vocabulary import ReasonCode

_MOST = 100_000


class Prefix(Step):
    """Put a text before the value, unless it begins with it already."""

    name: ClassVar[str] = "prefix"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{prefix: "Sala "}', "Azul", "Sala Azul"),
        Shown('{prefix: "#"}', "#jazz", "#jazz"),
    )
    text: Text = Field(alias="prefix", min_length=1, description="What the value begins with afterwards.")

    def function(self) -> Run:
        """Return the step's function."""
        text = self.text
        return lambda value: value if value.startswith(text) else text + value


class Suffix(Step):
    """Put a text after the value, unless it ends with it already."""

    name: ClassVar[str] = "suffix"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (Shown('{suffix: " (repeat)"}', "Hamlet", "Hamlet (repeat)"),)
    text: Text = Field(alias="suffix", min_length=1, description="What the value ends with afterwards.")

    def function(self) -> Run:
        """Return the step's function."""
        text = self.text
        return lambda value: value if value.endswith(text) else value + text


class Pad(Step):
    """Fill a text up to so many characters, from the left: the zeros that a spreadsheet has taken off an identifier."""

    name: ClassVar[str] = "pad"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{pad: 5}", "2134", "02134"),
        Shown('{pad: 4, with: "."}', "ab", "..ab"),
        Shown("{pad: 3}", "1234", "1234"),
    )
    length: int = Field(alias="pad", ge=1, le=1000, description="How many characters there are afterwards, at least.")
    filler: Text = Field(default="0", alias="with", min_length=1, max_length=1, description="The character that fills up.")

    def function(self) -> Run:
        """Return the step's function."""
        length, filler = self.length, self.filler
        return lambda text: text.rjust(length, filler)


class Characters(Step):
    """Keep only some of a text's characters, counted from 1; negative numbers count from the end."""

    name: ClassVar[str] = "characters"
    refuses: ClassVar[bool] = False
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{characters: 1, to: 10}", "2026-07-01T18:00:00", "2026-07-01"),
        Shown("{characters: -4}", "Ref. 2026", "2026"),
        Shown("{characters: 5}", "Jazz", ""),
    )
    first: int = Field(alias="characters", ge=-_MOST, le=_MOST, description="The first character to keep; -1 is the last.")
    last: int | None = Field(default=None, alias="to", ge=-_MOST, le=_MOST, description="The last one (default: the end).")

    @model_validator(mode="after")
    def _check_span(self) -> Self:
        check_span(self.first, self.last)
        return self

    def function(self) -> Run:
        """Return the step's function."""
        span = span_of(self.first, self.last)
        return lambda text: text[span]


def check_span(first: int, last: int | None) -> None:
    """Check that a span counts from 1, or from -1 at the end.

    Raises:
        PydanticCustomError: it names a place 0.
    """
    if 0 in (first, last):
        raise mistake("there is no place 0", "1 is the first, -1 the last")


def span_of(first: int, last: int | None) -> slice:
    """Return the slice from one place to another, both included."""
    start = first - 1 if first > 0 else first
    if last is None or last == -1:
        return slice(start, None)
    return slice(start, last if last > 0 else last + 1)


class Bounds(Strict):
    """How long a text may be, in characters."""

    at_least: int = Field(default=0, ge=0, le=_MOST, description="The fewest characters.")
    at_most: int = Field(default=_MOST, ge=0, le=_MOST, description="The most characters.")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.at_least > self.at_most:
            told = f"no text has at least {self.at_least} and at most {self.at_most} characters"
            raise mistake(told, f"exchange them: {{at_least: {self.at_most}, at_most: {self.at_least}}}")
        return self


class Length(Step):
    """Refuse a text that is shorter or longer than agreed; `truncate` shortens instead."""

    name: ClassVar[str] = "length"
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{length: {at_least: 3, at_most: 80}}", "Jazz", "Jazz"),
        Shown("{length: {at_least: 3}}", "x", ReasonCode.BAD_TEXT),
        Shown("{length: {at_most: 5}}", "Jazz and the blues", ReasonCode.TOO_LONG),
    )
    bounds: Bounds = Field(alias="length", description="`at_least` and `at_most`, in characters.")

    def function(self) -> Run:
        """Return the step's function."""
        least, most = self.bounds.at_least, self.bounds.at_most

        def length(text: str) -> str:
            if least <= len(text) <= most:
                return text
            wanted = f"at least {least} characters" if len(text) < least else f"at most {most} characters"
            code = ReasonCode.BAD_TEXT if len(text) < least else ReasonCode.TOO_LONG
            raise Refusal(code, f"{wanted} would be accepted, and there are {len(text)}")

        return length
