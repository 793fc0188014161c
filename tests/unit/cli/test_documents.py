"""What the command line says of itself: the schemas of `--json` documents, `vocabulary`, help, and pressing Tab."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import every_command
from documents import surprises, verb_of
from jsonschema import Draft202012Validator
from unit.cli.conftest import FEED, ROWS, Desk

from pipelines.cli.app import VERBS
from pipelines.cli.schema import DOCUMENTS, document_schema


def test_every_verb_that_takes_json_has_a_schema() -> None:
    verbs = [name for name, command in every_command() if any(one.name == "as_json" for one in command.params)]
    assert set(verbs) == DOCUMENTS.keys(), "pipelines/cli/schema.py tells of each verb's document"


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
        assert (sum(imported["rows"].values()) > 0, surprises(IMPORT, imported)) == (True, [])


def test_every_document_is_compared_with_its_schema_somewhere() -> None:
    assert DOCUMENTS.keys() - set(map(verb_of, (*SHOWN, IMPORT))) == ELSEWHERE


PAGE = Path(__file__).parents[3] / "docs" / "vocabulary.md"
HEAVY = {
    *("mappings", "state", "connectors", "dagster", "sqlalchemy", "sqlmodel", "alembic", "httpx", "pydantic", "gspread"),
    *("simple_salesforce", "aiohttp", "fsspec"),
}


def test_schemas_are_printed_or_written_where_an_editor_finds_them(desk: Desk) -> None:
    printed = desk.run("schema", code=0).document
    assert printed["title"] == "eventsync feed"
    desk.run("schema", "--out", "feeds.schema.json", code=0)
    assert json.loads((desk.folder / "feeds.schema.json").read_text("utf-8")) == printed
    assert desk.run("schema", "--document", "run").document == document_schema("run")
    desk.run("schema", "--document", "status", "--out", "status.json", code=0)
    assert json.loads((desk.folder / "status.json").read_text("utf-8")) == document_schema("status")


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
    desk.run("vocabulary", "truncate").assert_told(0, "The most characters", "Jazz and the…")
    (section,) = desk.told("vocabulary", "truncate")["sections"]
    example = {"written": "{truncate: 14}", "goes in": "Jazz and the blues", "comes out": "Jazz and the…"}
    assert (section["chapter"], section["tables"][1][0]) == ("Steps: text", example)


def test_keys_codes_and_every_meaning_of_a_word_are_explained_too(desk: Desk) -> None:
    sections = desk.told("vocabulary", "lookup")["sections"]
    assert [section["chapter"] for section in sections] == ["Values", "Steps: lookups"]
    for word, told in (("delimiter", "One character"), ("on_empty", "on_empty"), ("not_a_date", "not a date")):
        desk.run("vocabulary", word).assert_told(0, told)


IN_BASH = """\
eval "$(_EVENTSYNC_COMPLETE=source_bash eventsync)"
COMP_WORDS=(eventsync run ""); COMP_CWORD=2
_eventsync_completion eventsync
printf '%s\\n' "${COMPREPLY[@]}"
"""


def _offered(desk: Desk, words: str, shell: str = "bash") -> str:
    """What a shell is offered for the last of the words; zsh shows meanings, too."""
    with desk.monkeypatch.context() as patch:
        patch.setenv("_EVENTSYNC_COMPLETE", f"complete_{shell}")
        patch.setenv("COMP_CWORD", str(words.count(" ") + 1))
        for name in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"):
            patch.setenv(name, f"eventsync {words}")
        said = desk.run(code=0)
    assert said.err == ""
    return " ".join(said.out.split())


def test_feeds_complete_wherever_one_is_meant_also_a_broken_file_by_its_name(desk: Desk) -> None:
    for name, text in (("_shared", "zones: {}\n"), ("odd", "feed: 'kept-name'\nsource: ["), ("worse", ": : :")):
        desk.mapping(text, f"{name}.yaml")
    for verb in ("run", "check", "preview", "explain", "status", "rows", "diff", "retry", "reconcile"):
        assert _offered(desk, f"{verb} ") == "kept-name town-hall worse"
        assert _offered(desk, f"{verb} to") == "town-hall"


def test_runs_and_rows_to_decide_about_complete_by_their_ids_and_keys_with_what_they_are(desk: Desk) -> None:
    with desk.service():
        run_id = desk.sync()["run_id"]
        for words in ("runs ", f"runs {run_id[:6]}"):
            assert _offered(desk, words) == run_id
        assert "town-hall, " in _offered(desk, "runs ", "zsh")
        assert _offered(desk, "resolve town-hall ") == "", "rejected rows are mended in their source"
        desk.source(ROWS[:-1])
        desk.sync()
        for words in ("resolve town-hall ", "diff town-hall 6"):
            assert _offered(desk, words) == "6"
        assert "vanished" in _offered(desk, "resolve town-hall ", "zsh")


def test_brakes_and_states_complete_brakes_one_after_the_other(desk: Desk) -> None:
    assert _offered(desk, "run town-hall --accept ") == "rejected shrink left_out new copies scope keys changed"
    assert _offered(desk, "run town-hall --accept rejected,s") == "rejected,shrink rejected,scope"
    assert "No more rows are rejected" in _offered(desk, "run town-hall --accept re", "zsh")
    assert _offered(desk, "rows town-hall --state re") == "refused rejected resent"
    assert "waits for a person" in _offered(desk, "rows town-hall --state refu", "zsh")


def test_where_nothing_can_be_had_nothing_is_offered_and_nothing_is_made_or_complained_of(desk: Desk) -> None:
    shutil.rmtree(desk.folder / "feeds")
    for words in ("runs ", "run ", "resolve town-hall "):
        assert _offered(desk, words) == ""
    assert list(desk.folder.iterdir()) == [desk.folder / "events.csv"]
    desk.state.parent.mkdir()
    desk.state.write_bytes(b"no database at all, whatever its name says" * 100)
    assert _offered(desk, "runs ") == ""
    desk.monkeypatch.setenv("EVENTSYNC_LOG", "loud")
    assert _offered(desk, "run ") == ""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.usefixtures("desk")
def test_a_real_bash_completes_the_installed_command() -> None:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shell = subprocess.run(["bash", "--norc", "-c", IN_BASH], env=env, capture_output=True, text=True, check=False)
    assert (shell.stdout.split(), shell.stderr) == (["town-hall"], "")


@pytest.mark.usefixtures("desk")
def test_the_command_has_one_name_however_python_was_started() -> None:
    module = [sys.executable, "-m", "pipelines.cli"]
    asked = {**os.environ, "_EVENTSYNC_COMPLETE": "complete_bash", "COMP_WORDS": "eventsync run ", "COMP_CWORD": "2"}
    completed = subprocess.run(module, env=asked, capture_output=True, text=True, check=False)
    assert (completed.stdout.split(), completed.stderr) == (["town-hall"], "")
    usage = subprocess.run([*module, "run", "--help"], env=dict(os.environ), capture_output=True, text=True, check=True)
    assert "Usage: eventsync run" in usage.stdout
