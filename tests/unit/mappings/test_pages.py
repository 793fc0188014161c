"""The pages in docs and the JSON Schema say what the code does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from unit.mappings.conftest import Mapper, Row, outcome_of, said
from unit.shown_feeds import ShownFeed, feeds_shown

from mappings.event import REQUIRED_FIELDS, event_fields
from mappings.examples import run_examples
from mappings.outcome import Rejection
from mappings.spec.values import COMPANIONS, MARKERS, STEPS, From
from mappings.steps.formats import BETWEEN_WORDS, OPENING_WORDS
from mappings.steps.times import BETWEEN_CLOCKS, read_clock_words
from mappings.yaml.loader import parse_feed

ROOT = Path(__file__).parents[3]


def test_the_json_schema_knows_every_step_and_each_of_its_parameters(editor: Draft202012Validator) -> None:
    definitions = editor.schema["$defs"]
    offered = {choice.get("const") for choice in definitions["Step"]["oneOf"]}
    for name, step in STEPS.items():
        schema = definitions[step.__name__]
        assert name in schema["required"]
        assert schema["description"]
        assert all("description" in parameter for parameter in schema["properties"].values())
        assert (name in offered) is not any(parameter.is_required() for parameter in step.model_fields.values())


def test_no_object_field_can_be_mistaken_for_a_value(editor: Draft202012Validator) -> None:
    forbidden = set(editor.schema["$defs"]["Fields"]["propertyNames"]["not"]["enum"])
    assert forbidden == {*MARKERS, *COMPANIONS, "when", "require"}
    assert {field.alias or name for name, field in From.model_fields.items()} <= forbidden


@pytest.mark.parametrize("path", sorted((ROOT / "mappings" / "feeds").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_editor_accepts_the_feeds_we_ship(path: Path, editor: Draft202012Validator) -> None:
    document = json.loads(json.dumps(yaml.safe_load(path.read_text("utf-8")), default=str))
    assert [error.message for error in editor.iter_errors(document)] == []


DOCS = ROOT / "docs"
PAGES = {name: feeds_shown((DOCS / name).read_text("utf-8")) for name in ("mapping.md", "cookbook.md")}
FRAME = next(feed.mapping for feed in PAGES["mapping.md"] if not feed.files)
EXAMPLES = [pytest.param(feed, id=f"{name}: {feed.title}") for name, feeds in PAGES.items() for feed in feeds if feed.files]


@pytest.mark.parametrize("shown", EXAMPLES)
def test_what_a_page_shows_is_what_becomes_of_the_rows(shown: ShownFeed, tmp_path: Path) -> None:
    assert shown.lines_of(shown.outcomes(tmp_path, FRAME)) == shown.table
    assert run_examples(shown.loaded(tmp_path, FRAME)) == ()


def test_the_page_lists_every_field_that_an_event_needs_and_may_have() -> None:
    page = (DOCS / "mapping.md").read_text("utf-8")
    listed = re.findall(r"The event needs (.+?)\. It may have (.+?)\. Declare", page, re.DOTALL)
    needs, may = (set(re.findall(r"`(\w+)", re.sub(r"\(.*?\)", "", names))) for names in listed[0])
    top = {path.partition(".")[0] for path in event_fields()}
    required = {path.partition(".")[0] for path in REQUIRED_FIELDS}
    assert (needs, may) == (required, top - required)


@pytest.mark.parametrize("name", PAGES)
def test_every_mapping_of_a_page_is_sound_and_no_file_is_without_an_outcome(name: str, tmp_path: Path) -> None:
    for feed in PAGES[name]:
        assert bool(feed.files) == bool(feed.table), feed.title
        assert feed.loaded(tmp_path, FRAME).feed == "town-agenda"


FEEDS = re.findall(r"^```yaml\n(.*?)^```", (DOCS / "rows.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", FEEDS, ids=["one row, many days", "many rows, one event"])
def test_the_feeds_on_the_page_about_rows_do_what_they_say(text: str) -> None:
    mapping = parse_feed(text, Path("page.yaml"))
    assert mapping.warnings == ()
    assert len(mapping.examples) > 1
    assert run_examples(mapping) == ()


TIME_PAGE, COOKBOOK = ((DOCS / name).read_text("utf-8") for name in ("time.md", "cookbook.md"))


def rows_of(table: str) -> Iterator[list[str]]:
    for line in table.splitlines():
        yield [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def tables(head: str, page: str = TIME_PAGE) -> Iterator[list[list[str]]]:
    for found in re.findall(rf"^{head}\n\|[-|]+\|\n((?:\|.*\n?)+)", page, re.MULTILINE):
        yield list(rows_of(found.rstrip("\n")))


SHOWN = [row for table in tables(r"\| written \| goes in \| comes out \|") for row in table]
SHOWN += [row for table in tables(r"\| problem \| step \| the cell \| becomes \|", COOKBOOK) for _, *row in table]
BLOCKS = re.findall(r"^```yaml\n((?:(?!```).*\n)+)```\n\n(\|.*\|)\n\|[-|]+\|\n((?:\|.*\n?)+)", TIME_PAGE, re.MULTILINE)


@pytest.mark.parametrize(("step", "text", "shown"), SHOWN)
def test_a_step_does_what_the_page_shows(step: str, text: str, shown: str) -> None:
    found = outcome_of(step.strip("`"), text.strip("`"))
    if shown == "mistake: needs year":
        assert "does not give a whole date" in found
    else:
        assert (f"{found}:" if found == shown else found).startswith(f"{shown}:")


@pytest.mark.parametrize(("block", "head", "table"), BLOCKS)
def test_a_mapping_does_what_the_page_shows(block: str, head: str, table: str, mapper: Mapper, row: Row) -> None:
    top, _, event = block.partition("event:\n")
    feed = mapper(top=top, event="".join(line[2:] for line in event.splitlines(keepends=True)))
    columns = next(rows_of(head))
    fields = [name for name in columns if not name.isupper()]
    for cells in rows_of(table.rstrip("\n")):
        shown = dict(zip(columns, cells, strict=True))
        outcome = feed(row(**{name: text for name, text in shown.items() if name.isupper()}))
        found = f"rejected: {outcome.reasons[0].code} | " if isinstance(outcome, Rejection) else said(outcome, *fields)
        assert f"{found} | ".startswith(" | ".join(shown[name] for name in fields) + " | ")


def test_the_page_has_its_tables_and_blocks_and_lists_every_word_that_may_stand_in_a_range() -> None:
    assert len(SHOWN) > 12
    assert len(BLOCKS) == 1
    page = " ".join(TIME_PAGE.split())
    assert f"or one of these words: {BETWEEN_WORDS}." in page
    assert f"Before the first: {OPENING_WORDS}." in page
    assert f"Between two times: {BETWEEN_CLOCKS}." in page


def test_every_way_of_writing_a_time_that_the_page_lists_is_read() -> None:
    (listed,) = tables(r"\| written so \| read as \|")
    ways = [way for cells in listed for way in re.findall(r"`([^`]+)`", cells[0])]
    assert len(ways) > 40
    assert [way for way in ways if read_clock_words(way, has_day_end=True) is None] == []
