"""Steps on lists, and steps that give a text another form: split, join, slice, truncate, default, length."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from mappings.lookup_table import normaliser
from mappings.measures import Switch, Text, Texts, mistake
from mappings.refusals import ReasonCode, Refusal
from mappings.steps.step import Kind, Run, Step, StepExample
from mappings.steps.text import SPACES, text_of
from mappings.strict import Strict

_MOST = 100_000


class Prefix(Step, name="prefix", refuses=False):
    """Put a text before the value, unless it begins with it already."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{prefix: "Sala "}', "Azul", "Sala Azul"),
        StepExample('{prefix: "#"}', "#jazz", "#jazz"),
    )
    text: Text = Field(alias="prefix", min_length=1, description="What the value begins with afterwards.")

    def function(self) -> Run:
        text = self.text
        return lambda value: value if value.startswith(text) else text + value


class Suffix(Step, name="suffix", refuses=False):
    """Put a text after the value, unless it ends with it already."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample('{suffix: " (repeat)"}', "Hamlet", "Hamlet (repeat)"),)
    text: Text = Field(alias="suffix", min_length=1, description="What the value ends with afterwards.")

    def function(self) -> Run:
        text = self.text
        return lambda value: value if value.endswith(text) else value + text


class Pad(Step, name="pad", refuses=False):
    """Fill a text up to so many characters, from the left: the zeros that a spreadsheet has taken off an identifier."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{pad: 5}", "2134", "02134"),
        StepExample('{pad: 4, with: "."}', "ab", "..ab"),
        StepExample("{pad: 3}", "1234", "1234"),
    )
    length: int = Field(alias="pad", ge=1, le=1000, description="How many characters there are afterwards, at least.")
    filler: Text = Field(default="0", alias="with", min_length=1, max_length=1, description="The character that fills up.")

    def function(self) -> Run:
        length, filler = self.length, self.filler
        return lambda text: text.rjust(length, filler)


class Characters(Step, name="characters", refuses=False):
    """Keep only some of a text's characters, counted from 1; negative numbers count from the end."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{characters: 1, to: 10}", "2026-07-01T18:00:00", "2026-07-01"),
        StepExample("{characters: -4}", "Ref. 2026", "2026"),
        StepExample("{characters: 5}", "Jazz", ""),
    )
    first: int = Field(alias="characters", ge=-_MOST, le=_MOST, description="The first character to keep; -1 is the last.")
    last: int | None = Field(default=None, alias="to", ge=-_MOST, le=_MOST, description="The last one (default: the end).")

    @model_validator(mode="after")
    def _check_span(self) -> Self:
        check_span(self.first, self.last)
        return self

    def function(self) -> Run:
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
            message = f"no text has at least {self.at_least} and at most {self.at_most} characters"
            raise mistake(message, f"exchange them: {{at_least: {self.at_most}, at_most: {self.at_least}}}")
        return self


class Length(Step, name="length"):
    """Refuse a text that is shorter or longer than agreed; `truncate` shortens instead."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{length: {at_least: 3, at_most: 80}}", "Jazz", "Jazz"),
        StepExample("{length: {at_least: 3}}", "x", ReasonCode.BAD_TEXT),
        StepExample("{length: {at_most: 5}}", "Jazz and the blues", ReasonCode.TOO_LONG),
    )
    bounds: Bounds = Field(alias="length", description="`at_least` and `at_most`, in characters.")

    def function(self) -> Run:
        least, most = self.bounds.at_least, self.bounds.at_most

        def length(text: str) -> str:
            if least <= len(text) <= most:
                return text
            wanted = f"at least {least} characters" if len(text) < least else f"at most {most} characters"
            code = ReasonCode.BAD_TEXT if len(text) < least else ReasonCode.TOO_LONG
            raise Refusal(code, f"{wanted} would be accepted, and there are {len(text)}")

        return length


