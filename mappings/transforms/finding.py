"""Lists searched: a value's key found in a table or an inline list, and a miss told with the nearest known key.

How a mapping file asks for it is `lookups`'s and `values`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from mappings.measures import mistake
from mappings.refusals import Refusal, nearest
from mappings.tables import Ignorable, Result, Table, TableError, index, normaliser
from mappings.transforms.matching import Match, check_match, meeting
from mappings.vocabulary import ReasonCode

_MEMO = 4096
Found = Result | list[Result]
Find = Callable[[str], Found]
"""Returns what a list says of a key, or raises Refusal."""


@dataclass(frozen=True, slots=True)
class Search:
    """How a list is searched: the first `keys` columns are the key, `take` (or all others) the result.

    `many`: a key may have several results, and all are wanted. `keeps`: a value that is not in the list stays as it is.
    """

    keys: int = 1
    take: tuple[str, ...] | None = None
    ignore: tuple[Ignorable, ...] = ()
    many: bool = False
    match: Match = "whole"
    keeps: bool = False


def split_columns(table: Table, keys: int, take: tuple[str, ...] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key columns (the first `keys` of the table) and the result columns."""
    return table.columns[:keys], take or table.columns[keys:]


def check_columns(table: Table | None, search: Search) -> None:
    """Check that a table has the columns a lookup needs, and one row a key unless `many` are meant.

    Raises:
        PydanticCustomError: what is wrong, for the author of the feed.
    """
    if table is None:
        return
    key_columns, results = split_columns(table, search.keys, search.take)
    if len(key_columns) < search.keys or not results:
        told = f"{table.name} has {len(table.columns)} columns: {search.keys} for the key leave none for the result"
        raise mistake(told, "add a column with the result to the file, or look up by fewer values")
    if search.keeps and len(results) > 1:
        raise mistake("a value that is kept is one text, and the lookup gives an object", "take one column")
    try:
        indexed = _indexed(table, search)
    except TableError as error:
        raise mistake(str(error), "name one of these columns, or correct the header of the file") from error
    check_match(search.match, tuple(indexed), search.ignore)
    twice = [key for key, rows in indexed.items() if len(rows) > 1]
    if twice and not search.many:
        shown = twice[0].replace("\x1f", ", ")
        raise mistake(f'{table.name} says different things of "{shown}"', "say many: true if several results are meant")


def table_finder(table: Table, search: Search) -> Find:
    """Return the lookup of a key (of several, with a unit separator between the parts) in a table."""
    known = tuple(dict.fromkeys(", ".join(cells[: search.keys]) for cells in table.rows))
    find = find_in(list(_indexed(table, search).items()), search, known)
    return find if table.met is None else _noted(find, table, search, table.met)


def find_in(listed: Sequence[tuple[str, list[Result]]], search: Search, known: Iterable[str]) -> Find:
    """Return the lookup of a key in a list of keys and their results; `known` are the spellings that a miss may name."""
    seek = _whole(listed, search) if search.match == "whole" else _met(listed, search)
    spellings = tuple(known)

    @lru_cache(maxsize=_MEMO)
    def answer(key: str) -> Found | Refusal:
        found = seek(key)
        if found:
            return found if search.many else found[0]
        return key if search.keeps else missed(key, spellings, search.match)

    def find(key: str) -> Found:
        found = answer(key)
        if type(found) is Refusal:
            raise found.with_traceback(None)
        return found  # type: ignore[return-value] # a Refusal has no subclass here

    return find


def places_met(keys: Iterable[str], search: Search) -> Callable[[str], list[int]]:
    """Return what tells which of these keys, by their places, a text meets; a list searched so gives what stands there."""
    is_whole = search.match == "whole"
    same = normaliser(search.ignore)
    form: Callable[[str], str] = lambda key: "\x1f".join(map(same, key.split("\x1f"))) if is_whole else key  # noqa: E731 - said once
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(form(key), []).append(place)
    if is_whole:
        return lambda text: places.get(form(text), [])
    meet = meeting(search.match, tuple(places), search.ignore)
    return lambda text: [place for key in islice(meet(text), None if search.many else 1) for place in places[key]]


def _noted(find: Find, table: Table, search: Search, met: set[int]) -> Find:
    """Return the same lookup, which notes the rows that it finds."""
    places = lru_cache(maxsize=_MEMO)(places_met(("\x1f".join(cells[: search.keys]) for cells in table.rows), search))

    def noted(key: str) -> Found:
        met.update(places(key))
        return find(key)

    return noted


def missed(key: str, known: tuple[str, ...], match: Match = "whole") -> Refusal:
    """Return the refusal of a key that is not in a list: it names the nearest, or some of what is."""
    near = nearest(key, known) if match == "whole" else ""
    if near:
        return Refusal(ReasonCode.NOT_IN_LOOKUP, f'is "{near}" meant? Otherwise add "{key}" to the list', found=key)
    some = ", ".join(f'"{word}"' for word in known[:5])
    return Refusal(ReasonCode.NOT_IN_LOOKUP, f"the list has {some}{', ...' if len(known) > 5 else ''}", found=key)


def part_missed(table: Table, search: Search) -> Callable[[tuple[str, ...]], tuple[int, Refusal]]:
    """Return what tells of key values that a table does not have together: the place of the first unknown, and its refusal.

    What stands beside the values before it is what would be accepted there.
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
    def told(parts: tuple[str, ...]) -> tuple[int, Refusal]:
        key, known = tuple(map(normalise, parts)), beside()
        place = next((n for n, part in enumerate(key) if part not in known.get(key[:n], {})), len(key) - 1)
        return place, missed(parts[place], tuple(known.get(key[:place], {}).values()))

    return told


def _indexed(table: Table, search: Search) -> dict[str, list[Result]]:
    key_columns, results = split_columns(table, search.keys, search.take)
    return index(table, key_columns, results, () if search.match == "regex" else search.ignore)


def _whole(listed: Sequence[tuple[str, list[Result]]], search: Search) -> Callable[[str], list[Result]]:
    one = normaliser(search.ignore)
    normalise = one if search.keys == 1 else lambda key: "\x1f".join(map(one, key.split("\x1f")))
    results = {normalise(key): found for key, found in listed}
    return lambda key: results.get(normalise(key), [])


def _met(listed: Sequence[tuple[str, list[Result]]], search: Search) -> Callable[[str], list[Result]]:
    results = dict(listed)
    meet = meeting(search.match, tuple(results), search.ignore)

    def met(text: str) -> list[Result]:
        found: list[Result] = []
        for key in meet(text):
            found.extend(result for result in results[key] if result not in found)
            if not search.many:
                break
        return found

    return met
