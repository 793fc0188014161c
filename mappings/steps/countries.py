"""The step `country`, and the names that people write for countries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, ClassVar

from babel import Locale, UnknownLocaleError
from babel.core import get_global
from babel.languages import get_official_languages
from pydantic import Field, field_validator

from mappings.lookup_table import normaliser
from mappings.measures import OneOrMany, mistake
from mappings.refusals import ReasonCode, Refusal, nearest
from mappings.steps.step import Run, Shown, Step

_NOT_COUNTRIES = "AAA ASC BUR CPT DDR DGA FXX TAA TMP YMD ZAR ZZZ"
"""What the CLDR knows beside the countries of today and its codes for private use (Q and X)."""
ALPHA_3: Mapping[str, str] = {
    three: found[0]
    for three, found in sorted(get_global("territory_aliases").items())
    if len(three) == 3
    and three.isalpha()
    and len(found) == 1
    and three not in _NOT_COUNTRIES
    and not re.fullmatch("Q[M-Z].|X..", three)
} | {"XKX": "XK"}
"""ISO 3166-1: the code of two letters for each code of three. Kosovo has none there; XK is what the CLDR and the EU write."""
_ALSO_CALLED = """
en: GB=UK, Great Britain, England, Scotland, Wales, Northern Ireland; US=United States of America; IE=Republic of Ireland
en: NL=Holland, The Netherlands; CZ=Czech Republic; SK=Slovak Republic; TR=Turkey; RU=Russian Federation; HK=Hong Kong
en: KR=Republic of Korea, Korea Republic of; VN=Viet Nam; MO=Macao, Macau; CI=Ivory Coast; CV=Cape Verde; PS=Palestine
en: MM=Myanmar, Burma; MK=Macedonia; SZ=Swaziland
pt: GB=Inglaterra, Escócia; US=EUA; NL=Holanda; CZ=República Checa; CV=Cabo Verde
es: GB=Inglaterra, Escocia; US=EE. UU., EEUU; NL=Holanda; CZ=República Checa
fr: GB=Angleterre, Écosse; NL=Hollande; CZ=République tchèque; US=Etats-Unis d'Amérique
de: GB=England, Schottland, Großbritannien; NL=Holland; CZ=Tschechische Republik
it: GB=Inghilterra, Scozia; NL=Olanda; CZ=Repubblica Ceca
pl: GB=Anglia, Szkocja; US=USA; CZ=Republika Czeska
"""
"""Names beside those of the Unicode CLDR, by language and country."""
LOCAL = "local"
"""The languages that a country itself uses officially."""
_same = normaliser(("case", "accents", "punctuation", "spaces"))


class Country(Step, name="country"):
    """Read a country by its name in these languages, or by its ISO code of two or three letters, as the code of two.

    Capitals, accents, spaces and punctuation do not count. The names are those of the Unicode CLDR, and some in wide use.
    """

    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{country: [en, pt]}", "Alemanha", "DE"),
        Shown("{country: en}", "prt", "PT"),
        Shown("{country: [en, local]}", "España", "ES"),
        Shown("{country: en}", "Czech Republic", "CZ"),
        Shown("{country: en}", "Portugall", ReasonCode.NOT_IN_LOOKUP),
    )
    languages: Annotated[tuple[str, ...], OneOrMany()] = Field(
        alias="country", min_length=1, description="Languages of the names, such as en or pt; local: those of each country."
    )

    @field_validator("languages")
    @classmethod
    def _check_languages(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        for language in languages:
            if language != LOCAL and not _territories(language):
                raise mistake(
                    f'"{language}" is not a language whose names of countries are known', "write it like en, pt or local"
                )
        return languages

    def function(self) -> Run:
        codes = country_codes(self.languages)
        known = tuple(sorted(set(_names(self.languages))))

        @lru_cache(maxsize=1024)
        def country(text: str) -> str:
            code = codes.get(_same(text))
            if code is None:
                near = nearest(text, [name for name, _ in known])
                wanted = (
                    f'is "{near}" meant?' if near else "the name of a country, or a code such as PT or PRT, would be accepted"
                )
                raise Refusal(ReasonCode.NOT_IN_LOOKUP, wanted, found=text)
            return code

        return country


@lru_cache(maxsize=32)
def country_codes(languages: tuple[str, ...]) -> Mapping[str, str]:
    """Return the code of two letters for each name (as names are compared); a name that two countries share is left out."""
    found: dict[str, set[str]] = {}
    for name, code in _names(languages):
        found.setdefault(_same(name), set()).add(code)
    names = {name: min(codes) for name, codes in found.items() if len(codes) == 1 and name}
    return names | {_same(three): two for three, two in ALPHA_3.items()} | {_same(two): two for two in ALPHA_3.values()}


def _names(languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    for two in ALPHA_3.values():
        for language in languages:
            for each in get_official_languages(two, regional=True) if language == LOCAL else (language,):
                name = _territories(each).get(two)
                if name:
                    yield name, two
    for line in filter(None, _ALSO_CALLED.splitlines()):
        language, _, countries = line.partition(": ")
        for two, _, also in (country.partition("=") for country in countries.split("; ") if language in languages):
            yield from ((name, two) for name in also.split(", "))


@lru_cache(maxsize=512)
def _territories(language: str) -> Mapping[str, str]:
    try:
        return dict(Locale.parse(language.replace("-", "_")).territories)
    except (UnknownLocaleError, ValueError):
        return {}
