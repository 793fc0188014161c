"""The steps that look for regular expressions (RE2) in a text."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from mappings.measures import Pattern, Text, mistake
from mappings.patterns import compile_pattern
from mappings.refusals import ReasonCode, Refusal
from mappings.steps.step import Kind, Run, Step, StepExample
from mappings.steps.text import SPACES

LONGEST = 20_000


def _check_every(text: str) -> str:
    if compile_pattern(text).prefers_nothing:
        raise mistake(f'"{text}" finds nothing, again and again: *? and ?? take as little as they can', "write *, + or +?")
    return text


EveryPattern = Annotated[Pattern, AfterValidator(_check_every)]


class RegexExtract(Step, name="regex_extract"):
    """Keep what the pattern finds first: its first group, or all of it. Refuses a text without it."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample(r"{regex_extract: 'desde (\d+) €'}", "desde 15 €", "15"),
        StepExample(r"{regex_extract: '\d+'}", "grátis", ReasonCode.BAD_TEXT),
    )
    pattern: Pattern = Field(alias="regex_extract", description="A regular expression (RE2), searched anywhere.")
    group: int | None = Field(default=None, ge=0, description="The group to keep (default: the first, if there is one).")

    @model_validator(mode="after")
    def _check_group(self) -> Self:
        groups = compile_pattern(self.pattern).groups
        if self.group is not None and self.group > groups:
            raise mistake(f"there is no group {self.group} in the pattern", f"it has {groups}, and 0 is all that it finds")
        return self

    def function(self) -> Run:
        pattern = compile_pattern(self.pattern)
        group = min(1, pattern.groups) if self.group is None else self.group

        def extract(text: str) -> str:
            found = pattern.search(short_enough(text))
            if found is None:
                raise Refusal(ReasonCode.BAD_TEXT, f"a text that matches {self.pattern} would be accepted")
            return found.groups[group] or ""

        return extract


class RegexAll(Step, name="regex_all", gives=Kind.LIST):
    """Collect everything the pattern finds, as a list."""

    shown: ClassVar[tuple[StepExample, ...]] = (StepExample(r"{regex_all: '#(\w+)'}", "#jazz #blues", ("jazz", "blues")),)
    pattern: EveryPattern = Field(
        alias="regex_all", description="A regular expression (RE2); its first group is kept, or all of it."
    )

    def function(self) -> Run:
        pattern = compile_pattern(self.pattern)
        group = min(1, pattern.groups)

        def collect(text: str) -> list[str]:
            texts = (found.groups[group] for found in pattern.finditer(short_enough(text)))
            return [text for text in texts if text]

        return collect


class RegexSplit(Step, name="regex_split", gives=Kind.LIST):
    """Cut a text wherever the pattern finds something; the parts are trimmed, empty ones are dropped."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample(r"{regex_split: '\s+(?:e|y|and)\s+|,'}", "jazz, blues and fado", ("jazz", "blues", "fado")),
    )
    pattern: EveryPattern = Field(alias="regex_split", description="A regular expression (RE2): what stands between the parts.")

    def function(self) -> Run:
        pattern = compile_pattern(self.pattern)

        def split(text: str) -> list[str]:
            parts, start = [], 0
            for found in pattern.finditer(short_enough(text)):
                parts.append(text[start : found.start])
                start = found.end
            return [part for part in (part.strip(SPACES) for part in (*parts, text[start:])) if part]

        return split


class RegexReplace(Step, name="regex_replace"):
    r"""Replace every match of a pattern; `\1` is what its first group found."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample(r"{regex_replace: '\s*\(.*?\)', with: ''}", "Hamlet (premiere)", "Hamlet"),
    )
    pattern: EveryPattern = Field(alias="regex_replace", description="A regular expression (RE2).")
    new: Text = Field(default="", alias="with", description=r"What stands there instead; \1 is the first group.")

    @model_validator(mode="after")
    def _check_template(self) -> Self:
        try:
            compile_pattern(self.pattern).replacing(self.new)
        except (re.error, IndexError) as error:
            hint = r"\1 is what the first group of the pattern found, \\ a backslash"
            raise mistake(f'"{self.new}" cannot stand for a match: {error}', hint) from None
        return self

    def function(self) -> Run:
        replaced = compile_pattern(self.pattern).replacing(self.new)
        return lambda text: replaced(short_enough(text))


def short_enough(text: str) -> str:
    """Return the text itself.

    Raises:
        Refusal: it is longer than a pattern may look at.
    """
    if len(text) > LONGEST:
        raise Refusal(ReasonCode.TOO_LONG, f"at most {LONGEST} characters can be searched by a pattern")
    return text
