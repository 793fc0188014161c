"""A text read as a price: its amounts, whose currency they are, and what words say about paying. No guess is made.

How the step is spelt is `prices`'; the words themselves are `price_words`'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Literal

from mappings.refusals import Refusal
from mappings.transforms.price_words import (
    BETWEEN,
    CURRENCY_CODES,
    CURRENCY_SIGNS,
    CURRENCY_WORDS,
    DONATION,
    FREE,
    LEAST,
    UP_TO,
    WHOLE_ONLY,
    WORDS_TOO,
)
from mappings.vocabulary import ReasonCode

Sign = Literal[".", ",", "either"]
_LONGEST = 2_000
_NUMBER = r"\d{1,9}(?:(?:[.,'’]|[\u00a0\u202f ](?=\d{3}(?!\d)))\d{1,9}){0,4}(?:[.,][-–—]{1,2})?"
_GROUPS = " '’"


@dataclass(frozen=True, slots=True)
class Quote:
    """What a text says of a price; `least` or `most` None where it is open to that side, both where no amount is named."""

    least: Decimal | None = None
    most: Decimal | None = None
    currency: str = ""
    is_free: bool = False
    is_donation: bool = False


class _What(Enum):
    NUMBER = "number"
    CURRENCY = "currency"
    FREE = "free"
    DONATION = "donation"
    LEAST = "least"
    UP_TO = "up_to"
    DASH = "dash"
    WORD = "word"


@dataclass(frozen=True, slots=True)
class _Token:
    what: _What
    text: str


@dataclass(frozen=True, slots=True)
class _Priced:
    """A number of the text, by the place of its token, and the sign or word of its currency, "" without."""

    place: int
    digits: str
    unit: str = ""


class PriceReader:
    """Reads prices as one feed writes them: its decimal sign, its currency, its words for nothing to pay."""

    def __init__(self, sign: Sign, currency: str | None, free: Sequence[str]) -> None:
        self._sign: Sign = sign
        self._currency = currency
        codes = CURRENCY_CODES - (WORDS_TOO - {currency})
        self._scan = _scanner(codes, (*FREE, *free)).finditer

    def read(self, text: str) -> Quote:
        """Return what a text says of a price.

        Raises:
            Refusal: it names no price, or one that may mean several things.
        """
        if len(text) > _LONGEST:
            raise Refusal(ReasonCode.TOO_LONG, f"a price of at most {_LONGEST} characters would be accepted")
        tokens = [_Token(_What(str(found.lastgroup)), found[0]) for found in self._scan(text)]
        kinds = {token.what for token in tokens}
        priced = self._priced(tokens)
        if not priced:
            return self._without_amount(tokens, kinds)
        currency = self._currency_of(priced)
        amounts = [_amount(one.digits, self._sign, currency) for one in priced]
        if _What.FREE in kinds:
            amounts.append(Decimal(0))
        quote = Quote(min(amounts), max(amounts), currency, not any(amounts), _What.DONATION in kinds)
        return _opened(quote, tokens, priced)

    def _without_amount(self, tokens: Sequence[_Token], kinds: set[_What]) -> Quote:
        if not kinds & {_What.FREE, _What.DONATION} or _What.NUMBER in kinds:
            found = " ".join(token.text for token in tokens if token.what is _What.NUMBER)
            why = f"no currency stands beside {found}, and it is not alone: " if found else ""
            raise _refused(f"{why}a price like 12{_shown(self._sign)}50 EUR, or a word for nothing to pay, would be accepted")
        is_free = _What.FREE in kinds
        zero = Decimal(0) if is_free and _What.DONATION not in kinds else None
        return Quote(zero, zero, "", is_free, _What.DONATION in kinds)

    def _priced(self, tokens: Sequence[_Token]) -> list[_Priced]:
        """Return the numbers that are amounts: those beside a currency, or a bare number or range by itself."""
        numbers = _with_units(tokens)
        priced = [one for one in _shared(numbers, tokens) if one.unit]
        if priced or not numbers:
            return priced
        is_alone = all(token.what in (_What.NUMBER, _What.DASH, _What.UP_TO, _What.LEAST) for token in tokens)
        is_range = len(numbers) == 2 and numbers[1].place - numbers[0].place == 2
        return numbers if is_alone and self._currency and (len(numbers) == 1 or is_range) else []

    def _currency_of(self, priced: Sequence[_Priced]) -> str:
        found = {self._code(one.unit) if one.unit else self._currency or "" for one in priced}
        if len(found) > 1:
            raise _refused(f"one currency would be accepted, and here are {', '.join(sorted(found))}")
        return found.pop()

    def _code(self, unit: str) -> str:
        candidates = (unit,) if unit in CURRENCY_CODES else _candidates(unit)
        if len(candidates) == 1:
            return candidates[0]
        if self._currency in candidates:
            return self._currency
        some = ", ".join(candidates[:4])
        raise _refused(f'"{unit}" may mean {some}: write its ISO code instead, or let the mapping say `currency`')


def _candidates(unit: str) -> tuple[str, ...]:
    small = unit.casefold()
    return CURRENCY_SIGNS.get(small) or CURRENCY_WORDS[small]


def _with_units(tokens: Sequence[_Token]) -> list[_Priced]:
    """Give each number the currency that stands right before it, or else right behind it; none serves twice."""
    used: set[int] = set()
    numbers: list[_Priced] = []
    for place, token in enumerate(tokens):
        if token.what is not _What.NUMBER:
            continue
        beside = next((one for one in (place - 1, place + 1) if one not in used and _is_currency(tokens, one)), None)
        if beside is not None:
            used.add(beside)
        numbers.append(_Priced(place, token.text, "" if beside is None else tokens[beside].text))
    return numbers


def _is_currency(tokens: Sequence[_Token], place: int) -> bool:
    return 0 <= place < len(tokens) and tokens[place].what is _What.CURRENCY


def _shared(numbers: Sequence[_Priced], tokens: Sequence[_Token]) -> list[_Priced]:
    """Let the two ends of a range share the one currency that is written: `5 a 10 reais`, `EUR 5 - 10`."""
    shared = list(numbers)
    for place in range(len(shared) - 1):
        one, other = shared[place], shared[place + 1]
        between = {token.what for token in tokens[one.place + 1 : other.place]}
        if between and between <= {_What.DASH, _What.UP_TO} and bool(one.unit) is not bool(other.unit):
            unit = one.unit or other.unit
            shared[place], shared[place + 1] = replace(one, unit=unit), replace(other, unit=unit)
    return shared


def _opened(quote: Quote, tokens: Sequence[_Token], priced: Sequence[_Priced]) -> Quote:
    """Open the price of a single amount to the side that the word before it says: `from 10 €`, `up to 10 €`."""
    if len(priced) > 1 or quote.least != quote.most:
        return quote
    before = [token.what for token in tokens[: priced[0].place] if token.what is not _What.CURRENCY][-1:]
    if before == [_What.LEAST]:
        return replace(quote, most=None)
    return replace(quote, least=None) if before == [_What.UP_TO] else quote


def _amount(digits: str, sign: Sign, currency: str) -> Decimal:
    plain = digits.rstrip(".,-–—").replace("\u00a0", " ").replace("\u202f", " ").replace("’", "'")
    *groups, last = re.split(r"\D", plain)
    signs = re.findall(r"\D", plain)
    if not signs:
        return Decimal(last)
    if len(last) in (1, 2) and signs[-1] in (".,".replace("." if sign == "," else "," if sign == "." else "", "")):
        _check_groups(digits, groups, signs[:-1], not_this=signs[-1])
        return Decimal("".join(groups) + "." + last)
    _check_groups(digits, [*groups, last], signs, not_this="")
    if signs[-1] not in _GROUPS and not _may_group(signs, sign, currency):
        raise _refused(f"{digits} may be two numbers: write it without the sign, or with two decimals")
    return Decimal("".join((*groups, last)))


def _may_group(signs: Sequence[str], sign: Sign, currency: str) -> bool:
    if currency in WHOLE_ONLY:
        return True
    return len(signs) > 1 if sign == "either" else signs[-1] != sign


def _check_groups(digits: str, groups: Sequence[str], signs: Sequence[str], *, not_this: str) -> None:
    is_grouped = all(len(group) == 3 for group in groups[1:]) and (not signs or 1 <= len(groups[0]) <= 3)
    if not is_grouped or len(set(signs)) > 1 or not_this in signs:
        raise _refused(f"{digits} is not a number as prices are written: 1250, 12.50 or 12,50 would be accepted")


def _refused(hint: str) -> Refusal:
    return Refusal(ReasonCode.NOT_A_NUMBER, hint)


def _shown(sign: Sign) -> str:
    return "." if sign == "either" else sign


@lru_cache(maxsize=64)
def _scanner(codes: frozenset[str], free: tuple[str, ...]) -> re.Pattern[str]:
    """Compile the one pattern that cuts a text into what matters for its price; spaces and punctuation fall through.

    It repeats nothing without a bound but letters, one after the other, and so takes time in proportion to the text.
    """
    signs = _either(CURRENCY_SIGNS)
    words = _words(CURRENCY_WORDS)
    return re.compile(
        rf"(?P<number>{_NUMBER})"
        rf"|(?P<free>{_words(free)})|(?P<donation>{_words(DONATION)})|(?P<least>{_words(LEAST)})"
        rf"|(?P<currency>{signs}|{words}|(?<![^\W\d_])(?-i:{_either(codes)})(?![^\W\d_]))"
        rf"|(?P<up_to>{_words(UP_TO)})"
        rf"|(?P<dash>[-–—~〜～/]|{_words(BETWEEN)})"
        r"|(?P<word>[^\W\d_]+|%)",
        re.IGNORECASE,
    )


def _either(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=lambda text: (-len(text), text))))


def _words(texts: Iterable[str]) -> str:
    return rf"(?<![^\W\d_])(?:{_either(texts)})(?![^\W\d_])"
