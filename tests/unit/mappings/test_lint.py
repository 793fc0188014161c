"""What is allowed in a mapping file and still unwise: each warning stands at its place and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.mappings.conftest import EVENT, HEAD, Build, mistakes

from mappings.errors import MappingFileError
from mappings.yaml.loader import parse_feed


def warned(build: Build, **parts: object) -> list[str]:
    """Return the warnings about a feed, but that about its examples."""
    told = [str(warning).partition(": ")[2] for warning in build(**parts).warnings]
    return [message for message in told if "example" not in message]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("[{skip: {column: A, in: [x, y]}, because: 1}, {skip: {column: A, equals: x}, because: 2}]", "rule 1 has left out"),
        ("[{skip: {column: A, is: present}, because: 1}, {skip: {column: A, matches: x}, because: 2}]", "rule 1 has left out"),
        ("[{keep: {column: A, equals: x}, because: 1}, {keep: {column: A, in: [x, y]}, because: 2}]", "rule 1 has left out"),
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
    mapping = parse_feed(text, tmp_path / "sample.yaml")
    warning = next(warning for warning in mapping.warnings if "secret" in warning.message)
    assert (warning.line, warning.column) == (2, 27)
    assert "***" in warning.snippet
    assert "geheim42" not in f"{warning}{warning.snippet}"


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ("offers: [{nme: {from: P}}]", ':12:18: unknown field "nme" in offers, did you mean "name"?'),
        ("offers: [{whn: {column: P, is: present}, name: x}]", 'unknown field "whn" in offers, did you mean "when"?'),
        ("locatonName: {from: V}", ':12:16: unknown field "locatonName" in the event, did you mean "locationName"?'),
        ("approxLocation.city.nam: {from: C}", 'unknown field "nam" in approxLocation.city, did you mean "name"?'),
        ("offers: {for_each: {from: P, do: [{split: ','}]}, as: p, give: {nmae: $p}}", 'did you mean "name"?'),
        ("description: {from: D}", "if the service takes it, declare it with extra: [description]"),
        ("audience: {age: {from: A}}", "extra: [audience]"),
        ("offers: [{url: {from: U}, price: {from: P}}]", "extra: [offers.price]"),
        ("approxLocation.city: {lookup: cities.csv, by: {from: C}}", 'unknown field "mayor" in approxLocation.city'),
    ],
)
def test_a_field_that_the_page_does_not_spell_out_is_a_mistake(build: Build, event: str, told: str) -> None:
    cities = {"cities.csv": "city,placeId,mayor\nLisboa,pt-lisboa,somebody\n"}
    assert told in mistakes(build, event=event, top="extra: []\n", files=cities)


@pytest.mark.parametrize(
    ("event", "extra"),
    [
        ("description: {from: D}", "description"),
        ("audience: {age: {from: A}}", "audience"),
        ("audience: {age: {from: A}}", "audience.age"),
        ("audience.age: {from: A}", "[audience.age]"),
        ("offers: [{url: {from: U}, price: {from: P}}]", "[offers.price]"),
        ("approxLocation.city: {lookup: cities.csv, by: {from: C}}", "approxLocation.city.mayor"),
    ],
)
def test_a_field_that_the_feed_declares_is_sent(build: Build, event: str, extra: str) -> None:
    cities = {"cities.csv": "city,placeId,mayor\nLisboa,pt-lisboa,somebody\n"}
    assert warned(build, event=event, top=f"extra: {extra}\n", files=cities) == []


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ("[descripton]", ':4:9: the event has no field "descripton", did you mean "description"?'),
        ("[description, offers.price]", 'the event has no field "offers.price"'),
        ("[description, 'offers[0].url']", '"offers[0].url" is not a field of the event'),
    ],
)
def test_a_declared_field_that_no_event_has_is_a_mistake(build: Build, extra: str, told: str) -> None:
    assert told in mistakes(build, event="description: {from: D}", top=f"extra: {extra}\n")


@pytest.mark.parametrize(
    ("offers", "told"),
    [
        ("{from: P}", "this gives a text"),
        ("tickets", "this gives a text"),
        ("{name: {from: P}}", "this gives an object"),
        ("[{from: P}]", "this gives a list of texts"),
        ("{from: P, do: [{split: ','}]}", "this gives a list of texts"),
        ("{from: P, do: [{number: ','}]}", "this gives a number"),
    ],
)
def test_offers_that_are_no_objects_are_told_before_every_row_is_refused(build: Build, offers: str, told: str) -> None:
    with pytest.raises(MappingFileError) as refused:
        build(event=f"offers: {offers}")
    (problem,) = refused.value.problems
    assert told in problem.message
    assert "[{name: ..., url: ...}]" in problem.hint


@pytest.mark.parametrize(
    ("source", "told", "hint"),
    [
        ('delimiter: ";", quote: ";"', "delimiter and quote are the same character", "look at a line"),
        ('quote: "|", escape: "|"', "quote and escape are the same character", "no escape if quotes are doubled"),
        ("encoding: latin9000", '"latin9000" is not an encoding', "`eventsync init FILE` guesses it"),
    ],
)
def test_what_is_wrong_with_a_source_says_what_would_help(tmp_path: Path, source: str, told: str, hint: str) -> None:
    with pytest.raises(MappingFileError) as refused:
        parse_feed(HEAD.replace("path: sample.csv", f"path: sample.csv, {source}") + EVENT, tmp_path / "a.yaml")
    (problem,) = refused.value.problems
    assert told in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("step", "told", "hint"),
    [
        ("{length: {at_least: 80, at_most: 3}}", "no text has at least 80 and at most 3", "{at_least: 3, at_most: 80}"),
        ("{lookup: a.csv}", "a.csv has 1 columns", "add a column with the result"),
        ("{lookup: b.csv, take: slgu}", 'b.csv has no column "slgu"; it has kind, slug', "name one of these columns"),
        ("{regex_extract: '('}", "is not a regular expression", "needs a backslash"),
        ("{boolean: {'true': [x], 'false': [x]}}", "cannot mean both", "out of one of the two lists"),
    ],
)
def test_what_is_wrong_with_a_step_says_what_would_help(build: Build, step: str, told: str, hint: str) -> None:
    files = {"a.csv": "kind\nx\n", "b.csv": "kind,slug\nx,music\n"}
    with pytest.raises(MappingFileError) as refused:
        build(event=f"locationName: {{from: A, do: [{step}]}}", files=files)
    (problem,) = refused.value.problems
    assert told in problem.message
    assert hint in problem.hint
