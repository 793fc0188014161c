"""Steps that read numbers as one language writes them, round them, and read yes and no."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from mappings.lookup_table import Ignorable, normaliser
from mappings.measures import OneOrMany, Texts, mistake
from mappings.refusals import ReasonCode, Refusal
from mappings.steps.step import Kind, Run, Shown, Step
from mappings.strict import Strict

_SHAPES = {
    ".": re.compile(r"[+-]?(?:\d{1,3}(?:[,\u00a0\u202f' ]\d{3})+|\d+)(?:\.\d+)?", re.ASCII),
    ",": re.compile(r"[+-]?(?:\d{1,3}(?:[.\u00a0\u202f' ]\d{3})+|\d+)(?:,\d+)?", re.ASCII),
}
_LONGEST = 40


class Number(Step, name="number", gives=Kind.NUMBER):
    """Read a number; the decimal sign is said, never guessed, and thousands may be grouped by the other sign or a space."""

    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{number: ","}', "1.250,50", "1250.50"),
        Shown('{number: "."}', "12,50", ReasonCode.NOT_A_NUMBER),
    )
    decimal_sign: Literal[".", ","] = Field(alias="number", description="The sign before the decimals.")

    def function(self) -> Run:
        shape, sign = _SHAPES[self.decimal_sign], self.decimal_sign

        def number(text: str) -> Decimal:
            text = text.strip()
            if len(text) > _LONGEST or not shape.fullmatch(text):
                raise Refusal(ReasonCode.NOT_A_NUMBER, f"a number like 1250{sign}50 would be accepted")
            whole, _, decimals = text.partition(sign)
            return (
                Decimal(re.sub(r"[^\d+-]", "", whole) + "." + (decimals or "0"))
                if decimals
                else Decimal(re.sub(r"[^\d+-]", "", whole))
            )

        return number


class Round(Step, name="round", takes=Kind.NUMBER, gives=Kind.NUMBER):
    """Round a number to so many decimals; halves go away from zero, as in commerce."""

    shown: ClassVar[tuple[Shown, ...]] = (Shown("{round: 0}", "12.50", "13"), Shown("{round: 2}", "12.344", "12.34"))
    decimals: int = Field(alias="round", ge=0, le=12, description="How many decimals stay.")

    def function(self) -> Run:
        unit = Decimal(1).scaleb(-self.decimals)

        def rounded(number: Decimal | int) -> Decimal:
            try:
                return Decimal(number).quantize(unit, rounding=ROUND_HALF_UP)
            except InvalidOperation:
                raise Refusal(ReasonCode.NOT_A_NUMBER, "a number of at most 15 digits would be accepted") from None

        return rounded


class YesNoWords(Strict):
    """The words for yes and for no."""

    yes: Texts = Field(alias="true", min_length=1, description='The texts that mean yes; "" is an empty cell.')
    no: Texts = Field(alias="false", min_length=1, description='The texts that mean no; "" is an empty cell.')


class YesNo(Step, name="boolean", gives=Kind.BOOLEAN):
    """Read yes and no, in the words of the feed; any other text is refused."""

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
        same = normaliser(self.ignore)
        known = {same(word): True for word in self.words.yes} | {same(word): False for word in self.words.no}
        wanted = ", ".join(f'"{word}"' for word in (self.words.yes + self.words.no)[:8])

        def boolean(text: str) -> bool:
            answer = known.get(same(text))
            if answer is None:
                raise Refusal(ReasonCode.NOT_IN_LOOKUP, f"{wanted} would be accepted")
            return answer

        return boolean
