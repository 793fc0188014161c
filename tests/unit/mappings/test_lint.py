"""What is allowed in a mapping file and still unwise: each warning stands at its place and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.mappings.conftest import EVENT, HEAD, Build, cases

from mappings.yaml.loader import parse_feed


def warned(build: Build, **parts: object) -> list[str]:
    """Return the warnings about a feed, but that about its examples."""
    told = [str(warning).partition(": ")[2] for warning in build(**parts).warnings]
    return [message for message in told if "example" not in message]


UNWISE = cases(r"""
rows | [{skip: {column: A, in: [x, y]}, because: 1}, {skip: {column: A, equals: x}, because: 2}] => rule 1 has left out
rows | [{skip: {column: A, is: present}, because: 1}, {skip: {column: A, matches: x}, because: 2}] => rule 1 has left out
rows | [{keep: {column: A, equals: x}, because: 1}, {keep: {column: A, in: [x, y]}, because: 2}] => rule 1 has left out
rows | [{skip: {column: A, equals: x}, because: 1}, {skip: {column: A, in: [x, y]}, because: 2}] => NOTHING
rows | [{skip: {column: A, equals: x, ignore: case}, because: 1}, {skip: {column: A, equals: x2}, because: 2}] => NOTHING
rows | [{skip: {column: A, equals: x}, because: 1}, {skip: {column: B, equals: x}, because: 2}] => NOTHING
rows | [{skip: {not: {column: A, equals: x}}, because: 1}, {skip: {column: A, equals: x}, because: 2}] => NOTHING
let | {spare: {from: A}} => nothing uses the named value "spare"
locationName | {choose: [{when: {column: A, in: x}, then: x}, {when: {column: A, equals: x}, then: y}]} => branch 1 is
locationName | {from: S, do: [{date: ["%d/%m/%Y", "%Y-%m-%d", "%m/%d/%Y"]}]} => "%d/%m/%Y" and "%m/%d/%Y" both fit 03/04
locationName | {from: S, do: [{date: ["%d/%m/%Y", "%m/%d/%Y"]}]} => keep the one that the partner writes
locationName | {from: A, do: [trim, trim]} => the step "trim" does nothing a second time
locationName | {from: A, do: [collapse, trim]} => the step "trim" does nothing after "collapse"
locationName | {from: A, do: [lower, {map: {Jazz: music}}]} => "Jazz" is never met: the step "lower" comes before, write "jazz"
locationName | fill-in => a value is still to be filled in ("fill-in")
classifications | {from: KIND, do: [{map: {a: fill-in, b: fill-in, c: music}}]} => 2 values are still to be filled in
classifications | {from: KIND, do: [{map: {a: fill-in, b: fill-in, c: music}}]} => eventsync check --live
""")


@pytest.mark.parametrize(("key", "written", "message"), UNWISE)
def test_what_has_no_effect_or_two_meanings_is_told_once(build: Build, key: str, written: str, message: str) -> None:
    is_event = key not in {"rows", "let"}
    parts = {"event": f"{key}: {written}"} if is_event else {"top": f"{key}: {written}\n"}
    found = warned(build, **parts)
    assert [message in one for one in found] == [True] * (message != "NOTHING")


def test_a_key_that_partners_edit_is_warned_about(tmp_path: Path) -> None:
    told = map(str, parse_feed(HEAD.replace("[ID]", "[ID, TITLE]") + EVENT, tmp_path / "sample.yaml").warnings)
    assert any('3:11: the key uses "TITLE", which partners edit (it fills title)' in line for line in told)


def test_a_misspelt_column_of_an_example_is_warned_about(build: Build) -> None:
    mapping = build(top="examples:\n  - row: {ID: '1', TITEL: Jazz, NOTE: x}\n    rejected: {title: required}\n")
    (warning,) = mapping.warnings
    assert (warning.message, warning.hint) == ('the mapping reads no column "TITEL"', 'did you mean "TITLE"?')
    assert any("the feed has no examples" in str(one) for one in build().warnings)


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


DECLARED = cases("""
description | description: {from: D} => sent
audience | audience: {age: {from: A}} => sent
audience.age | audience: {age: {from: A}} => sent | audience.age: {from: A} => sent
offers.price | offers: [{url: {from: U}, price: {from: P}}] => sent
approxLocation.city.mayor | approxLocation.city: {lookup: cities.csv, by: {from: C}} => sent
""")


@pytest.mark.parametrize(("extra", "event"), [case[:2] for case in DECLARED])
def test_a_field_that_the_feed_declares_is_sent(build: Build, extra: str, event: str) -> None:
    cities = {"cities.csv": "city,placeId,mayor\nLisboa,pt-lisboa,Ana\n"}
    for declared in (extra, f"[{extra}]"):
        assert warned(build, event=event, top=f"extra: {declared}\n", files=cities) == []
