"""Feeds over files that partners really publish: what becomes of every row, reasoned out by hand from the files."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from contract.feed_page import PAGE, page
from contract.feed_runs import REAL, REAL_FEEDS, SHIPPED, accounts_of, event_at, outcomes_of, payload

from mappings.event import EVENT
from mappings.examples import run_examples
from mappings.outcome import MappedRow
from mappings.yaml.loader import load_feed, load_folder

FEEDS = [*sorted(SHIPPED.glob("*.yaml")), *REAL_FEEDS]


@pytest.mark.parametrize("path", FEEDS, ids=lambda path: path.stem)
def test_every_example_of_a_feed_comes_true(path: Path) -> None:
    mapping = load_feed(path)
    assert mapping.examples
    assert run_examples(mapping) == ()


@pytest.mark.parametrize("path", FEEDS, ids=lambda path: path.stem)
def test_every_event_of_a_feed_is_one_that_the_service_accepts(path: Path) -> None:
    for outcome in outcomes_of(path):
        if isinstance(outcome, MappedRow):
            EVENT.validate_json(outcome.body)


PERMANENT = "permanent, without a date"
ACCOUNTS: list[tuple[Path, tuple[int, int, int, dict[str, int]]]] = [
    # 61 lines: 3 online, 1 cancelled, 1 of blanks; 30 February and an hour that the clocks jump over
    (SHIPPED / "lisbon-agenda.yaml", (54, 54, 2, {"online only": 3, "cancelled": 1, "blank row": 1})),
    # 170 showings (many listed several times), one of them with a street for its city; 30 permanent exhibitions
    (SHIPPED / "krakow-culture.yaml", (169, 96, 1, {PERMANENT: 30})),
    # festival 4 has no date yet
    (SHIPPED / "osaka-fireworks.yaml", (6, 6, 0, {"date not announced": 1})),
    # 6 events, 13 lines of spaces
    (REAL / "acmw-events.yaml", (6, 6, 0, {"blank row": 13})),
    # 6 lines: the talk of March 2026 is still to be defined
    (REAL / "cl-rse.yaml", (5, 5, 0, {"date not announced": 1})),
    # 174 conferences: a state (Goa) and an archipelago (Canarias) are no cities
    (REAL / "confs-tech-2019.yaml", (172, 172, 2, {})),
    # 129 conferences: 14 without a city, 13 of them online, and one that is not and says nothing of its place
    (REAL / "confs-tech-2024.yaml", (115, 115, 1, {"online only": 13})),
    # 100 rows, 10 of whose addresses stand twice or more, each time with another date or hour
    (REAL / "de-ticketmaster.yaml", (100, 100, 0, {})),
    # 7 festivals: one without a date, one on three evenings
    (REAL / "jp-hanabi.yaml", (8, 8, 0, {"date not announced": 1})),
    # 3184 rows: 2483 without a date; of 701 showings (449 different ones) one has a street and one a postcode for its city
    (REAL / "pl-krakow.yaml", (699, 447, 2, {PERMANENT: 2483})),
    # 30 films, 4 of them about what is always there
    (REAL / "pl-krakow-tiktak.yaml", (26, 26, 0, {PERMANENT: 4})),
    # a mailing, a webinar, a fair and a conference
    (REAL / "sf-campaign-ladev.yaml", (2, 2, 0, {"not an event": 1, "online only": 1})),
    # 15 names with two sums of money each
    (REAL / "sf-campaign-tree-csv.yaml", (0, 0, 15, {})),
    (REAL / "sf-campaign-tree-json.yaml", (0, 0, 15, {})),
    (REAL / "w3c-csvw-events.yaml", (2, 2, 0, {})),
]


def test_every_feed_has_its_account() -> None:
    assert sorted(path for path, _ in ACCOUNTS) == sorted(FEEDS)


@pytest.mark.parametrize(("path", "account"), ACCOUNTS, ids=lambda value: value.stem if isinstance(value, Path) else "")
def test_every_row_of_a_feed_is_accounted_for(path: Path, account: tuple[int, int, int, dict[str, int]]) -> None:
    found = accounts_of(outcomes_of(path))
    assert (found.events, found.keys, found.rejected, found.skipped) == account


def test_the_feeds_we_ship_stay_within_their_own_brakes() -> None:
    for feed in load_folder(SHIPPED).feeds:
        accounts = accounts_of(outcomes_of(feed.path))
        read = accounts.events + accounts.rejected + sum(accounts.skipped.values())
        brakes = feed.publish.brakes
        assert brakes.rejected is not None
        assert accounts.rejected <= max(brakes.rejected * read, brakes.rejected_at_least - 1)


def test_a_society_s_event_without_an_end_time_has_no_end() -> None:
    outcomes = outcomes_of(REAL / "acmw-events.yaml")
    assert event_at(outcomes, 2) == payload(
        "Creative Coding with Girl Scouts of Orange County",
        "2016-03-15T18:00:00-07:00",
        *("America/Los_Angeles", ("us-irvine", "Irvine", "US"), "tech"),
    )
    assert event_at(outcomes, 3)["endAt"] == "2016-04-03T20:00:00-07:00"
    assert event_at(outcomes, 5)["title"] == 'ACM-W & ACM movie night social "Imitation Game" (2015)'


def test_a_ticket_shop_s_row_without_a_time_is_an_all_day_draft() -> None:
    outcomes = outcomes_of(REAL / "de-ticketmaster.yaml")
    url = "https://www.ticketmaster.de/event/explorado-abenteuermuseum-%7C-childrens-birthday-party-tickets/2080059919?language=en-us"
    assert event_at(outcomes, 2) == payload(
        "EXPLORADO - Abenteuermuseum – Children's Birthday Party",
        *("2025-08-05T00:00:00+02:00", "Europe/Berlin", ("de-troisdorf", "Troisdorf", "DE"), "family"),
        status="draft",
        locationName="EXPLORADO Abenteuermuseum",
        offers=[{"name": "Tickets", "url": url, "availability": "available"}],
    )
    assert event_at(outcomes, 6)["startAt"] == "2025-08-05T19:00:00+02:00"
    assert event_at(outcomes, 6)["classifications"] == ["music"]
    drafts = sum(orjson.loads(row.body)["status"] == "draft" for row in outcomes if isinstance(row, MappedRow))
    assert drafts == 34


def test_a_city_s_showings_keep_their_hours_and_exhibitions_their_last_day() -> None:
    outcomes = outcomes_of(REAL / "pl-krakow.yaml")
    assert event_at(outcomes, 5) == payload(
        "Szpilki, koki i Włoski kochanek",
        *("2025-05-31T19:00:00+02:00", "Europe/Warsaw", ("pl-krakow", "Kraków", "PL"), "comedy"),
        channelId=2,
        locationName="Muzeum Sztuki i Techniki Japońskiej Manggha, ul. Konopnickiej 26",
    )
    mapped = [orjson.loads(outcome.body) for outcome in outcomes if isinstance(outcome, MappedRow)]
    assert sum(event["status"] == "draft" for event in mapped) == 72
    assert sum("endAt" in event for event in mapped) == 61
    assert all(event["endAt"][11:16] == "23:59" for event in mapped if "endAt" in event)


def test_fireworks_keep_both_ends_of_their_hours() -> None:
    outcomes = outcomes_of(SHIPPED / "osaka-fireworks.yaml")
    first = event_at(outcomes, 2)
    assert (first["startAt"], first["endAt"]) == ("2026-10-17T19:00:00+09:00", "2026-10-17T20:00:00+09:00")
    third = event_at(outcomes, 4)
    assert third["startAt"] == "2026-09-20T19:10:00+09:00"
    assert "endAt" not in third
    assert third["approxLocation"]["city"]["placeId"] == "jp-takatsuki"


def test_the_page_about_the_real_feeds_tells_what_becomes_of_them() -> None:
    assert PAGE.read_text("utf-8") == page(), "write it anew: python tests/contract/feed_page.py"
