"""Rows of lookup files, and keys of maps, that no row of the source asks for: leftovers, or keys that are misspelt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mappings.lookup_table import Table
from mappings.positions import Block, Loc, MappingProblem, walk
from mappings.spec.feed import FeedMapping
from mappings.steps.lookups import Map, places_met

_ENOUGH = 10
"""So many rows of the source for each row of a list: fewer do not show that a row of the list is not needed."""
_SHOWN = 3
_HINT = "is it left over, or spelt otherwise than in the source? A source may also be without it for a season"


@dataclass(frozen=True, slots=True)
class LookedAt:
    """What the lookups were asked for: the file of the rows by its name, and how many rows it has."""

    source: str
    rows: int


@dataclass(slots=True)
class LookupUse:
    """A mapping whose lookups note what they find, while its rows are mapped. Call `watch` at every step."""

    mapping: FeedMapping
    _reached: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def watch(self, path: str, step: str, value: Any, _result: Any) -> None:
        """Note what reaches the maps of a field, or of a named value."""
        if step == Map.name:
            self._reached[path].update(one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str))

    def find_unasked(self, document: Mapping[str, Any], looked: LookedAt, shared: Collection[str]) -> Iterator[MappingProblem]:
        """Yield each list of the `document` with what no row asked for; nothing of files that are `shared` with other feeds.

        Those are lookup files, as the mapping names them, and files that it includes, by their paths.
        """
        places = [place for place in _places(document) if not _stands_in(place[1], shared)]
        for name, table in self.mapping.tables.items():
            if name not in shared and looked.rows >= _ENOUGH * len(table.rows):
                yield from _of_table(table, _place_of(name, places), looked)
        yield from self._of_maps(places, looked)

    def _of_maps(self, places: Sequence[tuple[Loc, Mapping[str, Any]]], looked: LookedAt) -> Iterator[MappingProblem]:
        found: dict[str, tuple[Loc, Map, set[str]]] = {}
        for loc, block in places:
            if _is_map(loc, block):
                step = Map.model_validate(block)
                _, _, texts = found.setdefault(repr(step), ((*loc, Map.name), step, set()))  # one list may stand in many places
                texts.update(*(self._reached[path] for path in _paths(loc) if path in self._reached))
        for loc, step, texts in found.values():
            keys = tuple(step.table)
            if texts and looked.rows >= _ENOUGH * len(keys):
                places_of = places_met(keys, step.search)
                met = {place for text in texts for place in places_of(text)}
                shown = [f'"{key}"' for place, key in enumerate(keys) if place not in met]
                yield from _told(loc, "", shown, looked)


def asked(mapping: FeedMapping) -> LookupUse:
    """Return the same mapping, made to note what is asked of its lookup files."""
    tables = {name: replace(table, met=set()) for name, table in mapping.tables.items()}
    return LookupUse(mapping.loaded(mapping.path, mapping.digest, tables, mapping.warnings))


def _of_table(table: Table, loc: Loc, looked: LookedAt) -> Iterator[MappingProblem]:
    if table.met:  # a file that is not asked at all is another matter
        lines = [str(line) for place, line in enumerate(table.lines) if place not in table.met]
        yield from _told(loc, f"{table.name}:", lines, looked)


def _told(loc: Loc, before: str, unasked: Sequence[str], looked: LookedAt) -> Iterator[MappingProblem]:
    if unasked:
        them = "it" if len(unasked) == 1 else "them"
        told = f"{before}{_few(unasked)}: no row of {looked.source} asks for {them}; {looked.rows:,} rows looked at"
        yield MappingProblem(loc, told, _HINT)


def _few(words: Sequence[str]) -> str:
    if len(words) <= _SHOWN:
        return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return f"{', '.join(words[: _SHOWN - 1])} and {len(words) - _SHOWN + 1} more"


def has_lists(mapping: FeedMapping, document: Mapping[str, Any]) -> bool:
    """Return whether a mapping has anything that may be asked."""
    return bool(mapping.tables) or any(_is_map(*place) for place in _places(document))


def _places(document: Mapping[str, Any]) -> list[tuple[Loc, Mapping[str, Any]]]:
    return [place for part in ("let", "event") for place in walk(document.get(part), (part,)) if isinstance(place[1], dict)]


def _stands_in(block: Mapping[str, Any], files: Collection[str]) -> bool:
    """Whether a part of a document was written in one of these files, and included from there."""
    file = block.position.file if isinstance(block, Block) else None
    return file is not None and str(file.path) in files


def _is_map(loc: Loc, block: Mapping[str, Any]) -> bool:
    return "do" in loc[-2:] and isinstance(block.get(Map.name), dict)


def _place_of(table: str, places: Sequence[tuple[Loc, Mapping[str, Any]]]) -> Loc:
    """Return where the file names a table first; one that is named by an included file only, at `include`."""
    named = ((*loc, key) for loc, block in places for key in ("lookup", "last_in") if block.get(key) == table)
    return next(named, ("include",))


def _paths(loc: Loc) -> Iterator[str]:
    """Yield each field, or named value, that a place in the file may belong to, as explanations spell them."""
    path = "$" if loc[0] == "let" else ""
    for part in loc[1:]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path.strip("$") else part
        yield path
