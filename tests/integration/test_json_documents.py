"""`--json`: exactly one JSON document on stdout for every verb, with the keys that scripts rely on."""

from __future__ import annotations

import json
import signal

import pytest
from commands import every_command
from documents import surprises
from integration.desk import FEED, Desk, lines

pytestmark = pytest.mark.slow

DOCUMENTS = {
    "feeds": ((), {"feeds", "broken"}),
    "check": ((), {"feeds"}),
    "preview": ((FEED,), {"feed"}),
    "run": ((FEED, "--no-dagster"), {"exit_code", "runs"}),
    "backfill": (
        (FEED, "--from", "2031-01-01", "--to", "2031-01-31", "--no-dagster"),
        {"exit_code", "feed", "read", "sent", "backfill"},
    ),
    "status": ((), {"feeds", "elsewhere"}),
    "rows": ((FEED,), {"feed", "state", "rows", "is_more", "csv"}),
    "runs": ((), {"runs"}),
    "schema": ((), {"$schema"}),
    "vocabulary": (("trim",), {"word", "sections"}),
    "metrics": ((), {"metrics"}),
    "report": ((FEED,), {"feed", "service", "made_at", "read_at", "is_whole", "since", "stopped_by", "sections", "html"}),
    "prune": (("--older-than", "90d"), {"state_db", "before", "is_dry", "removed", "kept"}),
    "explain": ((FEED, "0"), {"feed", "place", "cells", "steps", "outcomes", "ledger"}),
    "init": (("events.csv", "--feed", "drafted"), {"feed", "out", "rows", "guesses", "problems", "warnings"}),
}
"""Verbs with their words, and keys of their document."""
DECISIONS = {
    "retry": ((FEED,), {"feed", "retried", "left_alone", "to_send"}),
    "resolve": ((FEED, "0", "--ignore"), {"feed", "rows", "warning", "is_confirmed"}),
    "reconcile": ((FEED,), {"feed", "counts", "list", "rows", "is_dry"}),
    "diff": ((FEED,), {"feed", "as_of", "counts", "rows", "is_more"}),
}
"""The same for verbs that have nothing to decide about before the first run, and say so."""
RUN_KEYS = {
    *("feed", "run_id", "outcome", "exit_code", "message", "hint", "read", "publish"),
    *(
        "brakes",
        "warnings",
        "vanished",
        "skipped",
        "rejections",
        "notices",
        "pace",
        "held",
        "rejected_before",
        "standing",
        "unmapped",
    ),
}
LONG_RUNNING = {"demo", "sandbox", "ui"}
"""These end when a person says so, or take as long as a person likes to watch."""
BESIDE_A_WEBSERVER = {"reload"}
"""These need a Dagster that runs already; their documents are read where one is started."""


def _verbs() -> dict[str, set[str]]:
    """Every verb with the names of its parameters."""
    return {name: {str(one.name) for one in command.params} for name, command in every_command() if " " not in name}


def test_every_verb_takes_json_and_is_tried_here() -> None:
    verbs = _verbs()
    assert {name for name, parameters in verbs.items() if "as_json" not in parameters} <= {"ui"}
    assert verbs.keys() - LONG_RUNNING - BESIDE_A_WEBSERVER == DOCUMENTS.keys() | DECISIONS.keys()


@pytest.mark.parametrize("verb", DOCUMENTS)
@pytest.mark.parametrize("is_used", [False, True], ids=["first-use", "after-a-run"])
def test_a_verb_prints_one_document(desk: Desk, verb: str, is_used: bool) -> None:
    desk.source([*lines(20), "x,,2031-99-01,19:30,poetry,"])
    if is_used:
        assert desk.run().code == 0
    words, keys = DOCUMENTS[verb]
    said = desk.command(verb, *words, "--json")

    assert said.code == 0, said.words
    assert keys <= said.document.keys(), said.document.keys()
    assert said.out.endswith("}\n")


