"""Steps that read numbers as one language writes them, and round them. Prices are `prices`', yes and no `kinds`'."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import ClassVar, Literal

from pydantic import Field

from mappings.refusals import Refusal
from mappings.transforms.step import Kind, Run, Shown, Step
from mappings.vocabulary import ReasonCode

_SHAPES = {
    ".": re.compile(r"[+-]?(?:\d{1,3}(?:[,\u00a0\u202f' ]\d{3})+|\d+)(?:\.\d+)?", re.ASCII),
    ",": re.compile(r"[+-]?(?:\d{1,3}(?:[.\u00a0\u202f' ]\d{3})+|\d+)(?:,\d+)?", re.ASCII),
}
_LONGEST = 40


class Number(Step):
    """Read a number; the decimal sign is said, never guessed, and thousands may be grouped by the other sign or a space."""

    name: ClassVar[str] = "number"
    gives: ClassVar[Kind] = Kind.NUMBER
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{number: ","}', "1.250,50", "1250.50"),
        Shown('{number: "."}', "12,50", ReasonCode.NOT_A_NUMBER),
    )
    decimal_sign: Literal[".", ","] = Field(alias="number", description="The sign before the decimals.")

    def function(self) -> Run:
        """Return the step's function."""
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


class Round(Step):
    """Round a number to so many decimals; halves go away from zero, as in commerce."""

    name: ClassVar[str] = "round"
    takes: ClassVar[Kind] = Kind.NUMBER
    gives: ClassVar[Kind] = Kind.NUMBER
    shown: ClassVar[tuple[Shown, ...]] = (Shown("{round: 0}", "12.50", "13"), Shown("{round: 2}", "12.344", "12.34"))
    decimals: int = Field(alias="round", ge=0, le=12, description="How many decimals stay.")

    def function(self) -> Run:
        """Return the step's function."""
        unit = Decimal(1).scaleb(-self.decimals)

        def rounded(number: Decimal | int) -> Decimal:
            try:
                return Decimal(number).quantize(unit, rounding=ROUND_HALF_UP)
            except InvalidOperation:
                raise Refusal(ReasonCode.NOT_A_NUMBER, "a number of at most 15 digits would be accepted") from None

        return rounded
