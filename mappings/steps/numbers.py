"""Steps that parse numbers, prices, and yes or no, in the notation of a language or feed.

Prices are parsed here because libraries parse only one amount, and guess the currency of a sign and the decimal sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import yaml
from babel.core import get_global
from pydantic import Field, field_validator

from mappings.lookup_table import SPACES, normaliser, plain
from mappings.reasons import Detail, ReasonCode, Refusal, did_you_mean
from mappings.steps.step import Family, Ignore, Kind, Run, Step
from mappings.strict import OneOrMany, Strict, Text, Texts, mistake

_SHAPES = {
    ".": re.compile(r"[+-]?(?:\d{1,3}(?:[,' ]\d{3})+|\d+)(?:\.\d+)?", re.ASCII),
    ",": re.compile(r"[+-]?(?:\d{1,3}(?:[.' ]\d{3})+|\d+)(?:,\d+)?", re.ASCII),
}
_LONGEST = 40


class Number(Step, name="number", family=Family.NUMBERS, gives=Kind.NUMBER):
    """Parse a number with the given decimal sign; thousands may be grouped by the other sign or a space.

    Examples:
        {number: ","}: "1.250,50" -> "1250.50"
        {number: "."}: "12,50" -> not_a_number
    """

    decimal_sign: Literal[".", ","] = Field(alias="number", description="The sign before the decimals.")

    def apply(self, text: str) -> Decimal:
        text = plain(text).strip(SPACES)
        if len(text) > _LONGEST or not _SHAPES[self.decimal_sign].fullmatch(text):
            example = f"1250{self.decimal_sign}50"
            raise Refusal(ReasonCode.NOT_A_NUMBER, f"expected a number like {example}", particulars={"example": example})
        whole, _, decimals = text.partition(self.decimal_sign)
        digits = re.sub(r"[^\d+-]", "", whole)
        return Decimal(f"{digits}.{decimals}" if decimals else digits)


class Round(Step, name="round", family=Family.NUMBERS, takes=Kind.NUMBER, gives=Kind.NUMBER):
    """Round a number to so many decimals; halves are rounded away from zero.

    Examples:
        {round: 0}: "12.50" -> "13"
        {round: 2}: "12.344" -> "12.34"
    """

    decimals: int = Field(alias="round", ge=0, le=12, description="How many decimals to keep.")

    def apply(self, number: Decimal | int) -> Decimal:
        try:
            return Decimal(number).quantize(Decimal(1).scaleb(-self.decimals), rounding=ROUND_HALF_UP)
        except InvalidOperation:
            raise Refusal(ReasonCode.NOT_A_NUMBER, "expected a number of at most 15 digits") from None


_USES = chain.from_iterable(get_global("territory_currencies").values())
CURRENCY_CODES = frozenset(code for code, _, end, is_tender in _USES if is_tender and not end) | {"SVC"}
"""ISO 4217 codes from the CLDR, without funds, metals and codes for testing."""
Sign = Literal[".", ",", "either"]
_LONGEST_PRICE = 2_000
_NUMBER = r"\d{1,9}(?:(?:[.,'’]|\s(?=\d{3}(?!\d)))\d{1,9}){0,4}(?:[.,][-–—]{1,2})?"
_AMOUNT = re.compile(r"(?P<whole>\d{1,3}(?P<group>[.,' ])\d{3}(?:(?P=group)\d{3})*|\d+)(?:(?P<sign>[.,])(?P<decimals>\d{1,2}))?")
_Token = tuple[str, str]
"""The kind of a token, by its group in the scanner, and its text."""


@cache
def _vocabulary() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the signs and words of prices by their meaning, each with its currency codes."""
    sections = yaml.load(Path(__file__).with_name("prices.yaml").read_text("utf-8"), yaml.BaseLoader)  # noqa: S506 - makes texts only
    by_codes = {name: section if isinstance(section, dict) else {"": section} for name, section in sections.items()}
    return {
        name: {word: tuple(codes.split()) for codes, words in section.items() for word in words.split(", ")}
        for name, section in by_codes.items()
    }


