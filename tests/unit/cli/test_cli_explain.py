"""`eventsync explain`: one row step by step, by its key, its number or its place."""

from __future__ import annotations

import pytest
from unit.cli.conftest import MAPPING, Desk


@pytest.mark.parametrize("word", ["5", "events.csv:6"])
def test_a_row_is_found_by_its_key_and_by_its_place(desk: Desk, word: str) -> None:
    told = desk.run("explain", "town-hall", word, "--json").document
    assert (told["place"], told["cells"]["TITLE"]) == ("events.csv:6", "Hamlet")
    assert told["outcomes"][0]["event"]["title"] == "Hamlet"


def test_a_number_that_is_no_key_means_the_row_of_that_number(desk: Desk) -> None:
    assert desk.run("explain", "town-hall", "7", "--json").document["cells"]["TITLE"] == "Othello"


def test_each_field_is_told_from_the_raw_cell_to_the_value(desk: Desk) -> None:
    steps = desk.run("explain", "town-hall", "1", "--json").document["steps"]
    told = [(step["field"], step["step"], step["goes_in"], step["comes_out"]) for step in steps]
    assert ("title", "from TITLE", "", "Jazz") in told
    assert ("startAt", "date", "2030-05-01", "2030-05-01") in told
    assert ("startAt", "at", "", "2030-05-01T19:30:00+02:00") in told
    said = desk.run("explain", "town-hall", "1")
    assert "events.csv:2, step by step" in said.out
    assert '"classifications": [' in said.out
    assert "the ledger does not know it" in said.out


def test_the_step_that_refuses_says_why(desk: Desk) -> None:
    told = desk.run("explain", "town-hall", "2", "--json").document
    refused = [(step["step"], step["refused"]) for step in told["steps"] if step["refused"] and step["step"] == "date"]
    assert "This is not a date" in refused[0][1]
    assert {reason["field"] for reason in told["outcomes"][0]["rejected"]} == {"title", "startAt"}
    assert "refused: This is not a date" in " ".join(desk.run("explain", "town-hall", "2").out.split())


def test_a_row_that_a_rule_leaves_out_names_the_rule(desk: Desk) -> None:
    said = desk.run("explain", "feeds/town.yaml", "3")
    assert said.code == 0
    assert 'left out by the rule labelled "online only"' in said.out


def test_a_row_that_is_not_there_is_an_error_with_the_nearest_key(desk: Desk) -> None:
    desk.source(["spring-gala,Jazz,2030-05-01,19:30,,concert"])
    said = desk.run("explain", "town-hall", "sprnig-gala")
    assert said.code == 2
    assert 'did you mean "spring-gala"?' in said.err


def test_what_the_ledger_knows_of_the_row_is_told(desk: Desk) -> None:
    with desk.service():
        desk.run("run", "town-hall", "--no-dagster")
        told = desk.run("explain", "town-hall", "5", "--json").document
        said = desk.run("explain", "town-hall", "5")
    assert told["lists"] == "live"
    (entry,) = told["ledger"]
    assert (entry["state"], entry["row_key"]) == ("delivered", "5")
    assert f"the ledger has it as delivered, event {entry['event_id']}" in said.out


OVER = "7,Medea,2020-05-04,20:00,,play"


def test_a_row_outside_the_window_is_shown_as_left_out_until_an_event_of_it_was_sent(desk: Desk) -> None:
    desk.source([OVER])
    windowed = MAPPING.replace("event:\n", "  - window: {past: skip}\nevent:\n", 1)
    desk.mapping(windowed)
    assert 'left out by the rule labelled "already over"' in desk.run("explain", "town-hall", "7").out
    assert desk.run("preview", "town-hall", "--json").document["rows"][0]["skipped"] == "already over"
    with desk.service():
        desk.mapping()
        desk.run("run", "town-hall", "--no-dagster")
        desk.mapping(windowed)
        said = desk.run("explain", "town-hall", "7").out
        account = desk.run("run", "town-hall", "--no-dagster", "--json").document["runs"][0]["read"]
    assert "outside the window: already over; compared with what was sent" in " ".join(said.split())
    assert (account["unchanged"], account["filtered"]) == (1, 0)
