"""Derived keys are pinned to literal values: a step that gave another text would send every event of its feeds again."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.mappings.conftest import EVENT

from mappings.compiler.key import key_definition
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import MappingFileError
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowLocation, SourceRow
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import parse_feed

LET = """let:
  code: {from: LINK, do: [{regex_extract: "cultcode=([0-9]+)"}]}
  short: {from: $code, do: [{strip_prefix: "0"}]}
  words: {join: [{from: LINK}, {from: ID}]}
  lax: {from: LINK, do: [trim], on_empty: omit}
"""
TABLE = "old,new\nA 1,77\nB,78\n"


def feed_of(folder: Path, key: str, table: str = TABLE, rows: str = "") -> FeedMapping:
    (folder / "renumbered.csv").write_text(table, "utf-8")
    unused = "  locationName: {join: [$code, $short, $words, $lax]}\n"
    text = f"feed: sample\nsource: {{kind: csv, path: sample.csv}}\nkey: {key}\n{LET}{rows}{EVENT}{unused}"
    return parse_feed(text, folder / "sample.yaml")


def mapper_of(folder: Path, key: str) -> RowMapper:
    return compile_feed(feed_of(folder, key), Directory())


def key_of(mapper: RowMapper, **cells: str) -> str:
    outcome = mapper(SourceRow(RowLocation("sample.csv:2", 2), {"LINK": "x?cultcode=1", "TITLE": "Jazz"} | cells))
    if isinstance(outcome, Rejection):
        (reason, *_) = [one for one in outcome.reasons if not one.field]
        return f"{reason.column}: {reason.code}"
    assert isinstance(outcome, MappedRow)
    return outcome.row_key


KEYS = [
    ("ID", {"ID": " e\u0301 "}, "\u00e9"),
    ("[ID, {column: SUB, optional: true}]", {"ID": "A|1"}, "A\\|1|"),
    ("[$$ID]", {"$ID": "7"}, "7"),
    ("[$code]", {"LINK": "https://x.pt/?cultcode=0017&a=b"}, "0017"),
    ("[$short, ID]", {"LINK": "?cultcode=0017", "ID": "b c"}, "017|b c"),
    ('[{from: LINK, do: [{extract: "cultcode=([0-9]+)"}]}, ID]', {"LINK": "?cultcode=17", "ID": "x"}, "17|x"),
    ("[{from: ID, do: [trim, collapse]}]", {"ID": " A\u00a0 \n 1\u200b"}, "A 1"),
    ("[{from: ID, do: [upper]}]", {"ID": "stra\u00dfe \u0131 \u01c6"}, "STRASSE I \u01c4"),
    ("[{from: ID, do: [lower]}]", {"ID": "\u0130STANBUL \u03a3\u03a3 \u00c9"}, "i\u0307stanbul \u03c3\u03c2 \u00e9"),
    ("[{from: ID, do: [{upper: true, locale: tr}]}]", {"ID": "izmir"}, "\u0130ZM\u0130R"),
    ("[{from: ID, do: [{replace: '-', with: '/'}]}]", {"ID": "a-b-c"}, "a/b/c"),
    ("[{from: ID, do: [{split: ['/', ';']}, {nth: -1}]}]", {"ID": "a/b; c \u200b;"}, "c"),
    ("[{from: ID, do: [{strip_prefix: [EV-, E]}, {strip_suffix: -x}]}]", {"ID": "EV-E9-x"}, "E9"),
    ("[{from: ID, do: [{map: {A: '1', B: '2'}, ignore: [case, accents]}]}]", {"ID": "\u00e1"}, "1"),
    ("[{from: ID, do: [{lookup: renumbered.csv, on_miss: keep}]}]", {"ID": "A 1"}, "77"),
    ("[{from: ID, do: [{lookup: renumbered.csv, on_miss: keep}]}]", {"ID": "C"}, "C"),
    ("[$code]", {"LINK": ""}, "LINK: required"),
    ("[$code]", {"LINK": "x"}, "LINK: bad_text"),
    ("[$short]", {"LINK": "?cultcode=0"}, "LINK: required"),
    ("[{from: ID, do: [trim]}]", {"ID": "9.18E+11"}, "ID: bad_key"),
    ("[{from: ID, do: [{lookup: renumbered.csv}]}]", {"ID": "C"}, "ID: not_in_lookup"),
    ("{first_of: [ID, [TITLE, DAY]]}", {"ID": "7", "DAY": "1"}, "7"),
    ("{first_of: [ID, [TITLE, DAY]]}", {"ID": " ", "DAY": "1"}, "Jazz|1"),
    ("{first_of: [ID, [TITLE, DAY]]}", {"DAY": ""}, "ID: required"),
    ("{first_of: [ID, [TITLE, DAY]]}", {"ID": "9.18E+11", "DAY": "1"}, "ID: bad_key"),
    ("{first_of: [{from: SUB, do: [{extract: x.}]}, ID]}", {"SUB": "none", "ID": "7"}, "7"),
]


@pytest.mark.parametrize(("key", "cells", "expected"), KEYS)
def test_a_derived_key_is_the_same_for_ever(key: str, cells: dict[str, str], expected: str, tmp_path: Path) -> None:
    assert key_of(mapper_of(tmp_path, key), **cells) == expected


FROM_LINK = '[{"from": "LINK", "do": [["regex_extract", {"regex_extract": "cultcode=([0-9]+)"}]]}]'
DEFINITIONS = [
    ("[ID, {column: SUB, optional: true}]", '["ID", "SUB"]'),
    ("[$code]", FROM_LINK),
    ('[{from: LINK, do: [{extract: "cultcode=([0-9]+)"}]}]', FROM_LINK),
    ("[{from: ID}, ID]", '["ID", "ID"]'),
    ("{first_of: [ID, [TITLE, DAY]]}", '{"first_of": [["ID"], ["TITLE", "DAY"]]}'),
]


@pytest.mark.parametrize(("key", "expected"), DEFINITIONS)
def test_the_definition_of_a_key_is_the_same_for_ever(key: str, expected: str, tmp_path: Path) -> None:
    assert key_definition(feed_of(tmp_path, key)) == expected


def test_the_definition_of_a_key_changes_with_what_its_lookup_file_says(tmp_path: Path) -> None:
    key = "[{from: ID, do: [{lookup: renumbered.csv, on_miss: keep}]}]"
    one, same, other = (key_definition(feed_of(tmp_path, key, table)) for table in (TABLE, TABLE + "\n", TABLE + "C,79\n"))
    assert one == same != other


MISTAKES = [
    ("[{from: ID, do: [html_to_text]}]", '3:23 the step "html_to_text" cannot be used in a key, a key may use trim, collapse,'),
    ("[{from: ID, do: [{split: ','}]}]", "3:7 a part of a key is one text, and this is a list"),
    ("[{from: ID, do: [{map: {A: B}, on_miss: omit}]}]", '3:23 a choice beside the step "map" is not allowed in a key'),
    ("[$words]", '3:7 "$words" cannot be used in a key, a key takes a named value that is a column with its steps'),
    ("[$nothing]", '3:7 unknown name "$nothing", define it under let'),
    ("[$lax]", "8:43 the key uses $lax, and on_empty is not allowed in a key"),
    ("[{from: ID, on_empty: omit}]", '3:18 unknown key "on_empty"'),
    ("[ID, {first_of: [A, B]}]", "3:11 first_of must be the whole key, and other parts are beside it"),
    ("{first_of: [A]}", "3:6 first_of chooses from two keys at least"),
]


@pytest.mark.parametrize(("key", "expected"), MISTAKES)
def test_what_cannot_stand_in_a_key_is_named_at_its_place(key: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(MappingFileError) as raised:
        feed_of(tmp_path, key)
    found = [f"{one.line}:{one.column} {one.message}, {one.hint}" for one in raised.value.problems]
    assert [one for one in found if one.startswith(expected)], found


def test_rows_of_several_events_have_one_key(tmp_path: Path) -> None:
    with pytest.raises(MappingFileError, match="first_of and the rule explode cannot be combined"):
        feed_of(tmp_path, "{first_of: [ID, DAY]}", rows='rows: [{explode: {columns: DAY, by: " "}}]\n')
