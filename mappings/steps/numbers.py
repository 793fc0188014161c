"""Steps that read numbers as one language writes them, round them, and read yes and no."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from mappings.lookup_table import Ignorable, normaliser
from mappings.measures import OneOrMany, Text, Texts, mistake
from mappings.refusals import ReasonCode, Refusal, did_you_mean
from mappings.steps.step import Kind, Run, Step, StepExample
from mappings.strict import Strict

_SHAPES = {
    ".": re.compile(r"[+-]?(?:\d{1,3}(?:[,\u00a0\u202f' ]\d{3})+|\d+)(?:\.\d+)?", re.ASCII),
    ",": re.compile(r"[+-]?(?:\d{1,3}(?:[.\u00a0\u202f' ]\d{3})+|\d+)(?:,\d+)?", re.ASCII),
}
_LONGEST = 40


class Number(Step, name="number", gives=Kind.NUMBER):
    """Read a number; the decimal sign is said, never guessed, and thousands may be grouped by the other sign or a space."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{number: ","}', "1.250,50", "1250.50"),
        StepExample('{number: "."}', "12,50", ReasonCode.NOT_A_NUMBER),
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

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{round: 0}", "12.50", "13"),
        StepExample("{round: 2}", "12.344", "12.34"),
    )
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

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{boolean: {true: [sim, x], false: [nao, ""]}}', "x", "true"),
        StepExample('{boolean: {true: [sim, x], false: [nao, ""]}}', "", "false"),
        StepExample("{boolean: {true: sim, false: não}, ignore: [case, accents]}", "NAO", "false"),
        StepExample("{boolean: {true: sim, false: não}}", "talvez", ReasonCode.NOT_IN_LOOKUP),
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


def _phrases(texts: str) -> tuple[str, ...]:
    return tuple(texts.split(", "))