class Split(Step, name="split", gives=Kind.LIST, refuses=False):
    """Cut a text at every separator; the parts are trimmed, empty ones are dropped unless they keep other lists in step."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{split: ","}', "jazz, blues,,", ("jazz", "blues")),
        StepExample('{split: ["/", ";"]}', "a/b;c", ("a", "b", "c")),
        StepExample('{split: ";", keep_empty: true}', "5 €;;8 €", ("5 €", "", "8 €")),
    )
    separators: Texts = Field(alias="split", min_length=1, description="One separator or several, taken literally.")
    keep_empty: bool = Field(default=False, description="Keep empty parts too: their places count (see for_each).")

    @field_validator("separators")
    @classmethod
    def _check_separators(cls, separators: tuple[str, ...]) -> tuple[str, ...]:
        if "" in separators:
            raise mistake("a separator is empty", "write the sign that stands between the parts")
        return separators

    def function(self) -> Run:
        first, *others = self.separators
        keeps = self.keep_empty

        def split(text: str) -> list[str]:
            for other in others:
                text = text.replace(other, first)
            return [part for part in (part.strip(SPACES) for part in text.split(first)) if part or keeps]

        return split


class Nth(Step, name="nth", takes=Kind.LIST, gives=Kind.ANY):
    """Take one part of a list, counted from 1; from the end with -1. Refuses a list without it."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{nth: 2}", ("Porto", "Lisboa"), "Lisboa"),
        StepExample("{nth: 3}", ("Porto", "Lisboa"), ReasonCode.BAD_TEXT),
    )
    position: int = Field(alias="nth", ge=-1000, le=1000, description="Which part: 1 is the first, -1 the last.")

    @field_validator("position")
    @classmethod
    def _check_position(cls, position: int) -> int:
        if position == 0:
            raise mistake("there is no part 0", "1 is the first part, -1 the last")
        return position

    def function(self) -> Run:
        position = self.position
        place = position - 1 if position > 0 else position

        def nth(parts: list[str]) -> str:
            try:
                return parts[place]
            except IndexError:
                raise Refusal(ReasonCode.BAD_TEXT, f"part {position} is asked for, and there are {len(parts)}") from None

        return nth


class First(Step, name="first", takes=Kind.LIST, gives=Kind.ANY, refuses=False):
    """Take the first part of a list; an empty list gives an empty value."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample("first", ("Porto", "Lisboa"), "Porto"),)
    switch: Switch = Field(default=True, alias="first")

    def function(self) -> Run:
        return lambda parts: parts[0] if parts else ""


class Last(Step, name="last", takes=Kind.LIST, gives=Kind.ANY, refuses=False):
    """Take the last part of a list; an empty list gives an empty value."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample("last", ("Porto", "Lisboa"), "Lisboa"),)
    switch: Switch = Field(default=True, alias="last")

    def function(self) -> Run:
        return lambda parts: parts[-1] if parts else ""


class JoinParts(Step, name="join", takes=Kind.LIST, refuses=False):
    """Put the parts of a list together, with a text between them."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample('{join: ", "}', ("Porto", "Lisboa"), "Porto, Lisboa"),)
    separator: Text = Field(alias="join", description="What stands between the parts.")

    def function(self) -> Run:
        join = self.separator.join
        return lambda parts: join([part if type(part) is str else text_of(part) for part in parts])


class Slice(Step, name="slice", takes=Kind.LIST, gives=Kind.LIST, refuses=False):
    """Keep only some parts of a list, counted from 1; negative numbers count from the end."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{slice: 2}", ("Portugal", "Porto", "Bolhão"), ("Porto", "Bolhão")),
        StepExample("{slice: 1, to: 2}", ("Portugal", "Porto", "Bolhão"), ("Portugal", "Porto")),
    )
    first: int = Field(alias="slice", ge=-1000, le=1000, description="The first part to keep; -1 is the last.")
    last: int | None = Field(default=None, alias="to", ge=-1000, le=1000, description="The last one (default: the end).")

    @model_validator(mode="after")
    def _check_span(self) -> Self:
        check_span(self.first, self.last)
        return self

    def function(self) -> Run:
        span = span_of(self.first, self.last)
        return lambda parts: parts[span]


class Count(Step, name="count", takes=Kind.LIST, gives=Kind.NUMBER, refuses=False):
    """Count the parts of a list."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample("count", ("Porto", "Lisboa"), "2"),)
    switch: Switch = Field(default=True, alias="count")

    def function(self) -> Run:
        return len


class Sort(Step, name="sort", takes=Kind.LIST, gives=Kind.LIST, refuses=False):
    """Put the parts of a list in order; capitals and accents do not count."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample("sort", ("Porto", "Évora", "lisboa"), ("Évora", "lisboa", "Porto")),)
    switch: Switch = Field(default=True, alias="sort")

    def function(self) -> Run:
        same = normaliser(("accents", "case"))
        return lambda parts: sorted(parts, key=lambda part: (same(text_of(part)), text_of(part)))


class Unique(Step, name="unique", takes=Kind.LIST, gives=Kind.LIST, refuses=False):
    """Drop the parts that already stand earlier in the list."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample("unique", ("jazz", "blues", "jazz"), ("jazz", "blues")),)
    switch: Switch = Field(default=True, alias="unique")

    def function(self) -> Run:

        def unique(parts: list[Any]) -> list[Any]:
            if all(type(part) is str for part in parts):
                return list(dict.fromkeys(parts))
            return [part for place, part in enumerate(parts) if part not in parts[:place]]

        return unique
