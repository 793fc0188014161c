"""Steps between one text and a list of texts: cut apart, choose among the parts, put together."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator

from mappings.measures import Switch, Text, Texts, mistake
from mappings.refusals import Refusal
from mappings.transforms.step import Kind, Run, Shown, Step
from mappings.transforms.text import SPACES
from mappings.vocabulary import ReasonCode


class Split(Step):
    """Cut a text at every separator; the parts are trimmed, empty ones are dropped."""

    name: ClassVar[str] = "split"
    gives: ClassVar[Kind] = Kind.LIST
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{split: ","}', "jazz, blues,,", ("jazz", "blues")),
        Shown('{split: ["/", ";"]}', "a/b;c", ("a", "b", "c")),
    )
    separators: Texts = Field(alias="split", min_length=1, description="One separator or several, taken literally.")

    def function(self) -> Run:
        """Return the step's function."""
        first, *others = self.separators

        def split(text: str) -> list[str]:
            for other in others:
                text = text.replace(other, first)
            return [part for part in (part.strip(SPACES) for part in text.split(first)) if part]

        return split


class Nth(Step):
    """Take one part of a list, counted from 1; from the end with -1. Refuses a list without it."""

    name: ClassVar[str] = "nth"
    takes: ClassVar[Kind] = Kind.LIST
    gives: ClassVar[Kind] = Kind.ANY
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{nth: 2}", ("Porto", "Lisboa"), "Lisboa"),
        Shown("{nth: 3}", ("Porto", "Lisboa"), ReasonCode.BAD_TEXT),
    )
    position: int = Field(alias="nth", ge=-1000, le=1000, description="Which part: 1 is the first, -1 the last.")

    @field_validator("position")
    @classmethod
    def _check_position(cls, position: int) -> int:
        if position == 0:
            raise mistake("there is no part 0", "1 is the first part, -1 the last")
        return position

    def function(self) -> Run:
        """Return the step's function."""
        position = self.position
        place = position - 1 if position > 0 else position

        def nth(parts: list[str]) -> str:
            try:
                return parts[place]
            except IndexError:
                raise Refusal(ReasonCode.BAD_TEXT, f"part {position} is asked for, and there are {len(parts)}") from None

        return nth


class First(Step):
    """Take the first part of a list; an empty list gives an empty value."""

    name: ClassVar[str] = "first"
    takes: ClassVar[Kind] = Kind.LIST
    gives: ClassVar[Kind] = Kind.ANY
    shown: ClassVar[tuple[Shown, ...]] = (Shown("first", ("Porto", "Lisboa"), "Porto"),)
    switch: Switch = Field(default=True, alias="first")

    def function(self) -> Run:
        """Return the step's function."""
        return lambda parts: parts[0] if parts else ""


class Last(Step):
    """Take the last part of a list; an empty list gives an empty value."""

    name: ClassVar[str] = "last"
    takes: ClassVar[Kind] = Kind.LIST
    gives: ClassVar[Kind] = Kind.ANY
    shown: ClassVar[tuple[Shown, ...]] = (Shown("last", ("Porto", "Lisboa"), "Lisboa"),)
    switch: Switch = Field(default=True, alias="last")

    def function(self) -> Run:
        """Return the step's function."""
        return lambda parts: parts[-1] if parts else ""


class Join(Step):
    """Put the parts of a list together, with a text between them."""

    name: ClassVar[str] = "join"
    takes: ClassVar[Kind] = Kind.LIST
    shown: ClassVar[tuple[Shown, ...]] = (Shown('{join: ", "}', ("Porto", "Lisboa"), "Porto, Lisboa"),)
    separator: Text = Field(alias="join", description="What stands between the parts.")

    def function(self) -> Run:
        """Return the step's function."""
        return self.separator.join


class Unique(Step):
    """Drop the parts that already stand earlier in the list."""

    name: ClassVar[str] = "unique"
    takes: ClassVar[Kind] = Kind.LIST
    gives: ClassVar[Kind] = Kind.LIST
    shown: ClassVar[tuple[Shown, ...]] = (Shown("unique", ("jazz", "blues", "jazz"), ("jazz", "blues")),)
    switch: Switch = Field(default=True, alias="unique")

    def function(self) -> Run:
        """Return the step's function."""
        return lambda parts: list(dict.fromkeys(parts))