_CODES = (
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY COP CRC"
    " CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR"
    " ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK"
    " MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE"
    " SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XOF XPF YER"
    " ZAR ZMW"
)
CURRENCY_CODES = frozenset(_CODES.split())
"""ISO 4217, without funds, metals and codes for testing."""
WORDS_TOO = frozenset({"ALL", "CUP", "GEL", "LAK", "MAD", "MOP", "PEN", "TOP", "TRY"})
"""Codes that are words as well: they count only where the author names them as the feed's currency."""
_UNDIVIDED = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
WHOLE_ONLY = frozenset(_UNDIVIDED.split())
"""Currencies without a smaller unit: a sign before three digits can only group them."""
_DOLLARS = ("USD", "AUD", "CAD", "NZD", "HKD", "SGD", "TWD", "MXN", "ARS", "CLP", "COP", "UYU", "JMD", "TTD", "BBD", "BSD", "FJD")
_POUNDS = ("GBP", "EGP", "FKP", "GIP", "LBP", "SHP", "SYP")
_CROWNS = ("SEK", "NOK", "DKK", "ISK")
_PESOS = ("MXN", "ARS", "CLP", "COP", "CUP", "DOP", "PHP", "UYU")
_RUPEES = ("INR", "LKR", "MUR", "NPR", "PKR", "SCR")
_FRANCS = ("CHF", "XAF", "XOF", "XPF", "BIF", "DJF", "GNF", "KMF", "RWF")
_OWN_SIGNS = _phrases(
    "us$ USD, au$ AUD, a$ AUD, ca$ CAD, c$ CAD, nz$ NZD, hk$ HKD, s$ SGD, nt$ TWD, mx$ MXN, r$ BRL, € EUR, 円 JPY, 원 KRW, "
    "₩ KRW, ₹ INR, ₽ RUB, ₺ TRY, ₪ ILS, ₴ UAH, ฿ THB, ₫ VND, ₱ PHP, ₦ NGN, ₡ CRC, ₲ PYG, ₸ KZT, ₾ GEL, zł PLN, kč CZK"
)
CURRENCY_SIGNS: Mapping[str, tuple[str, ...]] = {
    **{sign: (code,) for sign, code in map(str.split, _OWN_SIGNS)},
    **dict.fromkeys(("$", "＄"), _DOLLARS),
    **dict.fromkeys(("¥", "￥"), ("JPY", "CNY")),
    "£": _POUNDS,
    "元": ("CNY", "TWD", "HKD"),
}
"""Signs, in small letters; one that several currencies share names them all."""
CURRENCY_WORDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("euro", "euros", "eur", "€uro", "evro", "евро", "ευρώ"), ("EUR",)),
    **{
        code.lower(): (code,)
        for code in ("USD", "GBP", "CHF", "CAD", "AUD", "NZD", "JPY", "BRL", "SEK", "NOK", "DKK", "CZK", "HUF", "MXN")
    },
    **dict.fromkeys(("dollar", "dollars", "dólar", "dólares", "dollari", "доллар", "доллара", "долларов"), _DOLLARS),
    **dict.fromkeys(("pound", "pounds", "libra", "libras", "livre sterling", "livres sterling"), _POUNDS),
    **dict.fromkeys(("real", "reais"), ("BRL",)),
    **dict.fromkeys(("zl", "pln", "złoty", "złote", "złotych", "zloty", "zlotych"), ("PLN",)),
    **dict.fromkeys(("koruna", "koruny", "korun"), ("CZK",)),
    **dict.fromkeys(("kr", "krona", "kronor", "krone", "kroner", "króna", "krónur"), _CROWNS),
    **dict.fromkeys(("ft", "forint"), ("HUF",)),
    **dict.fromkeys(("franken", "sfr"), ("CHF",)),
    **dict.fromkeys(("franc", "francs", "franco", "franchi", "fr"), _FRANCS),
    **dict.fromkeys(("peso", "pesos"), _PESOS),
    **dict.fromkeys(("rupee", "rupees", "rs"), _RUPEES),
    **dict.fromkeys(("lei", "leu"), ("RON", "MDL")),
    **dict.fromkeys(("lv", "лв", "лева"), ("BGN",)),
    **dict.fromkeys(("rub", "руб", "рубль", "рубля", "рублей"), ("RUB",)),
    **dict.fromkeys(("грн", "гривень", "гривні"), ("UAH",)),
    **dict.fromkeys(("yen",), ("JPY",)),
    **dict.fromkeys(("yuan", "rmb"), ("CNY",)),
    **dict.fromkeys(("won",), ("KRW",)),
    **dict.fromkeys(("lira", "tl"), ("TRY",)),
    **dict.fromkeys(("shekel", "shekels", "nis"), ("ILS",)),
    **dict.fromkeys(("rand",), ("ZAR",)),
    **dict.fromkeys(("baht",), ("THB",)),
}
"""Words, in small letters, as whole words only."""
FREE = _phrases(
    "free, free entry, free admission, free of charge, no charge, gratis, gratuito, gratuita, grátis, gratuitos, "
    "gratuit, gratuite, gratuït, entrada libre, acceso libre, entrada livre, entrada franca, entrée libre, "
    "accès libre, ingresso libero, ingresso gratuito, kostenlos, kostenfrei, eintritt frei, freier eintritt, "
    "wstęp wolny, wstęp bezpłatny, bezpłatne, bezpłatny, bezpłatnie, zdarma, vstup volný, ingyenes, fri entré, "
    "gratis entré, vapaa pääsy, ilmainen, бесплатно, вход свободный, безкоштовно, 무료, 無料, 免費, 免费"
)
"""Nothing to pay."""
DONATION = _phrases(
    "donation, donations, by donation, donativo, donativos, donación, doação, doações, don libre, prix libre, "
    "participation libre, offerta libera, spende, spenden, auf spendenbasis, pay what you can, pay what you want, "
    "pay as you can, pwyc, pwyw, co łaska, taquilla inversa, a la gorra"
)
"""Everyone pays what they like."""
LEAST = _phrases("from, starting at, starting from, at least, desde, a partir de, à partir de, dès, ab, od, da, vanaf")
"""Before an amount: the price goes up from there."""
UP_TO = ("up to", "até", "ate", "hasta", "bis", "do", "tot", "till", "jusqu'à")
"""Between two amounts, or before one: the price goes no further."""
BETWEEN = ("to", "a", "à", "al")
"""Between two amounts only: alone they mean other things."""
Sign = Literal[".", ",", "either"]
_LONGEST_of_prices = 2_000
_NUMBER = r"\d{1,9}(?:(?:[.,'’]|[\u00a0\u202f ](?=\d{3}(?!\d)))\d{1,9}){0,4}(?:[.,][-–—]{1,2})?"
_GROUPS = " '’"


