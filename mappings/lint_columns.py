"""Where a mapping file names the columns of its source, and what to say of those that the source does not have.

Which columns a source has is found out by whoever can read it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mappings.spots import Loc, Problem

_NAMING = ("from", "column", "by_column")


def find_missing_columns(
    document: Mapping[str, Any], missing: Collection[str], nearest: Mapping[str, str], source: str
) -> Iterator[Problem]:
    """Yield each place that names a missing column; `nearest` are columns of the source that are spelt alike."""
    for name in missing:
        near = nearest.get(name)
        hint = f'did you mean "{near}"?' if near else "add it to `optional` in the source, if the partner leaves it out at times"
        for loc in _places(document, name):
            yield Problem(loc, f'{source} has no column "{name}"', hint)


def _places(document: Mapping[str, Any], name: str) -> Iterator[Loc]:
    yield from (("key", *loc) for loc in _named_in_list(document.get("key"), name))
    source = document.get("source")
    if isinstance(source, dict):
        yield from (("source", "required", *loc) for loc in _named_in_list(source.get("required"), name))
    for part in ("let", "rows", "event"):
        yield from ((part, *loc) for loc in _named_by(document.get(part), name))


def _named_in_list(value: object, name: str) -> Iterator[Loc]:
    if value == name:
        yield ()
    for position, inner in enumerate(value if isinstance(value, list) else ()):
        if inner == name or (isinstance(inner, dict) and inner.get("column") == name):
            yield (position,)


def _named_by(value: object, name: str) -> Iterator[Loc]:
    if isinstance(value, dict):
        yield from ((key,) for key in _NAMING if value.get(key) == name)
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from ((key, *loc) for loc in _named_by(inner, name))
