"""Steps that look one value up, in a list written inline or in a CSV file. How a list is searched is `finding`'s.

Lookups by several values are `values`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, ValidationInfo, model_validator

from mappings.file_context import TableFile, table_of
from mappings.measures import OneOrMany, Texts, mistake
from mappings.refusals import Refusal
from mappings.strict import MissPolicy, Policy
from mappings.tables import Ignorable, Table
from mappings.transforms.finding import Found, Search, check_columns, find_in, table_finder
from mappings.transforms.kinds import text_of
from mappings.transforms.matching import MATCH, Match, check_match
from mappings.transforms.step import Kind, Run, Shown, Step
from mappings.vocabulary import ReasonCode

_MISS = "What to do with a value that is not in the list (default: reject); keep: it stays as it is."


class _Lookup(Step):
    """What all lookups share: how keys are compared, and what becomes of a miss."""

    ignore: Annotated[tuple[Ignorable, ...], OneOrMany()] = Field(
        default=(), description="Differences that do not count: case, accents, spaces, punctuation."
    )
    on_miss: MissPolicy | None = Field(default=None, description=_MISS)

    @model_validator(mode="after")
    def _check_policies(self) -> Self:
        if self.on_miss is not None and self.on_error is not None:
            raise mistake(
                "on_miss and on_error say the same thing twice: a miss is all that a lookup refuses", "write one of them"
            )
        return self

    @property
    def policy(self) -> Policy | None:
        """A miss is the one refusal of a lookup; `on_error` means the same."""
        return self.on_error if self.on_miss is None or self.on_miss == "keep" else self.on_miss

    @property
    def leaves_refusals(self) -> bool:
        """What a list does not know may be kept."""
        return self.policy is None and not self.keeps

    @property
    def keeps(self) -> bool:
        """Whether a value that is not in the list stays as it is."""
        return self.on_miss == "keep"


class Map(_Lookup):
    """Replace a value by what stands beside it in a list written here."""

    name: ClassVar[str] = "map"
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{map: {SEG: MO, TER: TU}}", "SEG", "MO"),
        Shown("{map: {Concertos: music}, ignore: [case]}", "CONCERTOS", "music"),
        Shown("{map: {SEG: MO}}", "XYZ", ReasonCode.NOT_IN_LOOKUP),
        Shown("{map: {Fair: [market, food], Jazz: music}}", "Fair", ("market", "food")),
        Shown("{map: {A: music}, on_miss: {use: culture}}", "B", "culture"),
        Shown("{map: {Lisbon: Lisboa}, on_miss: keep}", "Porto", "Porto"),
        Shown("{map: {jazz: music, expo: art}, match: keyword, ignore: [case]}", "Late Jazz night", "music"),
    )
    table: dict[str, Texts] = Field(
        alias="map", min_length=1, description="The known values, and what each becomes: a text, or a list of them."
    )
    match: Match = Field(default="whole", description=MATCH)

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        check_match(self.match, tuple(self.table), self.ignore)
        if self.keeps and self.gives_several:
            raise mistake("a value that is kept is one text, and this list gives several", "leave on_miss: keep out")
        return self

    def function(self) -> Run:
        """Return the step's function."""
        return find_in([(key, list(texts)) for key, texts in self.table.items()], self.search, tuple(self.table))

    @property
    def search(self) -> Search:
        """How the list is searched."""
        return Search(ignore=self.ignore, many=self.gives_several, match=self.match, keeps=self.keeps)

    @property
    def gives_several(self) -> bool:
        """A list where a value becomes several."""
        return any(len(texts) > 1 for texts in self.table.values())


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
        return self._over(table_finder(tables[self.file], self.search))

    @property
    def search(self) -> Search:
        """How the file is searched."""
        return Search(take=self.take, ignore=self.ignore, many=self.many, keeps=self.keeps)

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
        check_columns(table_of(self.file, info), self.search)
        return self


class Lookup(_TableLookup):
    """Replace a value by what a CSV file says of it: its first column is the key, the others are the result."""

    name: ClassVar[str] = "lookup"
    gives: ClassVar[Kind] = Kind.ANY
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{lookup: categories.csv}", "categories/music/jazz", "music"),
        Shown("{lookup: categories.csv}", "categories/music/jaz", ReasonCode.NOT_IN_LOOKUP),
        Shown("{lookup: categories.csv, match: prefix}", "music/fado", "music"),
        Shown("{lookup: categories.csv, match: keyword}", "live music, food", "music"),
    )
    source: TableFile = Field(alias="lookup", description="The lookup file, a CSV with a header.")
    match: Match = Field(default="whole", description=MATCH)

    @property
    def search(self) -> Search:
        """How the file is searched."""
        return Search(take=self.take, ignore=self.ignore, many=self.many, match=self.match, keeps=self.keeps)

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
    on_miss: Policy | None = Field(default=None, description=_MISS.partition(";")[0] + ".")

    @property
    def file(self) -> str:
        """The name of the lookup file."""
        return self.source

    def _over(self, find: Run) -> Run:
        def last_in(items: list[Any]) -> Found:
            segments = [text_of(item) for item in items]  # a list may hold times and numbers
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
