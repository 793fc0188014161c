"""Builds feeds from a few lines of YAML, and rows from a few cells: the rest of a valid mapping is filled in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import MappingFileError
from mappings.event import Directory, Event
from mappings.outcome import MappedRow, Rejection, RowLocation, RowOutcome, Skipped, SourceRow
from mappings.reasons import Refusal
from mappings.reference import feed_json_schema
from mappings.spec.feed import FeedMapping
from mappings.spec.values import AnyStep
from mappings.steps.step import Run, Step, text_of
from mappings.yaml.loader import parse_feed

HEAD = """feed: sample
source: {kind: csv, path: sample.csv}
key: [ID]
"""
EVENT = """event:
  channelId: "7"
  title: {from: TITLE}
  startAt: "2026-07-01T18:00:00+01:00"
  timezone: Europe/Lisbon
  classifications: [music]
  approxLocation.city.placeId: pt-lisboa
"""
VALID = HEAD + EVENT.replace('startAt: "2026-07-01T18:00:00+01:00"', "startAt: {from: START}").replace(
    "timezone: Europe/Lisbon", "timezone: {from: ZONE}"
)
STEP: TypeAdapter[Step] = TypeAdapter(AnyStep)
Build = Callable[..., FeedMapping]
Mapper = Callable[..., RowMapper]
Row = Callable[..., SourceRow]


@pytest.fixture(scope="session")
def editor() -> Draft202012Validator:
    """What an editor makes of a mapping file by its JSON Schema, which takes most of a second to make."""
    return Draft202012Validator(feed_json_schema())


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return a function from extra YAML to a loaded feed; `event` lines replace those of the same field.

    Fields that the service does not name are declared, unless `top` says which are.
    """

    def feed(*, event: str = "", top: str = "", files: dict[str, str] | None = None) -> FeedMapping:
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        return parse_feed(HEAD + top + _declared(event, top) + _merged(event), tmp_path / "sample.yaml")

    return feed


@pytest.fixture
def mapper(build: Build) -> Mapper:
    """Return a function from extra YAML to a compiled feed."""

    def compiled(*, directory: Directory | None = None, **parts: object) -> RowMapper:
        return compile_feed(build(**parts), directory or Directory())

    return compiled


@pytest.fixture
def row() -> Row:
    """Return a function from cells to a row; ID and TITLE are there unless given."""

    def source_row(**cells: str) -> SourceRow:
        return SourceRow(RowLocation("sample.csv:2", 2), {"ID": "1", "TITLE": "Jazz"} | cells)

    return source_row


def mapped(outcome: object) -> MappedRow:
    assert isinstance(outcome, MappedRow), outcome
    return outcome


def rejected(outcome: object) -> Rejection:
    assert isinstance(outcome, Rejection), outcome
    return outcome


def event_of(outcome: object) -> dict[str, Any]:
    """Return the payload that a row became."""
    event: dict[str, Any] = orjson.loads(mapped(outcome).body)
    return event


def said(outcome: RowOutcome, *fields: str) -> str:
    """Return what a row became: the named fields of its event, why it is left out, or each reason's field, code and column."""
    match outcome:
        case MappedRow():
            event = event_of(outcome)
            return " | ".join(as_text(event.get(name, "")) for name in fields) if fields else "event"
        case Skipped():
            return outcome.because
    return "; ".join(f"{one.field} {one.code} {one.column}".strip() for one in rejected(outcome).reasons)


def mistakes(load: Callable[..., object], **parts: object) -> str:
    """Return what is said of a feed that cannot be loaded."""
    with pytest.raises(MappingFileError) as refused:
        load(**parts)
    return str(refused.value)


@cache
def step(written: str) -> Run:
    """Return what a step does, as a mapping file writes it."""
    parsed: Step = STEP.validate_python(yaml.load(written, yaml.BaseLoader))
    return parsed.compile({})


def outcome_of(written: str, text: str) -> str:
    """Return what a step makes of a text, or why it does not; WHICH stands for both ends of a range."""
    if "WHICH" in written:
        return " to ".join(outcome_of(written.replace("WHICH", end), text) for end in ("start", "end"))
    try:
        return as_text(step(written)(text)) or "nothing"
    except ValidationError as error:
        return f"mistake: {error}"
    except Refusal as refusal:
        return f"refused: {refusal.code}: {refusal.hint}"


def as_text(value: Any) -> str:
    """Return a value of a row as the pages write it."""
    match value:
        case list() | tuple():
            return " · ".join(map(as_text, value))
        case dict():
            return ", ".join(f"{name}: {as_text(part)}" for name, part in value.items())
        case bool():
            return str(value).lower()
        case date() | time():
            return value.isoformat()
        case timedelta():
            return text_of(value)
        case _:
            return str(value)


def cases(table: str) -> list[tuple[str, str, str]]:
    """Return the cases of a table: in each line a step, then cells (` ~ ` between them) and what each of these becomes."""
    lines = [line.split(" | ") for line in table.replace("EMPTY", "").strip("\n").split("\n")]
    pairs = [(written, *pair.split(" => ")) for written, *pairs in lines for pair in pairs]
    return [(written, cell, becomes) for written, cells, becomes in pairs for cell in cells.split(" ~ ")]


def cells_of(written: str) -> dict[str, str]:
    """Return the cells of a row as a table of cases writes them: texts by their columns, without braces."""
    cells: dict[str, str] = yaml.load(f"{{{written}}}", yaml.BaseLoader)
    return cells


def check_case(written: str, cell: str, becomes: str) -> None:
    """Hold a case of a table against the step; behind `!` stands a part of what is said of a cell that it refuses."""
    found = outcome_of(written, cell)
    if becomes.startswith("!"):
        assert found.startswith(("refused: ", "mistake: "))
        assert becomes[1:].strip() in found
    else:
        assert found == becomes


def _declared(event: str, top: str) -> str:
    names = {line.split(":", 1)[0].split(".")[0] for line in event.splitlines() if line[:1].isalpha()}
    unnamed = sorted(names - set(Event.__annotations__))
    return f"extra: {unnamed}\n" if unnamed and "extra:" not in top else ""


def _merged(event: str) -> str:
    given = [line.split(":", 1)[0] for line in event.splitlines() if not line.startswith(" ")]
    kept = [line for line in EVENT.splitlines() if not any(line.strip().startswith((f"{name}:", f"{name}.")) for name in given)]
    return "\n".join([*kept, *("  " + line for line in event.splitlines())]) + "\n"
