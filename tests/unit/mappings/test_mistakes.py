"""Mistakes in a mapping file: all at once, each at its place, with what was probably meant."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from dagster._utils.schedules import is_valid_cron_string
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from unit.mappings.conftest import EVENT, HEAD, Build, mistakes

from mappings.errors import MappingFileError
from mappings.reference import read_vocabulary
from mappings.spec.feed import Brakes, Example, FeedMapping, PublishPolicy, Schedule
from mappings.spec.source import CsvSource
from mappings.spec.source_words import Header
from mappings.yaml.loader import load_feed, load_folder, parse_feed

TEN_MISTAKES = """\
feed: Lisbon Agenda
sorce: {kind: csv, path: a.csv}
source: {kind: csv, path: a.csv, encoding: [windoes-1252]}
key: [REF]
schedule: {cron: "61 * * * *", timezone: Europe/Lisbonn}
let:
  day: {from: INICIO, do: [{date: ["%d/%Q/%Y"]}]}
  a: {from: $b}
  b: {from: $a}
rows:
  - skip: {column: KIND, matches: "(unclosed"}
    because: closed
event:
  channelId: {channel: city-agenda}
  title: {from: NOME, do: [trimm]}
  startAt: {at: {day: $dya, zone: Europe/Lisbon, all_day: "00:00"}}
  timezone: Lisbon
  classifications: {from: KIND, on_emty: omit}
  approxLocation.city: {lookup: cities.csv, by: [PT, Lisboa]}
