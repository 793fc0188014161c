"""Steps on lists: split, take, join, sort."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from pydantic import AliasChoices, Field, field_validator

from mappings.lookup_table import SPACES, normaliser
from mappings.patterns import PatternError, compile_pattern
from mappings.reasons import ReasonCode, Refusal
from mappings.steps.step import Family, Kind, Run, Step, plain_step, short_enough, text_of
from mappings.strict import Pattern, Text, Texts, mistake

_without_accents = normaliser(("accents", "case"))


class Split(Step, name="split", family=Family.LISTS, gives=Kind.LIST, refuses=False):
    """Split a text at every separator. Parts are trimmed; empty ones are dropped unless `keep_empty` is set.

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
            raise mistake("a separator is empty", "write the character between the parts")
        return separators

    def apply(self, text: str) -> list[str]:
        first, *others = self.separators
        for other in others:
            text = text.replace(other, first)
        return [part for part in (part.strip(SPACES) for part in text.split(first)) if part or self.keep_empty]


class Nth(Step, name="nth", family=Family.LISTS, takes=Kind.LIST, gives=Kind.ANY):
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

    def apply(self, parts: list[Any]) -> Any:
        try:
            return parts[self.position - (self.position > 0)]
        except IndexError:
            raise Refusal(ReasonCode.BAD_TEXT, f"part {self.position} is asked for, and there are {len(parts)}") from None


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


class JoinParts(Step, name="join", family=Family.LISTS, takes=Kind.LIST, refuses=False):
    """Join the parts of a list with a separator.

    Examples:
        {join: ", "}: ["Porto", "Lisboa"] -> "Porto, Lisboa"
    """

    separator: Text = Field(alias="join", description="The separator.")

    def apply(self, parts: list[Any]) -> str:
        return self.separator.join([part if type(part) is str else text_of(part) for part in parts])


class Span(Step):
    """A step that keeps a span from one position to another, both included; 1 is the first, -1 the last."""

    first: int
    last: int | None

    def check(self) -> None:
        if 0 in (self.first, self.last):
            raise mistake("there is no place 0", "1 is the first, -1 the last")

    def function(self) -> Run:
        start = self.first - 1 if self.first > 0 else self.first
        end = self.last if self.last is None or self.last > 0 else self.last + 1
        return itemgetter(slice(start, end or None))


class Slice(Span, name="slice", family=Family.LISTS, takes=Kind.LIST, gives=Kind.LIST, refuses=False):
    """Keep only some parts of a list, counted from 1; negative numbers count from the end.

    Examples:
        {slice: 2}: ["Portugal", "Porto", "Bolhão"] -> ["Porto", "Bolhão"]
        {slice: 1, to: 2}: ["Portugal", "Porto", "Bolhão"] -> ["Portugal", "Porto"]
    """

    first: int = Field(alias="slice", ge=-1000, le=1000, description="The first part to keep; -1 is the last.")
    last: int | None = Field(default=None, alias="to", ge=-1000, le=1000, description="The last one (default: the end).")


class Characters(Span, name="characters", family=Family.TEXT, refuses=False):
    """Keep only some of a text's characters, counted from 1; negative numbers count from the end.

    Examples:
        {characters: 1, to: 10}: "2026-07-01T18:00:00" -> "2026-07-01"
        {characters: -4}: "Ref. 2026" -> "2026"
        {characters: 5}: "Jazz" -> ""
    """

    first: int = Field(alias="characters", ge=-100_000, le=100_000, description="The first character to keep; -1 is the last.")
    last: int | None = Field(default=None, alias="to", ge=-100_000, le=100_000, description="The last one (default: the end).")


@plain_step("count", Family.LISTS, takes=Kind.LIST, gives=Kind.NUMBER, refuses=False)
def count(parts: list[Any]) -> int:
    """Count the parts of a list.

    Examples:
        count: ["Porto", "Lisboa"] -> "2"
    """
    return len(parts)


@plain_step("sort", Family.LISTS, takes=Kind.LIST, gives=Kind.LIST, refuses=False)
def sort(parts: list[Any]) -> list[Any]:
    """Sort the parts of a list, ignoring case and accents.

    Examples:
        sort: ["Porto", "Évora", "lisboa"] -> ["Évora", "lisboa", "Porto"]
    """
    return sorted(parts, key=lambda part: (_without_accents(text_of(part)), text_of(part)))


