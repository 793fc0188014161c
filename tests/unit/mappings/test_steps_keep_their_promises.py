from __future__ import annotations

import contextlib
import inspect
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from mappings.compiler.base import Flow, RowState, ValuePolicies, compile_policy, compile_step, stepped
from mappings.lookup_table import parse_table
from mappings.reasons import ReasonCode, Refusal, Repair
from mappings.steps.catalogue import STEPS, AnyStep
from mappings.steps.step import Kind, Run, Step, StepExample

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
    assert not inspect.isabstract(step)
    assert step.examples
    assert all(field.description for field in step.model_fields.values() if field.alias != step.name or field.is_required())


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


def test_nothing_a_step_reads_depends_on_the_machines_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    step = ADAPTER.validate_python({"date": "%d %B %Y"})
    assert step.compile({})("3 May 2026") == date(2026, 5, 3)
