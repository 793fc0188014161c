from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from mappings.errors import MappingFileError
from mappings.repetition import may_never_end
from mappings.schema import FeedMapping
from mappings.transforms.text import Newlines


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"(?:a*)*b",
        r"(\w+\s?)*$",
        r"^(\s*\w+\s*)+$",
        r"((a+))+",
        r"(x|a+)+$",
        r"(a+?){5,}",
        r"(?:b(?:a+)+)?",
        r"([a-z]+)*\d",
    ],
)
def test_a_repetition_of_a_repetition_is_seen(pattern: str) -> None:
    assert may_never_end(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(\d+,)*",
        r"(?:[A-Z][a-z]+\s*)+",
        r"desde (\d+) €",
        r"\s*\(.*?\)",
        r"(\w++\s?)*",
        r"(?>\w+)*",
        r"(a+){1,3}",
        r"^(.*?,){11}P",
        r"#(\w+)",
        r"/online$",
        r"(\d{1,2}:\d\d) \(UTC",
        "",
    ],
)
def test_a_repetition_with_an_end_of_its_own_is_allowed(pattern: str) -> None:
    re.compile(pattern)
    assert not may_never_end(pattern)


@pytest.mark.parametrize(
    "event",
    ["title: {from: T, do: [{regex_extract: '(a+)+$'}]}", "title: {choose: [{when: {column: T, matches: '(a+)+$'}, then: x}]}"],
)
def test_such_a_pattern_is_a_mistake_of_the_file_wherever_it_stands(build: Callable[..., FeedMapping], event: str) -> None:
    with pytest.raises(MappingFileError, match="repeats a repetition"):
        build(event=event)


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", " \u00a0", "\n "])
def test_a_cell_of_a_million_blanks_is_passed_at_once(blank: str) -> None:
    tidy = Newlines.model_validate({"newlines": "|"}).function()
    assert tidy("x" + blank * 1_000_000 + "y") == ("x|y" if "\n" in blank else "x" + blank * 1_000_000 + "y")
