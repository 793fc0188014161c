"""Steps on lists: split, take, join, sort."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from mappings.lookup_table import normaliser
from mappings.measures import Text, Texts, mistake
from mappings.refusals import ReasonCode, Refusal
from mappings.steps.step import Family, Kind, PureStep, Run, plain_step
from mappings.steps.text import SPACES, Span, text_of

_without_accents = normaliser(("accents", "case"))


class Split(PureStep, name="split", family=Family.LISTS, gives=Kind.LIST, refuses=False):
    """Cut a text at every separator; the parts are trimmed, empty ones are dropped unless they keep other lists in step.

    Examples:
        {split: ","}: "jazz, blues,," -> ["jazz", "blues"]
        {split: ["/", ";"]}: "a/b;c" -> ["a", "b", "c"]
        {split: ";", keep_empty: true}: "5 €;;8 €" -> ["5 €", "", "8 €"]
    """

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


class Nth(PureStep, name="nth", family=Family.LISTS, takes=Kind.LIST, gives=Kind.ANY):
    """Take one part of a list, counted from 1; from the end with -1. Refuses a list without it.

    Examples:
        {nth: 2}: ["Porto", "Lisboa"] -> "Lisboa"
        {nth: 3}: ["Porto", "Lisboa"] -> bad_text
    """

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


@plain_step("first", Family.LISTS, takes=Kind.LIST, gives=Kind.ANY, refuses=False)
def first(parts: list[Any]) -> Any:
    """Take the first part of a list; an empty list gives an empty value.

    Examples:
        first: ["Porto", "Lisboa"] -> "Porto"
    """
    return parts[0] if parts else ""


@plain_step("last", Family.LISTS, takes=Kind.LIST, gives=Kind.ANY, refuses=False)
def last(parts: list[Any]) -> Any:
    """Take the last part of a list; an empty list gives an empty value.

    Examples:
        last: ["Porto", "Lisboa"] -> "Lisboa"
    """
    return parts[-1] if parts else ""


class JoinParts(PureStep, name="join", family=Family.LISTS, takes=Kind.LIST, refuses=False):
    """Put the parts of a list together, with a text between them.

    Examples:
        {join: ", "}: ["Porto", "Lisboa"] -> "Porto, Lisboa"
    """

    separator: Text = Field(alias="join", description="What stands between the parts.")

    def function(self) -> Run:
        join = self.separator.join
        return lambda parts: join([part if type(part) is str else text_of(part) for part in parts])


class Slice(Span, name="slice", family=Family.LISTS, takes=Kind.LIST, gives=Kind.LIST, refuses=False):
    """Keep only some parts of a list, counted from 1; negative numbers count from the end.

    Examples:
        {slice: 2}: ["Portugal", "Porto", "Bolhão"] -> ["Porto", "Bolhão"]
        {slice: 1, to: 2}: ["Portugal", "Porto", "Bolhão"] -> ["Portugal", "Porto"]
    """

    first: int = Field(alias="slice", ge=-1000, le=1000, description="The first part to keep; -1 is the last.")
    last: int | None = Field(default=None, alias="to", ge=-1000, le=1000, description="The last one (default: the end).")


@plain_step("count", Family.LISTS, takes=Kind.LIST, gives=Kind.NUMBER, refuses=False)
def count(parts: list[Any]) -> int:
    """Count the parts of a list.

    Examples:
        count: ["Porto", "Lisboa"] -> "2"
    """
    return len(parts)


@plain_step("sort", Family.LISTS, takes=Kind.LIST, gives=Kind.LIST, refuses=False)
def sort(parts: list[Any]) -> list[Any]:
    """Put the parts of a list in order; capitals and accents do not count.

    Examples:
        sort: ["Porto", "Évora", "lisboa"] -> ["Évora", "lisboa", "Porto"]
    """
    return sorted(parts, key=lambda part: (_without_accents(text_of(part)), text_of(part)))


@plain_step("unique", Family.LISTS, takes=Kind.LIST, gives=Kind.LIST, refuses=False)
def unique(parts: list[Any]) -> list[Any]:
    """Drop the parts that already stand earlier in the list.

    Examples:
        unique: ["jazz", "blues", "jazz"] -> ["jazz", "blues"]
    """
    if all(type(part) is str for part in parts):
        return list(dict.fromkeys(parts))
    return [part for place, part in enumerate(parts) if part not in parts[:place]]