@plain_step("unique", Family.LISTS, takes=Kind.LIST, gives=Kind.LIST, refuses=False)
def unique(parts: list[Any]) -> list[Any]:
    """Drop the parts that occur earlier in the list.

    Examples:
        unique: ["jazz", "blues", "jazz"] -> ["jazz", "blues"]
    """
    if all(type(part) is str for part in parts):
        return list(dict.fromkeys(parts))
    return [part for place, part in enumerate(parts) if part not in parts[:place]]


class RegexExtract(Step, name="regex_extract", family=Family.PATTERNS):
    r"""Keep the first match of the pattern: its first group, or all of it. Refuses a text without a match.

    Examples:
        {regex_extract: 'desde (\d+) €'}: "desde 15 €" -> "15"
        {regex_extract: '\d+'}: "grátis" -> bad_text
    """

    pattern: Pattern = Field(
        alias="regex_extract",
        validation_alias=AliasChoices("regex_extract", "extract"),
        description="A regular expression (RE2), searched anywhere.",
    )
    group: int | None = Field(default=None, ge=0, description="The group to keep (default: the first, if there is one).")

    def check(self) -> None:
        groups = compile_pattern(self.pattern).groups
        if self.group is not None and self.group > groups:
            raise mistake(f"there is no group {self.group} in the pattern", f"it has {groups}; 0 is the whole match")

    def function(self) -> Run:
        pattern = compile_pattern(self.pattern)
        group = min(1, pattern.groups) if self.group is None else self.group

        def extract(text: str) -> str:
            found = pattern.search(short_enough(text))
            if found is None:
                raise Refusal(ReasonCode.BAD_TEXT, f"expected a text that matches {self.pattern}")
            return found[group] or ""

        return extract


class RegexAll(Step, name="regex_all", family=Family.PATTERNS, gives=Kind.LIST):
    r"""Return all matches of the pattern as a list.

    Examples:
        {regex_all: '#(\w+)'}: "#jazz #blues" -> ["jazz", "blues"]
    """

    pattern: Pattern = Field(alias="regex_all", description="A regular expression (RE2); its first group is kept, or all of it.")

    def function(self) -> Run:
        pattern = compile_pattern(self.pattern)
        group = min(1, pattern.groups)

        def collect(text: str) -> list[str]:
            texts = (found[group] for found in pattern.finditer(short_enough(text)))
            return [text for text in texts if text]

        return collect


class RegexSplit(Step, name="regex_split", family=Family.PATTERNS, gives=Kind.LIST):
    r"""Split a text at every match of the pattern; the parts are trimmed, empty ones are dropped.

    Examples:
        {regex_split: '\s+(?:e|y|and)\s+|,'}: "jazz, blues and fado" -> ["jazz", "blues", "fado"]
    """

    pattern: Pattern = Field(alias="regex_split", description="A regular expression (RE2) that matches the separators.")

    def function(self) -> Run:
        pattern = compile_pattern(self.pattern)

        def split(text: str) -> list[str]:
            parts, start = [], 0
            for found in pattern.finditer(short_enough(text)):
                parts.append(text[start : found.start()])
                start = found.end()
            return [part for part in (part.strip(SPACES) for part in (*parts, text[start:])) if part]

        return split


class RegexReplace(Step, name="regex_replace", family=Family.PATTERNS):
    r"""Replace every match of a pattern; `\1` is the text of its first group.

    Examples:
        {regex_replace: '\s*\(.*?\)', with: ''}: "Hamlet (premiere)" -> "Hamlet"
    """

    pattern: Pattern = Field(alias="regex_replace", description="A regular expression (RE2).")
    new: Text = Field(default="", alias="with", description=r"The replacement; \1 is the first group.")

    def check(self) -> None:
        try:
            compile_pattern(self.pattern).replacing(self.new)
        except PatternError as error:
            raise mistake(f'"{self.new}" is not a valid replacement: {error}', error.hint) from None

    def function(self) -> Run:
        replaced = compile_pattern(self.pattern).replacing(self.new)
        return lambda text: replaced(short_enough(text))