@dataclass(frozen=True, slots=True)
class PriceRange:
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

    def read(self, text: str) -> PriceRange:
        """Return what a text says of a price.

        Raises:
            Refusal: it names no price, or one that may mean several things.
        """
        if len(text) > _LONGEST_of_prices:
            raise Refusal(ReasonCode.TOO_LONG, f"a price of at most {_LONGEST_of_prices} characters would be accepted")
        tokens = [_Token(_What(str(found.lastgroup)), found[0]) for found in self._scan(text)]
        kinds = {token.what for token in tokens}
        priced = self._priced(tokens)
        if not priced:
            return self._without_amount(tokens, kinds)
        currency = self._currency_of(priced)
        amounts = [_amount(one.digits, self._sign, currency) for one in priced]
        if _What.FREE in kinds:
            amounts.append(Decimal(0))
        quote = PriceRange(min(amounts), max(amounts), currency, not any(amounts), _What.DONATION in kinds)
        return _opened(quote, tokens, priced)

    def _without_amount(self, tokens: Sequence[_Token], kinds: set[_What]) -> PriceRange:
        if not kinds & {_What.FREE, _What.DONATION} or _What.NUMBER in kinds:
            found = " ".join(token.text for token in tokens if token.what is _What.NUMBER)
            why = f"no currency stands beside {found}, and it is not alone: " if found else ""
            raise _refused(f"{why}a price like 12{_shown(self._sign)}50 EUR, or a word for nothing to pay, would be accepted")
        is_free = _What.FREE in kinds
        zero = Decimal(0) if is_free and _What.DONATION not in kinds else None
        return PriceRange(zero, zero, "", is_free, _What.DONATION in kinds)

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


def _opened(quote: PriceRange, tokens: Sequence[_Token], priced: Sequence[_Priced]) -> PriceRange:
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


PricePart = Literal["amount", "from", "to", "currency", "is_free", "is_donation"]
_MEMO = 4096
"""Prices kept once they are read: a file has few different ones."""
_KINDS = {"currency": Kind.TEXT, "is_free": Kind.BOOLEAN, "is_donation": Kind.BOOLEAN}


class Price(Step, name="price", gives=Kind.OBJECT):
    """Read a price: one amount or a range, with its currency by sign, ISO code or word, or a word for nothing to pay.

    The parts are `amount` (where there is only one), `from`, `to`, `currency`, `is_free` and `is_donation`. Amounts count where
    a currency stands beside them; without any, the text must be a bare number or range. A sign that several currencies share
    ($, £, kr) is refused unless `currency` says which is meant.
    """

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{price: ",", take: from}', "Entrada: 5 euros", "5"),
        StepExample('{price: ",", take: [from, to, currency]}', "12,50 € / reduced 9 €", "from: 9, to: 12.50, currency: EUR"),
        StepExample('{price: ".", currency: USD, take: [from, to, currency]}', "$5-$10", "from: 5, to: 10, currency: USD"),
        StepExample('{price: ".", take: amount}', "$5", ReasonCode.NOT_A_NUMBER),
        StepExample("{price: either, take: [amount, currency]}", "전석 20,000원", "amount: 20000, currency: KRW"),
        StepExample("{price: either, take: amount, currency: EUR}", "1,250", ReasonCode.NOT_A_NUMBER),
        StepExample('{price: ",", take: is_free}', "Entrada libre", "true"),
        StepExample('{price: ","}', "donation", "is_free: false, is_donation: true"),
        StepExample('{price: ","}', "1 kg de arroz", ReasonCode.NOT_A_NUMBER),
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
        read = lru_cache(maxsize=_MEMO)(PriceReader(self.decimal_sign, self.currency, self.free).read)
        take = self.take
        if take is None:
            return lambda text: _parts(read(text))
        if len(take) == 1:
            (only,) = take
            return lambda text: _parts(read(text)).get(only, "")
        return lambda text: {name: part for name, part in _parts(read(text)).items() if name in take}


def _parts(quote: PriceRange) -> dict[str, Any]:
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
