from __future__ import annotations

import re
from collections.abc import Callable

import orjson
import pytest

from mappings.compiler.mapper import RowMapper
from mappings.errors import MappingFileError
from mappings.outcome import MappedRow, SourceRow
from mappings.spec.feed import FeedMapping

Build = Callable[..., FeedMapping]
PLACES = (
    {"event": "title: {from: T, do: [{regex_extract: 'PATTERN'}]}"},
    {"event": "title: {from: T, do: [{regex_all: 'PATTERN'}, {join: x}]}"},
    {"event": "title: {from: T, do: [{regex_split: 'PATTERN'}, {join: x}]}"},
    {"event": "title: {from: T, do: [{regex_replace: 'PATTERN', with: x}]}"},
    {"event": "title: {choose: [{when: {column: T, matches: 'PATTERN'}, then: x}]}"},
    {"event": "title: {from: T, do: [{lookup: t.csv, match: regex}]}", "files": "PATTERN"},
    {"top": "rows:\n  - skip: {column: T, matches: 'PATTERN'}\n    because: x\n"},
)
LACKING = (
    ("a(?=b)", "has a look-ahead, (?=...), which RE2 lacks"),
    ("a(?!b)", "has a negative look-ahead, (?!...)"),
    ("(?<=a)b", "has a look-behind, (?<=...)"),
    ("(?<!a)b", "has a negative look-behind, (?<!...)"),
    ("(?>a)b", "has an atomic group, (?>...)"),
    ("(a)?(?(1)b|c)", "has a conditional group, (?(1)...)"),
    ("(?P<n>a)(?P=n)", "has a back-reference, (?P=name)"),
    (r"(a)\1", r"has a back-reference, \1"),
    ("a++b", "has a possessive repetition"),
    ("a{1,2}+b", "has a possessive repetition"),
    (r"a\Z", r"has \Z, which RE2 lacks"),
    ("(?x)a b", "has the flag x"),
    ("(?a)b", "has the flags a, u and L"),
    ("a{1001}", "has a repetition of more than 1,000 times, {1001}, which RE2 lacks"),
    ("(?:a{100}){100}", "is too large a pattern"),
    ("[a--b]", "is not a regular expression: Possible set difference"),
)


@pytest.mark.parametrize("place", PLACES)
def test_a_construct_that_re2_lacks_is_a_mistake_of_the_file_wherever_it_stands(build: Build, place: dict[str, str]) -> None:
    parts: dict[str, object] = {name: text.replace("PATTERN", "a(?=b)") for name, text in place.items()}
    if "files" in parts:
        parts["files"] = {"t.csv": "key,slug\na(?=b),x\n"}
    with pytest.raises(MappingFileError, match="has a look-ahead") as error:
        build(**parts)
    assert re.match(r".*\.(?:yaml|csv):\d+:\d+: ", str(error.value))


@pytest.mark.parametrize(("pattern", "message"), LACKING)
def test_each_construct_that_re2_lacks_is_named(build: Build, pattern: str, message: str) -> None:
    with pytest.raises(MappingFileError) as error:
        build(event=f"title: {{from: T, do: [{{regex_extract: '{pattern}'}}]}}")
    assert message in str(error.value)


def test_a_pattern_that_prefers_nothing_is_a_mistake_where_all_matches_are_wanted(build: Build) -> None:
    with pytest.raises(MappingFileError, match="finds nothing, again and again"):
        build(event="title: {from: T, do: [{regex_replace: 'a*?', with: x}]}")


@pytest.mark.parametrize(
    ("step", "text", "title"),
    [
        (r"{regex_replace: '\bao\b', with: x}", "São ao", "São x"),
        (r"{regex_replace: ' - .*$', with: ''}", "a\nb - c\n", "a\nb\n"),
        (r"{regex_extract: '\d+'}", "٣ ", "٣"),
        (r"{regex_extract: '(?i)straße \w+'}", "STRAẞE Élan", "STRAẞE Élan"),
        (r"{regex_replace: '(?P<a>\w+) (\w+)', with: '\2, \g<a>'}", "Ana Água", "Água, Ana"),
        (r"{regex_replace: '^|,', with: -}", ",a,b", "--a-b"),
        (r"{regex_replace: '^\s*-|\s*$', with: ''}", " - a  ", " a"),
        (r"{regex_extract: 'a\z'}", "aba", "a"),
    ],
)
def test_a_pattern_means_all_of_unicode(
    mapper: Callable[..., RowMapper], row: Callable[..., SourceRow], step: str, text: str, title: str
) -> None:
    outcome = mapper(event=f"title: {{from: T, do: [{step}]}}")(row(T=text))
    assert isinstance(outcome, MappedRow), outcome
    assert orjson.loads(outcome.body)["title"] == title
