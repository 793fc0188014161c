"""What is written once and used often: named steps, and files that several feeds include."""

from __future__ import annotations

import json

import pytest
import yaml
from jsonschema import Draft202012Validator
from unit.mappings.conftest import Build, mistakes

from mappings.errors import MappingFileError

CLEAN = "steps:\n  plain: [html_unescape, collapse]\n  clean: [{use: plain}, {truncate: 12}]\n"


def test_a_feed_says_the_same_whether_its_steps_are_named_or_written_out(build: Build) -> None:
    named = build(top=CLEAN, event="title: {from: TITLE, do: [{use: clean}, upper]}")
    written = build(event="title: {from: TITLE, do: [html_unescape, collapse, {truncate: 12}, upper]}")
    assert named.digest == written.digest


def test_mistakes_in_named_steps_are_told_where_they_are_written_and_once(build: Build) -> None:
    steps = "steps:\n  a: [{use: b}]\n  b: [trimm, {use: a}]\n  c: [trim]\n"
    event = "title: {from: TITLE, do: [{use: a}, {use: cc}, {use: c, on_error: omit}]}\nlocationName: {from: P, do: [{use: a}]}"
    with pytest.raises(MappingFileError) as error:
        build(top=steps, event=event)
    assert [(problem.line, problem.message) for problem in error.value.problems] == [
        (6, 'unknown step "trimm"'),
        (6, "the named steps go in a circle: a -> b -> a"),
        (14, 'there are no steps "cc"'),
        (14, '"use" stands for steps, and "on_error" is no part of it'),
    ]


def test_ways_that_grow_without_end_are_cut_short(build: Build) -> None:
    steps = "steps:\n  s0: [trim, trim]\n" + "".join(f"  s{n}: [{{use: s{n - 1}}}, {{use: s{n - 1}}}]\n" for n in range(1, 40))
    assert "longer than 500 steps" in mistakes(build, top=steps)


SHARED = "let:\n  place: {from: PLACE, do: [{use: clean}]}\nsteps:\n  clean: [collapse, upper]\n"


def test_what_an_included_file_says_counts_for_what_rows_become(build: Build) -> None:
    top = "include: shared/common.yaml\nlet: {own: {from: TITLE, do: [{use: clean}]}}\n"
    event = "title: {join: [$own, $place], with: ' @ '}"
    texts = (SHARED, SHARED.replace("upper", "lower"))
    digests = {build(top=top, event=event, files={"shared/common.yaml": text}).digest for text in texts}
    assert len(digests) == 2


def test_mistakes_in_an_included_file_are_told_with_its_name_and_its_lines(build: Build) -> None:
    files = {"common.yaml": "let:\n  day: {from: DAY, do: [daet]}\nevent: {}\n", "other.yaml": "let: {day: {from: X}}\n"}
    with pytest.raises(MappingFileError) as error:
        build(top="include: [common.yaml, other.yaml, gone.yaml]\n", files=files)
    places = [(problem.path.name, problem.line) for problem in error.value.problems]
    assert places == [("sample.yaml", 4), ("common.yaml", 2), ("common.yaml", 3), ("other.yaml", 1)]
    messages = str(error.value)
    assert 'unknown step "daet", did you mean "date"?' in messages
    assert '"day" is named twice, first in common.yaml, line 2' in messages
    assert 'shares let and steps, not "event"' in messages
    assert 'the file "gone.yaml" cannot be included' in messages
    assert [one.snippet for one in error.value.problems if "daet" in one.message] == ["  day: {from: DAY, do: [daet]}"]


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
