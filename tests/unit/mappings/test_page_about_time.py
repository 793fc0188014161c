"""What docs/time.md shows is so: each step of its tables is run, and each block of a mapping with the rows below it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, time
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from mappings.compiler.mapper import RowMapper
from mappings.outcome import MappedRow, Rejection, SourceRow
from mappings.reasons import Refusal
from mappings.steps.catalogue import AnyStep
from mappings.steps.ranges import BETWEEN_WORDS, OPENING_WORDS
from mappings.steps.times import BETWEEN_CLOCKS, read_clock_words
from mappings.steps.times import TimeOptions as ClockManner

PAGE = (Path(__file__).parents[3] / "docs" / "time.md").read_text("utf-8")
STEPS: TypeAdapter[Any] = TypeAdapter(AnyStep)


def rows_of(table: str) -> Iterator[list[str]]:
    for line in table.splitlines():
        yield [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def tables(head: str) -> Iterator[list[list[str]]]:
    for found in re.findall(rf"^{head}\n\|[-|]+\|\n((?:\|.*\n?)+)", PAGE, re.MULTILINE):
        yield list(rows_of(found.rstrip("\n")))


SHOWN = [row for table in tables(r"\| written \| goes in \| comes out \|") for row in table]
BLOCKS = re.findall(r"^```yaml\n((?:(?!```).*\n)+)```\n\n(\|.*\|)\n\|[-|]+\|\n((?:\|.*\n?)+)", PAGE, re.MULTILINE)


def outcome_of(step: str, text: str) -> str:
    try:
        run = STEPS.validate_python(yaml.load(step.strip("`"), yaml.BaseLoader)).compile({})
    except ValidationError as error:
        return "mistake: " + ("needs year" if "does not give a whole date" in str(error) else str(error))
    try:
        value = run(text)
    except Refusal as refusal:
        return f"refused: {refusal.code}"
    return as_text(value)


def as_text(value: Any) -> str:
    if isinstance(value, list):
        return " · ".join(map(as_text, value))
    return value.isoformat() if isinstance(value, date | time) else str(value) or "nothing"


@pytest.mark.parametrize(("step", "text", "told"), SHOWN)
def test_a_step_does_what_the_page_shows(step: str, text: str, told: str) -> None:
    assert outcome_of(step, text) == told


@pytest.mark.parametrize(("block", "head", "table"), BLOCKS)
def test_a_mapping_does_what_the_page_shows(
    block: str, head: str, table: str, mapper: Callable[..., RowMapper], row: Callable[..., SourceRow]
) -> None:
    top, _, event = block.partition("event:\n")
    feed = mapper(top=top, event="".join(line[2:] for line in event.splitlines(keepends=True)))
    columns = next(rows_of(head))
    for cells in rows_of(table.rstrip("\n")):
        shown = dict(zip(columns, cells, strict=True))
        result = feed(row(**{name: text for name, text in shown.items() if name.isupper()}))
        if isinstance(result, Rejection):
            assert shown["startAt"] == f"rejected: {result.reasons[0].code}"
            continue
        assert isinstance(result, MappedRow)
        sent = orjson.loads(result.body)
        fields = [name for name in columns if not name.isupper()]
        assert [sent.get(name) for name in fields] == [shown[name] for name in fields]


def test_the_page_has_its_tables_and_blocks() -> None:
    assert len(SHOWN) > 30
    assert len(BLOCKS) == 3


def test_the_page_lists_every_word_that_may_stand_in_a_range() -> None:
    page = " ".join(PAGE.split())
    assert f"or one of these words: {BETWEEN_WORDS}." in page
    assert f"Before the first: {OPENING_WORDS}." in page
    assert f"Between two times: {BETWEEN_CLOCKS}." in page


def test_every_way_of_writing_a_time_that_the_page_lists_is_read() -> None:
    (listed,) = tables(r"\| written so \| read as \|")
    ways = [way for cells in listed for way in re.findall(r"`([^`]+)`", cells[0])]
    assert len(ways) > 40
    assert [way for way in ways if read_clock_words(way, ClockManner(has_day_end=True)) is None] == []
