"""Ways in which a text meets the keys of a list: as a whole, by its beginning, by a word in it, by a pattern.

What the list then says is `lookups`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from mappings.measures import mistake, parse_pattern
from mappings.patterns import compile_pattern
from mappings.tables import Ignorable, normaliser
from mappings.transforms.patterns import short_enough

Match = Literal["whole", "prefix", "keyword", "regex"]
MATCH = (
    "How a value meets a key of the list. whole: they are alike; prefix: it begins with the key, the longest counts; keyword:"
    " the key stands in it as a whole word; regex: the key is a pattern that finds something in it; the first in the list counts."
)
Meet = Callable[[str], Iterator[str]]
"""Yields the keys that a text meets, the best first."""


def check_match(match: Match, keys: Sequence[str], ignore: Sequence[Ignorable]) -> None:
    """Check that the keys of a list can be met in this way.

    Raises:
        PydanticCustomError: a key is no pattern, or what is to be ignored cannot be.
    """
    if match == "regex":
        for key in keys:
            parse_pattern(key)
        if set(ignore) - {"case"}:
            raise mistake("patterns can ignore case only", "write what may differ into the pattern")
    if match == "keyword" and "spaces" in ignore:
        raise mistake("without spaces there are no words to look for", "leave `spaces` out of `ignore`")


def meeting(match: Match, keys: Sequence[str], ignore: Sequence[Ignorable]) -> Meet:
    """Return the function that yields the `keys` (as the list spells them, in its order) that a text meets."""
    same = normaliser(ignore)
    pairs = [(same(key), key) for key in keys]
    match match:
        case "whole":
            return lambda text: (key for form, key in pairs if form == same(text))
        case "prefix":
            longest_first = sorted(pairs, key=lambda pair: -len(pair[0]))
            return lambda text: (key for form, key in longest_first if same(text).startswith(form))
        case "keyword":
            words = [(form, re.compile(rf"(?<!\w){re.escape(form)}(?!\w)").search, key) for form, key in pairs]
            return lambda text: _words_in(same(text), words)
        case "regex":
            patterns = [(compile_pattern(key, ignore_case="case" in ignore).finds, key) for key in keys]
            return lambda text: (key for finds, key in patterns if finds(short_enough(text)))


def _words_in(text: str, words: Sequence[tuple[str, Callable[[str], object], str]]) -> Iterator[str]:
    return (key for form, search, key in words if form in text and search(text))
