"""Paths into an event's payload as services spell them: `offers[0].url`, `/offers/0/url`, `body.offers.url` are one place.

Pure. What a path stands for in an answer is the reader's matter.
"""

from __future__ import annotations

import re

_PLACES = re.compile(r"\[\d*\]|/\d+(?=/|$)")


def is_same_place(told: str, ours: str) -> bool:
    """Compare two paths whatever the service's spelling."""
    one, other = _plain(told), _plain(ours)
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


def last_name(path: str) -> str:
    """Return the last name of a path of ours."""
    return _PLACES.sub("", path).rpartition(".")[2]


def words_of(*texts: str) -> set[str]:
    """Return the words of a service's sentences, without regard to case."""
    return set(re.findall(r"\w+", " ".join(texts).casefold()))


def _plain(path: str) -> str:
    return ".".join(filter(None, re.split(r"[./]", _PLACES.sub("", path)))).casefold()
