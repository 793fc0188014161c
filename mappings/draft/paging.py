"""Guesses how the pages of a JSON API follow one another, from its first page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from mappings.draft.guesses import Guess
from mappings.draft.source import SourceGuess

_NEXT = ("next_rest_url", "next_url", "next_page_url", "nextLink", "@odata.nextLink", "next.href", "next")
_CURSORS = ("continuation", "next.after", "offset", "after", "next_cursor", "nextCursor", "next_page_token", "nextPageToken")
"""The ends of the paths of cursors; the parameter that takes one has its last name, without `next`."""
_NEXT_OF = re.compile("^next_?(.)")
_LAST = ("total_pages", "totalPages", "page_count", "last_page", "lastPage")
_TOTALS = ("object_count", "total_count", "totalCount", "total_results", "totalResults", "total", "count")
_MORE = ("has_more_items", "has_more", "hasMore")


def guess_pages(guess: SourceGuess, content: bytes, *, has_link: bool) -> SourceGuess:
    """Return the guess for an address that answers JSON: of kind `rest` if the answer names a next page or a number of pages.

    `has_link`: its header `Link` names a next page.
    """
    records = str(guess.settings.get("records", ""))
    if "*" in records or "[" in records:
        return guess
    try:
        found = dict(_leaves(orjson.loads(content), records))
    except ValueError:  # of a large document only the beginning is examined
        return guess
    if has_link:
        why = {**guess.why, "kind": "the header `Link` of the answer names a next page"}
        return SourceGuess({**guess.settings, "kind": "rest", "pages": {"link": "next"}}, why)
    if not (pages := _way(found)):
        return _asked(guess, found, len(found.get(records, ())))
    others = {"total": _path(found, _TOTALS, int), "more": _path(found, _MORE, bool)}
    pages |= {name: path for name, path in others.items() if path}
    named = ", ".join(f'"{path}"' for path in pages.values() if path in found)
    why = {**guess.why, "kind": f"the answer is one page of several: it holds {named}", "pages": f"the answer holds {named}"}
    return SourceGuess({**guess.settings, "kind": "rest", "pages": pages}, why, frozenset({"pages"}))


def _asked(guess: SourceGuess, found: Mapping[str, Any], count: int) -> SourceGuess:
    """Return the guess with a question if the answer says that there are more records than it holds."""
    total = _path(found, _TOTALS, int)
    if not total or found[total] <= count:
        return guess
    why = f'the answer says "{total}": {found[total]} and holds {count}: if it is one page of several, write `kind: rest`'
    return replace(guess, faults=(*guess.faults, Guess("source.pages", "", "unsure", f"{why}, with `pages`")))


def _way(found: Mapping[str, Any]) -> dict[str, str]:
    for name in _NEXT:
        path = _path(found, (name,), str)
        if path and str(found[path]).startswith(("http://", "https://", "/", "?")):
            return {"next_url": path}
    for name in _CURSORS:
        if path := _path(found, (name,), str) or _path(found, (name,), list):
            param = _NEXT_OF.sub(lambda first: first[1].lower(), name.rpartition(".")[2])
            return {"cursor": path, "param": f"{param}[]" if isinstance(found[path], list) else param}
    last = _path(found, _LAST, int)
    return {"page": "page", "last": last} if last and found[last] > 1 else {}


def _path(found: Mapping[str, Any], names: tuple[str, ...], kind: type) -> str:
    """Return the first path that ends with one of the names and holds a filled value of this type, "" if there is none."""
    ends = (path for name in names for path in found if path == name or path.endswith(f".{name}"))
    return next((path for path in ends if type(found[path]) is kind and found[path] not in ("", [])), "")


def _leaves(node: Any, records: str, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the list of records and the values beside it, with their paths."""
    if isinstance(node, dict):
        for name, inner in node.items():
            inside = f"{path}.{name}" if path else name
            yield from ((inside, inner),) if inside == records else _leaves(inner, records, inside)
    elif not isinstance(node, list) or not any(isinstance(one, dict | list) for one in node):
        yield path, node
