"""What is allowed in a mapping file and still unwise: each warning stands at its place and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from unit.mappings.conftest import EVENT, HEAD

from mappings.loader import parse_feed
from mappings.lookup_files import LookupShelf
from mappings.schema import FeedMapping

ANY_AND_ALL = """
  - {skip: {any: [{column: A, equals: x}, {column: B, is: missing}]}, because: 1}
  - {skip: {all: [{column: A, equals: x}, {column: C, equals: z}]}, because: 2}
"""
Build = Callable[..., FeedMapping]


def warned(build: Build, **parts: str) -> list[str]:
    """Return the warnings about a feed, but that about its examples."""
    told = [str(warning).partition(": ")[2] for warning in build(**parts).warnings]
    return [message for message in told if "example" not in message]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("[{skip: {column: A, in: [x, y]}, because: 1}, {skip: {column: A, equals: x}, because: 2}]", "rule 1 has left out"),
        ("[{skip: {column: A, is: present}, because: 1}, {skip: {column: A, matches: x}, because: 2}]", "rule 1 has left out"),
        ("[{keep: {column: A, in: [x, y]}, because: 1}, {skip: {column: A, equals: z}, because: 2}]", "rule 1 has left out"),
        ("[{keep: {column: A, equals: x}, because: 1}, {keep: {column: A, in: [x, y]}, because: 2}]", "rule 1 has left out"),
        (ANY_AND_ALL, "rule 1 has left out"),
    ],
)
def test_a_rule_that_is_never_reached_is_told(build: Build, rows: str, told: str) -> None:
    (message,) = warned(build, top=f"rows: {rows}\n")
    assert told in message


@pytest.mark.parametrize(
    "rows",
    [
        "[{skip: {column: A, equals: x}, because: 1}, {skip: {column: A, in: [x, y]}, because: 2}]",
        "[{skip: {column: A, equals: x, ignore: case}, because: 1}, {skip: {column: A, equals: x2}, because: 2}]",
        "[{skip: {column: A, equals: x}, because: 1}, {skip: {column: B, equals: x}, because: 2}]",
        "[{keep: {column: A, in: [x, y]}, because: 1}, {skip: {column: A, equals: y}, because: 2}]",
        "[{skip: {not: {column: A, equals: x}}, because: 1}, {skip: {column: A, equals: x}, because: 2}]",
    ],
)
def test_rules_that_may_be_reached_are_left_alone(build: Build, rows: str) -> None:
    assert warned(build, top=f"rows: {rows}\n") == []


def test_a_branch_that_is_never_taken_is_told(build: Build) -> None:
    choices = "[{when: {column: A, is: present}, then: draft}, {when: {column: A, equals: x}, then: published}]"
    (message,) = warned(build, event=f"status: {{choose: {choices}, otherwise: draft}}")
    assert "this branch is never taken: whenever it would be, branch 1 is" in message


def test_formats_that_exchange_day_and_month_are_told(build: Build) -> None:
    day = '{from: DAY, do: [{date: ["%d/%m/%Y", "%Y-%m-%d", "%m/%d/%Y"]}]}'
    (message,) = warned(build, event=f"startAt: {{at: {{day: {day}, zone: Europe/Lisbon, all_day: '00:00'}}}}")
    assert '"%d/%m/%Y" and "%m/%d/%Y" both fit 03/04' in message
    assert "keep the one that the partner writes" in message


def test_a_name_that_nothing_uses_is_told(build: Build) -> None:
    (message,) = warned(build, top="let: {spare: {from: A}}\n")
    assert 'nothing uses the named value "spare"' in message


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("{from: A, do: [trim, trim]}", 'the step "trim" does nothing a second time'),
        ("{from: A, do: [collapse, trim]}", 'the step "trim" does nothing after "collapse"'),
        ("{from: A, do: [lower, {map: {Jazz: music}}]}", '"Jazz" is never met: the step "lower" comes before, write "jazz"'),
        ("{from: A, on_error: omit}", "on_error never applies"),
        ("fill-in", 'a value is still to be filled in ("fill-in")'),
    ],
)
def test_what_does_nothing_is_told(build: Build, value: str, told: str) -> None:
    (message,) = warned(build, event=f"locationName: {value}")
    assert told in message


def test_things_to_fill_in_are_counted_and_told_once_for_a_table(build: Build) -> None:
    (message,) = warned(build, event="classifications: {from: KIND, do: [{map: {a: fill-in, b: fill-in, c: music}}]}")
    assert "2 values are still to be filled in" in message
    assert "eventsync check --live" in message


@pytest.mark.parametrize(
    "path",
    ["https://user:geheim42@partner.example/a.csv", "https://partner.example/a.csv?token=geheim42", "sftp://u:geheim42@h/a.csv"],
)
def test_a_secret_in_an_address_is_told_and_not_repeated(tmp_path: Path, path: str) -> None:
    text = (HEAD + EVENT).replace("sample.csv", f'"{path}"')
    mapping = parse_feed(text, tmp_path / "sample.yaml", LookupShelf())
    warning = next(warning for warning in mapping.warnings if "secret" in warning.message)
    assert (warning.line, warning.column) == (2, 27)
    assert "***" in warning.snippet
    assert "geheim42" not in f"{warning}{warning.snippet}"
