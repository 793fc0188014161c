"""Rows of real feeds, chosen for what is odd in them: whole events and whole refusals, written down from the files by hand."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from contract.feed_runs import REAL, events_in, outcomes_of, payload, reasons_in

from connectors.sources.catalogue import open_source
from connectors.sources.contract import MissingColumnsError
from mappings.outcome import MappedRow
from mappings.reasons import ReasonCode
from mappings.yaml.loader import parse_feed

DATA = REAL / "data"


def conference(title: str, days: tuple[str, str], city: tuple[str, str, str], zone: str, url: str) -> dict[str, Any]:
    return payload(title, days[0], zone, city, "tech", endAt=days[1], offers=[{"name": "Website", "url": url}])


def test_conferences_begin_and_end_with_the_days_of_their_cities() -> None:
    events = events_in(outcomes_of(REAL / "confs-tech-2024.yaml"))
    assert events["https://codemash.org|2024-01-09"] == conference(
        "Codemash",
        ("2024-01-09T00:00:00-05:00", "2024-01-12T23:59:00-05:00"),
        ("us-sandusky-oh", "Sandusky", "US"),
        "America/New_York",
        "https://codemash.org",
    )
    assert events["https://2024.nixcon.org|2024-10-25"] == conference(  # the night from the 26th to the 27th has 25 hours
        "NixCon",
        ("2024-10-25T00:00:00+02:00", "2024-10-27T23:59:00+01:00"),
        ("de-berlin", "Berlin", "DE"),
        "Europe/Berlin",
        "https://2024.nixcon.org",
    )
    assert events["https://slashnew.tech|2024-05-15"] == conference(  # not the Newcastle of the next file
        "../NEW",
        ("2024-05-15T00:00:00+10:00", "2024-05-16T23:59:00+10:00"),
        ("au-newcastle", "Newcastle", "AU"),
        "Australia/Sydney",
        "https://slashnew.tech",
    )
    assert events["https://platzi.com/conf|2024-05-30"]["approxLocation"]["city"]["placeId"] == "mx-mexico-city"
    assert events["https://platzi.com/conf|2024-09-07"]["approxLocation"]["city"]["placeId"] == "co-bogota"


def test_countries_and_cities_are_known_by_the_names_people_give_them() -> None:
    events = events_in(outcomes_of(REAL / "confs-tech-2019.yaml"))
    assert events["https://2019.frontendne.co.uk|2019-04-03"] == conference(
        "Frontend NE",
        ("2019-04-03T00:00:00+01:00", "2019-04-03T23:59:00+01:00"),
        ("gb-newcastle", "Newcastle", "GB"),
        "Europe/London",
        "https://2019.frontendne.co.uk",
    )
    assert events["https://debug.al|2019-03-30"]["approxLocation"]["city"] == {
        "placeId": "xk-pristina",
        "name": "Pristina",
        "countryCode": "XK",
    }
    assert events["https://2019.jsconfkorea.com/en|2019-09-03"]["startAt"] == "2019-09-03T00:00:00+09:00"
    assert events["http://fsa.jsday.com.br|2019-08-17"]["timezone"] == "America/Bahia"
    assert events["https://www.jsconfhi.com|2019-02-07"]["endAt"] == "2019-02-08T23:59:00-10:00"
    assert events["https://swiftindia.in|2019-07-28"]["approxLocation"]["city"]["placeId"] == "in-bengaluru"


def test_a_place_that_is_no_city_or_not_told_is_refused_with_what_would_do() -> None:
    fill = 'fill in the column "{}"'.format
    assert reasons_in(outcomes_of(REAL / "confs-tech-2024.yaml")) == {
        "https://machinelearningweek.com|2024-06-04": [
            ("country", ReasonCode.REQUIRED, "", fill("country")),
            ("city", ReasonCode.REQUIRED, "", fill("city")),
        ]
    }
    of_india, of_spain = (
        '"Bangalore", "Bengaluru", "Coimbatore", "Gurgaon"',
        '"A Coruña", "Alicante", "Barcelona", "Madrid", "Malaga"',
    )
    assert reasons_in(outcomes_of(REAL / "confs-tech-2019.yaml")) == {
        "https://www.reactindia.io|2019-09-26": [("city", ReasonCode.NOT_IN_LOOKUP, "Goa", f"the list has {of_india}")],
        "https://jsdaycanarias.com|2019-11-08": [("city", ReasonCode.NOT_IN_LOOKUP, "Canarias", f"the list has {of_spain}")],
    }


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
        assert event["title"] == wanted[key]["name"]
        assert (event["startAt"][:10], event["endAt"][:10]) == (wanted[key]["startDate"], wanted[key]["endDate"])
        assert event["offers"][0]["url"].casefold() == wanted[key]["url"].casefold()  # a host has no capitals


TALK = "Estrategias para hacer tu código citable|2025-08-28"
WORKSHOP = "Buenas prácticas de programación para proyectos de investigación|2025-01-23"
CITATION = "Cómo crear un archivo citation.cff para hacer que tu repositorio de GitHub sea citable|2026-01-29"


def test_a_community_s_day_hour_and_zone_are_read_out_of_one_text() -> None:
    events = events_in(outcomes_of(REAL / "cl-rse.yaml"))
    assert events[TALK] == payload(  # "online, 28 de agosto de 2025, 12:00 (UTC -4)": Chile's winter
        "Estrategias para hacer tu código citable",
        *("2025-08-28T12:00:00-04:00", "America/Santiago", ("cl-santiago", "Santiago", "CL"), "tech talk"),
        locationName="Online",
        offers=[{"name": "Registro", "url": "https://lu.ma"}],
    )
    assert events["Cómo publicar un paper sobre software|2025-09-25"]["startAt"] == "2025-09-25T12:00:00-03:00"
    assert events["#IntlRSEDay|2025-10-09"]["startAt"] == "2025-10-09T14:00:00-03:00"  # whose text leaves out the year
    assert events[CITATION]["startAt"] == "2026-01-29T12:00:00-03:00"  # "Online, ... (UTC-3)"
    assert events[CITATION]["title"] == CITATION.partition("|")[0]  # whose cell ends with a line end


def test_three_days_of_which_the_column_has_only_the_last_begin_with_the_first() -> None:
    event = events_in(outcomes_of(REAL / "cl-rse.yaml"))[WORKSHOP]  # "Santiago, 21 al 23 de enero de 2025"
    assert (event["startAt"], event["endAt"]) == ("2025-01-21T00:00:00-03:00", "2025-01-23T23:59:00-03:00")
    assert (event["status"], event["classifications"]) == ("draft", ["tech", "workshop"])
    assert "locationName" not in event


def test_fireworks_on_three_evenings_are_three_events_and_full_width_signs_plain() -> None:
    events = events_in(outcomes_of(REAL / "jp-hanabi.yaml"))
    assert {key: (event["startAt"], event["endAt"]) for key, event in events.items() if key.startswith("8|")} == {
        f"8|2026-09-{day}": (f"2026-09-{day}T20:00:00+09:00", f"2026-09-{day}T20:20:00+09:00") for day in (16, 17, 18)
    }
    assert events["3"] == payload(
        "水都くらわんか花火大会",
        *("2026-09-20T19:10:00+09:00", "Asia/Tokyo", ("jp-takatsuki", "高槻市", "JP"), "festival"),
        channelId=3,
        locationName="大阪府高槻市・枚方市",
        offers=[{"url": "https://happyell.co.jp/event/kurawanka2026"}],
    )


def test_films_without_an_hour_are_drafts_and_a_last_day_that_is_the_first_says_nothing() -> None:
    events = events_in(outcomes_of(REAL / "pl-krakow-tiktak.yaml"))
    assert events["Spacer po Kazimierzu|Plac Wolnica|2025-06-03"] == payload(
        *("Spacer po Kazimierzu", "2025-06-03T10:30:00+02:00", "Europe/Warsaw", ("pl-krakow", "Kraków", "PL"), "music festival"),
        channelId=2,
        endAt="2025-06-04T23:59:00+02:00",
        locationName="Plac Wolnica",
    )
    with (DATA / "pl-krakow-tiktak.csv").open(encoding="utf-8", newline="") as lines:
        films = [film for film in csv.DictReader(lines, delimiter=";") if film["data_rozpoczecia"]]
    without = {
        f"{film['tytul']}|{film['obiekt']}|{film['data_rozpoczecia']}" for film in films if not film["godzina_rozpoczecia"]
    }
    assert len(without) == 5
    assert {key for key, event in events.items() if event["status"] == "draft"} == without
    lasting = sum(film["data_zakonczenia"] > film["data_rozpoczecia"] for film in films)
    assert sum("endAt" in event for event in events.values()) == lasting == 19


def test_a_city_s_pictures_are_asked_for_by_their_addresses() -> None:
    covers = [outcome.cover for outcome in outcomes_of(REAL / "pl-krakow.yaml") if isinstance(outcome, MappedRow)]
    assert all(cover is not None and cover.url.startswith("http://media.krakow.travel/photos/") for cover in covers)


def test_streets_and_postcodes_in_place_of_cities_are_refused_by_name() -> None:
    told = reasons_in(outcomes_of(REAL / "pl-krakow.yaml")).values()
    assert sorted(reason[:3] for reasons in told for reason in reasons) == [
        ("miasta", ReasonCode.NOT_IN_LOOKUP, "32-087 Zielonki"),
        ("miasta", ReasonCode.NOT_IN_LOOKUP, "al. Pokoju 68"),
    ]
    assert 'is "Zielonki" meant? Otherwise add "32-087 Zielonki" to the list' in {reasons[0][3] for reasons in told}


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
    assert events["https://www.etix.com/ticket/1771656"]["approxLocation"]["city"]["placeId"] == "us-providence"


def test_campaigns_that_are_events_lose_the_days_of_another_year_from_their_titles() -> None:
    events = events_in(outcomes_of(REAL / "sf-campaign-ladev.yaml"))
    fair = events["International Electrical Engineers Association Trade Show - Mar 4-5, 2002|2014-05-05"]
    assert fair == payload(
        "International Electrical Engineers Association Trade Show",
        *("2014-05-05T00:00:00-07:00", "America/Los_Angeles", ("us-los-angeles", "Los Angeles", "US"), "market tech"),
        status="draft",
        endAt="2014-05-06T23:59:00-07:00",
    )
    assert [event["title"] for event in events.values()] == [fair["title"], "User Conference"]


def test_campaigns_without_a_day_say_so_alike_from_csv_and_json() -> None:
    from_csv, from_json = (reasons_in(outcomes_of(REAL / f"sf-campaign-tree-{kind}.yaml")) for kind in ("csv", "json"))
    assert from_csv == from_json
    assert len(from_csv) == 15
    assert from_csv["Goose, snow|"] == [("StartDate", ReasonCode.REQUIRED, "", 'fill in the column "StartDate"')]


def test_campaigns_without_a_day_stop_a_feed_that_takes_days_for_granted() -> None:
    text = (
        (REAL / "sf-campaign-tree-csv.yaml")
        .read_text("utf-8")
        .replace("optional: [StartDate, EndDate, Type]", "optional: [EndDate, Type]")
    )
    mapping = parse_feed(text, REAL / "sf-campaign-tree-csv.yaml")
    source = open_source(mapping.source, REAL, frozenset({"Name", "StartDate"}))
    with pytest.raises(MissingColumnsError, match="StartDate"), source.read():
        pass
