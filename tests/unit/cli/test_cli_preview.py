"""`eventsync preview`, `explain` and `run --dry-run`: what becomes of real rows, without leaving a trace."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from unit.cli.conftest import FEED, HEADER, MAPPING, ROWS, Desk

ROOT = Path(__file__).parents[3]
TWO_OF_ONE_KEY = (
    "1,Jazz,2030-05-01,19:30,,concert",
    "1,Jazz,2030-05-01,19:30,,concert",
    "2,Hamlet,2030-05-03,20:00,,play",
    "1,Blues,2030-05-01,19:30,,concert",
    "1,Jazz,2030-05-01,19:30,,concert",
    "3,Hamlet,2030-05-03,20:00,,play",
)


def test_each_row_is_shown_with_its_place_and_what_becomes_of_it(desk: Desk) -> None:
    told = desk.told("preview", FEED)
    assert (told["feed"], told["lists"]) == (FEED, "offline")
    assert [row["place"] for row in told["rows"]] == [f"events.csv:{number}" for number in range(2, 8)]
    event, rejected, skipped = told["rows"][:3]
    assert (event["row_key"], event["event"]["title"], skipped["skipped"]) == ("1", "Jazz", "online only")
    reasons = {(reason["field"], reason["code"]) for reason in rejected["rejected"]}
    assert reasons == {("title", "required"), ("startAt", "not_a_date")}


def test_people_read_payloads_reasons_and_labels_and_that_channel_ids_are_stand_ins(desk: Desk) -> None:
    desk.run("preview", FEED).assert_told(
        0,
        "offline (no service is configured)",
        '"title": "Hamlet"',
        "events.csv:3 REJECTED 2",
        "startAt (column DAY, found '2030-13-01')",
        'events.csv:4 left out by the rule labelled "online only"',
        "read 6 (the whole source) = events 3 + left out 1 + rejected 2",
    )


def test_the_account_counts_rows_and_names_each_unmapped_value_once(desk: Desk) -> None:
    desk.source([*ROWS, "8,Odes,2030-05-04,20:00,,poetry", "9,Chess,2030-05-04,20:00,,game"])
    account = desk.told("preview", FEED, "--rows", "0", "--all")["account"]
    assert account["read"] == account["events"] + sum(account["skipped"].values()) + account["rejected"] == 8
    assert (account["is_whole"], account["reasons"]) == (True, {"not_in_lookup": 3, "required": 1, "not_a_date": 1})
    values = [(value["column"], value["found"], value["count"]) for value in account["unmapped"]]
    assert values == [("GENRE", "poetry", 2), ("GENRE", "game", 1)]


def test_reading_stops_with_the_last_row_shown_and_the_account_says_so(desk: Desk) -> None:
    account = desk.told("preview", FEED, "--rows", "2")["account"]
    assert (account["read"], account["is_whole"]) == (2, False)
    desk.run("preview", FEED, "--rows", "2").assert_told(0, "so far; --all reads the whole source")


def test_channels_are_the_services_own_and_while_it_is_away_the_preview_goes_on_offline(desk: Desk) -> None:
    with desk.service():
        told = desk.told("preview", FEED)
    assert (told["lists"], told["rows"][0]["event"]["channelId"]) == ("live", 101)
    told = desk.told("preview", FEED)
    assert (told["lists"], "no usable answer" in told["why_offline"]) == ("offline", True)


def test_a_preview_leaves_no_file_behind(desk: Desk) -> None:
    before = sorted(desk.folder.rglob("*"))
    desk.run("preview", FEED, code=0)
    desk.run("preview", "feeds/town.yaml", code=0)
    assert sorted(desk.folder.rglob("*")) == before


def test_a_source_without_rows_is_previewed_as_nothing_and_one_that_is_not_there_is_an_error_with_its_place(desk: Desk) -> None:
    desk.source([], HEADER)
    assert desk.told("preview", FEED)["account"]["read"] == 0
    (desk.folder / "events.csv").unlink()
    desk.run("preview", FEED).assert_told(2, "events.csv")


def test_rows_of_one_key_that_contradict_each_other_are_rejected_as_a_run_rejects_them(desk: Desk) -> None:
    desk.source(TWO_OF_ONE_KEY)
    told = desk.told("preview", FEED)
    first, again, hamlet, other, third, copy = told["rows"]
    hints = [row["rejected"][0]["hint"].partition(" at ") for row in (first, other, third)]
    places = [("another one is", "events.csv:5"), ("the first one is", "events.csv:2"), ("the first one is", "events.csv:2")]
    assert [(which, place) for which, _, place in hints] == places
    assert (again["absorbed"], hamlet["event"]["title"], copy["held"]) == ("duplicate", "Hamlet", "2")
    assert told["account"]["reasons"] == {"duplicate_key": 3}
    shown = ("events.csv:2 REJECTED 1", "events.csv:7 HELD 3: it looks like a copy of 2")
    desk.run("preview", FEED).assert_told(0, *shown, "= events 1 + left out 0 + duplicate 1 + rejected 3 + held 1")
    for kind, lines in (("rejected", (2, 5, 6)), ("events", (4,)), ("held", (7,))):
        rows = desk.told("preview", FEED, "--only", kind)["rows"]
        assert [row["place"] for row in rows] == [f"events.csv:{line}" for line in lines]


@pytest.mark.parametrize("folder", ["feeds", str(ROOT / "tests" / "feeds")], ids=["two rows of one key", "partners' own"])
def test_a_preview_of_everything_counts_as_a_first_run_does(desk: Desk, folder: str) -> None:
    desk.source((*TWO_OF_ONE_KEY, f"{'x' * 2_001},Jazz,2030-05-01,19:30,,concert"))  # a key that is too long
    desk.monkeypatch.setenv("EVENTSYNC_FEEDS", folder)
    with desk.service():
        rehearsed = desk.told("run", "--all", "--dry-run")["rehearsals"]
        assert len(rehearsed) == 1 if folder == "feeds" else len(rehearsed) > 10
        for one in rehearsed:
            account = desk.told("preview", one["feed"], "--rows", "0", "--all")["account"]
            counts = {name: account[name] for name in ("read", "expanded", "duplicate", "grouped", "rejected", "held")}
            counts |= {"new": account["events"], "filtered": sum(account["skipped"].values())}
            assert counts == {name: one["read"][name] for name in counts}, one["feed"]
        if folder == "feeds":
            assert account["reasons"] == {"duplicate_key": 3, "bad_key": 1}


@pytest.mark.parametrize(("word", "title"), [("5", "Hamlet"), ("events.csv:6", "Hamlet"), ("7", "Othello")])
def test_a_row_to_be_explained_is_found_by_its_key_its_place_or_its_number(desk: Desk, word: str, title: str) -> None:
    told = desk.told("explain", FEED, word)
    assert (told["cells"]["TITLE"], told["outcomes"][0]["event"]["title"]) == (title, title)


def test_each_field_is_explained_from_the_raw_cell_to_the_value(desk: Desk) -> None:
    steps = desk.told("explain", FEED, "1")["steps"]
    told = [(step["field"], step["step"], step["goes_in"], step["comes_out"]) for step in steps]
    assert ("title", "from TITLE", "", "Jazz") in told
    assert ("startAt", "date", "2030-05-01", "2030-05-01") in told
    assert ("startAt", "at", "", "2030-05-01T19:30:00+02:00") in told
    shown = ("events.csv:2, step by step", '"classifications": [', "the ledger does not know it")
    desk.run("explain", FEED, "1").assert_told(0, *shown)


def test_the_step_that_refuses_and_the_rule_that_leaves_out_are_named(desk: Desk) -> None:
    told = desk.told("explain", FEED, "2")
    refused = [(step["step"], step["refused"]) for step in told["steps"] if step["refused"] and step["step"] == "date"]
    assert "This is not a date" in refused[0][1]
    assert {reason["field"] for reason in told["outcomes"][0]["rejected"]} == {"title", "startAt"}
    desk.run("explain", FEED, "2").assert_told(0, "refused: This is not a date")
    desk.run("explain", "feeds/town.yaml", "3").assert_told(0, 'left out by the rule labelled "online only"')


def test_a_row_that_is_not_there_is_an_error_with_the_nearest_key(desk: Desk) -> None:
    desk.source(["spring-gala,Jazz,2030-05-01,19:30,,concert"])
    desk.run("explain", FEED, "sprnig-gala").assert_told(2, 'did you mean "spring-gala"?')


def test_a_row_outside_the_window_is_shown_as_left_out_until_an_event_of_it_was_sent(desk: Desk) -> None:
    desk.source(["7,Medea,2020-05-04,20:00,,play"])
    windowed = MAPPING.replace("event:\n", "  - window: {past: skip}\nevent:\n", 1)
    desk.mapping(windowed)
    desk.run("explain", FEED, "7").assert_told(0, 'left out by the rule labelled "already over"')
    assert desk.told("preview", FEED)["rows"][0]["skipped"] == "already over"
    with desk.service():
        desk.mapping()
        desk.sync()
        desk.mapping(windowed)
        desk.run("explain", FEED, "7").assert_told(0, "outside the window: already over; compared with what was sent")
        account = desk.sync()["read"]
    assert (account["unchanged"], account["filtered"]) == (1, 0)


def rehearsal_of(desk: Desk, *words: str, code: int = 0) -> Any:
    (one,) = desk.run("run", FEED, "--dry-run", *words, "--json", code=code).document["rehearsals"]
    return one


def dump(desk: Desk) -> list[str]:
    with closing(sqlite3.connect(desk.state)) as connection:
        return list(connection.iterdump())


def test_a_rehearsal_makes_no_state_db_and_says_exactly_which_keys_the_run_then_sends(desk: Desk) -> None:
    with desk.service():
        told = rehearsal_of(desk)
        assert not desk.state.parent.exists()
        ran = desk.sync(code=0)
    counts = {name: count for name, count in told["read"].items() if count}
    assert (told["outcome"], counts) == ("rehearsed", {"read": 6, "filtered": 1, "rejected": 2, "new": 3})
    assert [row["place"] for row in told["first"]] == ["events.csv:2", "events.csv:6", "events.csv:7"]
    assert told["first"][0]["event"]["title"] == "Jazz"
    with closing(sqlite3.connect(desk.state)) as connection:
        sent = dict(connection.execute("SELECT row_key, idempotency_key FROM ledger_entry").fetchall())
    assert {row["row_key"]: row["idempotency_key"] for row in told["first"]} == sent
    assert (told["read"], told["would_send"]) == (ran["read"], ran["publish"]["delivered"])


def test_a_rehearsal_after_a_run_leaves_every_row_of_the_state_db_as_it_was(desk: Desk) -> None:
    with desk.service():
        desk.sync(code=0)
        before = dump(desk)
        desk.source(
            ["1,Jazz again,2030-05-01,19:30,,concert", "5,Hamlet,2030-05-03,20:00,,play", "7,Lear,2030-05-05,20:00,,play"]
        )
        told = rehearsal_of(desk)
        assert dump(desk) == before
    assert (told["read"]["new"], told["read"]["drifted"], told["read"]["unchanged"], told["vanished"]) == (1, 1, 1, 1)
    assert (told["would_send"], told["first"][0]["row_key"]) == (1, "7")


def test_a_rehearsal_minds_limit_and_keys_and_what_is_not_read(desk: Desk) -> None:
    with desk.service():
        limited = rehearsal_of(desk, "--limit", "2")
        assert (limited["would_send"], len(limited["first"])) == (2, 2)
        assert [row["row_key"] for row in rehearsal_of(desk, "--keys", "5,6")["first"]] == ["5", "6"]
        desk.sync("--stage-only")
        (desk.folder / "events.csv").unlink()
        told = rehearsal_of(desk, "--publish-only")
        assert (told["read"], told["would_send"]) == (None, 3)
        desk.run("run", FEED, "--dry-run").assert_told(2, "there is no file")
