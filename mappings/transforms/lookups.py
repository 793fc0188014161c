"""Steps that look one value up, in a list written inline or in a CSV file. Lookups by several values are `values`'s."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import ClassVar, Self

from pydantic import Field, ValidationInfo, model_validator

from mappings.file_context import TableFile, table_of
from mappings.measures import Text, Texts, mistake
from mappings.policies import Policy
from mappings.refusals import Refusal, nearest
from mappings.tables import Ignorable, Result, Table, TableError, index, normaliser
from mappings.transforms.step import Kind, Run, Shown, Step
from mappings.vocabulary import ReasonCode

_MEMO = 4096
Found = Result | list[Result]


class _Lookup(Step):
    """What all lookups share: how keys are compared, and what becomes of a miss."""

    ignore: tuple[Ignorable, ...] = Field(
        default=(), description="Differences that do not count: case, accents, spaces, punctuation."
    )
    on_miss: Policy | None = Field(default=None, description="What to do with a value that is not in the list (default: reject).")

    @property
    def policy(self) -> Policy | None:
        """A miss is the one refusal of a lookup; `on_error` means the same."""
        return self.on_miss if self.on_miss is not None else self.on_error


class Map(_Lookup):
    """Replace a value by what stands beside it in a list written here."""

    name: ClassVar[str] = "map"
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{map: {SEG: MO, TER: TU}}", "SEG", "MO"),
        Shown("{map: {Concertos: music}, ignore: [case]}", "CONCERTOS", "music"),
        Shown("{map: {SEG: MO}}", "XYZ", ReasonCode.NOT_IN_LOOKUP),
        Shown("{map: {A: music}, on_miss: {use: culture}}", "B", "culture"),
    )
    table: dict[str, Text] = Field(alias="map", min_length=1, description="The known values, and what each becomes.")

    def function(self) -> Run:
        """Return the step's function."""
        normalise = normaliser(self.ignore)
        return finder({normalise(key): value for key, value in self.table.items()}, normalise, self.table)


class _TableLookup(_Lookup):
    """What lookups in a CSV file share: its columns, and whether a key may have several rows."""

    take: Texts | None = Field(
        default=None, description="The result columns (default: all but the key); several give an object, one a text."
    )
    many: bool = Field(default=False, description="A key may have several rows: the result is a list.")

    @property
    def file(self) -> str:
        """The name of the lookup file."""
        raise NotImplementedError

    def compile(self, tables: Mapping[str, Table]) -> Run:
        """Return the function of one value; the file is among `tables`."""
        return self._over(table_finder(tables[self.file], 1, self.take, self.ignore, many=self.many))

    @property
    def result(self) -> Kind:
        """A text where one column is taken by name."""
        return Kind.TEXT if self.take is not None and len(self.take) == 1 else Kind.UNKNOWN

    @property
    def gives_several(self) -> bool:
        """A list where a key may have several rows."""
        return self.many

    def _over(self, find: Run) -> Run:
        return find

    @model_validator(mode="after")
    def _check_columns(self, info: ValidationInfo) -> Self:
        check_columns(table_of(self.file, info), 1, self.take, self.ignore, many=self.many)
        return self


class Lookup(_TableLookup):
    """Replace a value by what a CSV file says of it: its first column is the key, the others are the result."""

    name: ClassVar[str] = "lookup"
    gives: ClassVar[Kind] = Kind.ANY
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{lookup: categories.csv}", "categories/music/jazz", "music"),
        Shown("{lookup: categories.csv}", "categories/music/jaz", ReasonCode.NOT_IN_LOOKUP),
    )
    source: TableFile = Field(alias="lookup", description="The lookup file, a CSV with a header.")

    @property
    def file(self) -> str:
        """The name of the lookup file."""
        return self.source