"""
EXPECTED = [
    (1, 7, '"Lisbon Agenda" is not written as it must be', "lower-case words joined by -"),
    (2, 1, 'unknown key "sorce"', 'did you mean "source"?'),
    (3, 45, '"windoes-1252" is not an encoding that Python knows', "windows-1252"),
    (5, 18, '"61" is not a minute in a cron line', "minutes go from 0 to 59"),
    (5, 42, '"Europe/Lisbonn" is not a time zone', 'did you mean "Europe/Lisbon"?'),
    (7, 28, 'there is no "%Q" in a format', ""),
    (8, 6, "the named values go in a circle: $a -> $b -> $a", ""),
    (11, 35, '"(unclosed" is not a regular expression', ""),
    (15, 28, 'unknown step "trimm"', 'did you mean "trim"?'),
    (16, 23, 'unknown name "$dya"', 'did you mean "$day"?'),
    (17, 13, '"Lisbon" is not accepted as timezone', "an IANA zone such as Europe/Lisbon would be accepted"),
    (18, 33, 'unknown key "on_emty"', 'did you mean "on_empty"?'),
    (19, 33, 'there is no lookup file "cities.csv"', 'did you mean "city.csv"?'),
]


def mistakes_in(text: str | bytes, tmp_path: Path) -> MappingFileError:
    path = tmp_path / "lisbon.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(MappingFileError) as raised:
        load_feed(path)
    return raised.value


def test_every_mistake_of_a_file_is_told_at_once_with_its_place_and_what_was_probably_meant(tmp_path: Path) -> None:
    (tmp_path / "city.csv").write_text("city,placeId\nLisboa,pt-lisboa\n", "utf-8")
    error = mistakes_in(TEN_MISTAKES, tmp_path)
    assert [(problem.line, problem.column) for problem in error.problems] == [place[:2] for place in EXPECTED]
    for problem, (line, _, message, hint) in zip(error.problems, EXPECTED, strict=True):
        assert problem.message.startswith(message)
        assert hint in (problem.hint or problem.message)
        assert problem.snippet == TEN_MISTAKES.splitlines()[line - 1]
    assert f'{tmp_path}/lisbon.yaml:15:28: unknown step "trimm", did you mean "trim"?' in str(error)


VALID = """\
feed: sample
source: {kind: csv, path: sample.csv}
key: [ID]
event:
  channelId: "7"
  title: {from: TITLE}
  startAt: {from: START}
  timezone: {from: ZONE}
  classifications: [music]
  approxLocation.city.placeId: pt-lisboa
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("  title: {from: TITLE}\n", "", 'the event lacks the required field "title"'),
        ("  title: {from: TITLE}\n", "  tittle: {from: TITLE}\n", 'is it written as "tittle"?'),
        ("  approxLocation.city.placeId: pt-lisboa\n", "  approxLocation.city.name: Lisboa\n", '"approxLocation.city.placeId"'),
        ("key: [ID]", "key: [ID]\nkey: [ID]", 'the key "key" stands twice, first in line 3'),
        ("{from: TITLE}", "{form: TITLE, do: [trim]}", 'unknown value "form", did you mean "from"?'),
        ("{from: TITLE}", "{from: TITLE, do: [date]}", 'the step "date" needs to know more, write it like {date:'),
        ("{from: TITLE}", "{from: TITLE, do: [{truncate: many}]}", "a whole number is needed"),
        (
            "{from: TITLE}",
            '{from: TITLE, do: [{date: "%Y-%m-%d"}, trim]}',
            "cannot be used here: it works on a text, and would get a date",
        ),
        ("{from: TITLE}", "{from: TITLE, on_empty: ommit}", '"ommit" is not among the choices, did you mean "omit"?'),
        ("[music]", "[{chose: x}]", 'unknown value "chose", did you mean "choose"?'),
        (": pt-lisboa", ": {colour: red}", "approxLocation.city.placeId is no object: write one of from, first_of"),
        (
            ".placeId: pt-lisboa",
            ": {from: CITY}",
            "approxLocation.city is an object, and this gives a text, one text belongs into",
        ),
        ("{from: TITLE}", "{from: TITLE, do: [{lower: {locale: tr}}]}", "or true beside other keys: {lower: true, locale: tr}"),
        ("  title", "\ttitle", "6:1: this is not YAML: a tab stands here, indent with spaces"),
        ("{from: TITLE}", "[broken", "this is not YAML"),
        ("{from: START}", "{at: {day: {from: START}, zone: UTC}}", "a text does not fit here, a date is needed"),
        ("{from: START}", '{from: START, do: [{date: "%d %B"}]}', "does not give a whole date, it needs year, month and day"),
        ("{from: START}", '{from: START, do: [{time: "%I:%M"}]}', "does not give a time of day, %I needs %p beside it"),
        ("{from: START}", '{from: START, do: [{datetime: "%Y-%m-%d %H:%M %Z"}]}', "zone names such as EST are ambiguous"),
        ("{from: START}", '{from: START, do: [{date: "%Y-%m-%d"}]}', "startAt is a moment, and a date is none, say where its"),
        ("{from: ZONE}", "CET+1", '"CET+1" is not accepted as timezone'),
        ("event:", "rows: [{skipp: {column: A, is: missing}, because: x}]\nevent:", 'unknown rule "skipp", did you mean "skip"?'),
        ("event:", "rows: [{skip: {column: A}, because: x}]\nevent:", "a condition needs a test"),
        ("event:", "rows: [{skip: {column: A, before: 2026-01-01}, because: x}]\nevent:", "a column is text, and has no earlier"),
        ("classifications: [music]", "status: publishd\n  classifications: [music]", '"publishd" is not accepted as status'),
        ("pt-lisboa", "pt-lisboa\n  approxLocation: {city: {placeId: x}}", "is filled in two places"),
        ("event:", "examples: [{row: {ID: 1}}]\nevent:", "an example has one outcome"),
        ("event:", "publish: {brakes: {rejected: lots}}\nevent:", '"lots" is not a share'),
        ("event:", "publish: {brakes: {rejected: 5}}\nevent:", '"5" is more than the whole, write "5%" if that is meant'),
        ("event:", "publish: {max_pause: soon}\nevent:", '"soon" is not a duration'),
        ("event:", "publish: {on_change: reprt}\nevent:", '"reprt" is not among the choices, did you mean "report"?'),
        ("event:", "examples: [{row: {ID: 1}, rejected: {title: requird}}]\nevent:", 'did you mean "required"?'),
    ],
)
def test_a_mistake_is_told_in_the_authors_words(old: str, new: str, told: str, tmp_path: Path) -> None:
    assert old in VALID
    assert told in str(mistakes_in(VALID.replace(old, new, 1), tmp_path))


@pytest.mark.parametrize("lookup", ["{from: CITY, do: [{lookup: cities.csv}]}", "{lookup: cities.csv, by: [{from: CITY}]}"])
def test_a_lookup_of_one_column_where_an_object_is_needed_is_told_where_it_stands(lookup: str, tmp_path: Path) -> None:
    (tmp_path / "cities.csv").write_text("city,placeId\nLisboa,pt-lisboa\n", "utf-8")
    text = VALID.replace("approxLocation.city.placeId: pt-lisboa", f"approxLocation.city: {lookup}", 1)
    told = str(mistakes_in(text, tmp_path))
    line = text[: text.index("approxLocation")].count("\n") + 1
    assert f":{line}:24: approxLocation.city is an object, and this gives a text" in told
    assert "required" not in told
    (tmp_path / "cities.csv").write_text("city,placeId,name\nLisboa,pt-lisboa,Lisbon\n", "utf-8")
    (tmp_path / "sample.yaml").write_text(text, "utf-8")
    assert load_feed(tmp_path / "sample.yaml").feed


