from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from mappings.errors import MappingFileError
from mappings.reference import read_vocabulary
from mappings.spec.feed import Brakes, Example, FeedMapping, PublishPolicy, Schedule
from mappings.spec.source import CsvSource
from mappings.spec.source_words import Header
from mappings.yaml.loader import parse_feed

ONE_FOR_MANY = r"""
feed: sample
source: {kind: csv, path: a.csv, encoding: windows-1252, required: ID, delimiter: '\t', quote: null}
key: ID
rows:
  - skip: {column: KIND, in: closed, ignore: case}
    because: closed
event:
  channelId: {channel: city}
  title: {from: TITLE, do: collapse}
  startAt: {from: AT, do: {datetime: "%Y-%m-%dT%H:%M%z"}}
  timezone: Europe/Lisbon
  classifications: culture
  approxLocation.city.placeId: {lookup: cities.csv, by: {from: CITY}, ignore: accents}
"""


def loaded(text: str, tmp_path: Path) -> FeedMapping:
    (tmp_path / "cities.csv").write_text("city,placeId\nLisboa,pt-lisboa\n", "utf-8")
    return parse_feed(text, tmp_path / "sample.yaml")


def test_one_item_needs_no_list_around_it(tmp_path: Path) -> None:
    mapping = loaded(ONE_FOR_MANY, tmp_path)
    source = mapping.source
    assert (source.encoding, source.required, source.delimiter, source.quote) == (("windows-1252",), ("ID",), "\t", None)
    assert [column.column for column in mapping.key_columns] == ["ID"]


def test_an_editor_accepts_one_item_without_a_list_too(editor: Draft202012Validator) -> None:
    document = yaml.safe_load(ONE_FOR_MANY.replace(r"'\t'", "tab"))
    assert [error.message for error in editor.iter_errors(document)] == []
    assert json.dumps(document)


def test_a_bad_item_without_a_list_is_told_as_if_it_stood_in_one(tmp_path: Path) -> None:
    text = ONE_FOR_MANY.replace("do: collapse", "do: colapse").replace("windows-1252", "windoes-1252").replace("'\\t'", '";;"')
    with pytest.raises(MappingFileError) as raised:
        loaded(text, tmp_path)
    told = [(problem.line, problem.message, problem.hint) for problem in raised.value.problems]
    assert told == [
        (3, '"windoes-1252" is not an encoding that Python knows', 'did you mean "windows-1252"?'),
        (3, '";;" is not one character', 'a tab is written "\\t"'),
        (10, 'unknown step "colapse"', 'did you mean "collapse"?'),
    ]


def test_a_condition_that_is_none_is_called_a_condition(tmp_path: Path) -> None:
    with pytest.raises(MappingFileError) as raised:
        loaded(ONE_FOR_MANY.replace("{column: KIND, in: closed, ignore: case}", "KIND"), tmp_path)
    assert "a condition is needed here" in str(raised.value)


def test_the_reference_names_every_key_of_every_block_of_the_file() -> None:
    page = read_vocabulary().text
    for model in (CsvSource, Header, Schedule, PublishPolicy, Brakes, Example):
        for name, field in model.model_fields.items():
            assert f"| `{field.alias or name}` |" in page