class _Number(NamedTuple):
    """A number in the text: the index of its token, its digits, and its currency sign or word ("" if none)."""

    place: int
    digits: str
    unit: str = ""


def _with_units(tokens: Sequence[_Token]) -> list[_Number]:
    """Assign to each number the currency directly before it, or else after it; each currency is used once.

    Both ends of a range share a single currency: `5 a 10 reais`, `EUR 5 - 10`.
    """
    used: set[int] = set()
    numbers: list[_Number] = []
    for place, (kind, text) in enumerate(tokens):
        if kind == "number":
            near = [one for one in (place - 1, place + 1) if 0 <= one < len(tokens) and one not in used]
            beside = [one for one in near if tokens[one][0] == "currency"][:1]
            used.update(beside)
            numbers.append(_Number(place, text, tokens[beside[0]][1] if beside else ""))
    for place in range(len(numbers) - 1):
        one, other = numbers[place], numbers[place + 1]
        between = {kind for kind, _ in tokens[one.place + 1 : other.place]}
        if between and between <= {"dash", "up_to"} and bool(one.unit) is not bool(other.unit):
            unit = one.unit or other.unit
            numbers[place], numbers[place + 1] = one._replace(unit=unit), other._replace(unit=unit)
    return numbers


def _read_amount(digits: str, sign: Sign, currency: str | None) -> Decimal:
    written = digits.rstrip(".,-–—").replace("’", "'")
    found = _AMOUNT.fullmatch(written)
    if found is None or (found["sign"] and (found["sign"] == found["group"] or sign not in ("either", found["sign"]))):
        raise _not_a_price(f"{digits} is not a number as prices are written: expected 1250, 12.50 or 12,50")
    group, whole = found["group"], re.sub(r"\D", "", found["whole"])
    if found["sign"]:
        return Decimal(f"{whole}.{found['decimals']}")
    may_be_decimals = written.count(group) == 1 if group and sign == "either" else group == sign
    if group in (".", ",") and may_be_decimals and currency not in _vocabulary()["whole_only"]:
        raise _not_a_price(f"{digits} may be two numbers: write it without the sign, or with two decimals")
    return Decimal(whole)


def _not_a_price(hint: str) -> Refusal:
    return Refusal(ReasonCode.NOT_A_NUMBER, hint)


@lru_cache(maxsize=64)
def _scanner(codes: frozenset[str], free: tuple[str, ...]) -> re.Pattern[str]:
    """Compile the pattern that splits a text into the tokens of a price; spaces and punctuation are ignored.

    All repetitions are bounded, except of single letters, so it runs in linear time.
    """
    known = _vocabulary()
    signs, words = _either(known["signs"]), _words(known["words"])
    return re.compile(
        rf"(?P<number>{_NUMBER})"
        rf"|(?P<free>{_words(free)})|(?P<donation>{_words(known['donation'])})|(?P<least>{_words(known['least'])})"
        rf"|(?P<currency>{signs}|{words}|(?<![^\W\d_])(?-i:{_either(codes)})(?![^\W\d_]))"
        rf"|(?P<up_to>{_words(known['up_to'])})"
        rf"|(?P<dash>[-–—~〜～/]|{_words(known['between'])})"
        r"|(?P<word>[^\W\d_]+|%)",
        re.IGNORECASE,
    )


def _either(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=lambda text: (-len(text), text))))


def _words(texts: Iterable[str]) -> str:
    return rf"(?<![^\W\d_])(?:{_either(texts)})(?![^\W\d_])"


PricePart = Literal["amount", "from", "to", "currency", "is_free", "is_donation"]
_KINDS = {"currency": Kind.TEXT, "is_free": Kind.BOOLEAN, "is_donation": Kind.BOOLEAN}


