"""`eventsync schema` and `vocabulary`, and the help of every verb: at once, with examples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from unit.cli.conftest import Desk

from pipelines.cli.app import VERBS
from pipelines.cli.schema import DOCUMENTS, document_schema

PAGE = Path(__file__).parents[3] / "docs" / "vocabulary.md"
_OURS = {"mappings", "state", "connectors"}
HEAVY = _OURS | {
    "dagster",
    "sqlalchemy",
    "sqlmodel",
    "alembic",
    "httpx",
    "pydantic",
    "gspread",
    "simple_salesforce",
    "aiohttp",
    "fsspec",
}


def test_schemas_are_printed_or_written_where_an_editor_finds_them(desk: Desk) -> None:
    printed = desk.run("schema", code=0).document
    assert printed["title"] == "eventsync feed"
    desk.run("schema", "--out", "feeds.schema.json", code=0)
    assert json.loads((desk.folder / "feeds.schema.json").read_text("utf-8")) == printed
    assert desk.run("schema", "--document", "run").document == document_schema("run")
    desk.run("schema", "--document", "status", "--out", "status.json", code=0)
    assert json.loads((desk.folder / "status.json").read_text("utf-8")) == document_schema("status")
    (desk.folder / "all").mkdir()
    desk.run("schema", "--documents", "all", code=0)
    assert len(list((desk.folder / "all").iterdir())) == len(DOCUMENTS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_shows_how_it_is_used(desk: Desk, verb: str) -> None:
    desk.run(verb, "--help").assert_told(0, f"eventsync {verb}")


def test_the_version_names_what_a_report_of_a_fault_needs(desk: Desk) -> None:
    desk.run("--version").assert_told(0, "eventsync ", "Python 3.", "Dagster 1.", "state schema 00")


def test_the_help_of_all_verbs_needs_nothing_but_their_options() -> None:
    code = "import sys; sys.argv = ['eventsync', '--help']; from pipelines.cli.entry import main; main()"
    told = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    assert set(VERBS) <= set(told.stdout.split())
    assert {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()} & HEAVY == set()


def test_the_vocabulary_is_printed_as_it_stands_in_the_documentation(desk: Desk) -> None:
    assert desk.run("vocabulary").out == PAGE.read_text("utf-8")


def test_a_step_is_explained_with_its_parameters_and_examples(desk: Desk) -> None:
    desk.run("vocabulary", "truncate").assert_told(0, "ellipsis", "Jazz and the…")
    (section,) = desk.told("vocabulary", "truncate")["sections"]
    example = {"written": "{truncate: 14}", "goes in": "Jazz and the blues", "comes out": "Jazz and the…"}
    assert (section["chapter"], section["tables"][1][0]) == ("Steps: text", example)


def test_keys_codes_and_every_meaning_of_a_word_are_explained_too(desk: Desk) -> None:
    sections = desk.told("vocabulary", "lookup")["sections"]
    assert [section["chapter"] for section in sections] == ["Values", "Steps: lookups"]
    for word, told in (("delimiter", "One character"), ("on_empty", "on_empty"), ("not_a_date", "not a date")):
        desk.run("vocabulary", word).assert_told(0, told)
