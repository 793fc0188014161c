"""Finds what a sample has in lists of objects (JSON in its cells): the first item's values, and lists of dates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson

from mappings.draft.guesses import Column, Guess, Role, RoleGuess, is_id, read_columns, roles_by_name

_PLAIN_NAME = re.compile(r"[^.\[\]]+")
_WHEN = frozenset({Role.START, Role.CLOCK, Role.END, Role.END_CLOCK, Role.ASIDE})
_OF_OTHERS = _WHEN - {Role.START, Role.CLOCK}
_DAYS = frozenset({"date", "datetime", "moment"})
_DEEPEST = 6


def _objects(cell: str) -> list[dict[str, Any]]:
    """Return the objects in a cell that is a list of them, else nothing."""
    with suppress(orjson.JSONDecodeError):
        found = orjson.loads(cell) if cell[:1] == "[" and "{" in cell[:20] else None
        if isinstance(found, list) and all(isinstance(item, dict) for item in found):
            return found
    return []


def _cells(item: Mapping[str, Any], path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the values of an object by their paths, lists as JSON."""
    for name, value in item.items():
        if isinstance(value, dict):
            yield from _cells(value, f"{path}.{name}", depth + 1) if depth < _DEEPEST else ()
        elif _PLAIN_NAME.fullmatch(name):
            text = value if isinstance(value, str) else "" if value is None else orjson.dumps(value).decode()
            yield f"{path}.{name}", text


def first_values(names: Sequence[str], rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the columns of the first items of lists, like `location[0].name`, with that of a single object, `location.name`.

    The former reads an object as well. Days and times are left out: those of a list are several.
    """
    items = ((name, found[0]) for name in names for row in rows if (found := _objects(row.get(name, ""))))
    paths = dict.fromkeys((name, path) for name, item in items for path, text in _cells(item, "") if text)
    return {f"{name}[0]{path}": name + path for name, path in paths if not _WHEN & roles_by_name(path).keys()}


@dataclass(frozen=True, slots=True)
class DatedList:
    """A column whose cells are lists of objects with days. `columns`: those of the rows and of the items, a row for each item.

    `key`: the columns that distinguish the items of a row.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    guess: Guess


def dated_list(columns: Sequence[Column], roles: Mapping[Role, RoleGuess]) -> DatedList | None:
    """Return the longest list with days, None if there is none; with columns only if it makes several events of a row.

    It does not where the rows have days of their own.
    """
    found = filter(None, (_read_list(columns, column) for column in columns))
    longest = max(found, key=lambda one: len(one.columns[0].cells), default=None)
    start = roles.get(Role.START)
    if longest and start and start.surety != "unsure":
        own = f'the draft reads the days in "{start.column.name}": write `explode` if each item is an event'
        why = f"{longest.guess.why}; {own}"
        return replace(longest, columns=(), guess=replace(longest.guess, surety="unsure", why=why))
    return longest


def _read_list(columns: Sequence[Column], column: Column) -> DatedList | None:
    lists = [_objects(cell) for cell in column.cells]
    items = [(row, dict(_cells(item, column.name))) for row, found in enumerate(lists) for item in found]
    names = list(dict.fromkeys(name for _, cells in items for name in cells))
    local = [Column(name.removeprefix(f"{column.name}."), tuple(cells.get(name, "") for _, cells in items)) for name in names]
    begins = (one for one in local if Role.START in one.roles and not _OF_OTHERS & one.roles.keys())
    days = [one for one in begins if one.times and one.times.kind in _DAYS]
    if not days:
        return None
    whole = [one for one in local if is_id(one) and one.is_full]
    places = [row for row, _ in items]
    single = next((one for one in whole if len(set(zip(places, one.cells, strict=True))) == len(places)), None)
    clocks = [one for one in local if Role.CLOCK in one.roles and one.times and not Role.ASIDE & one.roles.keys()]
    key = tuple(f"{column.name}.{one.name}" for one in ([single] if single else [*days[:1], *clocks[:1]]))
    many = sum(len(found) > 1 for found in lists)
    what = "identifies each" if single else "distinguish them: ask the partner for an identifier"
    why = f"{len(items):,} items with days in {len(lists):,} rows, several in {many:,}; {', '.join(key)} {what}"
    others = [one for one in columns if one is not column and not one.name.startswith(f"{column.name}[0]")]
    rows = [
        {one.name: one.cells[row] for one in others} | cells
        for row, found in enumerate(lists)
        for cells in ([dict(_cells(item, column.name)) for item in found] or [{}])
    ]
    joined = {one.name: one.joined_by for one in others}
    read = read_columns([*(one.name for one in others), *names], rows, joined, {one.name: one.choices for one in others})
    return DatedList(column.name, read, key, Guess("explode", column.name, "likely" if single else "unsure", why))
