"""`eventsync preview`: what becomes of real rows, without leaving a trace."""

from __future__ import annotations

from unit.cli.conftest import HEADER, MAPPING, ROWS, SECRET, Desk


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
    assert "events.csv:4  left out: online only" in said.out
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


def test_a_source_that_is_not_there_is_an_error_with_its_place(desk: Desk) -> None:
    (desk.folder / "events.csv").unlink()
    said = desk.run("preview", "town-hall")
    assert said.code == 2
    assert "events.csv" in said.err


def test_a_broken_mapping_is_an_error_with_every_problem(desk: Desk) -> None:
    desk.mapping(MAPPING.replace("collapse", "colapse"))
    said = desk.run("preview", "feeds/town.yaml")
    assert said.code == 2
    assert 'unknown step "colapse", did you mean "collapse"?' in said.err


def test_a_source_without_rows_is_previewed_as_nothing(desk: Desk) -> None:
    desk.source([], HEADER)
    assert desk.run("preview", "town-hall", "--json").document["account"]["read"] == 0
