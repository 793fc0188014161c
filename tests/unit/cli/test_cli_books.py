"""`eventsync feeds`, `status`, `rows` and `runs`: what was done so far, read from the state DB and from nowhere else."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

import pytest
from unit.cli.conftest import MAPPING, ROWS, Desk, holds

EDITED = (
    "1,Jazz again,2030-05-01,19:30,,concert",
    "2,,2030-13-01,19:30,,concert",
    "4,=HYPERLINK(1),2030-05-02,19:30,,poetry",
    "5,Hamlet,2030-05-03,20:00,,play",
)
SHOWN = (
    ("status town-hall", "waits for a person: rejected 2, drift 1, vanished 1"),
    ("status town-hall", "held by: nobody"),
    ("status", "rejected 2, drift 1, vanished 1"),
    ("status", "1 of 1 feed needs a person: town-hall; `eventsync status town-hall` shows what would help"),
    ("rows town-hall", "GENRE 'poetry': This value is not in the agreed list."),
    ("runs", "read 6 = filtered 1 + rejected 2 + new 3"),
    ("runs", "new 3 = delivered 3"),
    ("runs", "read 4 = rejected 2 + unchanged 1 + drifted 1"),
    ("explain town-hall 5", "the ledger has it as delivered, event "),
)
READ: tuple[tuple[str, dict[str, Any]], ...] = (
    ("feeds", {"feeds": [{"counts": {"delivered": 3}, "drifted": 1, "vanished": 1, "last_run": {"outcome": "done"}}]}),
    ("status", {"feeds": [{"waiting": {"rejected": 2, "drift": 1, "vanished": 1}, "gate": {"is_open": True}, "lease": None}]}),
    ("rows town-hall --state drift", {"rows": [{"row_key": "1", "problem": "changed since it was sent: title"}]}),
    ("rows town-hall --state delivered --limit 1", {"rows": [{"row_key": "1"}], "is_more": True}),
    ("explain town-hall 5", {"lists": "live", "ledger": [{"state": "delivered", "row_key": "5"}]}),
)


@pytest.fixture
def run_twice(desk: Desk) -> Iterator[Desk]:
    """The second run finds one row edited, one gone, two that cannot be used."""
    with desk.service():
        desk.sync(code=0)
        desk.source(EDITED)
        desk.sync(code=0)
        yield desk


def test_people_are_shown_and_scripts_read_what_was_done(run_twice: Desk) -> None:
    for words, shown in SHOWN:
        run_twice.run(*words.split()).assert_told(0, shown)
    for words, document in READ:
        assert holds(run_twice.told(*words.split()), document), words
    rows = run_twice.told("rows", "town-hall")["rows"]
    waiting = [("rejected", "2"), ("rejected", "4"), ("drift", "1"), ("vanished", "6")]
    assert [(row["state"], row["row_key"]) for row in rows] == waiting
    assert f"change event {rows[2]['event_id']} by hand" in rows[2]["hint"]


def test_runs_are_listed_youngest_first_and_found_by_the_beginning_of_their_ids(run_twice: Desk) -> None:
    latest, first = run_twice.told("runs", "--feed", "town-hall")["runs"]
    assert latest["started_at"] >= first["started_at"]
    assert run_twice.told("runs", "--limit", "1")["runs"] == [latest]
    run_twice.run("runs", first["run_id"][:-1]).assert_told(0, "left out: online only 1", "events.csv:5")
    assert run_twice.told("runs", latest["run_id"])["stage"]["vanished"] == 1
    assert run_twice.run("runs", "nothing").code == 2
    run_twice.run("runs", "2").assert_told(2, "2 runs begin with")


def test_status_shows_people_as_many_runs_as_they_ask_for(run_twice: Desk) -> None:
    runs = [run["run_id"] for run in run_twice.told("runs")["runs"]]
    for words, shown in (("", 0), ("town-hall", 1), ("--runs 2", 2), ("town-hall --runs 0", 0)):
        said = run_twice.run("status", *words.split()).out
        assert [run in said for run in runs] == [number < shown for number in range(2)], words
    assert [len(run_twice.told("status", *words)["feeds"][0]["runs"]) for words in ((), ("--runs", "1"))] == [2, 1]


def test_the_csv_file_repeats_the_partners_columns_and_no_cell_of_it_is_a_formula(run_twice: Desk) -> None:
    run_twice.run("rows", "town-hall", "--state", "rejected", "--csv", "out.csv", code=0)
    header, first, second = csv.reader((run_twice.folder / "out.csv").read_text("utf-8-sig").splitlines())
    assert header == ["ID", "TITLE", "DAY", "HOUR", "KIND", "GENRE", "place", "problem", "hint"]
    assert (first[6], "DAY: This is not a date" in first[7]) == ("events.csv:3", True)
    assert (second[1], "This value is not in the agreed list." in second[7]) == ("'=HYPERLINK(1)", True)
    run_twice.run("rows", "town-hall", "--state", "drift", "--csv", "out.csv", code=0)
    header, row = csv.reader((run_twice.folder / "out.csv").read_text("utf-8-sig").splitlines())
    assert (header[:3], row[:2]) == (["row key", "state", "event"], ["1", "drift"])


def test_status_needs_no_service_and_names_the_one_that_was_run_against(run_twice: Desk) -> None:
    run_twice.monkeypatch.setenv("EVENT_API_BASE_URL", "https://elsewhere.example")
    assert "the state DB knows runs at http://127.0.0.1" in run_twice.run("status").out
    run_twice.monkeypatch.delenv("EVENT_API_BASE_URL")
    assert run_twice.told("status")["feeds"][0]["feed"] == "town-hall"


def test_before_the_first_run_every_command_answers_and_makes_nothing(desk: Desk) -> None:
    for words in ("feeds", "status", "status town-hall", "rows town-hall", "runs", "metrics", "prune --older-than 90d"):
        desk.run(*words.split(), code=0)
        desk.run(*words.split(), "--json", code=0)
    assert "values that no lookup knows: none" in desk.run("rows", "town-hall", "--unmapped").out
    assert not desk.state.parent.exists()


def test_feeds_lists_sources_schedules_and_broken_files_without_a_key(desk: Desk) -> None:
    schedule = 'schedule: {cron: "15 6 * * *", timezone: Europe/Warsaw}\nkey:'
    desk.mapping(MAPPING.replace("town-hall", "port").replace("key:", schedule), "p.yaml")
    desk.mapping("feed: x\n", "broken.yaml")
    desk.run("feeds").assert_told(0, "15 6 * * * (Europe/Warsaw)", "csv ../events.csv", "broken: feeds/broken.yaml")
    document = {
        "feeds": [{"feed": "port", "schedule": {"cron": "15 6 * * *", "timezone": "Europe/Warsaw"}}, {"feed": "town-hall"}],
        "broken": [{"path": "feeds/broken.yaml"}],
    }
    assert holds(desk.told("feeds"), document)


def test_status_says_of_a_feed_that_a_brake_has_stopped_that_it_needs_a_person(desk: Desk) -> None:
    desk.source(("1,Jazz,2030-05-01,19:30,,concert", *(f"{number},,,,," for number in range(2, 9))))
    with desk.service():
        desk.sync(code=5)
    desk.run("status").assert_told(0, "nothing may be sent: rejected", "1 of 1 feed needs a person")


def test_values_that_no_lookup_knows_are_listed_once_each_by_the_run_and_afterwards(desk: Desk) -> None:
    desk.source([*ROWS, "8,Odes,2030-05-04,20:00,,poetry", "9,Chess,2030-05-04,20:00,,game"])
    with desk.service():
        ran, listed = desk.sync()["unmapped"], desk.told("rows", "town-hall", "--unmapped")["unmapped"]
    assert [(value["column"], value["found"], value["count"]) for value in listed] == [
        ("GENRE", "poetry", 2),
        ("GENRE", "game", 1),
    ]
    assert ran == listed
