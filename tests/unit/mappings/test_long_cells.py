"""Cells of hundreds of thousands of characters that keep a careless built-in pattern busy for minutes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pytest
import yaml
from pydantic import TypeAdapter

from connectors.sources.salesforce.org import one_line
from mappings.draft.times import find_times
from mappings.lookup_table import parse_table
from mappings.reasons import Refusal, Repair
from mappings.steps.catalogue import STEPS, AnyStep
from mappings.steps.step import Kind, Step
from mappings.steps.text import Newlines

TABLES = {"categories.csv": parse_table("categories.csv", "path,slug\ncategories/music/jazz,music\nmusic,music\n")}
ADAPTER: TypeAdapter[Step] = TypeAdapter(AnyStep)
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