def test_scalars_keep_their_spelling_whatever_yaml_would_make_of_them(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    example = "examples: [{row: {ID: 02134, TITLE: no, START: 1.0, ZONE: 2026-01-01}, skipped: NULL}]\n"
    path.write_text(VALID + example, "utf-8")
    example_row = load_feed(path).examples[0]
    assert example_row.row == {"ID": "02134", "TITLE": "no", "START": "1.0", "ZONE": "2026-01-01"}
    assert example_row.skipped == "NULL"


def test_anchors_and_merges_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text(VALID.replace("{from: START}", "&start {from: START}") + "  endAt: {<<: *start, on_empty: omit}\n", "utf-8")
    assert load_feed(path).event.root["endAt"].source == "START"


def test_a_key_that_partners_edit_and_examples_that_prove_nothing_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text(VALID.replace("[ID]", "[ID, TITLE]"), "utf-8")
    told = [str(warning) for warning in load_feed(path).warnings]
    assert any('3:11: the key uses "TITLE", which partners edit (it fills title)' in line for line in told)
    assert any("the feed has no examples" in line for line in told)


def test_a_broken_file_harms_no_other_and_feed_names_are_taken_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(VALID.replace("feed: sample", "feed: city-agenda"), "utf-8")
    (tmp_path / "b.yaml").write_text(VALID.replace("feed: sample", "feed: city_agenda"), "utf-8")
    (tmp_path / "c.yaml").write_text("feed: [", "utf-8")
    (tmp_path / "d.yml").write_text(VALID, "utf-8")
    folder = load_folder(tmp_path)
    assert [mapping.feed for mapping in folder.feeds] == ["city-agenda", "sample"]
    assert [error.path.name for error in folder.broken] == ["b.yaml", "c.yaml"]
    assert 'the feed name "city_agenda" is taken by a.yaml' in str(folder.broken[0])


def test_files_that_can_hold_none_of_the_feeds_wanted_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("feed: other\nsource: [", "utf-8")
    (tmp_path / "b.yaml").write_text(VALID.replace("feed: sample", 'feed: "sample" # of all'), "utf-8")
    (tmp_path / "c.yaml").write_text(VALID.replace("feed: sample", "feed: third").replace("\n", "\r\n"), "utf-8", newline="")
    for wanted in ("sample", "b"):
        folder = load_folder(tmp_path, {wanted})
        assert ([mapping.feed for mapping in folder.feeds], folder.broken) == (["sample"], ())
    assert [mapping.feed for mapping in load_folder(tmp_path, {"third", "sample"}).feeds] == ["sample", "third"]


@pytest.mark.parametrize("name", ["feed: &name sample", "feed:\n  sample", "'feed': sample", "feed : sample"])
def test_a_file_that_does_not_tell_its_name_at_a_glance_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(VALID.replace("feed: sample", name), "utf-8")
    assert [mapping.feed for mapping in load_folder(tmp_path, {"sample"}).feeds] == ["sample"]


@pytest.mark.parametrize("wanted", ["city_agenda", "city-agenda", "b"])
def test_a_name_is_taken_also_by_a_file_that_was_not_asked_for(wanted: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(VALID.replace("feed: sample", "feed: city-agenda"), "utf-8")
    (tmp_path / "b.yaml").write_text(VALID.replace("feed: sample", "feed: city_agenda"), "utf-8")
    folder = load_folder(tmp_path, {wanted})
    assert ([feed.path.name for feed in folder.feeds], [error.path.name for error in folder.broken]) == (["a.yaml"], ["b.yaml"])


def test_lookup_files_are_found_beside_the_feed_or_in_the_folder_next_to_it(tmp_path: Path) -> None:
    feeds = tmp_path / "feeds"
    (tmp_path / "lookups").mkdir()
    feeds.mkdir()
    (tmp_path / "lookups" / "kinds.csv").write_text("kind,slug\nJazz,music\n", "utf-8")
    path = feeds / "sample.yaml"
    path.write_text(VALID.replace("[music]", "{from: KIND, do: [{lookup: kinds.csv}]}"), "utf-8")
    assert load_feed(path).tables["kinds.csv"].rows == (("Jazz", "music"),)


def test_the_digest_changes_with_what_rows_become_and_with_nothing_else(tmp_path: Path) -> None:
    def digest(text: str) -> bytes:
        path = tmp_path / "sample.yaml"
        path.write_text(text, "utf-8")
        return load_feed(path).digest

    same = digest(VALID)
    assert len(same) == 16
    assert digest("# a comment\nowner: someone@example.org\n" + VALID) == same
    assert digest(VALID.replace("pt-lisboa", "pt-porto")) != same
    kinds = tmp_path / "kinds.csv"
    with_lookup = VALID.replace("[music]", "{from: KIND, do: [{lookup: kinds.csv}]}")
    kinds.write_text("kind,slug\nJazz,music\n", "utf-8")
    before = digest(with_lookup)
    kinds.write_text("kind,slug\nJazz,dance\n", "utf-8")
    assert digest(with_lookup) != before


def test_policies_are_read_from_text(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    publish = "publish: {max_pause: 20m, key_memory: 48h, in_flight: 4, brakes: {rejected: 10%, shrink: off, new: 80%}}\n"
    path.write_text(VALID + publish, "utf-8")
    policy = load_feed(path).publish
    assert (policy.max_pause_s, policy.key_memory_s, policy.in_flight) == (1200, 172800, 4)
    assert (policy.brakes.rejected, policy.brakes.shrink, policy.brakes.new, policy.brakes.rejected_at_least) == (
        0.1,
        None,
        0.8,
        3,
    )


@pytest.mark.parametrize(
    ("source", "word", "meant"),
    [
        ('null: ["-"]', "null", "empty_if"),
        ('null_in: {PRICE: ["-"]}', "null_in", "empty_in"),
        ("sep: ';'", "sep", "delimiter"),
        ("join: {source: {kind: csv, path: b.csv}, on: {A: b}, prefix: v.}", "on", "by"),
        ("join: {source: {kind: csv, path: b.csv}, by: {A: b}, prefix: v., on_miss: empty}", "empty", "omit"),
    ],
)
def test_a_word_that_other_programs_use_is_told_by_the_word_that_is_meant(
    tmp_path: Path, source: str, word: str, meant: str
) -> None:
    with pytest.raises(MappingFileError) as refused:
        parse_feed(HEAD.replace("path: sample.csv", f"path: sample.csv, {source}") + EVENT, tmp_path / "a.yaml")
    (problem,) = (one for one in refused.value.problems if f'"{word}"' in one.message)
    assert problem.hint == f'did you mean "{meant}"?'


def test_what_no_check_foresaw_is_a_problem_of_its_file_that_asks_to_be_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mappings.yaml.loader.read_yaml", lambda _: 1 / 0)
    with pytest.raises(MappingFileError) as raised:
        parse_feed(VALID, tmp_path / "sample.yaml")
    (problem,) = raised.value.problems
    assert (problem.line, problem.column) == (1, 1)
    assert re.match(r"a fault of eventsync while loading this file: ZeroDivisionError in \w+\.py, line \d+", problem.message)
    assert problem.hint == "please report it, with the file"


@pytest.mark.parametrize(
    ("step", "mistake"),
    [('{split: ["", ","]}', "a separator is empty"), ('{price: ",", take: []}', "at least one entry is needed")],
)
def test_a_parameter_that_a_step_cannot_work_with_is_a_mistake(tmp_path: Path, step: str, mistake: str) -> None:
    path = tmp_path / "town.yaml"
    event = f"title: {{from: T, do: [{step}]}}, timezone: Europe/Lisbon, channelId: 7"
    path.write_text(f"feed: town\nsource: {{kind: csv, path: x.csv}}\nkey: [ID]\nevent: {{{event}}}\n", "utf-8")
    with pytest.raises(MappingFileError, match=mistake):
        load_feed(path)


def test_what_is_merely_unwise_in_a_broken_file_is_told_as_well(tmp_path: Path) -> None:
    let = "let: {day: {from: DAY}}\nevent:\n  locationName: $dya"
    (warning,) = mistakes_in(VALID.replace("event:", let), tmp_path).warnings
    assert (warning.line, warning.message) == (4, 'nothing uses the named value "day"')
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
    feed = yaml.safe_load(VALID)
    assert [error.message for error in editor.iter_errors(feed)] == []
    part, value = _FOR_EDITORS[mistake]
    paths = [list(error.absolute_path)[:1] for error in editor.iter_errors({**feed, part: value})]
    assert paths
    assert all(path == [part] for path in paths)


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
        ({"top": "rows:\n  - window: {horizon: 99999999999d}\n"}, "is not a duration"),
        ({"event": "title: {from: T, do: [{regex_replace: '(a)', with: '\\2'}]}"}, r'"\2" cannot stand for a match'),
        ({"event": "title: {from: T, do: [{regex_extract: '(a)', group: 5}]}"}, "there is no group 5 in the pattern"),
        ({"event": "title: {from: T, do: [{split: ','}, {nth: 0}]}"}, "there is no part 0"),
        ({"event": 'locationName: {from: D, do: [{date: "%Y", locale: klingon}]}'}, '"klingon" is not a language'),
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
    ],
)
def test_what_would_fail_a_row_later_is_a_mistake_of_the_file(build: Build, parts: dict[str, str], message: str) -> None:
    assert message in mistakes(build, **parts)


def test_a_key_without_a_name_is_told_with_its_place(tmp_path: Path) -> None:
    problems = mistakes_in(b'feed: a\nsource: {kind: csv, path: a.csv}\nkey: [""]\nevent: {title: x}\n', tmp_path).problems
    assert (3, 7) in {(problem.line, problem.column) for problem in problems}


@pytest.mark.parametrize("nest", [b"[" * 200_000, b"- " * 200_000, b"{a: " * 200_000, b"? " * 200_000], ids=["[", "-", "{", "?"])
def test_bottomless_nesting_is_told_before_it_exhausts_the_machine(tmp_path: Path, nest: bytes) -> None:
    (problem,) = mistakes_in(b"a:\n  " + nest, tmp_path).problems
    assert problem.message == "the file nests too deeply or repeats an anchor without end"
    assert problem.line == 2


def test_anchors_that_multiply_are_told_once(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join(['*' + before] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)]
    messages = [problem.message for problem in mistakes_in("\n".join(lines).encode(), tmp_path).problems]
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
    (problem,) = mistakes_in(content, tmp_path).problems
    assert (problem.line, problem.column, problem.message) == (2, 10, message)


def test_a_lookup_file_that_is_no_table_is_told(build: Build) -> None:
    city = "approxLocation.city: {lookup: cities.csv, by: [PT]}"
    message = mistakes(build, event=city, files={"cities.csv": 'country,placeId\nPT,"' + "x" * 11_000_000 + '"\n'})
    assert "line 2 of the lookup file cities.csv cannot be read" in message


def test_a_misspelt_column_of_an_example_is_warned_about(build: Build) -> None:
    mapping = build(top="examples:\n  - row: {ID: '1', TITEL: Jazz, NOTE: x}\n    rejected: {title: required}\n")
    (warning,) = mapping.warnings
    assert (warning.message, warning.hint) == ('the mapping reads no column "TITEL"', 'did you mean "TITLE"?')


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
        (3, '";;" is not one character, and no line break', 'a tab is written "\\t"'),
        (10, 'unknown step "colapse"', 'did you mean "collapse"?'),
    ]


