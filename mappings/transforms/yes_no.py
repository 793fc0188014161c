"""The step that reads yes and no in the words of one feed. Which texts mean nothing at all is `text`'s."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from mappings.measures import OneOrMany, Texts, mistake
from mappings.refusals import Refusal
from mappings.strict import Strict
from mappings.tables import Ignorable, normaliser
from mappings.transforms.step import Kind, Run, Shown, Step
from mappings.vocabulary import ReasonCode


class YesNoWords(Strict):
    """The words for yes and for no."""

    yes: Texts = Field(alias="true", min_length=1, description='The texts that mean yes; "" is an empty cell.')
    no: Texts = Field(alias="false", min_length=1, description='The texts that mean no; "" is an empty cell.')


class YesNo(Step):
    """Read yes and no, in the words of the feed; any other text is refused."""

    name: ClassVar[str] = "boolean"
    gives: ClassVar[Kind] = Kind.BOOLEAN
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{boolean: {true: [sim, x], false: [nao, ""]}}', "x", "true"),
        Shown('{boolean: {true: [sim, x], false: [nao, ""]}}', "", "false"),
        Shown("{boolean: {true: sim, false: não}, ignore: [case, accents]}", "NAO", "false"),
        Shown("{boolean: {true: sim, false: não}}", "talvez", ReasonCode.NOT_IN_LOOKUP),
    )
    words: YesNoWords = Field(alias="boolean", description="`true` and `false`: the words for each.")
    ignore: Annotated[tuple[Ignorable, ...], OneOrMany()] = Field(default=(), description="Differences that do not count.")

    @model_validator(mode="after")
    def _check_apart(self) -> Self:
        same = normaliser(self.ignore)
        both = {same(word) for word in self.words.yes} & {same(word) for word in self.words.no}
        if both:
            raise mistake(f'"{min(both)}" cannot mean both yes and no', "take it out of one of the two lists")
        return self

    @property
    def works_on_empty(self) -> bool:
        """True where an empty cell is one of the words."""
        return "" in self.words.yes + self.words.no

    def function(self) -> Run:
        """Return the step's function."""
        same = normaliser(self.ignore)
        known = {same(word): True for word in self.words.yes} | {same(word): False for word in self.words.no}
        wanted = ", ".join(f'"{word}"' for word in (self.words.yes + self.words.no)[:8])

        def boolean(text: str) -> bool:
            answer = known.get(same(text))
            if answer is None:
                raise Refusal(ReasonCode.NOT_IN_LOOKUP, f"{wanted} would be accepted")
            return answer

        return boolean
