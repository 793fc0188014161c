"""Feeds over files that partners really publish: every example, every count, and what the files themselves say of their rows."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from contract.feed_page import PAGE, REAL, REAL_FEEDS, SHIPPED, accounts_of, events_in, outcomes_of, page

from mappings.event import EVENT
from mappings.examples import run_examples
from mappings.outcome import MappedRow
from mappings.yaml.loader import load_feed, load_folder

FEEDS = [*sorted(SHIPPED.glob("*.yaml")), *REAL_FEEDS]
DATA = REAL / "data"
every_feed = pytest.mark.parametrize("path", FEEDS, ids=lambda path: path.stem)


@every_feed
def test_every_example_of_a_feed_comes_true(path: Path) -> None:
    mapping = load_feed(path)
    assert mapping.examples
    assert run_examples(mapping) == ()


@every_feed
def test_every_event_of_a_feed_is_one_that_the_service_accepts(path: Path) -> None:
    for outcome in outcomes_of(path):
        if isinstance(outcome, MappedRow):
            EVENT.validate_json(outcome.body)


@pytest.mark.parametrize(
    ("name", "account"),
    [
        # 61 lines: 3 online, 1 cancelled, 1 of blanks; 30 February and an hour that the clocks jump over
        ("lisbon-agenda", (54, 54, 2, {"online only": 3, "cancelled": 1, "blank row": 1})),
        # 170 showings (many listed several times), one of them with a street for its city; 30 permanent exhibitions
        ("krakow-culture", (169, 96, 1, {"permanent, without a date": 30})),
        # festival 4 has no date yet
        ("osaka-fireworks", (6, 6, 0, {"date not announced": 1})),
    ],
)
def test_every_row_of_a_feed_is_accounted_for(name: str, account: tuple[int, int, int, dict[str, int]]) -> None:
    """Those of partners' real files stand on the page."""
    found = accounts_of(outcomes_of(SHIPPED / f"{name}.yaml"))
    assert (found.events, found.keys, found.rejected, found.skipped) == account


def test_the_page_about_the_real_feeds_tells_what_becomes_of_them() -> None:
    assert PAGE.read_text("utf-8") == page(), "write it anew: python tests/contract/feed_page.py"


def test_the_feeds_we_ship_stay_within_their_own_brakes() -> None:
    for feed in load_folder(SHIPPED).feeds:
        accounts = accounts_of(outcomes_of(feed.path))
        read = accounts.events + accounts.rejected + sum(accounts.skipped.values())
        brakes = feed.publish.brakes
        assert brakes.rejected is not None
        assert accounts.rejected <= max(brakes.rejected * read, brakes.rejected_at_least - 1)


@pytest.mark.parametrize(("year", "name"), [("2019", "javascript-2019"), ("2024", "general-2024")])
def test_conferences_left_out_or_refused_are_those_a_few_lines_find_in_the_file(year: str, name: str) -> None:
    records = json.loads((DATA / f"confs-tech-{name}.json").read_text("utf-8"))
    wanted = {
        f"{one['url']}|{one['startDate']}": one
        for one in records
        if one.get("city", "Goa") not in {"Goa", "Canarias"}  # those without a city are online, but for one
    }
    events = events_in(outcomes_of(REAL / f"confs-tech-{year}.yaml"))
    assert events.keys() == wanted.keys()
    for key, event in events.items():
        expected = [wanted[key][name] for name in ("name", "startDate", "endDate")]
        assert [event["title"], event["startAt"][:10], event["endAt"][:10]] == expected
        assert event["offers"][0]["url"].casefold() == wanted[key]["url"].casefold()  # a host has no capitals


def test_films_without_an_hour_are_drafts_and_those_of_several_days_have_an_end() -> None:
    events = events_in(outcomes_of(REAL / "pl-krakow-tiktak.yaml"))
    with (DATA / "pl-krakow-tiktak.csv").open(encoding="utf-8", newline="") as lines:
        films = [film for film in csv.DictReader(lines, delimiter=";") if film["data_rozpoczecia"]]
    keys = {f"{film['tytul']}|{film['obiekt']}|{film['data_rozpoczecia']}": film for film in films}
    drafts = {key for key, film in keys.items() if not film["godzina_rozpoczecia"]}
    lasting = {key for key, film in keys.items() if film["data_zakonczenia"] > film["data_rozpoczecia"]}
    assert {key for key, event in events.items() if event["status"] == "draft"} == drafts
    assert {key for key, event in events.items() if "endAt" in event} == lasting
    assert (len(drafts), len(lasting)) == (5, 19)


def test_the_w3c_s_example_says_the_same_as_its_own_metadata() -> None:
    columns = json.loads((DATA / "w3c-csvw-events-metadata.json").read_text("utf-8"))["tableSchema"]["columns"]
    means = {(one["aboutUrl"], one["propertyUrl"]): one["titles"] for one in columns if "titles" in one}
    with (DATA / "w3c-csvw-events.csv").open(encoding="utf-8", newline="") as lines:
        rows = [dict(row) for row in csv.DictReader(lines, skipinitialspace=True)]
    events = events_in(outcomes_of(REAL / "w3c-csvw-events.yaml"))
    for row in rows:
        event = events[row["Ticket Url"]]
        assert event["title"] == row[means["#event-{_row}", "schema:name"]]
        starts = datetime.fromisoformat(event["startAt"])
        assert f"{starts:%Y-%m-%dT%H:%M}" == row[means["#event-{_row}", "schema:startDate"]]
        assert starts == starts.replace(tzinfo=ZoneInfo("America/New_York"))
        place = (row[means["#place-{_row}", name]] for name in ("schema:name", "schema:address"))
        assert event["locationName"] == ", ".join(place)
        assert event["offers"] == [{"url": row[means["#offer-{_row}", "schema:url"]]}]
