"""Rows of lookup files, and keys of maps, that no row of the source asks for: leftovers, or keys that are misspelt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mappings.positions import Block, Loc, MappingProblem, walk
from mappings.spec.feed import FeedMapping
from mappings.steps.lookups import Map, places_met

_ENOUGH = 10
"""So many rows of the source for each row of a list: fewer do not show that a row of the list is not needed."""
_SHOWN = 3
_Place = tuple[Loc, Mapping[str, Any]]


class LookupUse:
    """A copy of a mapping whose lookups note what they find, while its rows are mapped. Call `watch` at every step."""

    def __init__(self, mapping: FeedMapping) -> None:
        tables = {name: replace(table, met=set()) for name, table in mapping.tables.items()}
        self.mapping = mapping.loaded(mapping.path, mapping.digest, tables, mapping.warnings)
        self._reached: defaultdict[str, set[str]] = defaultdict(set)

    def watch(self, path: str, step: str, value: Any, _result: Any) -> None:
        """Note what reaches the maps of a field, or of a named value."""
        if step == Map.name:
            self._reached[path].update(one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str))

    def find_unasked(
        self, document: Mapping[str, Any], source: str, rows: int, shared: Collection[str]
    ) -> Iterator[MappingProblem]:
        """Yield each list of the `document` with what none of so many rows of the source asked for.

        Nothing is said of files that are `shared` with other feeds: lookup files, as the mapping names them, and files that
        it includes, by their paths.
        """
        places = [(loc, block) for loc, block in _blocks(document) if _included_from(block) not in shared]
        for loc, before, count, unasked in (*self._tables(places, shared), *self._maps(places)):
            if unasked and rows >= _ENOUGH * count:
                few = unasked if len(unasked) <= _SHOWN else [*unasked[: _SHOWN - 1], f"{len(unasked) - _SHOWN + 1} more"]
                shown = " and ".join(filter(None, (", ".join(few[:-1]), few[-1])))
                them = "it" if len(unasked) == 1 else "them"
                message = f"{before}{shown}: no row of {source} asks for {them}; {rows:,} rows looked at"
                hint = "is it left over, or spelt otherwise than in the source? A source may also be without it for a season"
                yield MappingProblem(loc, message, hint)

    def _tables(self, places: Sequence[_Place], shared: Collection[str]) -> Iterator[tuple[Loc, str, int, list[str]]]:
        for name, table in self.mapping.tables.items():
            if name not in shared and table.met:  # a file that is not asked at all is another matter
                named = ((*loc, key) for loc, block in places for key in ("lookup", "last_in") if block.get(key) == name)
                unasked = [str(line) for place, line in enumerate(table.lines) if place not in table.met]
                yield next(named, ("include",)), f"{name}:", len(table.rows), unasked

    def _maps(self, places: Sequence[_Place]) -> Iterator[tuple[Loc, str, int, list[str]]]:
        found: dict[str, tuple[Loc, Map, set[str]]] = {}  # one list may stand in many places
        for loc, block in places:
            if _is_map(loc, block):
                step = Map.model_validate(block)
                _, _, texts = found.setdefault(repr(step), ((*loc, Map.name), step, set()))
                texts.update(*(self._reached[path] for path in _paths(loc) if path in self._reached))
        for loc, step, texts in found.values():
            if texts:
                keys = tuple(step.table)
                places_of = places_met(keys, step.search)
                met = {place for text in texts for place in places_of(text)}
                yield loc, "", len(keys), [f'"{key}"' for place, key in enumerate(keys) if place not in met]


def has_lists(mapping: FeedMapping, document: Mapping[str, Any]) -> bool:
    """Return whether a mapping has anything that may be asked."""
    return bool(mapping.tables) or any(_is_map(loc, block) for loc, block in _blocks(document))


def _blocks(document: Mapping[str, Any]) -> Iterator[_Place]:
    places = (place for part in ("let", "event") for place in walk(document.get(part), (part,)))
    return (place for place in places if isinstance(place[1], dict))


def _included_from(block: Mapping[str, Any]) -> str:
    """Return the path of the included file that a part of a document was written in, "" for the feed's own."""
    file = block.position.file if isinstance(block, Block) else None
    return "" if file is None else str(file.path)


def _is_map(loc: Loc, block: Mapping[str, Any]) -> bool:
    return "do" in loc[-2:] and isinstance(block.get(Map.name), dict)


def _paths(loc: Loc) -> Iterator[str]:
    """Yield each field, or named value, that a place in the file may belong to, as explanations spell them."""
    path = "$" if loc[0] == "let" else ""
    for part in loc[1:]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path.strip("$") else part
        yield path
