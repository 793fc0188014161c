"""What is written once and used often: named steps, and files that several feeds include."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
import yaml
from jsonschema import Draft202012Validator
from unit.mappings.conftest import Build, Mapper, Row, mistakes

from mappings.errors import MappingFileError
from mappings.outcome import MappedRow, RowOutcome
from mappings.yaml.loader import load_folder

CLEAN = "steps:\n  plain: [html_unescape, collapse]\n  clean: [{use: plain}, {truncate: 12}]\n"


def title_of(outcome: RowOutcome) -> str:
    assert isinstance(outcome, MappedRow)
    return str(orjson.loads(outcome.body)["title"])


def told(error: pytest.ExceptionInfo[MappingFileError]) -> list[tuple[str, int, int, str]]:
    return [(problem.path.name, problem.line, problem.column, problem.message) for problem in error.value.problems]


def test_named_steps_stand_where_they_are_used_also_inside_each_other(mapper: Mapper, row: Row) -> None:
    feed = mapper(top=CLEAN, event="title: {from: TITLE, do: [{use: clean}, upper]}")
    assert title_of(feed(row(TITLE="Jazz &amp;\n blues"))) == "JAZZ & BLUES"
    assert title_of(mapper(top=CLEAN, event="title: {from: TITLE, do: {use: plain}}")(row(TITLE=" a  b "))) == "a b"


def test_a_feed_says_the_same_whether_its_steps_are_named_or_written_out(build: Build) -> None:
    named = build(top=CLEAN, event="title: {from: TITLE, do: [{use: plain}, upper]}")
    written = build(event="title: {from: TITLE, do: [html_unescape, collapse, upper]}")
    assert named.digest == written.digest


def test_mistakes_in_named_steps_are_told_where_they_are_written_and_once(build: Build) -> None:
    steps = "steps:\n  a: [{use: b}]\n  b: [trimm, {use: a}]\n  c: [trim]\n"
    event = "title: {from: TITLE, do: [{use: a}, {use: cc}, {use: c, on_error: omit}]}\nlocationName: {from: P, do: [{use: a}]}"
    with pytest.raises(MappingFileError) as error:
        build(top=steps, event=event)
    assert [(line, message) for _, line, _, message in told(error)] == [
        (6, 'unknown step "trimm"'),
        (6, "the named steps go in a circle: a -> b -> a"),
        (14, 'there are no steps "cc"'),
        (14, '"use" stands for steps, and "on_error" is no part of it'),
    ]


def test_ways_that_grow_without_end_are_cut_short(build: Build) -> None:
    steps = "steps:\n  s0: [trim, trim]\n" + "".join(f"  s{n}: [{{use: s{n - 1}}}, {{use: s{n - 1}}}]\n" for n in range(1, 40))
    assert "longer than 500 steps" in mistakes(build, top=steps)


SHARED = "let:\n  place: {from: PLACE, do: [{use: clean}]}\nsteps:\n  clean: [collapse, upper]\n"


def test_an_included_file_lends_its_names(mapper: Mapper, build: Build, row: Row) -> None:
    top = "include: shared/common.yaml\nlet: {own: {from: TITLE, do: [{use: clean}]}}\n"
    event = "title: {join: [$own, $place], with: ' @ '}"
    feed = mapper(top=top, event=event, files={"shared/common.yaml": SHARED})
    assert title_of(feed(row(TITLE="Jazz", PLACE=" blå  "))) == "JAZZ @ BLÅ"
    before = build(top=top, event=event, files={"shared/common.yaml": SHARED}).digest
    changed = SHARED.replace("upper", "lower")
    assert build(top=top, event=event, files={"shared/common.yaml": changed}).digest != before


def test_mistakes_in_an_included_file_are_told_with_its_name_and_its_lines(build: Build) -> None:
    files = {"common.yaml": "let:\n  day: {from: DAY, do: [daet]}\nevent: {}\n", "other.yaml": "let: {day: {from: X}}\n"}
    with pytest.raises(MappingFileError) as error:
        build(top="include: [common.yaml, other.yaml, gone.yaml]\n", files=files)
    assert [(name, line) for name, line, _, _ in told(error)] == [
        ("sample.yaml", 4),
        ("common.yaml", 2),
        ("common.yaml", 3),
        ("other.yaml", 1),
    ]
    messages = str(error.value)
    assert 'unknown step "daet", did you mean "date"?' in messages
    assert '"day" is named twice, first in common.yaml, line 2' in messages
    assert 'shares let and steps, not "event"' in messages
    assert 'the file "gone.yaml" cannot be included' in messages
    assert (
        next(problem for problem in error.value.problems if "daet" in problem.message).snippet == "  day: {from: DAY, do: [daet]}"
    )


def test_a_file_to_be_included_may_stand_among_the_feeds(build: Build, tmp_path: Path) -> None:
    build(files={"feeds/_common.yaml": SHARED})
    assert load_folder(tmp_path / "feeds").broken == ()


def test_an_editor_knows_named_steps_included_files_and_lists_of_things(editor: Draft202012Validator) -> None:
    text = (
        "feed: a\nsource: {kind: csv, path: a.csv}\nkey: [ID]\ninclude: _a.yaml\nsteps: {a: trim, b: [trim, {use: a}]}\n"
        "event:\n  x: {for_each: {from: A, do: {use: b}}, as: i, give: {y: $i, z: {meta: row, do: [to_text]}}}\n"
        '  w: {from: B, do: [{boolean: {true: x, false: ""}}]}\n'
    )
    read = lambda changed: json.loads(json.dumps(yaml.safe_load(changed)))  # noqa: E731 - as an editor sees the file
    assert [error.message for error in editor.iter_errors(read(text))] == []
    for right, wrong in (("trim,", "trimm,"), ("{use: a}", "{use: [a]}"), ("as: i", "az: i"), ("meta: row", "meta: rows")):
        assert list(editor.iter_errors(read(text.replace(right, wrong)))), wrong
