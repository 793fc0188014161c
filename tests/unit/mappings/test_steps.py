"""Every step keeps what its declaration promises, in short time, whatever the cell holds."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from unit.mappings.conftest import Build, Mapper, Row, mapped, mistakes

from connectors.sources.salesforce.org import one_line
from mappings.compiler.base import Flow, RowState, ValuePolicies, compile_policy, compile_step, stepped
from mappings.draft.times import find_times
from mappings.errors import MappingFileError
from mappings.lookup_table import parse_table
from mappings.reasons import ReasonCode, Refusal, Repair
from mappings.spec.values import STEPS, AnyStep
from mappings.steps.step import Family, Kind, Run, Step, StepExample, text_of
from mappings.steps.text import Newlines

TABLES = {"categories.csv": parse_table("categories.csv", "path,slug\ncategories/music/jazz,music\nmusic,music\n")}
ADAPTER: TypeAdapter[Step] = TypeAdapter(AnyStep)
EXAMPLES = [
    pytest.param(step, shown, id=f"{step.name}-{number}") for step in STEPS.values() for number, shown in enumerate(step.examples)
]


def as_kind(text: Any, kind: Kind, step: type[Step]) -> Any:
    if isinstance(text, tuple):
        return list(text)
    if kind in (Kind.WALL, Kind.MOMENT) or (kind is Kind.ANY and step.name in ("plus", "day_of", "clock_of")):
        return datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)
    if kind is Kind.NUMBER:
        return Decimal(text)
    if kind is Kind.OBJECT:
        return dict(part.split(": ") for part in text.split(", "))
    return text


def as_text(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(as_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}: {as_text(part)}" for name, part in value.items())
    return str(value).lower() if isinstance(value, bool) else value.isoformat() if isinstance(value, date | time) else str(value)


def made_by(run: Run, goes_in: Any) -> Any:
    try:
        return run(goes_in)
    except Repair as repaired:
        return repaired.value


@pytest.mark.parametrize(("step", "shown"), EXAMPLES)
def test_every_example_in_a_steps_declaration_is_true(step: type[Step], shown: StepExample) -> None:
    parsed = ADAPTER.validate_python(yaml.load(shown.step, yaml.BaseLoader))
    assert type(parsed) is step
    run = parsed.compile(TABLES)
    goes_in = as_kind(shown.goes_in, step.takes, step)
    if isinstance(shown.comes_out, ReasonCode) and parsed.policy is None:
        with pytest.raises(Refusal) as refused:
            run(goes_in)
        assert refused.value.code is shown.comes_out
        assert refused.value.hint
    elif parsed.policy is None:
        assert as_text(made_by(run, goes_in)) == shown.comes_out
    else:
        stage, _ = compile_step(parsed, Flow(step.takes), TABLES, "title")
        value = stepped(lambda _row: goes_in, (stage,), ValuePolicies("C", compile_policy(None, ""), compile_policy(None, "")))
        assert as_text(value(RowState({}, 0))) == shown.comes_out


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_every_step_promises_something_and_shows_it(step: type[Step]) -> None:
    assert (step.__doc__ or "").rstrip().endswith(".")
    assert step.examples
    assert all(field.description for field in step.model_fields.values() if field.alias != step.name or field.is_required())


def test_a_step_that_does_nothing_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match='the step "idle" does nothing'):
        type("Idle", (Step,), {}, name="idle", family=Family.TEXT)


ODD = st.one_of(
    st.text(st.characters(), max_size=40),
    st.sampled_from(
        ["€13 + BF", "1.250,50", "https://ex.org:99999/", "//[::1", "a@b", "%zz%", "\\ud800x", "R$ -5 a 10", "USA", "&#x110000;"]
    ),
)


@pytest.mark.parametrize("shown", [param.values[1] for param in EXAMPLES], ids=[param.id for param in EXAMPLES])
@given(text=ODD)
@settings(max_examples=25)
def test_no_text_makes_a_step_do_anything_but_give_a_value_or_refuse(shown: StepExample, text: str) -> None:
    step = ADAPTER.validate_python(yaml.load(shown.step, yaml.BaseLoader))
    kind = Kind.TEXT if step.takes in (Kind.TEXT, Kind.LIST) else Kind.ANY
    for value, is_list in ((text, False), ([text, "Jazz"], True)):
        stage, _ = compile_step(step, Flow(kind, is_list=is_list), TABLES, "title")
        with contextlib.suppress(Refusal):
            stage.run(value)


LENGTH = 200_000
PARTS = ("a", "1", " ", "\n", "<", "&amp;", "1,", "http://", "a.", "a@", "Ã©", "10:00 ", "- ", "€1", "(", "[", "**a", "\\u0041")


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail where the body takes far longer than the parts of a second that it needs."""

    def fail(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("step", [step for step in STEPS.values() if step.takes is Kind.TEXT], ids=lambda step: step.name)
def test_no_step_takes_long_over_a_long_cell(step: type[Step]) -> None:
    for shown in step.examples:
        run = ADAPTER.validate_python(yaml.load(shown.step, yaml.BaseLoader)).compile(TABLES)
        for part in PARTS:
            with within(20), contextlib.suppress(Refusal, Repair):
                run(part * (LENGTH // len(part)) + "x")


@pytest.mark.parametrize("cell", ["19:00" + " " * LENGTH + "x", "19:00 " * LENGTH])
def test_no_guess_of_times_takes_long_over_a_long_cell(cell: str) -> None:
    with within(20):
        seen = find_times(["19:00-20:00"] * 9 + [cell])
    assert seen is not None
    assert seen.is_time


@pytest.mark.parametrize("part", ["<style", "<script", "<"])
def test_no_error_page_of_salesforce_takes_long(part: str) -> None:
    with within(20):
        assert one_line("<p>maintenance</p>" + part * LENGTH).startswith("maintenance")


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", " \u00a0", "\n "])
def test_a_cell_of_a_million_blanks_is_passed_at_once(blank: str) -> None:
    tidy = Newlines.model_validate({"newlines": "|"}).function()
    assert tidy("x" + blank * 1_000_000 + "y") == ("x|y" if "\n" in blank else "x" + blank * 1_000_000 + "y")


PLACES = (
    {"event": "title: {from: T, do: [{regex_extract: 'PATTERN'}]}"},
    {"event": "title: {from: T, do: [{regex_all: 'PATTERN'}, {join: x}]}"},
    {"event": "title: {from: T, do: [{regex_split: 'PATTERN'}, {join: x}]}"},
    {"event": "title: {from: T, do: [{regex_replace: 'PATTERN', with: x}]}"},
    {"event": "title: {choose: [{when: {column: T, matches: 'PATTERN'}, then: x}]}"},
    {"event": "title: {from: T, do: [{lookup: t.csv, match: regex}]}", "files": "PATTERN"},
    {"top": "rows:\n  - skip: {column: T, matches: 'PATTERN'}\n    because: x\n"},
)
LACKING = (
    ("a(?=b)", "has a look-ahead, (?=...), which RE2 lacks"),
    ("a(?!b)", "has a negative look-ahead, (?!...)"),
    ("(?<=a)b", "has a look-behind, (?<=...)"),
    ("(?<!a)b", "has a negative look-behind, (?<!...)"),
    ("(?>a)b", "has an atomic group, (?>...)"),
    ("(a)?(?(1)b|c)", "has a conditional group, (?(1)...)"),
    ("(?P<n>a)(?P=n)", "has a back-reference, (?P=name)"),
    (r"(a)\1", r"has a back-reference, \1"),
    ("a++b", "has a possessive repetition"),
    ("a{1,2}+b", "has a possessive repetition"),
    (r"a\Z", r"has \Z, which RE2 lacks"),
    ("(?x)a b", "has the flag x"),
    ("(?a)b", "has the flags a, u and L"),
    ("a{1001}", "has a repetition of more than 1,000 times, {1001}, which RE2 lacks"),
    ("(?:a{100}){100}", "is too large a pattern"),
    ("[a--b]", "is not a regular expression: Possible set difference"),
)


@pytest.mark.parametrize("place", PLACES)
def test_a_construct_that_re2_lacks_is_a_mistake_of_the_file_wherever_it_stands(build: Build, place: dict[str, str]) -> None:
    parts: dict[str, object] = {name: text.replace("PATTERN", "a(?=b)") for name, text in place.items()}
    if "files" in parts:
        parts["files"] = {"t.csv": "key,slug\na(?=b),x\n"}
    with pytest.raises(MappingFileError, match="has a look-ahead") as error:
        build(**parts)
    assert re.match(r".*\.(?:yaml|csv):\d+:\d+: ", str(error.value))


@pytest.mark.parametrize(("pattern", "message"), LACKING)
def test_each_construct_that_re2_lacks_is_named(build: Build, pattern: str, message: str) -> None:
    assert message in mistakes(build, event=f"title: {{from: T, do: [{{regex_extract: '{pattern}'}}]}}")


def test_a_pattern_that_prefers_nothing_is_a_mistake_where_all_matches_are_wanted(build: Build) -> None:
    assert "finds nothing, again and again" in mistakes(build, event="title: {from: T, do: [{regex_replace: 'a*?', with: x}]}")


@pytest.mark.parametrize(
    ("step", "text", "title"),
    [
        (r"{regex_replace: '\bao\b', with: x}", "São ao", "São x"),
        (r"{regex_replace: ' - .*$', with: ''}", "a\nb - c\n", "a\nb\n"),
        (r"{regex_extract: '\d+'}", "٣ ", "٣"),
        (r"{regex_extract: '(?i)straße \w+'}", "STRAẞE Élan", "STRAẞE Élan"),
        (r"{regex_replace: '(?P<a>\w+) (\w+)', with: '\2, \g<a>'}", "Ana Água", "Água, Ana"),
        (r"{regex_replace: '^|,', with: -}", ",a,b", "--a-b"),
        (r"{regex_replace: '^\s*-|\s*$', with: ''}", " - a  ", " a"),
        (r"{regex_extract: 'a\z'}", "aba", "a"),
    ],
)
def test_a_pattern_means_all_of_unicode(mapper: Mapper, row: Row, step: str, text: str, title: str) -> None:
    outcome = mapped(mapper(event=f"title: {{from: T, do: [{step}]}}")(row(T=text)))
    assert orjson.loads(outcome.body)["title"] == title


@pytest.mark.parametrize(
    ("value", "text"), [(Decimal("12.50"), "12.50"), (7, "7"), (True, "true"), (date(2026, 5, 3), "2026-05-03"), ("x", "x")]
)
def test_each_kind_of_value_has_its_plain_text(value: Any, text: str) -> None:
    assert text_of(value) == text
