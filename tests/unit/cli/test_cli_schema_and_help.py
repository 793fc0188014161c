"""`eventsync schema`, and the help of every verb: at once, with examples."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from unit.cli.conftest import Desk

VERBS = ("check", "explain", "feeds", "init", "preview", "rows", "run", "runs", "schema", "status", "vocabulary")


def test_the_schema_is_printed_or_written_where_an_editor_finds_it(desk: Desk) -> None:
    printed = desk.run("schema").document
    assert printed["title"] == "eventsync feed"
    assert desk.run("schema", "--out", "feeds.schema.json").code == 0
    assert json.loads((desk.folder / "feeds.schema.json").read_text("utf-8")) == printed


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_shows_how_it_is_used(desk: Desk, verb: str) -> None:
    said = desk.run(verb, "--help")
    assert said.code == 0
    assert f"eventsync {verb}" in said.out


def test_the_version_names_what_a_report_of_a_fault_needs(desk: Desk) -> None:
    said = desk.run("--version")
    assert said.code == 0
    for what in ("eventsync ", "Python 3.", "Dagster 1.", "state schema 00"):
        assert what in said.out


def test_the_help_of_all_verbs_needs_nothing_but_their_options() -> None:
    code = "import sys; sys.argv = ['eventsync', '--help']; from pipelines.cli.entry import main; main()"
    told = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    assert set(VERBS) <= set(told.stdout.split())
    imported = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()}
    assert imported & {"dagster", "sqlalchemy", "httpx", "pydantic", "mappings", "state", "connectors", "gspread"} == set()