class Price(Step, name="price", family=Family.NUMBERS, gives=Kind.OBJECT):
    """Parse a price: one amount or a range, with its currency by sign, ISO code or word, or a word for free admission.

    The parts are `amount` (where there is only one), `from`, `to`, `currency`, `is_free` and `is_donation`. An amount needs
    a currency beside it; without any, the text must be a bare number or range. A sign that several currencies share
    ($, £, kr) is refused unless `currency` says which is meant.

    Examples:
        {price: ",", take: from}: "Entrada: 5 euros" -> "5"
        {price: ",", take: [from, to, currency]}: "12,50 € / reduced 9 €" -> "from: 9, to: 12.50, currency: EUR"
        {price: ".", currency: USD, take: [from, to, currency]}: "$5-$10" -> "from: 5, to: 10, currency: USD"
        {price: ".", take: amount}: "$5" -> not_a_number
        {price: either, take: [amount, currency]}: "전석 20,000원" -> "amount: 20000, currency: KRW"
        {price: either, take: amount, currency: EUR}: "1,250" -> not_a_number
        {price: ",", take: is_free}: "Entrada libre" -> "true"
        {price: ","}: "donation" -> "is_free: false, is_donation: true"
        {price: ","}: "1 kg de arroz" -> not_a_number
    """

    decimal_sign: Sign = Field(
        alias="price",
        description="The sign before the decimals; `either`: the one before one or two digits, and three digits are refused"
        " where they may be either.",
    )
    currency: Text | None = Field(
        default=None, description="The ISO code to use where the text has no currency or an ambiguous one."
    )
    take: Annotated[tuple[PricePart, ...], OneOrMany()] | None = Field(
        default=None, min_length=1, description="The parts wanted (default: all that are there); several give an object."
    )
    free: Texts = Field(default=(), description="More words for free admission, besides the built-in ones of many languages.")

    @field_validator("currency")
    @classmethod
    def _check_currency(cls, code: str | None) -> str | None:
        if code is not None and code not in CURRENCY_CODES:
            hint = did_you_mean(code.upper(), sorted(CURRENCY_CODES)) or "write it like EUR"
            raise mistake(f'"{code}" is not the ISO code of a currency', hint)
        return code

    @property
    def result(self) -> Kind:
        """An object, or the kind of the only part."""
        if self.take is None or len(self.take) > 1:
            return Kind.OBJECT
        return _KINDS.get(self.take[0], Kind.NUMBER)

    def function(self) -> Run:
        known = _vocabulary()
        scan = _scanner(CURRENCY_CODES - (known["words_too"].keys() - {self.currency}), (*known["free"], *self.free)).finditer
        take: tuple[str, ...] = self.take or get_args(PricePart)

        @lru_cache(maxsize=4096)  # a file has few different ones
        def parts(text: str) -> dict[str, Any]:
            if len(text) > _LONGEST_PRICE:
                raise Refusal(ReasonCode.TOO_LONG, f"expected a price of at most {_LONGEST_PRICE} characters")
            price = self._read([(str(found.lastgroup), found[0]) for found in scan(plain(text))])
            return {name: part for name, part in price.items() if part is not None and name in take}

        if len(take) == 1:
            return lambda text: parts(text).get(take[0], "")
        return lambda text: dict(parts(text))

    def _read(self, tokens: Sequence[_Token]) -> dict[PricePart, Any]:
        """Return the parts of a price; `from` or `to` is None if that end is open.

        Raises:
            Refusal: it is not a price, or ambiguous.
        """
        kinds = {kind for kind, _ in tokens}
        is_free, is_donation = "free" in kinds, "donation" in kinds
        numbers = self._amounts(tokens)
        least = most = Decimal(0) if is_free and not is_donation else None
        currency = None
        if numbers:
            near = {self._code_of(one.unit) if one.unit else self.currency or "" for one in numbers}
            if len(near) > 1:
                raise _not_a_price(f"expected one currency, not {', '.join(sorted(near))}")
            currency = near.pop() or None
            amounts = [_read_amount(one.digits, self.decimal_sign, currency) for one in numbers] + [Decimal(0)] * is_free
            least, most, is_free = min(amounts), max(amounts), not any(amounts)
        elif "number" in kinds or not (is_free or is_donation):
            found = " ".join(text for kind, text in tokens if kind == "number")
            why = f"{found} has no currency and is not alone: " if found else ""
            sign = "." if self.decimal_sign == "either" else self.decimal_sign
            raise _not_a_price(f"{why}expected a price like 12{sign}50 EUR, or a word for free admission")
        if len(numbers) == 1 and least == most:  # the word before a single amount may open it to one side
            before = next((kind for kind, _ in reversed(tokens[: numbers[0].place]) if kind != "currency"), "")
            least, most = None if before == "up_to" else least, None if before == "least" else most
        amount = least if least == most else None
        return {
            "amount": amount, "from": least, "to": most, "currency": currency, "is_free": is_free, "is_donation": is_donation
        }  # fmt: skip

    def _amounts(self, tokens: Sequence[_Token]) -> list[_Number]:
        """Return the numbers that are amounts: those with a currency, or a bare number or range if the text has nothing else."""
        numbers = _with_units(tokens)
        priced = [one for one in numbers if one.unit]
        if priced or not numbers:
            return priced
        is_alone = all(kind in ("number", "dash", "up_to", "least") for kind, _ in tokens)
        is_range = len(numbers) == 2 and numbers[1].place - numbers[0].place == 2
        return numbers if is_alone and self.currency and (len(numbers) == 1 or is_range) else []

    def _code_of(self, unit: str) -> str:
        small, known = unit.casefold(), _vocabulary()
        candidates = (unit,) if unit in CURRENCY_CODES else known["signs"].get(small) or known["words"][small]
        if len(candidates) == 1:
            return candidates[0]
        if self.currency in candidates:
            return self.currency
        some = ", ".join(candidates[:4])
        raise _not_a_price(f'"{unit}" may mean {some}: write its ISO code instead, or set `currency` in the mapping')