class LastIn(_TableLookup):
    """Of a path's segments, look up the last one that the CSV file knows: `a/b/new` falls back to what it says of `b`."""

    name: ClassVar[str] = "last_in"
    takes: ClassVar[Kind] = Kind.LIST
    gives: ClassVar[Kind] = Kind.ANY
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{last_in: categories.csv}", ("categories", "music", "fado-vadio"), "music"),
        Shown("{last_in: categories.csv}", ("categories", "fado-vadio"), ReasonCode.NOT_IN_LOOKUP),
    )
    source: TableFile = Field(alias="last_in", description="The lookup file, a CSV with a header.")

    @property
    def file(self) -> str:
        """The name of the lookup file."""
        return self.source

    def _over(self, find: Run) -> Run:
        def last_in(segments: list[str]) -> Found:
            for segment in reversed(segments[1:]):
                try:
                    return find(segment)  # type: ignore[no-any-return] # a compiled lookup gives what the table holds
                except Refusal:
                    continue
            return find(segments[0]) if len(segments) == 1 else _first_of_path(find, segments)

        return last_in


def _first_of_path(find: Run, segments: list[str]) -> Found:
    """Look up the first segment; a miss tells of the last one, which the partner is likelier to have meant."""
    try:
        return find(segments[0])  # type: ignore[no-any-return] # as above
    except Refusal:
        return find(segments[-1])  # type: ignore[no-any-return] # as above


def finder(table: Mapping[str, Found], normalise: Callable[[str], str], known: Iterable[str]) -> Callable[[str], Found]:
    """Return the lookup of one key; a miss raises Refusal with the nearest of the `known` spellings."""
    spellings = tuple(known)

    @lru_cache(maxsize=_MEMO)
    def find(key: str) -> Found:
        found = table.get(normalise(key))
        if found is None:
            raise missed(key, spellings)
        return found

    return find


def missed(key: str, known: tuple[str, ...]) -> Refusal:
    """Return the refusal of a key that is not in a list: it names the nearest, or some of what is."""
    near = nearest(key, known)
    if near:
        return Refusal(ReasonCode.NOT_IN_LOOKUP, f'is "{near}" meant? Otherwise add "{key}" to the list', found=key)
    some = ", ".join(f'"{word}"' for word in known[:5])
    return Refusal(ReasonCode.NOT_IN_LOOKUP, f"the list has {some}{', ...' if len(known) > 5 else ''}", found=key)


def split_columns(table: Table, keys: int, take: tuple[str, ...] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key columns (the first `keys` of the table) and the result columns."""
    return table.columns[:keys], take or table.columns[keys:]


def table_finder(
    table: Table, keys: int, take: tuple[str, ...] | None, ignore: tuple[Ignorable, ...], *, many: bool
) -> Callable[[str], Found]:
    """Return the lookup of a key (of several, with a unit separator between the parts) in a table."""
    key_columns, results = split_columns(table, keys, take)
    indexed = index(table, key_columns, results, ignore)
    found: Mapping[str, Found] = dict(indexed) if many else {key: rows[0] for key, rows in indexed.items()}
    known = (", ".join(cells[:keys]) for cells in table.rows)
    one = normaliser(ignore)
    normalise = one if keys == 1 else lambda key: "\x1f".join(map(one, key.split("\x1f")))
    return finder(found, normalise, dict.fromkeys(known))


def check_columns(
    table: Table | None, keys: int, take: tuple[str, ...] | None, ignore: tuple[Ignorable, ...], *, many: bool
) -> None:
    """Check that a table has the columns a lookup needs, and one row a key unless `many` are meant.

    Raises:
        PydanticCustomError: what is wrong, for the author of the feed.
    """
    if table is None:
        return
    key_columns, results = split_columns(table, keys, take)
    if len(key_columns) < keys or not results:
        raise mistake(f"{table.name} has {len(table.columns)} columns: {keys} for the key leave none for the result")
    try:
        indexed = index(table, key_columns, results, ignore)
    except TableError as error:
        raise mistake(str(error)) from error
    twice = [key for key, rows in indexed.items() if len(rows) > 1]
    if twice and not many:
        shown = twice[0].replace("\x1f", ", ")
        raise mistake(f'{table.name} says different things of "{shown}"', "say many: true if several results are meant")
