"""The steps `map`, `lookup`, `last_in` and `country`, which find a text as a whole, by its beginning, a word, or a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from operator import methodcaller
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from babel import Locale, UnknownLocaleError
from babel.core import get_global
from babel.languages import get_official_languages
from pydantic import Field, ValidationInfo, field_validator, model_validator

from mappings.lookup_table import Ignorable, Result, Table, normaliser
from mappings.patterns import compile_pattern
from mappings.reasons import Detail, ReasonCode, Refusal, nearest
from mappings.steps.step import Family, Ignore, Kind, Run, Step, short_enough, text_of
from mappings.strict import MissPolicy, OneOrMany, Policy, TableFile, Texts, mistake, parse_pattern, table_of

MatchWord = Literal["whole", "prefix", "keyword", "regex"]
Match = Annotated[
    MatchWord,
    Field(
        description="How a value matches a key of the list. whole: they are equal; prefix: it begins with the key, the longest"
        " wins; keyword: it contains the key as a whole word; regex: the key is a pattern that matches in it. Of several keys"
        " the first in the list wins."
    ),
]
SEPARATOR = "\x1f"
"""Separates the parts of a key made of several values."""
_MEMO = 4096
Found = Result | list[Result]
Find = Callable[[str], Found]
"""Returns the result for a key, or raises Refusal."""


@dataclass(frozen=True, slots=True)
class Search:
    """How a list is searched. The first `keys` columns are the key, `take` (or all others) the result.

    `many`: a key may have several results, and all are returned. `keeps`: a value that is not in the list is left unchanged.
    """

    keys: int = 1
    take: tuple[str, ...] | None = None
    ignore: tuple[Ignorable, ...] = ()
    many: bool = False
    match: MatchWord = "whole"
    keeps: bool = False

    @property
    def form(self) -> Callable[[str], str]:
        """A function that normalises a key for comparison."""
        if self.match == "regex":
            return str
        normalise = normaliser(self.ignore)
        return lambda key: SEPARATOR.join(map(normalise, key.split(SEPARATOR)))


def split_columns(table: Table, keys: int, take: tuple[str, ...] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key columns (the first `keys` of the table) and the result columns."""
    return table.columns[:keys], take or table.columns[keys:]


def _check_match(keys: Iterable[str], search: Search) -> None:
    """Raise a mistake if a key is not a valid pattern, or cannot ignore the given differences."""
    if search.match == "regex":
        for key in keys:
            parse_pattern(key)
        if set(search.ignore) - {"case"}:
            raise mistake("patterns can ignore case only", "write what may differ into the pattern")
    if search.match == "keyword" and "spaces" in search.ignore:
        raise mistake("without spaces there are no words to look for", "leave `spaces` out of `ignore`")


def check_columns(table: Table | None, search: Search) -> None:
    """Check that a table has the columns of a lookup and, unless `many`, one result per key.

    Raises:
        PydanticCustomError: a mistake, worded for the author.
    """
    if table is None:
        return
    key_columns, results = split_columns(table, search.keys, search.take)
    if len(key_columns) < search.keys or not results:
        message = f"{table.name} has {len(table.columns)} columns: {search.keys} for the key leave none for the result"
        raise mistake(message, "add a column with the result to the file, or look up by fewer values")
    if search.keeps and len(results) > 1:
        raise mistake("a value that is kept is one text, and the lookup gives an object", "take one column")
    name_form = normaliser(("case", "spaces"))
    for column in results:
        if column not in table.columns:
            message = f'{table.name} has no column "{column}"; it has {", ".join(table.columns)}'
            raise mistake(message, "name one of these columns, or correct the header of the file")
        if len(same := [one for one in table.columns if name_form(one) == name_form(column)]) > 1:
            message = f'{len(same)} columns of {table.name} answer to "{column}": {", ".join(same)}'
            raise mistake(message, "rename or remove all but one in the header of the file")
    keys = _keys_of(table, search)
    _check_match(keys, search)
    said: dict[str, Result] = {}
    for key, result in zip(map(search.form, keys), _results_of(table, search), strict=True):
        if said.setdefault(key, result) != result and not search.many:
            shown = key.replace(SEPARATOR, ", ")
            raise mistake(f'{table.name} has different results for "{shown}"', "write many: true if several results are meant")


def _keys_of(table: Table, search: Search) -> list[str]:
    return [SEPARATOR.join(cells[: search.keys]) for cells in table.rows]