@pytest.mark.parametrize("verb", DECISIONS)
def test_a_verb_of_decisions_prints_one_document(desk: Desk, verb: str) -> None:
    words, keys = DECISIONS[verb]
    before = desk.command(verb, *words, "--json")
    assert (before.code, set(before.document)) == (2, {"error"})

    desk.source(lines(3))
    assert desk.run().code == 0
    said = desk.command(verb, *words, "--json")
    assert said.code == 0, said.words
    assert said.document.keys() == keys


@pytest.mark.parametrize(
    "words",
    [
        ("run", FEED, "--no-dagster", "--dry-run"),
        ("run", "--all", "--no-dagster"),
        ("check", "--live"),
        ("rows", FEED, "--state", "rejected", "--csv", "rejected.csv"),
        ("preview", FEED, "--rows", "0", "--all"),
    ],
    ids=" ".join,
)
def test_so_do_its_variants(desk: Desk, words: tuple[str, ...]) -> None:
    desk.source([*lines(20), "x,,2031-99-01,19:30,poetry,"])
    assert desk.run().code == 0
    said = desk.command(*words, "--json")
    assert said.code == 0, said.words
    assert isinstance(said.document, dict)


def test_the_document_of_a_run_has_its_keys_and_balances(desk: Desk) -> None:
    desk.source(lines(20))
    run = desk.run().run
    assert run.keys() == RUN_KEYS
    assert run["read"]["read"] == sum(count for name, count in run["read"].items() if name != "read")
    owed = run["publish"]["new"] + run["publish"]["carried_over"]
    assert owed == sum(count for name, count in run["publish"].items() if name not in {"new", "carried_over", "resent"})
    (told,) = desk.command("runs", "--json").document["runs"]
    assert (told["run_id"], told["read"], told["publish"]) == (run["run_id"], run["read"], run["publish"])
    one = desk.command("runs", run["run_id"], "--json").document
    assert one["stage"]["account"] == run["read"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "town-hal", "--no-dagster"), 2),
        (("run", "--no-dagster"), 2),
        (("rows", FEED, "--state", "lost"), 2),
        (("runs", "no-such-run"), 2),
        (("check", "no-such-feed"), 2),
        (("preview", "no-such-feed"), 2),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_an_error_is_the_one_document_too(desk: Desk, words: tuple[str, ...], code: int) -> None:
    desk.source(lines(2))
    said = desk.command(*words, "--json")
    assert said.code == code, said.words
    error = said.document["error"]
    assert {"type", "message", "hint"} <= error.keys()
    assert error["hint"]
    assert error["message"] in " ".join(said.err.split())


def test_a_broken_mapping_file_is_told_with_its_places(desk: Desk) -> None:
    desk.source(lines(2))
    desk.mapping(title="{from: TITEL, do: [colapse]}")
    said = desk.command("check", "--json")
    assert said.code == 2, said.words
    assert "town.yaml" in said.out
    assert "collapse" in said.out, "the nearest step is named"


def test_a_feed_asked_for_by_name_whose_file_is_broken_leads_to_that_file(desk: Desk) -> None:
    desk.source(lines(2))
    desk.mapping(title="{from: TITLE, do: [colapse]}")
    said = desk.run()
    assert said.code == 2, said.words
    assert "town.yaml" in said.words


def test_the_sandbox_announces_itself_in_one_document(desk: Desk) -> None:
    process = desk.installed("sandbox", "--json")
    assert process.stdout is not None
    announced = json.loads(process.stdout.readline())
    assert announced.keys() == {"base_url", "api_key", "pid"}
    assert surprises(("sandbox",), announced) == []
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate()
    assert out == ""
    assert process.returncode in {0, 130}


def test_the_demo_tells_both_rounds_in_one_document(desk: Desk) -> None:
    said = desk.command("demo", "--json")
    assert said.code == 0, said.words
    assert surprises(("demo",), said.document) == []
    assert said.document["sent_twice"] == 0
    assert {report["feed"] for report in said.document["first"]} == {"krakow-culture", "lisbon-agenda", "osaka-fireworks"}
