from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mappings.errors import MappingFileError
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed

Build = Callable[..., FeedMapping]


def told(build: Build, **parts: str) -> str:
    with pytest.raises(MappingFileError) as raised:
        build(**parts)
    return "\n".join(f"{problem.message}, {problem.hint}" for problem in raised.value.problems)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"event": 'startAt: {at: {day: {from: D, do: [{date: "%Y-%m-%d"}]}, zone: Europe/Lisbon, all_day: "29:00"}}'},
            '"29:00" is not a time of day',
        ),
        (
            {"event": 'startAt: {at: {day: {from: D, do: [{date: "%Y-%m-%d"}]}, zone: Europe/Lisbon}}'},
            "a day alone is no moment: it has no time of day",
        ),
        ({"event": "title: {from: T, do: [{regex_extract: 'a{99999999999}'}]}"}, "is not a regular expression"),
        ({"top": "rows:\n  - window: {horizon: 99999999999d}\n"}, "is longer than the calendar"),
        ({"event": "title: {from: T, do: [{regex_replace: '(a)', with: '\\2'}]}"}, r'"\2" cannot stand for a match'),
        ({"event": "title: {from: T, do: [{regex_extract: '(a)', group: 5}]}"}, "there is no group 5 in the pattern"),
        ({"event": "title: {from: T, do: [{split: ','}, {nth: 0}]}"}, "there is no part 0"),
        (
            {"event": 'locationName: {from: D, do: [{date: "%Y", locale: klingon}]}'},
            '"klingon" is not a language',
        ),
        ({"top": "let: {a: $b, b: $a}\n"}, "the named values go in a circle"),
    ],
    ids=[
        "hour 29",
        "no clock",
        "endless repetition",
        "endless horizon",
        "no such group",
        "no such group to keep",
        "part 0",
        "language",
        "circle",
    ],
)
def test_what_would_fail_a_row_later_is_a_mistake_of_the_file(build: Build, parts: dict[str, str], message: str) -> None:
    assert message in told(build, **parts)


def written(tmp_path: Path, content: bytes) -> MappingFileError:
    path = tmp_path / "feed.yaml"
    path.write_bytes(content)
    with pytest.raises(MappingFileError) as raised:
        load_feed(path)
    return raised.value


def test_a_key_without_a_name_is_told_with_its_place(tmp_path: Path) -> None:
    problems = written(tmp_path, b'feed: a\nsource: {kind: csv, path: a.csv}\nkey: [""]\nevent: {title: x}\n').problems
    assert (3, 7) in {(problem.line, problem.column) for problem in problems}


@pytest.mark.parametrize("nest", [b"[" * 200_000, b"- " * 200_000, b"{a: " * 200_000, b"? " * 200_000], ids=["[", "-", "{", "?"])
def test_bottomless_nesting_is_told_before_it_exhausts_the_machine(tmp_path: Path, nest: bytes) -> None:
    (problem,) = written(tmp_path, b"a:\n  " + nest).problems
    assert problem.message == "the file nests too deeply or repeats an anchor without end"
    assert problem.line == 2


def test_anchors_that_multiply_are_told_once(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join(['*' + before] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)]
    messages = [problem.message for problem in written(tmp_path, "\n".join(lines).encode()).problems]
    assert messages.count("the file nests too deeply or repeats an anchor without end") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("feed: a\nowner: Jo\xe3o".encode("latin-1"), "the file is not UTF-8 from here on"),
        (b"feed: a\nowner: Jo\x07o", "this is not YAML: a control character stands here"),
    ],
    ids=["latin-1", "control"],
)
def test_bytes_that_cannot_be_text_are_told_where_they_stand(tmp_path: Path, content: bytes, message: str) -> None:
    (problem,) = written(tmp_path, content).problems
    assert (problem.line, problem.column, problem.message) == (2, 10, message)


def test_a_lookup_file_that_is_no_table_is_told(build: Build) -> None:
    city = "approxLocation.city: {lookup: cities.csv, by: [PT]}"
    message = told(build, event=city, files={"cities.csv": 'country,placeId\nPT,"' + "x" * 11_000_000 + '"\n'})
    assert "line 2 of the lookup file cities.csv cannot be read" in message


def test_a_misspelt_column_of_an_example_is_warned_about(build: Build) -> None:
    mapping = build(top="examples:\n  - row: {ID: '1', TITEL: Jazz, NOTE: x}\n    rejected: {title: required}\n")
    (warning,) = mapping.warnings
    assert (warning.message, warning.hint) == ('the mapping reads no column "TITEL"', 'did you mean "TITLE"?')
