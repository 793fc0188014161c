"""Steps that pass between kinds: anything to a text, an object to one of its parts. Reading texts is the other families'."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal
from typing import Any, ClassVar

from pydantic import Field

from mappings.measures import Switch, Text
from mappings.refusals import Refusal
from mappings.transforms.step import Kind, Run, Shown, Step
from mappings.vocabulary import ReasonCode


class ToText(Step):
    """Write a number, a date, a time or yes and no as a text: plain digits with a point, ISO 8601, true and false."""

    name: ClassVar[str] = "to_text"
    takes: ClassVar[Kind] = Kind.ANY
    shown: ClassVar[tuple[Shown, ...]] = (Shown("to_text", "jazz", "jazz"),)
    switch: Switch = Field(default=True, alias="to_text")

    def function(self) -> Run:
        """Return the step's function."""
        return text_of


class Part(Step):
    """Take one part of what a lookup or a price has found."""

    name: ClassVar[str] = "part"
    refuses: ClassVar[bool] = False
    takes: ClassVar[Kind] = Kind.OBJECT
    gives: ClassVar[Kind] = Kind.UNKNOWN
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{part: zone}", "placeId: pt-lisboa, zone: Europe/Lisbon", "Europe/Lisbon"),
        Shown("{part: name}", "placeId: pt-lisboa", ""),
    )
    part: Text = Field(alias="part", min_length=1, description="The part's name: a column of the lookup, or a part of the price.")

    def function(self) -> Run:
        """Return the step's function."""
        part = self.part
        return lambda found: found.get(part, "")


def text_of(value: Any) -> str:
    """Return a value as a text that reads the same everywhere.

    Raises:
        Refusal: it is a list or an object, which have many texts.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case int():
            return str(value)
        case date() | time():
            return value.isoformat()
        case _:
            raise Refusal(ReasonCode.BAD_TEXT, "one text, number, date or time is needed here; `part` takes one of an object")
