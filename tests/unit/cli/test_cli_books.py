"""`eventsync feeds`, `status`, `rows` and `runs`: what was done so far, read from the state DB and from nowhere else."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest
from unit.cli.conftest import MAPPING, ROWS, Desk

EDITED = (
    "1,Jazz again,2030-05-01,19:30,,concert",
    "2,,2030-13-01,19:30,,concert",
    "4,=HYPERLINK(1),2030-05-02,19:30,,poetry",
    "5,Hamlet,2030-05-03,20:00,,play",
)


@pytest.fixture
def run_twice(desk: Desk) -> Iterator[Desk]:
    """The second run finds one row edited, one gone, two that cannot be used."""
    with desk.service():
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        desk.source(EDITED)
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        yield desk


def test_before_the_first_run_every_command_answers_and_makes_nothing(desk: Desk) -> None:
    prune = ["prune", "--older-than", "90d"]
    for words in (["feeds"], ["status"], ["status", "town-hall"], ["rows", "town-hall"], ["runs"], ["metrics"], prune):
        assert desk.run(*words).code == 0
        assert desk.run(*words, "--json").code == 0
    assert not desk.state.parent.exists()


def test_feeds_lists_sources_schedules_and_broken_files_without_a_key(desk: Desk) -> None:
    desk.mapping(
        MAPPING.replace("town-hall", "port").replace("key:", 'schedule: {cron: "15 6 * * *", timezone: Europe/Warsaw}\nkey:'),
        "p.yaml",
    )
    desk.mapping("feed: x\n", "broken.yaml")
    said = desk.run("feeds")
    assert "15 6 * * * (Europe/Warsaw)" in said.out
    assert "csv ../events.csv" in said.out
    assert "broken: feeds/broken.yaml" in said.out
    told = desk.run("feeds", "--json").document
    assert [feed["feed"] for feed in told["feeds"]] == ["port", "town-hall"]
    assert told["feeds"][0]["schedule"] == {"cron": "15 6 * * *", "timezone": "Europe/Warsaw", "look_every_s": None}
    assert [file["path"] for file in told["broken"]] == ["feeds/broken.yaml"]


def test_feeds_and_status_show_what_waits_for_a_person_and_who_holds_the_feed(run_twice: Desk) -> None:
    feed = run_twice.run("feeds", "--json").document["feeds"][0]
    assert feed["counts"]["delivered"] == 3
    assert (feed["drifted"], feed["vanished"], feed["last_run"]["outcome"]) == (1, 1, "done")
    told = run_twice.run("status", "town-hall", "--json").document["feeds"][0]
    assert told["waiting"] == {"rejected": 2, "drift": 1, "vanished": 1}
    assert told["gate"]["is_open"]
    assert told["lease"] is None
    assert len(told["runs"]) == 2
    said = run_twice.run("status", "town-hall").out
    assert "waits for a person: rejected 2, drift 1, vanished 1" in said
    assert "held by: nobody" in said


def test_status_tells_people_a_line_for_each_feed_and_runs_only_where_they_are_asked_for(run_twice: Desk) -> None:
    newer, older = (run["run_id"] for run in run_twice.run("runs", "--json").document["runs"])
    overview = run_twice.run("status").out
    (line,) = [line for line in overview.splitlines() if line.strip().startswith("town-hall")]
    assert "done" in line
    assert "rejected 2, drift 1, vanished 1" in line
    assert "1 of 1 feed needs a person: town-hall; `eventsync status town-hall` shows what would help" in overview
    assert [newer in overview, older in overview] == [False, False]
    assert [run in run_twice.run("status", "town-hall").out for run in (newer, older)] == [True, False]
    assert [run in run_twice.run("status", "--runs", "2").out for run in (newer, older)] == [True, True]
    assert [run in run_twice.run("status", "town-hall", "--runs", "0").out for run in (newer, older)] == [False, False]
    documents = [run_twice.run("status", *words, "--json").document for words in ((), ("--runs", "1"))]
    assert [len(document["feeds"][0]["runs"]) for document in documents] == [2, 1]


def test_status_says_of_a_feed_that_a_brake_has_stopped_that_it_needs_somebody(desk: Desk) -> None:
    desk.source(("1,Jazz,2030-05-01,19:30,,concert", *(f"{number},,,,," for number in range(2, 9))))
    with desk.service():
        assert desk.run("run", "town-hall", "--no-dagster").code == 5
    said = desk.run("status").out
    assert "nothing may be sent: rejected" in said
    assert "1 of 1 feed needs a person" in said


def test_status_needs_no_service_and_names_the_one_that_was_run_against(run_twice: Desk) -> None:
    run_twice.monkeypatch.setenv("EVENT_API_BASE_URL", "https://elsewhere.example")
    elsewhere = run_twice.run("status")
    assert "the state DB knows runs at http://127.0.0.1" in elsewhere.out
    run_twice.monkeypatch.delenv("EVENT_API_BASE_URL")
    assert run_twice.run("status", "--json").document["feeds"][0]["feed"] == "town-hall"


def test_rows_lists_what_waits_for_a_person_with_what_would_help(run_twice: Desk) -> None:
    rows = run_twice.run("rows", "town-hall", "--json").document["rows"]
    assert [(row["state"], row["row_key"]) for row in rows] == [
        ("rejected", "2"),
        ("rejected", "4"),
        ("drift", "1"),
        ("vanished", "6"),
    ]
    assert rows[2]["problem"] == "changed since it was sent: title"
    assert f"change event {rows[2]['event_id']} by hand" in rows[2]["hint"]
    said = run_twice.run("rows", "town-hall").out
    assert "GENRE 'poetry': This value is not in the agreed list." in said


def test_rows_of_one_state_and_no_more_than_asked_for(run_twice: Desk) -> None:
    told = run_twice.run("rows", "town-hall", "--state", "delivered", "--limit", "2", "--json").document
    assert [row["row_key"] for row in told["rows"]] == ["1", "5"]
    assert told["is_more"]


def test_the_csv_file_repeats_the_partners_columns_and_no_cell_of_it_is_a_formula(run_twice: Desk) -> None:
    said = run_twice.run("rows", "town-hall", "--state", "rejected", "--csv", "out.csv")
    header, first, second = csv.reader((run_twice.folder / "out.csv").read_text("utf-8-sig").splitlines())
    assert said.code == 0
    assert header == ["ID", "TITLE", "DAY", "HOUR", "KIND", "GENRE", "place", "problem", "hint"]
    assert (first[6], "DAY: This is not a date" in first[7]) == ("events.csv:3", True)
    assert second[1] == "'=HYPERLINK(1)"
    assert "This value is not in the agreed list." in second[7]
    run_twice.run("rows", "town-hall", "--state", "drift", "--csv", "out.csv")
    header, row = csv.reader((run_twice.folder / "out.csv").read_text("utf-8-sig").splitlines())
    assert (header[:3], row[:2]) == (["row key", "state", "event"], ["1", "drift"])


def test_runs_are_told_as_equations_that_balance(run_twice: Desk) -> None:
    said = run_twice.run("runs").out
    assert "read 6 = filtered 1 + rejected 2 + new 3" in said
    assert "new 3 = delivered 3" in said
    assert "read 4 = rejected 2 + unchanged 1 + drifted 1" in said
    latest, first = run_twice.run("runs", "--feed", "town-hall", "--json").document["runs"]
    assert latest["started_at"] >= first["started_at"]
    assert len(run_twice.run("runs", "--limit", "1", "--json").document["runs"]) == 1


def test_one_run_is_found_by_the_beginning_of_its_id_and_told_in_detail(run_twice: Desk) -> None:
    latest, first = run_twice.run("runs", "--json").document["runs"]
    said = run_twice.run("runs", first["run_id"][:-1])
    assert said.code == 0
    assert "left out: online only 1" in said.out
    assert "events.csv:5" in said.out
    assert run_twice.run("runs", latest["run_id"], "--json").document["stage"]["vanished"] == 1


def test_a_run_that_is_not_there_or_not_meant_clearly_is_an_error(run_twice: Desk) -> None:
    assert run_twice.run("runs", "nothing").code == 2
    several = run_twice.run("runs", "2")
    assert (several.code, "2 runs begin with" in several.err) == (2, True)


def test_values_that_no_lookup_knows_are_told_once_each_with_their_rows(desk: Desk) -> None:
    assert "values that no lookup knows: none" in desk.run("rows", "town-hall", "--unmapped").out
    desk.source([*ROWS, "8,Odes,2030-05-04,20:00,,poetry", "9,Chess,2030-05-04,20:00,,game"])
    with desk.service():
        ran = desk.run("run", "town-hall", "--no-dagster", "--json").document["runs"][0]
        listed = desk.run("rows", "town-hall", "--unmapped", "--json").document
        told = desk.run("rows", "town-hall", "--unmapped").out
    values = [(value["column"], value["found"], value["count"]) for value in listed["unmapped"]]
    assert values == [("GENRE", "poetry", 2), ("GENRE", "game", 1)]
    assert ran["unmapped"] == listed["unmapped"]
    assert "values that no lookup knows" in told
    assert "poetry" in told
