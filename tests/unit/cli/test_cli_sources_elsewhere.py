"""The command line over sheets and orgs: look-alikes on this machine, credentials from the environment alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lookalikes.demo import FEEDS, Places, running_places
from unit.cli.conftest import Desk


@pytest.fixture
def places(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """The look-alikes, named in the environment, and their feeds in the desk's folder."""
    (desk.folder / "feeds" / "town.yaml").unlink(missing_ok=True)
    for file in FEEDS.glob("*.yaml"):
        desk.mapping(file.read_text("utf-8"), file.name)
    with running_places(tmp_path / "access") as running:
        for name, value in running.environ.items():
            monkeypatch.setenv(name, value)
        yield running


def answers(document: Any, feed: str) -> dict[str, dict[str, Any]]:
    (found,) = [one for one in document["feeds"] if one["feed"] == feed]
    return {live["asked"]: live for live in found["live"] if live["asked"] in {"source", "write_back", "limits"}}


@pytest.mark.usefixtures("places")
def test_check_live_opens_the_sheet_and_the_org(desk: Desk) -> None:
    with desk.service():
        said = desk.run("check", "--live", "--json")
    assert said.code == 0, said.out
    sheet, org = (answers(said.document, feed) for feed in ("demo-sheet", "demo-salesforce"))
    assert [one["severity"] for one in (*sheet.values(), *org.values())] == ["ok"] * (len(sheet) + len(org))
    assert "9 columns, among them the 6 that the mapping reads" in sheet["source"]["told"]
    assert '"Status", "Event ID", "Problem"' in sheet["write_back"]["told"]
    assert "salesforce Session__c" in org["source"]["told"]


def test_check_live_names_a_renamed_column_and_a_misspelt_field_with_the_nearest(desk: Desk, places: Places) -> None:
    places.sheet.put(3, 2, "Titel")
    desk.mapping((FEEDS / "demo-salesforce.yaml").read_text("utf-8").replace("Genres__c", "Genre__c"), "demo-salesforce.yaml")
    with desk.service():
        said = desk.run("check", "--live", "--json")
    sheet, org = (answers(said.document, feed)["source"] for feed in ("demo-sheet", "demo-salesforce"))
    assert (sheet["severity"], org["severity"]) == ("error", "error")
    assert '"Title" (closest: "Titel")' in sheet["told"]
    assert "Genres__c" in org["told"]


def test_check_live_warns_where_a_column_to_write_into_is_missing(desk: Desk, places: Places) -> None:
    places.sheet.put(3, 9, "Problems seen")
    with desk.service():
        said = desk.run("check", "demo-sheet", "--live", "--json")
    told = answers(said.document, "demo-sheet")["write_back"]
    assert (said.code, told["severity"]) == (0, "warning")
    assert '"Problem" (closest: "Problems seen")' in told["told"]


def test_check_live_says_with_whom_to_share_a_sheet(desk: Desk, places: Places) -> None:
    (book,) = places.google.books.values()
    book.readers, book.writers = set(), set()
    with desk.service():
        said = desk.run("check", "demo-sheet", "--live")
    assert said.code != 0
    assert "reader@lookalike.iam.gserviceaccount.com" in " ".join(said.out.split())


def test_check_without_live_asks_nobody(desk: Desk, places: Places) -> None:
    assert desk.run("check").code == 0
    assert (places.google.asked, places.org.asked) == ([], [])


@pytest.mark.parametrize(("feed", "row", "shown"), [("demo-sheet", "0101", "Jazz at nine"), ("demo-salesforce", "#2", "Session")])
def test_preview_and_explain_read_with_the_environments_credentials(
    desk: Desk, places: Places, feed: str, row: str, shown: str
) -> None:
    previewed = desk.run("preview", feed, "--json")
    assert previewed.code == 0, previewed.out
    key = previewed.document["rows"][1]["row_key"] if row == "#2" else row
    explained = desk.run("explain", feed, key)
    assert explained.code == 0, explained.out
    assert shown in explained.out
    assert posts(places) == 0


def posts(places: Places) -> int:
    return sum(one.startswith("POST /v4") for one in places.google.asked)


def test_a_rehearsal_writes_nothing_back(desk: Desk, places: Places) -> None:
    with desk.service():
        assert desk.run("run", "demo-sheet", "--dry-run", "--json").code in {0, 1, 5}
    assert posts(places) == 0


def test_a_local_service_does_not_make_googles_own_sheet_speak_of_it(
    desk: Desk, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk.service():
        assert desk.run("run", "demo-sheet", "--no-dagster", "--stage-only").code == 0
        assert places.said()[0] == ("0101", "waits", "Not sent yet.")
        before = posts(places)
        monkeypatch.setenv("EVENTSYNC_SHEETS_URL", "")
        said = desk.run("run", "demo-sheet", "--no-dagster", "--publish-only", "--json")
    assert said.code == 0
    assert "the sheet is Google's own" in str(said.document["runs"][0]["notices"])
    assert posts(places) == before


@pytest.mark.usefixtures("places")
def test_without_credentials_the_feed_says_which_to_set(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "absent.json")
    for name in ("SALESFORCE_USERNAME", "SALESFORCE_PASSWORD", "SALESFORCE_SECURITY_TOKEN"):
        monkeypatch.delenv(name)
    sheet, org = desk.run("preview", "demo-sheet"), desk.run("preview", "demo-salesforce")
    assert (sheet.code, org.code) == (2, 2)
    assert "GOOGLE_APPLICATION_CREDENTIALS" in sheet.err + sheet.out
    assert "SALESFORCE_" in org.err + org.out


def test_a_first_mapping_is_drafted_from_a_sheets_address(desk: Desk, places: Places) -> None:
    (book,) = places.google.books.values()
    address = f"https://docs.google.com/spreadsheets/d/{book.id}/edit#gid=7"
    said = desk.run("init", address, "--feed", "town-sheet", "--zone", "Europe/Lisbon", "--json")
    assert said.code in {0, 2}, said.err
    drafted = (desk.folder / "feeds" / "town-sheet.yaml").read_text("utf-8")
    assert "kind: google_sheets" in drafted
    assert f'spreadsheet: "{address}"' in drafted
    assert "header: {row: 3}" in drafted
    assert {"ID", "Title", "Day"} <= set(said.document["columns"])


@pytest.mark.usefixtures("places")
def test_a_sheets_feed_is_named_by_a_person(desk: Desk) -> None:
    said = desk.run("init", "https://docs.google.com/spreadsheets/d/1AbCdEfGhIjKlMnOpQrStUvWxYz0123456789/edit")
    assert (said.code, "--feed NAME" in said.err + said.out) == (2, True)
