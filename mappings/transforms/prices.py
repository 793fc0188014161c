"""The step that reads a price as people write one: amounts, their currency, nothing to pay. Plain numbers are `numbers`'.

The words themselves are `price_words`'.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from mappings.measures import OneOrMany, Text, Texts, mistake
from mappings.refusals import did_you_mean
from mappings.transforms.price_reading import PriceReader, Quote, Sign
from mappings.transforms.price_words import CURRENCY_CODES
from mappings.transforms.step import Kind, Run, Shown, Step
from mappings.vocabulary import ReasonCode

PricePart = Literal["amount", "from", "to", "currency", "is_free", "is_donation"]
_MEMO = 4096
"""Prices kept once they are read: a file has few different ones."""
_KINDS = {"currency": Kind.TEXT, "is_free": Kind.BOOLEAN, "is_donation": Kind.BOOLEAN}


class Price(Step):
    """Read a price: one amount or a range, with its currency by sign, ISO code or word, or a word for nothing to pay.

    The parts are `amount` (where there is only one), `from`, `to`, `currency`, `is_free` and `is_donation`. Amounts count where
    a currency stands beside them; without any, the text must be a bare number or range. A sign that several currencies share
    ($, £, kr) is refused unless `currency` says which is meant.
    """

    name: ClassVar[str] = "price"
    gives: ClassVar[Kind] = Kind.OBJECT
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{price: ",", take: from}', "Entrada: 5 euros", "5"),
        Shown('{price: ",", take: [from, to, currency]}', "12,50 € / reduced 9 €", "from: 9, to: 12.50, currency: EUR"),
        Shown('{price: ".", currency: USD, take: [from, to, currency]}', "$5-$10", "from: 5, to: 10, currency: USD"),
        Shown('{price: ".", take: amount}', "$5", ReasonCode.NOT_A_NUMBER),
        Shown("{price: either, take: [amount, currency]}", "전석 20,000원", "amount: 20000, currency: KRW"),
        Shown("{price: either, take: amount, currency: EUR}", "1,250", ReasonCode.NOT_A_NUMBER),
        Shown('{price: ",", take: is_free}', "Entrada libre", "true"),
        Shown('{price: ","}', "donation", "is_free: false, is_donation: true"),
        Shown('{price: ","}', "1 kg de arroz", ReasonCode.NOT_A_NUMBER),
    )
    decimal_sign: Sign = Field(
        alias="price",
        description="The sign before the decimals; `either`: the one before one or two digits, and three digits are refused"
        " where they may be either.",
    )
    currency: Text | None = Field(default=None, description="The ISO code that is meant where the text does not say it for sure.")
    take: Annotated[tuple[PricePart, ...], OneOrMany()] | None = Field(
        default=None, min_length=1, description="The parts wanted (default: all that are there); several give an object."
    )
    free: Texts = Field(default=(), description="More words for nothing to pay, beside those of many languages that are known.")

    @field_validator("currency")
    @classmethod
    def _check_currency(cls, code: str | None) -> str | None:
        if code is not None and code not in CURRENCY_CODES:
            hint = did_you_mean(code.upper(), sorted(CURRENCY_CODES)) or "write it like EUR"
            raise mistake(f'"{code}" is not the ISO code of a currency', hint)
        return code

    @property
    def result(self) -> Kind:
        """An object, unless one part is taken."""
        if self.take is None or len(self.take) > 1:
            return Kind.OBJECT
        return _KINDS.get(self.take[0], Kind.NUMBER)

    def function(self) -> Run:
        """Return the step's function."""
        read = lru_cache(maxsize=_MEMO)(PriceReader(self.decimal_sign, self.currency, self.free).read)
        take = self.take
        if take is None:
            return lambda text: _parts(read(text))
        if len(take) == 1:
            (only,) = take
            return lambda text: _parts(read(text)).get(only, "")
        return lambda text: {name: part for name, part in _parts(read(text)).items() if name in take}


def _parts(quote: Quote) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if quote.least is not None and quote.least == quote.most:
        parts["amount"] = quote.least
    if quote.least is not None:
        parts["from"] = quote.least
    if quote.most is not None:
        parts["to"] = quote.most
    if quote.currency:
        parts["currency"] = quote.currency
    return parts | {"is_free": quote.is_free, "is_donation": quote.is_donation}