def _results_of(table: Table, search: Search) -> list[Result]:
    """Return the result of each row: the text of one column, or the filled ones of several."""
    places = {column: table.columns.index(column) for column in split_columns(table, search.keys, search.take)[1]}
    if len(places) == 1:
        return [cells[place] for place in places.values() for cells in table.rows]
    return [{column: cells[place] for column, place in places.items() if cells[place]} for cells in table.rows]


def _places_met(keys: Iterable[str], search: Search) -> Callable[[str], list[int]]:
    """Return a function that finds the positions of the keys that match a text: the best match, or all if `many`."""
    form = search.form
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(form(key), []).append(place)
    if search.match == "whole":
        return lambda text: places.get(form(text), [])
    best_first = sorted(places, key=len, reverse=True) if search.match == "prefix" else list(places)
    tests = [(_test(key, search), places[key]) for key in best_first]

    def met(text: str) -> list[int]:
        text = short_enough(text) if search.match == "regex" else form(text)
        found = (there for is_met, there in tests if is_met(text))
        return list(chain.from_iterable(islice(found, None if search.many else 1)))

    return met


def _test(key: str, search: Search) -> Callable[[str], bool]:
    if search.match == "prefix":
        return methodcaller("startswith", key)
    if search.match == "regex":
        return compile_pattern(key, ignore_case="case" in search.ignore).finds
    find = re.compile(rf"(?<!\w){re.escape(key)}(?!\w)").search
    return lambda text: key in text and find(text) is not None


def table_finder(table: Table, search: Search) -> Find:
    """Return a function that looks up a key in a table; parts of a key are separated by SEPARATOR."""
    return _finder(_keys_of(table, search), _results_of(table, search), search)


def _finder(keys: Sequence[str], results: Sequence[Result], search: Search) -> Find:
    """Return a function that looks up a key in a list."""
    places_of, known = _places_met(keys, search), tuple(dict.fromkeys(key.replace(SEPARATOR, ", ") for key in keys))

    @lru_cache(maxsize=_MEMO)
    def answer(key: str) -> Found | Refusal:
        places = places_of(key)
        if not places:
            return key if search.keeps else _miss(key, known, search.match)
        found: list[Result] = []
        for place in places:
            if results[place] not in found:
                found.append(results[place])
        return found if search.many else found[-1]  # of equal keys of a map, the last is used

    def find(key: str) -> Found:
        found = answer(key)
        if type(found) is Refusal:
            raise found.with_traceback(None)
        return found  # type: ignore[return-value] # a Refusal has no subclass here

    return find


def _miss(key: str, known: tuple[str, ...], match: MatchWord = "whole") -> Refusal:
    """Return the refusal of a key that is not in a list, with the nearest key or some of the known ones."""
    near = nearest(key, known) if match == "whole" else ""
    if near:
        hint = f'did you mean "{near}"? Otherwise add "{key}" to the list'
        return Refusal(ReasonCode.NOT_IN_LOOKUP, hint, found=key, detail=Detail.NEAR_LOOKUP, particulars={"near": near})
    some = ", ".join(f'"{word}"' for word in known[:5])
    hint, detail = f"the list has {some}{', ...' if len(known) > 5 else ''}", Detail.SOME_OF_LOOKUP if known else None
    return Refusal(ReasonCode.NOT_IN_LOOKUP, hint, found=key, detail=detail, particulars={"known": known[:5]})


def part_missed(table: Table, search: Search) -> Callable[[tuple[str, ...]], tuple[int, Refusal]]:
    """Return a function that explains a failed lookup of several values: the index of the first unknown one, and its refusal.

    Known values are those that occur in the table together with the values before it.
    """
    normalise = normaliser(search.ignore)

    @lru_cache(maxsize=1)
    def beside() -> dict[tuple[str, ...], dict[str, str]]:  # most feeds never miss
        known: dict[tuple[str, ...], dict[str, str]] = {}
        for cells in table.rows:
            key = tuple(map(normalise, cells[: search.keys]))
            for place, part in enumerate(key):
                known.setdefault(key[:place], {}).setdefault(part, cells[place])
        return known

    @lru_cache(maxsize=_MEMO)
    def explain(parts: tuple[str, ...]) -> tuple[int, Refusal]:
        key, known = tuple(map(normalise, parts)), beside()
        place = next((n for n, part in enumerate(key) if part not in known.get(key[:n], {})), len(key) - 1)
        return place, _miss(parts[place], tuple(known.get(key[:place], {}).values()))

    return explain


