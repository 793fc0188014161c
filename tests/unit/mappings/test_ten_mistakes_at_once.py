"""One file with ten mistakes: ten messages at once, each with its line, its column and what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from mappings.errors import MappingFileError
from mappings.yaml.loader import parse_feed

FILE = """\
feed: ten-mistakes
source: {kind: csv, path: events.csv, delimitter: ";"}
key: [ID]
let:
  day: {from: DAY, do: [{date: "%d/%m/%Y"}]}
rows:
  - skipp: {column: KIND, equals: online}
    because: online only
event:
  channelId: {channel: city-agenda}
  title: {from: TITLE, do: [trimm]}
  startAt: {at: {day: $dya, zone: Europe/Lisbonn, all_day: "00:00"}}
  timezone: Europe/Lisbon
  classifications: {from: GENRE, do: [{lookup: genre.csv}]}
  approxLocation.city.placeId: {from: CITY, on_empty: rejct}
  locationName: {frm: VENUE, do: [collapse]}
publish: {on_change: reprt}
examples:
  - row: {ID: "1"}
    rejected: {title: requird}
"""
SAID = (
    (2, 39, 'unknown key "delimitter"', "delimiter"),
    (7, 5, 'unknown rule "skipp"', "skip"),
    (11, 29, 'unknown step "trimm"', "trim"),
    (12, 23, 'unknown name "$dya"', "$day"),
    (12, 35, '"Europe/Lisbonn" is not a time zone', "Europe/Lisbon"),
    (14, 48, 'there is no lookup file "genre.csv"', "genres.csv"),
    (15, 55, '"rejct" is not among the choices', "reject"),
    (16, 18, 'unknown value "frm"', "from"),
    (17, 22, '"reprt" is not among the choices', "report"),
    (20, 23, '"requird" is not among the choices', "required"),
)


@pytest.fixture
def refused(tmp_path: Path) -> MappingFileError:
    (tmp_path / "genres.csv").write_text("genre,slug\nconcert,music\n", "utf-8")
    with pytest.raises(MappingFileError) as error:
        parse_feed(FILE, tmp_path / "ten.yaml")
    return error.value


def test_every_mistake_is_told_at_its_place_with_what_was_meant(refused: MappingFileError) -> None:
    places = [(problem.line, problem.column) for problem in refused.problems]
    assert places == [(line, column) for line, column, _, _ in SAID]
    for problem, (_, _, message, meant) in zip(refused.problems, SAID, strict=True):
        assert problem.message.startswith(message)
        assert f'did you mean "{meant}"?' in str(problem)
        assert problem.snippet == FILE.splitlines()[problem.line - 1]


def test_what_is_merely_unwise_in_a_broken_file_is_told_as_well(refused: MappingFileError) -> None:
    (warning,) = refused.warnings
    assert (warning.line, warning.message) == (5, 'nothing uses the named value "day"')
    assert warning.hint == 'is it meant by "$dya"?'


_FOR_EDITORS = {
    "source": ("source", {"kind": "csv", "path": "events.csv", "delimitter": ";"}),
    "kind": ("source", {"kind": "cvs", "path": "events.csv"}),
    "key": ("key", []),
    "let": ("let", {"first day": {"from": "DAY"}}),
    "rule": ("rows", [{"skipp": {"column": "KIND", "is": "present"}, "because": "x"}]),
    "test": ("rows", [{"skip": {"column": "KIND", "iss": "present"}, "because": "x"}]),
    "step": ("event", {"title": {"from": "TITLE", "do": ["trimm"]}}),
    "parameter": ("event", {"title": {"from": "TITLE", "do": [{"truncate": 10, "elipsis": "..."}]}}),
    "policy": ("event", {"title": {"from": "TITLE", "on_empty": "rejct"}}),
    "publish": ("publish", {"on_change": "reprt"}),
}


@pytest.mark.parametrize("mistake", _FOR_EDITORS)
def test_an_editor_underlines_ten_kinds_of_mistakes_in_a_feed_that_it_accepts(mistake: str, editor: Draft202012Validator) -> None:
    feed = yaml.safe_load(SOUND)
    assert [error.message for error in editor.iter_errors(feed)] == []
    part, value = _FOR_EDITORS[mistake]
    paths = [list(error.absolute_path)[:1] for error in editor.iter_errors({**feed, part: value})]
    assert paths
    assert all(path == [part] for path in paths)


SOUND = """\
feed: sound
source: {kind: csv, path: events.csv}
key: [ID]
event:
  channelId: {channel: city-agenda}
  title: {from: TITLE, do: [trim, {truncate: 100}], on_empty: reject}
  startAt: {at: {day: {from: DAY, do: [{date: "%d/%m/%Y"}]}, zone: Europe/Lisbon, all_day: "00:00"}}
  timezone: Europe/Lisbon
  classifications: [music]
  approxLocation.city.placeId: pt-lisboa
publish: {on_change: report}
"""
