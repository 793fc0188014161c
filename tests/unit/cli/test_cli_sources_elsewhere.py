"""The command line over sheets and orgs: look-alikes on this machine, credentials from the environment alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lookalikes.demo import FEEDS, Places, running_places
from unit.cli.conftest import Desk


@pytest.fixture
def places(desk: Desk, tmp_path: Path) -> Iterator[Places]:
    """The look-alikes, named in the environment, and their feeds in the desk's folder."""
    (desk.folder / "feeds" / "town.yaml").unlink()
    for file in FEEDS.glob("*.yaml"):
        desk.mapping(file.read_text("utf-8"), file.name)
    with running_places(tmp_path / "access") as running:
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
    assert "9 columns, among them the 6 that the mapping reads" in answers["sheet", "source"]["told"]
    assert '"Status", "Event ID", "Problem"' in answers["sheet", "write_back"]["told"]
    assert "salesforce Session__c" in answers["salesforce", "source"]["told"]


def test_check_live_names_what_is_renamed_misspelt_or_missing_with_the_nearest(desk: Desk, places: Places) -> None:
    places.sheet.put(3, 9, "Problems seen")
    told = live(desk, "demo-sheet", code=0)["sheet", "write_back"]
    assert (told["severity"], '"Problem" (closest: "Problems seen")' in told["told"]) == ("warning", True)
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
        assert places.said()[0] == ("0101", "waits", "Not sent yet.")
        before = posts(places)
        desk.monkeypatch.setenv("EVENTSYNC_SHEETS_URL", "")
        said = desk.run("run", "demo-sheet", "--no-dagster", "--publish-only", "--json", code=0)
    assert ("the sheet is Google's own" in str(said.run["notices"]), posts(places)) == (True, before)


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
