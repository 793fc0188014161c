"""`eventsync preview`: what becomes of real rows, without leaving a trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.cli.conftest import HEADER, ROWS, SECRET, Desk

ROOT = Path(__file__).parents[3]


def test_each_row_is_shown_with_its_place_and_what_becomes_of_it(desk: Desk) -> None:
    told = desk.run("preview", "town-hall", "--json").document
    assert (told["feed"], told["lists"]) == ("town-hall", "offline")
    assert [row["place"] for row in told["rows"]] == [f"events.csv:{number}" for number in range(2, 8)]
    event, rejected, skipped = told["rows"][:3]
    assert event["row_key"] == "1"
    assert event["event"]["title"] == "Jazz"
    assert {(reason["field"], reason["code"]) for reason in rejected["rejected"]} == {
        ("title", "required"),
        ("startAt", "not_a_date"),
    }
    assert skipped["skipped"] == "online only"


def test_the_account_counts_rows_and_tells_each_unmapped_value_once(desk: Desk) -> None:
    desk.source([*ROWS, "8,Odes,2030-05-04,20:00,,poetry", "9,Chess,2030-05-04,20:00,,game"])
    account = desk.run("preview", "town-hall", "--rows", "0", "--all", "--json").document["account"]
    assert account["read"] == account["events"] + sum(account["skipped"].values()) + account["rejected"] == 8
    assert account["is_whole"]
    assert account["reasons"] == {"not_in_lookup": 3, "required": 1, "not_a_date": 1}
    assert [(value["column"], value["found"], value["count"]) for value in account["unmapped"]] == [
        ("GENRE", "poetry", 2),
        ("GENRE", "game", 1),
    ]


def test_reading_stops_with_the_last_row_shown_and_the_account_says_so(desk: Desk) -> None:
    account = desk.run("preview", "town-hall", "--rows", "2", "--json").document["account"]
    assert (account["read"], account["is_whole"]) == (2, False)
    said = desk.run("preview", "town-hall", "--rows", "2")
    assert "so far; --all reads the whole source" in said.out


def test_people_read_payloads_reasons_and_labels_and_that_channel_ids_are_stand_ins(desk: Desk) -> None:
    said = desk.run("preview", "town-hall")
    assert said.code == 0
    assert "offline (no service is configured)" in said.out
    assert '"title": "Hamlet"' in said.out
    assert "events.csv:3  REJECTED 2" in said.out
    assert "startAt (column DAY, found '2030-13-01')" in said.out
    assert 'events.csv:4  left out by the rule labelled "online only"' in said.out
    assert "read 6 (the whole source) = events 3 + left out 1 + rejected 2" in said.out


def test_with_a_service_the_channels_are_its_own(desk: Desk) -> None:
    with desk.service():
        told = desk.run("preview", "town-hall", "--json").document
    assert told["lists"] == "live"
    assert told["rows"][0]["event"]["channelId"] == 101


def test_a_service_that_is_away_is_said_and_the_preview_goes_on_offline(desk: Desk) -> None:
    with desk.service() as service:
        pass
    desk.monkeypatch.setenv("EVENT_API_BASE_URL", service.base_url)
    desk.monkeypatch.setenv("EVENT_API_KEY", SECRET)
    told = desk.run("preview", "town-hall", "--json")
    assert (told.code, told.document["lists"]) == (0, "offline")
    assert "no usable answer" in told.document["why_offline"]


def test_a_preview_leaves_no_file_behind(desk: Desk) -> None:
    before = sorted(desk.folder.rglob("*"))
    desk.run("preview", "town-hall")
    desk.run("preview", "feeds/town.yaml")
    assert sorted(desk.folder.rglob("*")) == before


def test_a_source_without_rows_is_previewed_as_nothing_and_one_that_is_not_there_is_an_error_with_its_place(desk: Desk) -> None:
    desk.source([], HEADER)
    assert desk.run("preview", "town-hall", "--json").document["account"]["read"] == 0
    (desk.folder / "events.csv").unlink()
    said = desk.run("preview", "town-hall")
    assert said.code == 2
    assert "events.csv" in said.err


TWO_OF_ONE_KEY = (
    "1,Jazz,2030-05-01,19:30,,concert",
    "1,Jazz,2030-05-01,19:30,,concert",
    "2,Hamlet,2030-05-03,20:00,,play",
    "1,Blues,2030-05-01,19:30,,concert",
    "1,Jazz,2030-05-01,19:30,,concert",
    "3,Hamlet,2030-05-03,20:00,,play",
)


def test_rows_of_one_key_that_contradict_each_other_are_rejected_as_a_run_rejects_them(desk: Desk) -> None:
    desk.source(TWO_OF_ONE_KEY)
    told = desk.run("preview", "town-hall", "--json").document
    first, again, hamlet, other, third, copy = told["rows"]
    assert [row["rejected"][0]["hint"] for row in (first, other, third)] == [
        "another one is at events.csv:5",
        "the first one is at events.csv:2",
        "the first one is at events.csv:2",
    ]
    assert (again["absorbed"], hamlet["event"]["title"], copy["held"]) == ("duplicate", "Hamlet", "2")
    assert told["account"]["reasons"] == {"duplicate_key": 3}
    said = desk.run("preview", "town-hall")
    assert "events.csv:2  REJECTED 1" in said.out
    assert "events.csv:7  HELD 3: it looks like a copy of 2" in said.out
    assert "= events 1 + left out 0 + duplicate 1 + rejected 3 + held 1" in said.out


def test_a_row_that_is_contradicted_later_is_among_the_rejected_and_not_among_the_events(desk: Desk) -> None:
    desk.source(TWO_OF_ONE_KEY)
    rejected = desk.run("preview", "town-hall", "--only", "rejected", "--json").document["rows"]
    assert [row["place"] for row in rejected] == ["events.csv:2", "events.csv:5", "events.csv:6"]
    events = desk.run("preview", "town-hall", "--only", "events", "--all", "--json").document["rows"]
    assert [row["place"] for row in events] == ["events.csv:4"]
    (held,) = desk.run("preview", "town-hall", "--only", "held", "--json").document["rows"]
    assert held["place"] == "events.csv:7"


@pytest.mark.parametrize("folder", ["feeds", str(ROOT / "tests" / "feeds")], ids=["two rows of one key", "partners' own"])
def test_a_preview_of_everything_counts_as_a_first_run_does(desk: Desk, folder: str) -> None:
    desk.source(TWO_OF_ONE_KEY)
    desk.monkeypatch.setenv("EVENTSYNC_FEEDS", folder)
    with desk.service():
        feeds = [feed["feed"] for feed in desk.run("feeds", "--json").document["feeds"]]
        rehearsed = desk.run("run", "--all", "--dry-run", "--json").document["rehearsals"]
        assert sorted(one["feed"] for one in rehearsed) == sorted(feeds)
        assert len(feeds) == 1 if folder == "feeds" else len(feeds) > 10
        for one in rehearsed:
            account = desk.run("preview", one["feed"], "--rows", "0", "--all", "--json").document["account"]
            counts = {name: account[name] for name in ("read", "expanded", "duplicate", "grouped", "rejected", "held")}
            counts |= {"new": account["events"], "filtered": sum(account["skipped"].values())}
            assert counts == {name: one["read"][name] for name in counts}, one["feed"]


def test_a_key_that_is_too_long_is_rejected_in_the_preview_as_in_a_run(desk: Desk) -> None:
    desk.source([f"{'x' * 2_001},Jazz,2030-05-01,19:30,,concert", ROWS[4]])
    told = desk.run("preview", "town-hall", "--json").document
    assert [reason["code"] for reason in told["rows"][0]["rejected"]] == ["bad_key"]
    assert (told["account"]["events"], told["account"]["rejected"]) == (1, 1)
    with desk.service():
        rehearsed = desk.run("run", "town-hall", "--dry-run", "--json").document["rehearsals"][0]["read"]
        sent = desk.run("run", "town-hall", "--no-dagster", "--json").document["runs"][0]["read"]
    assert (rehearsed["new"], rehearsed["rejected"]) == (sent["new"], sent["rejected"]) == (1, 1)
