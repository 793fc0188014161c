"""The command line over sheets, orgs and the web: look-alikes on this machine, credentials from the environment alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lookalikes.demo import FEEDS, SHEET_ID, Places, running_places
from lookalikes.salesforce_org import SObject
from lookalikes.sheets_book import Cell
from lookalikes.web_files import untold, web_server
from unit.cli.conftest import HEADER, MAPPING, Desk


@pytest.fixture
def places(desk: Desk, tmp_path: Path) -> Iterator[Places]:
    """The look-alikes, named in the environment, and their feeds in the desk's folder."""
    (desk.folder / "feeds" / "town.yaml").unlink()
    with running_places(tmp_path / "access") as running:
        for file in running.feeds.glob("*.yaml"):
            desk.mapping(file.read_text("utf-8"), file.name)
        for name, value in running.environ.items():
            desk.monkeypatch.setenv(name, value)
        yield running


def live(desk: Desk, *words: str, code: int | None = None) -> dict[tuple[str, str], Any]:
    """What a live check says of each feed, by what was asked."""
    with desk.service():
        document = desk.run("check", *words, "--live", "--json", code=code).document
    return {(one["feed"].removeprefix("demo-"), answer["asked"]): answer for one in document["feeds"] for answer in one["live"]}


def posts(places: Places) -> int:
    return sum(one.startswith("POST /v4") for one in places.google.asked)


def test_check_opens_the_sheet_and_the_org_only_if_asked_to(desk: Desk, places: Places) -> None:
    desk.run("check", code=0)
    assert (places.google.asked, places.org.asked) == ([], [])
    answers = live(desk, code=0)
    ours = [answers[feed, asked]["severity"] for feed, asked in answers if asked in {"source", "write_back", "limits"}]
    assert set(ours) == {"ok"}
    assert "9 columns, including the 6 that the mapping reads" in answers["sheet", "source"]["told"]
    assert '"Status", "Event ID", "Problem"' in answers["sheet", "write_back"]["told"]
    assert "salesforce Session__c" in answers["salesforce", "source"]["told"]


def test_check_live_names_what_is_renamed_misspelt_or_missing_with_the_nearest(desk: Desk, places: Places) -> None:
    places.sheet.put(3, 9, "Problems seen")
    told = live(desk, "demo-sheet", code=0)["sheet", "write_back"]
    assert (told["severity"], '"Problem" (closest: "Problems seen")' in told["told"]) == ("warning", True)
    places.sheet.put(3, 9, "Problem")
    places.sheet.put(3, 10, "PROBLEM")
    told = live(desk, "demo-sheet", code=0)["sheet", "write_back"]
    assert (told["severity"], '"Problem" (#9, column I), "PROBLEM" (#10, column J)' in told["told"]) == ("warning", True)
    places.sheet.put(3, 11, "TITLE")
    told = live(desk, "demo-sheet")["sheet", "source"]
    assert (told["severity"], '"Title" (#2, column B), "TITLE" (#11, column K)' in told["told"]) == ("error", True)
    places.sheet.put(3, 11, None)
    places.sheet.put(3, 2, "Titel")
    desk.mapping((FEEDS / "demo-salesforce.yaml").read_text("utf-8").replace("Genres__c", "Genre__c"), "demo-salesforce.yaml")
    answers = live(desk)
    for feed, shown in (("sheet", '"Title" (closest: "Titel")'), ("salesforce", "Genres__c")):
        assert (answers[feed, "source"]["severity"], shown in answers[feed, "source"]["told"]) == ("error", True)
    (book,) = places.google.books.values()
    book.readers, book.writers = set(), set()
    refused = live(desk, "demo-sheet")["sheet", "source"]
    assert (refused["ok"], "reader@lookalike.iam.gserviceaccount.com" in str(refused)) == (False, True)


