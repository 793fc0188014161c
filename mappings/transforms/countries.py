"""The step that reads a country's name or code; the names themselves are `country_names`'. Its cities are a lookup's matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, ClassVar

from babel import Locale, UnknownLocaleError
from babel.languages import get_official_languages
from pydantic import Field, field_validator

from mappings.measures import OneOrMany, mistake
from mappings.refusals import Refusal, nearest
from mappings.tables import normaliser
from mappings.transforms.country_names import ALPHA_3, ALSO_CALLED
from mappings.transforms.step import Run, Shown, Step
from mappings.vocabulary import ReasonCode

LOCAL = "local"
"""The languages that a country itself uses officially."""
_same = normaliser(("case", "accents", "punctuation", "spaces"))


class Country(Step):
    """Read a country by its name in these languages, or by its ISO code of two or three letters, as the code of two.

    Capitals, accents, spaces and punctuation do not count. The names are those of the Unicode CLDR, and some in wide use.
    """

    name: ClassVar[str] = "country"
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
        """Return the step's function."""
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
    for language in languages:
        yield from ALSO_CALLED.get(language, {}).items()


@lru_cache(maxsize=512)
def _territories(language: str) -> Mapping[str, str]:
    try:
        return dict(Locale.parse(language.replace("-", "_")).territories)
    except (UnknownLocaleError, ValueError):
        return {}