def test_the_reference_names_every_key_of_every_block_of_the_file() -> None:
    page = read_vocabulary().text
    for model in (CsvSource, Header, Schedule, PublishPolicy, Brakes, Example):
        for name, field in model.model_fields.items():
            assert f"| `{field.alias or name}` |" in page


@pytest.mark.parametrize(
    ("cron", "told"),
    [
        ("0 0 31 2 *", '"31" is a day that never comes'),
        ("0 0 30 feb *", '"30" is a day that never comes'),
        ("0 0 31 4,6,sep *", '"31" is a day that never comes'),
        ("*/90 * * * *", '"*/90" is not a minute'),
        ("0 0 * mon *", '"mon" is not a month'),
        ("0 0 * * jan", '"jan" is not a weekday'),
        ("@daily", '"@daily" is not a cron line'),
    ],
)
def test_a_cron_line_that_no_clock_keeps_is_a_mistake(cron: str, told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Schedule.model_validate({"cron": cron})
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "cron",
    ["15 */2 * * *", "0 22-6 * * *", "0 6 29 2 *", "0 0 31 2,3 *", "*/5 8-18 * * mon-fri", "0 6 * jan,jul 7", "0 0 28-31 2 *"],
)
def test_every_other_one_is_kept_by_dagster_too(cron: str) -> None:
    assert is_valid_cron_string(Schedule.model_validate({"cron": cron}).cron)


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ({"cron": "0 6 * * *", "timezone": "Europe/Lisbon"}, "0 6 * * * (Europe/Lisbon)"),
        ({"look_every": "5m"}, "when changed (looked at every 300 s)"),
        ({"cron": "0 6 * * *", "look_every": "1h"}, "0 6 * * * (UTC), when changed (looked at every 3600 s)"),
    ],
)
def test_a_schedule_is_told_in_words(schedule: dict[str, str], told: str) -> None:
    assert str(Schedule.model_validate(schedule)) == told