@pytest.mark.parametrize(("feed", "row", "shown"), [("demo-sheet", "0101", "Jazz at nine"), ("demo-salesforce", "#2", "Session")])
def test_preview_explain_and_a_rehearsal_read_with_the_environments_credentials_and_write_nothing(
    desk: Desk, places: Places, feed: str, row: str, shown: str
) -> None:
    previewed = desk.run("preview", feed, "--json", code=0)
    key = previewed.document["rows"][1]["row_key"] if row == "#2" else row
    desk.run("explain", feed, key).assert_told(0, shown)
    with desk.service():
        assert desk.run("run", feed, "--dry-run", "--json").code in {0, 1, 5}
    assert posts(places) == 0


def test_a_local_service_does_not_make_googles_own_sheet_speak_of_it(desk: Desk, places: Places) -> None:
    with desk.service():
        desk.run("run", "demo-sheet", "--no-dagster", "--stage-only", code=0)
        assert list(places.said()[0].values()) == ["0101", "waits", "Not sent yet."]
        before = posts(places)
        desk.monkeypatch.setenv("EVENTSYNC_SHEETS_URL", "")
        said = desk.run("run", "demo-sheet", "--no-dagster", "--publish-only", "--json", code=0)
    assert ("the sheet is a real one" in str(said.run["notices"]), posts(places)) == (True, before)


@pytest.mark.usefixtures("places")
def test_without_credentials_the_feed_says_which_to_set(desk: Desk) -> None:
    desk.monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "absent.json")
    for name in ("SALESFORCE_USERNAME", "SALESFORCE_PASSWORD", "SALESFORCE_SECURITY_TOKEN"):
        desk.monkeypatch.delenv(name)
    desk.run("preview", "demo-sheet").assert_told(2, "GOOGLE_APPLICATION_CREDENTIALS")
    desk.run("preview", "demo-salesforce").assert_told(2, "SALESFORCE_")


def test_a_first_mapping_is_drafted_from_a_sheets_address_under_a_name_of_the_authors(desk: Desk, places: Places) -> None:
    (book,) = places.google.books.values()
    address = f"https://docs.google.com/spreadsheets/d/{book.id}/edit#gid=7"
    desk.run("init", address).assert_told(2, "--feed NAME")
    said = desk.run("init", address, "--feed", "town-sheet", "--zone", "Europe/Lisbon", "--json")
    drafted = (desk.folder / "feeds" / "town-sheet.yaml").read_text("utf-8")
    assert [text for text in ("kind: google_sheets", f'"{address}"', "header: {row: 3}") if text not in drafted] == []
    assert {"ID", "Title", "Day"} <= set(said.document["columns"])


SHEET = f"https://docs.google.com/spreadsheets/d/{SHEET_ID}/edit#gid=7"


def drafted(desk: Desk, source: str, *words: str) -> dict[str, Any]:
    """Draft a feed called `drafted`, which passes `check` but for what its author has to fill in."""
    desk.run("init", source, "--feed", "drafted", "--force", *words, code=0)
    (checked,) = desk.run("check", "drafted", "--json", code=0).document["feeds"]
    assert {"to be filled in" in one["message"] or one["message"] == "the zone is a guess" for one in checked["warnings"]} == {
        True
    }
    return dict(yaml.safe_load((desk.folder / "feeds" / "drafted.yaml").read_text("utf-8")))


def test_a_sheet_is_read_once_for_a_draft_which_takes_the_links_behind_the_titles(desk: Desk, places: Places) -> None:
    for row in places.sheet.grid[3:6]:
        row[1] = Cell(str(row[1]), links={"hyperlink": f"https://example.org/{row[0]}"})
    feed = drafted(desk, SHEET, "--zone", "Europe/Lisbon")
    asked = [one.partition("?")[0] for one in places.google.asked if "/v4/" in one]
    assert asked == [f"GET /v4/spreadsheets/{SHEET_ID}"] * 2
    source = {"kind": "google_sheets", "spreadsheet": SHEET, "header": {"row": 3}, "required": ["ID", "Title", "Day"]}
    assert (feed["source"], feed["key"]) == (source, ["ID"])
    assert (feed["event"]["title"]["from"], feed["event"]["offers"][0]["url"]["from"]) == ("Title", "Title.link")
    events = [row["event"] for row in desk.told("preview", "drafted")["rows"] if "event" in row]
    assert (events[0]["offers"][0]["url"], events[0]["startAt"]) == ("https://example.org/0101", "2031-05-01T18:15:00+01:00")


