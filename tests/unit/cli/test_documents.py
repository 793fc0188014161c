"""The JSON Schemas of `--json` documents: one for each verb, as published, and true of what the verbs print."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands import every_command
from documents import surprises, verb_of
from jsonschema import Draft202012Validator
from unit.cli.conftest import ROWS, Desk

from pipelines.cli.schema import DOCUMENTS, document_schema, file_name

PUBLISHED = Path(__file__).parents[3] / "docs" / "json"
FEED = "town-hall"


def test_every_verb_that_takes_json_has_a_schema() -> None:
    verbs = [name for name, command in every_command() if any(one.name == "as_json" for one in command.params)]
    assert set(verbs) - {"state compact"} == DOCUMENTS.keys(), "pipelines/cli/schema.py tells of each verb's document"


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_what_is_published_is_what_the_code_says(verb: str) -> None:
    published = json.loads((PUBLISHED / file_name(verb)).read_text("utf-8"))
    assert published == document_schema(verb), "generate it again: make reference"
    Draft202012Validator.check_schema(published)


def test_nothing_else_is_published() -> None:
    assert sorted(path.name for path in PUBLISHED.iterdir()) == sorted(map(file_name, DOCUMENTS))


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_every_object_is_explained(verb: str) -> None:
    schema = document_schema(verb)
    objects = [one for one in schema["$defs"].values() if one.get("properties")]
    assert [one["title"] for one in objects if not one.get("description")] == []


def test_the_words_of_a_command_print_and_write_them(desk: Desk) -> None:
    assert desk.run("schema", "--document", "run").document == document_schema("run")
    assert desk.run("schema", "--document", "status", "--out", "status.json").code == 0
    assert json.loads((desk.folder / "status.json").read_text("utf-8")) == document_schema("status")
    (desk.folder / "all").mkdir()
    assert desk.run("schema", "--documents", "all").code == 0
    assert len(list((desk.folder / "all").iterdir())) == len(DOCUMENTS)


DAYS = ("--from", "2030-05-01", "--to", "2030-05-02", "--by", "event")
COMMANDS = (
    ("feeds",),
    ("status",),
    ("check",),
    ("check", "--live"),
    ("preview", FEED),
    ("explain", FEED, "1"),
    ("rows", FEED),
    ("rows", FEED, "--state", "delivered"),
    ("rows", FEED, "--unmapped"),
    ("rows", FEED, "--state", "rejected", "--csv", "rejected.csv"),
    ("runs",),
    ("runs", "RUN"),
    ("diff", FEED),
    ("diff", FEED, "1"),
    ("retry", FEED),
    ("resolve", FEED, "6", "--ignore"),
    ("rows", FEED, "--state", "vanished"),
    ("reconcile", FEED),
    ("run", FEED, "--dry-run"),
    ("backfill", FEED, *DAYS, "--dry-run"),
    ("backfill", FEED, *DAYS, "--no-dagster"),
    ("backfill", FEED, "--list"),
    ("init", "events.csv", "--feed", "drafted"),
    ("metrics",),
    ("metrics", "--out", "eventsync.prom"),
    ("report", FEED),
    ("prune", "--older-than", "90d"),
    ("vocabulary", "trim"),
    ("schema", "--out", "schema.json"),
    ("state", "verify"),
    ("state", "export", "state.ndjson.gz"),
    ("state", "migrate", "sqlite:///moved.db"),
    ("state", "rename", "--service", "SERVICE", "http://127.0.0.1:2"),
)
BEFORE = tuple(
    words
    for words in COMMANDS
    if words[0] in {"feeds", "status", "runs", "rows", "report", "metrics", "prune"} or words[1:] == ("verify",)
)
IMPORT = ("state", "import", "state.ndjson.gz")
ELSEWHERE = {"demo", "sandbox", "reload"}
"""What runs on, or needs a Dagster: compared where it is started, in tests/integration and tests/on_dagster."""
MISTAKES = (("run", "no-such-feed"), ("rows", FEED, "--state", "lost"), ("state", "import", "nothing.gz"), ("reload",))


def test_what_commands_print_is_as_their_schemas_say(desk: Desk) -> None:
    """Before the first run, after it, and once there is something to decide about."""
    with desk.service():
        for words in BEFORE:
            assert surprises(words, desk.run(*words, "--json").document) == [], words
        run = desk.run("run", FEED, "--no-dagster", "--json").document
        assert surprises(("run",), run) == []
        desk.source([ROWS[0].replace("Jazz", "Jazz trio"), *ROWS[1:-1]])
        run_id = desk.run("run", FEED, "--no-dagster", "--json").document["runs"][0]["run_id"]
        for words in COMMANDS:
            known = {"RUN": run_id, "SERVICE": os.environ["EVENT_API_BASE_URL"]}
            said = desk.run(*(known.get(word, word) for word in words), "--json")
            assert "error" not in said.document, said.err
            assert surprises(words, said.document) == [], words
        for words in MISTAKES:
            said = desk.run(*words, "--json")
            assert said.document.keys() == {"error"}
            assert surprises(words, said.document) == [], words
        desk.monkeypatch.setenv("EVENTSYNC_STATE_URL", "sqlite:///imported.db")
        imported = desk.run(*IMPORT, "--json").document
        assert (imported["rows"]["ledger_entry"] > 0, surprises(IMPORT, imported)) == (True, [])


def test_every_document_is_compared_with_its_schema_somewhere() -> None:
    assert DOCUMENTS.keys() - set(map(verb_of, (*COMMANDS, IMPORT))) == ELSEWHERE