class _Lookup(Step):
    ignore: Ignore = ()
    on_miss: MissPolicy | None = Field(
        default=None, description="What to do with a value that is not in the list (default: reject); keep: it stays as it is."
    )

    def check(self) -> None:
        if self.on_miss is not None and self.on_error is not None:
            raise mistake(
                "on_miss and on_error mean the same: a lookup refuses only values that are not in its list", "write one of them"
            )

    @property
    def policy(self) -> Policy | None:
        """The author's policy for a miss; `on_error` means the same as `on_miss`."""
        return self.on_error if self.on_miss is None or self.on_miss == "keep" else self.on_miss

    @property
    def leaves_refusals(self) -> bool:
        """Whether a miss is decided by the value's own policy."""
        return self.policy is None and not self.keeps

    @property
    def keeps(self) -> bool:
        """Whether a value that is not in the list is left unchanged."""
        return self.on_miss == "keep"


class Map(_Lookup, name="map", family=Family.LOOKUPS):
    """Replace a value by its entry in a list in the mapping file.

    Examples:
        {map: {SEG: MO, TER: TU}}: "SEG" -> "MO"
        {map: {Concertos: music}, ignore: [case]}: "CONCERTOS" -> "music"
        {map: {SEG: MO}}: "XYZ" -> not_in_lookup
        {map: {Fair: [market, food], Jazz: music}}: "Fair" -> ["market", "food"]
        {map: {A: music}, on_miss: {use: culture}}: "B" -> "culture"
        {map: {Lisbon: Lisboa}, on_miss: keep}: "Porto" -> "Porto"
        {map: {jazz: music, expo: art}, match: keyword, ignore: [case]}: "Late Jazz night" -> "music"
    """

    table: dict[str, Texts] = Field(
        alias="map", min_length=1, description="The known values, and what each becomes: a text, or a list of them."
    )
    match: Match = "whole"

    def check(self) -> None:
        super().check()
        _check_match(self.table, self.search)
        if self.keeps and self.gives_several:
            raise mistake("a value that is kept is one text, and this list gives several", "leave on_miss: keep out")

    def function(self) -> Run:
        keys, texts = zip(*((key, text) for key, texts in self.table.items() for text in texts), strict=True)
        return _finder(keys, texts, self.search)

    @property
    def search(self) -> Search:
        """The parameters of a search in the list."""
        return Search(ignore=self.ignore, many=self.gives_several, match=self.match, keeps=self.keeps)

    @property
    def gives_several(self) -> bool:
        """Whether a value may become several."""
        return any(len(texts) > 1 for texts in self.table.values())


class _TableLookup(_Lookup):
    take: Texts | None = Field(
        default=None, description="The result columns (default: all but the key); several give an object, one a text."
    )
    many: bool = Field(default=False, description="A key may have several rows: the result is a list.")
    file: TableFile

    def compile(self, tables: Mapping[str, Table]) -> Run:
        return table_finder(tables[self.file], self.search)

    @property
    def search(self) -> Search:
        """The parameters of a search in the lookup file."""
        return Search(take=self.take, ignore=self.ignore, many=self.many, keeps=self.keeps)

    @property
    def result(self) -> Kind:
        """Text if one column is taken by name; otherwise the rows decide."""
        return Kind.TEXT if self.take is not None and len(self.take) == 1 else Kind.UNKNOWN

    @property
    def gives_several(self) -> bool:
        """Whether a key may have several rows."""
        return self.many

    @model_validator(mode="after")
    def _check_columns(self, info: ValidationInfo) -> Self:
        check_columns(table_of(self.file, info), self.search)
        return self


class Lookup(_TableLookup, name="lookup", family=Family.LOOKUPS, gives=Kind.ANY):
    """Replace a value by its row in a CSV file: the first column is the key, the others are the result.

    Examples:
        {lookup: categories.csv}: "categories/music/jazz" -> "music"
        {lookup: categories.csv}: "categories/music/jaz" -> not_in_lookup
        {lookup: categories.csv, match: prefix}: "music/fado" -> "music"
        {lookup: categories.csv, match: keyword}: "live music, food" -> "music"
    """

    file: TableFile = Field(alias="lookup", description="The lookup file, a CSV with a header.")
    match: Match = "whole"

    @property
    def search(self) -> Search:
        """The parameters of a search in the lookup file."""
        return replace(super().search, match=self.match)