CAMPAIGN = {
    "Type": "picklist",
    "Status": "picklist",
    "StartDate": "date",
    "EndDate": "date",
    "IsActive": "boolean",
    "Description": "textarea",
    "NumberSent": "double",
    "BillingAddress": "address",
    "LastModifiedDate": "datetime",
    "Topics__c": "multipicklist",
    "Logo__c": "base64",
    "City__c": "string",
    "Page__c": "url",
}


def test_an_object_is_drafted_by_the_fields_that_its_org_describes(desk: Desk, places: Places) -> None:
    days = [("2031-05-03", "2031-05-04"), ("2031-06-01", None), ("2031-06-21", "2031-06-22"), (None, None)]
    records: list[dict[str, Any]] = [
        {
            "Id": f"70100000000000{number}AAA",
            "Name": f"Open day {number}",
            "StartDate": first,
            "EndDate": last,
            "Type": "Conference" if number % 2 else None,
            "Status": "Planned" if number % 2 else "Aborted",
            "IsActive": True,
            "Topics__c": "Music;Dance" if number == 2 else "Music",
            "City__c": "Lisboa",
            "Page__c": "https://example.org/",
            "CreatedDate": "2030-01-01T08:00:00.000+0000",
            "LastModifiedDate": "2030-02-01T08:00:00.000+0000",
            "SystemModstamp": "2030-02-01T08:00:00.000+0000",
            "IsDeleted": False,
        }
        for number, (first, last) in enumerate(days, start=1)
    ]
    places.org.add(SObject("Campaign", CAMPAIGN, records=records, choices={"Topics__c": ["Dance", "Film", "Music"]}))
    feed = drafted(desk, "salesforce:Campaign", "--zone", "Europe/Lisbon")
    source = {"kind": "salesforce", "object": "Campaign", "incremental": {"by": "SystemModstamp"}}
    assert (feed["source"], feed["key"]) == ({**source, "required": ["Id", "Name", "StartDate"]}, ["Id"])
    assert [feed["let"][name]["from"] for name in ("starts", "ends")] == ["StartDate", "EndDate"]
    genres = feed["event"]["classifications"]
    (split, mapped), column = genres["do"], genres["from"]
    assert (column, split, set(mapped["map"])) == ("Topics__c", {"split": ";"}, {"Music", "Dance", "Film"})
    rows = desk.told("preview", "drafted")["rows"]
    assert [row["event"]["endAt"][:10] for row in rows if "endAt" in row.get("event", {})] == ["2031-05-04", "2031-06-22"]
    feed = drafted(desk, "salesforce:Session__c")
    assert (feed["event"]["locationName"]["from"], feed["let"]["starts"]["from"]) == ("Venue__r.Name", "Start__c")
    for wrong, told in (("salesforce:", "salesforce:Campaign"), ("salesforce:Sesion__c", "did you mean Session__c?")):
        desk.run("init", wrong).assert_told(2, told)


def test_an_answer_of_unknown_length_that_is_far_shorter_than_last_time_is_not_taken_for_the_whole_file(desk: Desk) -> None:
    rows = [f"{number},Evening {number},2030-05-01,19:30,,concert" for number in range(32)]

    def answered(count: int, end: str = "\n", *words: str) -> Any:
        web.instead = untold(("\n".join([HEADER, *rows[:count]]) + end).encode())
        return desk.run("run", "town-hall", "--no-dagster", *words, "--json")

    with web_server() as web, desk.service():
        desk.mapping(MAPPING.replace("../events.csv", web.address("/agenda.csv")))
        assert answered(32).code == 0
        short = answered(5)
        short.assert_told(6, "it may have been cut off", "--accept shrink")
        assert (short.run["outcome"], answered(31, "\n31,Eve").run["outcome"]) == ("paused", "paused")
        again = answered(32).run
        assert (again["exit_code"], again["read"]["unchanged"], again["vanished"]) == (0, 32, 0)
        assert answered(5, "\n", "--accept", "shrink").code == 0