class YesNoWords(Strict):
    """The words for yes and for no."""

    yes: Texts = Field(alias="true", min_length=1, description='The texts that mean yes; "" is an empty cell.')
    no: Texts = Field(alias="false", min_length=1, description='The texts that mean no; "" is an empty cell.')


class YesNo(Step, name="boolean", family=Family.NUMBERS, gives=Kind.BOOLEAN):
    """Parse yes and no in the words of the feed; any other text is refused.

    Examples:
        {boolean: {true: [sim, x], false: [nao, ""]}}: "x" -> "true"
        {boolean: {true: [sim, x], false: [nao, ""]}}: "" -> "false"
        {boolean: {true: sim, false: não}, ignore: [case, accents]}: "NAO" -> "false"
        {boolean: {true: sim, false: não}}: "talvez" -> not_in_lookup
    """

    words: YesNoWords = Field(alias="boolean", description="`true` and `false`: the words for each.")
    ignore: Ignore = ()

    def check(self) -> None:
        same = normaliser(self.ignore)
        both = {same(word) for word in self.words.yes} & {same(word) for word in self.words.no}
        if both:
            raise mistake(f'"{min(both)}" cannot mean both yes and no', "take it out of one of the two lists")

    @property
    def works_on_empty(self) -> bool:
        """Whether an empty cell is one of the words."""
        return "" in self.words.yes + self.words.no

    def function(self) -> Run:
        same = normaliser(self.ignore)
        known = {same(word): True for word in self.words.yes} | {same(word): False for word in self.words.no}
        wanted = ", ".join(f'"{word}"' for word in (self.words.yes + self.words.no)[:8])

        def boolean(text: str) -> bool:
            answer = known.get(same(text))
            if answer is None:
                raise Refusal(
                    ReasonCode.NOT_IN_LOOKUP,
                    f"expected {wanted}",
                    detail=Detail.SOME_OF_LOOKUP,
                    particulars={"known": (self.words.yes + self.words.no)[:8]},
                )
            return answer

        return boolean
