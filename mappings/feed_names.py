"""Which mapping files of a folder may hold the feeds of some names, found in each file's text without reading it as YAML."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

_NAME = re.compile(rb"""^feed:[ \t]+(["']?)([a-z0-9_-]+)\1[ \t]*(?:#[^\n]*)?\r?$""", re.MULTILINE)


def same_name(feed: str) -> str:
    """Return a feed's name as names are compared: those that differ in `-` and `_` only are one."""
    return feed.replace("-", "_")


def may_be_named(paths: Sequence[Path], wanted: Collection[str]) -> list[Path]:
    """Return those files, in their order, that are called so or may hold a feed of one of these names.

    Every file that claims the same name as one of them is among them, so that of two with one name the later stays
    broken; and every file whose name only YAML can read.
    """
    claims = {path: _claimed(path) for path in paths}
    names = {same_name(name) for name in wanted} | {claim for path, claim in claims.items() if path.stem in wanted}
    return [path for path, claim in claims.items() if not claim or claim in names or path.stem in wanted]


def _claimed(path: Path) -> str:
    """Return the name that a file gives its feed; "" if that takes reading it as YAML."""
    try:
        names = [match[2].decode() for match in _NAME.finditer(path.read_bytes())]
    except OSError:
        return ""
    return same_name(names[0]) if len(names) == 1 else ""
