"""The JSON Schemas of `--json` documents: one for each verb, as published, and true of what the verbs print."""

from __future__ import annotations

import pytest
from commands import every_command
from documents import surprises, verb_of
from jsonschema import Draft202012Validator
from unit.cli.conftest import FEED, ROWS, Desk

from pipelines.cli.schema import DOCUMENTS, document_schema


def test_every_verb_that_takes_json_has_a_schema() -> None:
    verbs = [name for name, command in every_command() if any(one.name == "as_json" for one in command.params)]
    assert set(verbs) - {"state compact"} == DOCUMENTS.keys(), "pipelines/cli/schema.py tells of each verb's document"


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_every_object_is_explained(verb: str) -> None:
    schema = document_schema(verb)
    Draft202012Validator.check_schema(schema)
    objects = [one for one in schema["$defs"].values() if one.get("properties")]
    assert [one["title"] for one in objects if not one.get("description")] == []


COMMANDS = """
feeds, status, check, check --live, preview town-hall, explain town-hall 1, rows town-hall, rows town-hall --state delivered,
rows town-hall --unmapped, rows town-hall --state rejected --csv rejected.csv, runs, runs RUN, diff town-hall,
diff town-hall 1, retry town-hall, resolve town-hall 6 --ignore, rows town-hall --state vanished, reconcile town-hall,
run town-hall --dry-run, backfill town-hall --from 2030-05-01 --to 2030-05-02 --by event --dry-run,
backfill town-hall --from 2030-05-01 --to 2030-05-02 --by event --no-dagster, backfill town-hall --list,
init events.csv --feed drafted, metrics, metrics --out eventsync.prom, report town-hall, prune --older-than 90d,
vocabulary trim, schema --out schema.json, state verify, state export state.ndjson.gz, state migrate sqlite:///moved.db,
state rename --service SERVICE http://127.0.0.1:2
"""
SHOWN = [tuple(words.split()) for words in COMMANDS.split(",")]
BEFORE = [words for words in SHOWN if words[0] in {"feeds", "status", "runs", "rows", "report", "metrics", "prune"}]
IMPORT = ("state", "import", "state.ndjson.gz")
ELSEWHERE = {"demo", "sandbox", "reload"}
"""What runs on, or needs a Dagster: compared where it is started, in tests/integration and tests/on_dagster."""
MISTAKES = ("run no-such-feed", "runs no-such-run", "rows town-hall --state lost", "state import nothing.gz", "reload")


def test_what_commands_print_is_as_their_schemas_say(desk: Desk) -> None:
    """Before the first run, after it, and once there is something to decide about."""
    with desk.service() as service:
        for words in (*BEFORE, ("state", "verify"), ("run", FEED, "--no-dagster")):
            assert surprises(words, desk.told(*words)) == [], words
        desk.source([ROWS[0].replace("Jazz", "Jazz trio"), *ROWS[1:-1]])
        known = {"RUN": desk.sync()["run_id"], "SERVICE": service.base_url}
        for words in SHOWN:
            document = desk.told(*(known.get(word, word) for word in words))
            assert ("error" in document, surprises(words, document)) == (False, []), words
        for mistake in MISTAKES:
            said = desk.run(*mistake.split(), "--json")
            assert (said.document.keys(), surprises(mistake.split(), said.document)) == ({"error"}, [])
            assert said.document["error"]["message"] in " ".join(said.err.split())
        desk.monkeypatch.setenv("EVENTSYNC_STATE_URL", "sqlite:///imported.db")
        imported = desk.told(*IMPORT)
        assert (imported["rows"]["ledger_entry"] > 0, surprises(IMPORT, imported)) == (True, [])


def test_every_document_is_compared_with_its_schema_somewhere() -> None:
    assert DOCUMENTS.keys() - set(map(verb_of, (*SHOWN, IMPORT))) == ELSEWHERE