class LastIn(_TableLookup, name="last_in", family=Family.LOOKUPS, takes=Kind.LIST, gives=Kind.ANY):
    """Look up the last segment of a path that is in the CSV file: `a/b/new` falls back to the result for `b`.

    Examples:
        {last_in: categories.csv}: ["categories", "music", "fado-vadio"] -> "music"
        {last_in: categories.csv}: ["categories", "fado-vadio"] -> not_in_lookup
    """

    file: TableFile = Field(alias="last_in", description="The lookup file, a CSV with a header.")
    on_miss: Policy | None = Field(default=None, description="What to do with a value that is not in the list (default: reject).")

    def compile(self, tables: Mapping[str, Table]) -> Run:
        find = super().compile(tables)

        def last_in(items: list[Any]) -> Found:
            segments = [text_of(item) for item in items]  # a list may hold times and numbers
            refusals: list[Refusal] = []
            for segment in reversed(segments):
                try:
                    return find(segment)  # type: ignore[no-any-return] # a compiled lookup gives what the table holds
                except Refusal as refusal:
                    refusals.append(refusal)
            raise refusals[0]  # for the last segment, which the partner most likely meant

        return last_in


_NOT_COUNTRIES = "AAA ASC BUR CPT DDR DGA FXX TAA TMP YMD ZAR ZZZ"
"""Codes in the CLDR that are not countries of today; codes for private use (Q and X) are excluded separately."""
ALPHA_3: Mapping[str, str] = {
    three: found[0]
    for three, found in sorted(get_global("territory_aliases").items())
    if len(three) == 3
    and three.isalpha()
    and len(found) == 1
    and three not in _NOT_COUNTRIES
    and not re.fullmatch("Q[M-Z].|X..", three)
} | {"XKX": "XK"}
"""ISO 3166-1: the two-letter code for each three-letter code. Kosovo has neither; the CLDR and the EU use XK."""
LOCAL = "local"
"""Stands for the official languages of each country."""
same_country = normaliser(("case", "accents", "punctuation", "spaces"))


class Country(Step, name="country", family=Family.LOOKUPS):
    """Convert a country, by its name in these languages or its ISO code of two or three letters, to the two-letter code.

    Case, accents, spaces and punctuation are ignored. Names are those of the Unicode CLDR, and some common others.

    Examples:
        {country: [en, pt]}: "Alemanha" -> "DE"
        {country: en}: "prt" -> "PT"
        {country: [en, local]}: "España" -> "ES"
        {country: en}: "Czech Republic" -> "CZ"
        {country: en}: "Portugall" -> not_in_lookup
    """

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
        known = sorted({name for name, _ in _names(self.languages)})

        @lru_cache(maxsize=1024)
        def country(text: str) -> str:
            code = codes.get(same_country(text))
            if code is None:
                near = nearest(text, known)
                wanted = "expected the name of a country, or a code such as PT or PRT"
                hint, detail = (f'did you mean "{near}"?', Detail.NEAR_LOOKUP) if near else (wanted, None)
                raise Refusal(ReasonCode.NOT_IN_LOOKUP, hint, found=text, detail=detail, particulars={"near": near})
            return code

        return country


@lru_cache(maxsize=32)
def country_codes(languages: tuple[str, ...]) -> Mapping[str, str]:
    """Return the two-letter code for each normalised name of a country; a name that two countries share is left out."""
    found: dict[str, set[str]] = {}
    for name, code in _names(languages):
        found.setdefault(same_country(name), set()).add(code)
    names = {name: min(codes) for name, codes in found.items() if len(codes) == 1 and name}
    return (
        names
        | {same_country(three): two for three, two in ALPHA_3.items()}
        | {same_country(two): two for two in ALPHA_3.values()}
    )


def _names(languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    for two in ALPHA_3.values():
        for language in languages:
            for each in get_official_languages(two, regional=True) if language == LOCAL else (language,):
                name = _territories(each).get(two)
                if name:
                    yield name, two
    also_called = yaml.load(Path(__file__).with_name("countries.yaml").read_text("utf-8"), yaml.BaseLoader)  # noqa: S506 - texts only
    for language in languages:
        for two, names in also_called.get(language, {}).items():
            yield from ((name, two) for name in names.split(", "))


@lru_cache(maxsize=512)
def _territories(language: str) -> Mapping[str, str]:
    try:
        return dict(Locale.parse(language.replace("-", "_")).territories)
    except (UnknownLocaleError, ValueError):
        return {}
