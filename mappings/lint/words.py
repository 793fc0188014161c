"""Compares the fixed texts that may end in a field with the few values that the service is known to take there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mappings.lint.warnings import FILL_IN
from mappings.lookup_table import Table
from mappings.positions import Loc, MappingProblem, walk
from mappings.reasons import did_you_mean


class _Words(NamedTuple):
    """The values of a field that the specification names. `is_closed`: there are no others."""

    known: tuple[str, ...]
    is_closed: bool


_STATUS, _AVAILABILITY = _Words(("draft", "published"), is_closed=True), _Words(("available",), is_closed=False)


def find_unknown_words(document: Mapping[str, Any], tables: Mapping[str, Table], *, are_closed: bool) -> Iterator[MappingProblem]:
    """Yield a problem for each fixed text that is not a known value of its field, of the fields whose list is closed or is not.

    A text directly in the field `status` is left to the check of constants.
    """
    let = document.get("let")
    names = let if isinstance(let, dict) else {}
    for at, node in walk(document.get("event"), ("event",)):
        words = _words_of(at)
        if words is None or words.is_closed is not are_closed or (are_closed and isinstance(node, str) and node[:1] != "$"):
            continue
        path, found = "status" if are_closed else "offers[].availability", dict[str, Loc]()
        for text, loc in _texts(node, at, names, tables, frozenset()):
            if text not in words.known and text != FILL_IN:
                found.setdefault(text, loc)
        for text, loc in found.items():
            near = did_you_mean(text, words.known)
            if are_closed:
                yield MappingProblem(loc, f'"{text}" is not accepted as {path}', near or f"expected {' or '.join(words.known)}")
            else:
                hint = "; ".join(filter(None, (near, "see with one event whether the service takes another value")))
                message = f'"{text}" is not a value that the service is known to take as {path}: {", ".join(words.known)}'
                yield MappingProblem(loc, message, hint)


def _words_of(loc: Loc) -> _Words | None:
    if loc == ("event", "status"):
        return _STATUS
    return (
        _AVAILABILITY
        if loc[-1] in {"availability", "offers.availability"} and "offers" in str(loc[1]) and "do" not in loc
        else None
    )


def _texts(
    node: object, loc: Loc, let: Mapping[str, Any], tables: Mapping[str, Table], used: frozenset[str]
) -> Iterator[tuple[str, Loc]]:
    """Yield the fixed texts that a value may give, each with its position; none that another step changes."""
    if isinstance(node, str):
        name = node.removeprefix("$")
        if name == node:
            yield node, loc
        elif name in let and name not in used:
            yield from _texts(let[name], ("let", name), let, tables, used | {name})
    elif isinstance(node, list):
        for place, one in enumerate(node):
            yield from _texts(one, (*loc, place), let, tables, used)
    elif isinstance(node, dict):
        do = node.get("do", [])
        *before, last = [(loc, None), *(((*loc, "do", at), step) for at, step in enumerate(do if isinstance(do, list) else [do]))]
        yield from _looked_up(*last, tables)
        inner = (
            []
            if before
            else [("first_of",), ("otherwise",), *(("choose", at, "then") for at in range(len(node.get("choose", ()))))]
        )
        policies = [(policy, "use") for policy in ("on_empty", "on_error")]
        for way in (*inner, *policies):
            if (part := _reach(node, way)) is not None:
                yield from _texts(part, (*loc, *way), let, tables, used)
        yield from _looked_up(loc, node, tables) if not before else ()


def _looked_up(loc: Loc, node: object, tables: Mapping[str, Table]) -> Iterator[tuple[str, Loc]]:
    """Yield the results of a list in the mapping or of a lookup file, and those for values that are not in it."""
    if not isinstance(node, dict):
        return
    listed = node.get("map")
    for key, texts in listed.items() if isinstance(listed, dict) else ():
        yield from (
            (text, (*loc, "map", key)) for text in (texts if isinstance(texts, list) else [texts]) if isinstance(text, str)
        )
    if (table := tables.get(str(node.get("lookup", "")))) is not None:
        by, take = node.get("by"), node.get("take")
        names = [take] if isinstance(take, str) else take or table.columns[len(by) if isinstance(by, list) else 1 :]
        for name in names if len(names) == 1 and names[0] in table.columns else ():
            yield from ((row[table.columns.index(name)], (*loc, "lookup")) for row in table.rows)
    if isinstance(missed := _reach(node, ("on_miss", "use")), str):
        yield missed, (*loc, "on_miss", "use")


def _reach(node: Any, way: tuple[str | int, ...]) -> object:
    for part in way:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return None
    return node
