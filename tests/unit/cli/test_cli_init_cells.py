"""`eventsync init` on cells that are not what they seem: nulls, errors, quotes, private events, objects and lists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter
from unit.cli.conftest import Desk
from unit.cli.test_cli_init import agenda, drafted, guess, previewed, text_of, written

pytestmark = pytest.mark.usefixtures("late_in_2026")

FIELD_CASES = Path(__file__).parents[2] / "field_cases"


def field_case(desk: Desk, name: str, *words: str) -> tuple[Any, dict[str, Any]]:
    return drafted(desk, written(desk, name, (FIELD_CASES / name).read_text("utf-8")), *words)


def events(desk: Desk) -> dict[str, tuple[Any, ...]]:
    """The title, start and place of each event of the preview, by its key."""
    shown = {row["row_key"]: row["event"] for row in previewed(desk) if "event" in row}
    return {key: (one["title"], one["startAt"], one.get("locationName")) for key, one in shown.items()}


def test_a_blank_before_a_quote_is_skipped(desk: Desk) -> None:
    feed, said = field_case(desk, "space-before-quote.csv")
    assert (feed["source"]["skip_blanks"], guess(said, "source.skip_blanks")["surety"]) == (True, "sure")
    assert [(row["event"]["title"], row["event"]["locationName"]) for row in previewed(desk)] == [
        ("Jazz, blues and more", "Mill"),
        ("Fado night", "Casa, the small one"),
        ("Rock", "Barn"),
    ]


@pytest.mark.parametrize(
    ("rows", "escape", "titles"),
    [
        ([r'1,"The \"Big\" Show, live",2030-05-23', "2,Fado,2030-05-24"], "\\", ['The "Big" Show, live', "Fado"]),
        ([r'1,"\"Jazz\"",2030-05-23', r'2,"Fado \"late\"",2030-05-24'], "\\", ['"Jazz"', 'Fado "late"']),
        ([r'1,"C:\shows\",2030-05-23', '2,"the ""Big"" Show",2030-05-24'], None, ["C:\\shows\\", 'the "Big" Show']),
        (['1," ""Jazz"", late",2030-05-23', "2,Fado,2030-05-24"], None, ['"Jazz", late', "Fado"]),
        ([r"1,Jazz \"live\",2030-05-23", "2,Fado,2030-05-24"], "\\", ['Jazz "live"', "Fado"]),
        (["1,'Jazz, live',2030-05-23", "2,Fado,2030-05-24"], None, ["Jazz, live", "Fado"]),
        (["1,Rock 'n' Roll,2030-05-23", "2,'s Abends,2030-05-24"], None, ["Rock 'n' Roll", "'s Abends"]),
    ],
)
def test_quotes_within_quotes_are_doubled_or_escaped(desk: Desk, rows: list[str], escape: str | None, titles: list[str]) -> None:
    feed, _ = drafted(desk, agenda(desk, *rows, header="id,title,date"))
    assert (feed["source"].get("escape"), feed["source"].get("skip_blanks")) == (escape, None)
    assert [row["event"]["title"] for row in previewed(desk)] == titles


def test_words_of_databases_for_nothing_are_empty(desk: Desk) -> None:
    rows = ("1,Jazz,2030-05-23,NULL,5,NA", r"2,Fado,2030-05-24,Casa,NA,\N", "3,Rock,NULL,nan,7,DE", "4,NA,2030-05-25,Barn,8,DE")
    feed, said = drafted(desk, agenda(desk, *rows, header="id,title,date,venue,price,country"), "--zone", "Europe/Lisbon")
    assert sorted(feed["source"]["empty_if"]) == ["NULL", "\\N", "nan"]
    assert feed["source"]["empty_in"] == {"price": ["NA"]}
    assert guess(said, "source.empty_if")["surety"] == "likely", "nan may be a word"
    assert [one[0::2] for one in events(desk).values()] == [("Jazz", None), ("Fado", "Casa"), ("NA", "Barn")]
    drafted(desk, agenda(desk, "1,Jazz,2030-05-23,NULL", "2,Fado,2030-05-24,Casa", header="id,title,date,venue"))
    assert '# NULL in 1 of "venue"' in text_of(desk)
    feed, _ = drafted(desk, agenda(desk, "1,Na,2030-05-23", "2,No news,2030-05-24", header="id,title,date"))
    assert not feed["source"].keys() & {"empty_if", "empty_in"}


def test_days_and_dashes_that_mean_nothing_are_empty(desk: Desk) -> None:
    rows = (
        "1,Jazz,2030-05-23 19:30:00,0000-00-00 00:00:00,-",
        "2,Fado,2030-05-24 20:00:00,9999-12-31 00:00:00,Mill",
        "3,Rock,2030-05-25 20:00:00,1900-01-01 00:00:00,Mill",
        "4,Folk,2030-05-26 20:00:00,2030-05-26 22:00:00,--",
        "5,Rap,NaT,NaT,Mill",
    )
    drafted(desk, agenda(desk, *rows, header="id,title,start,end,venue"), "--zone", "Europe/Lisbon")
    shown = [row.get("event", {}) for row in previewed(desk)]
    assert [event.get("endAt", "")[:16] for event in shown] == ["", "", "", "2030-05-26T22:00", ""]
    assert [event.get("locationName") for event in shown] == [None, "Mill", "Mill", None, None]
    assert not shown[-1]


GRID = (
    ("id", "title", "date", "category", "venue"),
    ("A7", "Jazz", "2030-05-23", "#N/A", "Mill"),
    ("B9", "Fado", "2030-05-24", "Music", "#N/A"),
    ("C1", "Rock", "2030-05-25", "Music", "#REF!"),
    ("D3", "Rap", "2030-05-26", "#NAME?", "Barn"),
)


@pytest.mark.parametrize("is_workbook", [False, True])
def test_errors_of_a_spreadsheet_are_listed_as_faults(desk: Desk, is_workbook: bool) -> None:
    source = agenda(desk, *map(",".join, GRID[1:]), header=",".join(GRID[0]))
    if is_workbook:
        source = "plan.xlsx"
        with xlsxwriter.Workbook(desk.folder / source) as workbook:
            page = workbook.add_worksheet()
            for row, cells in enumerate(GRID):
                for place, cell in enumerate(cells):
                    is_error = cell.startswith("#")
                    page.write_formula(row, place, "=1/0", None, cell) if is_error else page.write_string(row, place, cell)
    feed, said = drafted(desk, source)
    fault = guess(said, "faults")
    assert (fault["column"], fault["surety"]) == ("category, venue", "unsure")
    assert "4 cells hold errors of a spreadsheet: #N/A (2), #REF! (1), #NAME? (1)" in fault["why"]
    assert feed["source"]["empty_if"] == ["#N/A"]
    assert feed["event"]["classifications"]["do"][-1]["map"] == {"Music": "fill-in"}
    written(desk, "feeds/drafted.yaml", text_of(desk).replace("Music: fill-in", "Music: music"))
    found = {key: one[2] for key, one in events(desk).items()}
    assert found == {"A7": "Mill", "B9": None} | ({} if is_workbook else {"C1": None, "D3": "Barn"})


def test_a_file_that_is_cut_off_is_said_to_be_so(desk: Desk) -> None:
    rows = ("1,Jazz,2030-05-23,Mill", "2,Fado,2030-05-24,Barn", "3,Rock,2030-05-25")
    _, said = drafted(desk, written(desk, "agenda.csv", "\n".join(["id,title,date,venue", *rows])))
    assert said["rows"] == 2
    assert guess(said, "faults")["why"].startswith(
        "agenda.csv:4: the file seems to be cut off here: the last row has 3 of 4 cells"
    )


def test_an_error_in_a_column_of_times_that_cannot_be_read_is_no_empty_cell(desk: Desk) -> None:
    rows = ("1,Jazz,2030-05-23,19:30 CET", "2,Fado,2030-05-24,#N/A", "3,Rock,2030-05-25,20:00 CET")
    feed, _ = drafted(desk, agenda(desk, *rows, header="id,title,date,time"), "--zone", "Europe/Lisbon")
    assert not feed["source"].keys() & {"empty_if", "empty_in"}
    assert [sorted(row.keys() & {"event", "rejected"}) for row in previewed(desk)] == [["rejected"]] * 3


PRIVATE = {
    "outlook": (
        "Subject,Start Date,Start Time,Location,Private,Sensitivity",
        [
            "Jazz,2030-05-23,20:00,Mill,False,Normal",
            "Doctor,2030-05-24,09:00,,True,Private",
            "Pay,2030-05-25,09:00,,False,Confidential",
        ],
        [("Private", ["True"]), ("Sensitivity", ["Private", "Confidential"])],
    ),
    "the events calendar": (
        "EVENT NAME,EVENT START DATE,EVENT START TIME,EVENT VENUE NAME,Hide Event From Listings",
        ["Jazz,2030-05-23,20:00,Mill,", "Doctor,2030-05-24,09:00,Casa,yes", "Pay,2030-05-25,09:00,Barn,TRUE"],
        [("Hide Event From Listings", ["yes", "TRUE"])],
    ),
    "what is public": (
        "title,date,visibility,is_public,hidden_event",
        ["Jazz,2030-05-23,public,1,", "Doctor,2030-05-24,private,0,", "Pay,2030-05-25,hidden,1,x"],
        [("visibility", ["private", "hidden"]), ("is_public", ["0"]), ("hidden_event", ["x"])],
    ),
    "what is published": (
        "title,date,Post Status,Published,Öffentlich,公開",
        ["Jazz,2030-05-23,publish,t,ja,1", "Doctor,2030-05-24,draft,t,ja,1", "Pay,2030-05-25,publish,f,nein,0"],
        [("Post Status", ["draft"]), ("Published", ["f"]), ("Öffentlich", ["nein"]), ("公開", ["0"])],
    ),
    "a cancelled one beside a draft": (
        "title,date,status",
        ["Jazz,2030-05-23,published", "Doctor,2030-05-24,draft", "Pay,2030-05-25,cancelled"],
        [("status", ["draft"])],
    ),
    "a category of three": (
        "title,date,category",
        ["Jazz,2030-05-23,Public", "Doctor,2030-05-24,Private", "Pay,2030-05-25,Workshop"],
        [],
    ),
    "what is hidden of an event": (
        "title,date,Hide end time,show_map",
        ["Jazz,2030-05-23,no,1", "Doctor,2030-05-24,yes,0", "Pay,2030-05-25,no,1"],
        [],
    ),
    "none yet": (
        "Betreff,Beginnt am,Ort,Privat",
        ["Jazz,2030-05-23,Mill,Aus"],
        [("Privat", ["ein"])],
    ),
    "no such column": (
        "title,date,Private View,public",
        ["Jazz,2030-05-23,Mill,adults", "Doctor,2030-05-24,Casa,children", "Pay,2030-05-25,Barn,all"],
        [],
    ),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_private_and_hidden_events_are_left_out(desk: Desk, name: str) -> None:
    header, rows, expected = PRIVATE[name]
    feed, said = drafted(desk, agenda(desk, *rows, header=header, encoding="utf-8"))
    rules = [rule for rule in feed["rows"] if rule.get("because") == "private"]
    assert [(rule["skip"]["column"], rule["skip"]["in"]) for rule in rules] == expected
    assert {one["surety"] for one in said["guesses"] if one["about"] == "private"} <= {"likely"}
    shown = [one[0] for one in events(desk).values()]
    assert shown == ["Jazz"] if expected else len(shown) == 3


def test_talks_below_rooms_and_records_by_id_are_found_with_their_keys(desk: Desk) -> None:
    feed, said = field_case(desk, "frab-rooms.json", "--zone", "Europe/Berlin")
    assert feed["source"]["records"] == "schedule.conference.days[*].rooms.*"
    assert "3 objects below keys that are data" in guess(said, "source.records")["why"]
    day = "2027-05-0"
    assert list(events(desk).values()) == [
        ("Opening", f"{day}3T10:00:00+02:00", "Saal 1"),
        ("Talk", f"{day}3T11:00:00+02:00", "Saal 2"),
        ("Closing", f"{day}4T10:00:00+02:00", "Saal 1"),
    ]
    feed, _ = field_case(desk, "by-id.json", "--zone", "Europe/Lisbon")
    assert (feed["source"]["records"], feed["key"]) == ("events.*", ["#key"])
    assert events(desk) == {
        "101": ("Jazz", "2027-05-03T19:30:00+01:00", "Mill"),
        "102": ("Fado", "2027-05-23T20:00:00+01:00", "Casa"),
    }


@pytest.mark.parametrize(
    ("text", "records", "column"),
    [
        ('{"events": {"101": TALK}}', "events.*", None),
        ('{"hall": {"A": [TALK], "B": [TALK, TALK]}}', "hall.*", "#key"),
        ('{"2030-05-23": {"A": [TALK]}, "2030-05-24": {"A": [TALK, TALK]}}', "*.*", "#key"),
        ('{"events": [TALK, TALK], "venues": [{"name": "A"}, {"name": "B"}, {"name": "C"}]}', "events", None),
        (
            '{"events": [TALK, {"title": "Jazz", "date": "2030-05-23", "t": {"de": {"title": "x"}, "en": {"title": "y"}}}]}',
            "events",
            None,
        ),
    ],
)
def test_keys_are_data_where_events_stand_below_each(desk: Desk, text: str, records: str, column: str | None) -> None:
    content = text.replace("TALK", '{"title": "Jazz", "date": "2030-05-23", "url": "https://e.org"}')
    feed, said = drafted(desk, written(desk, "a.json", content))
    assert feed["source"].get("records") == records
    assert [one["column"] for one in said["guesses"] if one["about"] == "locationName"] == ([column] if column else [])


def test_a_place_is_read_whether_it_is_an_object_a_list_or_a_text(desk: Desk) -> None:
    feed, _ = field_case(desk, "json-ld-places.json", "--zone", "Europe/Lisbon")
    assert '"[{' not in text_of(desk).partition("examples:")[0]
    days = re.sub(
        r"  starts: .*", '  starts: {from: startDate, do: [{characters: 1, to: 10}, {date: "%Y-%m-%d"}]}', text_of(desk)
    )
    written(desk, "feeds/drafted.yaml", re.sub(r"  - cancelled: .*\n", "", days))
    places = [row.get("event", {}).get("locationName") or row["rejected"][0]["column"] for row in previewed(desk)]
    assert places == ["startDate", "Mill", "Casa", "Barn"]
    for is_object in (False, True):
        content = json.loads((FIELD_CASES / "ticketmaster-venues.json").read_text("utf-8"))
        if is_object:
            first = content["_embedded"]["events"][0]["_embedded"]
            first["venues"] = first["venues"][0]
        feed, said = drafted(desk, written(desk, "venues.json", json.dumps(content)), "--zone", "Europe/London")
        assert feed["event"]["locationName"]["from"] == "_embedded.venues[0].name"
        assert feed["event"]["approxLocation.city"]["name"]["from"] == "_embedded.venues[0].city.name"
        assert [example["row"]["_embedded.venues[0].name"] for example in feed["examples"]] == ["Mill", "Casa"]
        assert events(desk) == {"G1": ("Jazz", "2027-05-03T19:30:00+01:00", "Mill")}
        assert guess(said, "locationName")["surety"] == "likely"


def test_a_list_with_dates_makes_an_event_of_each_item(desk: Desk) -> None:
    feed, said = field_case(desk, "kartenhaus.json", "--zone", "Europe/Vienna")
    assert feed["rows"][0] == {"explode": {"columns": "performances", "json": True, "key": "performances.perfId"}}
    assert guess(said, "key")["surety"] == "unsure"
    assert [sorted(example.keys() - {"row"}) for example in feed["examples"]] == [["event"], ["rejected"]]
    assert (guess(said, "explode")["column"], guess(said, "startAt")["column"]) == ("performances", "performances.begin")
    assert guess(said, "explode")["surety"] == "likely"
    day = "2027-0"
    assert events(desk) == {
        "Die Zauberflöte|7001-1": ("Die Zauberflöte", f"{day}2-05T19:00:00+01:00", "Opernhaus"),
        "Die Zauberflöte|7001-2": ("Die Zauberflöte", f"{day}2-07T17:00:00+01:00", "Opernhaus"),
        "Kinderkonzert|7002-1": ("Kinderkonzert", f"{day}2-14T11:00:00+01:00", "Konzerthaus"),
        "Jazznacht|7004-1": ("Jazznacht", f"{day}4-10T23:30:00+02:00", "Kulturhaus"),
    }
    assert [row["skipped"] for row in previewed(desk) if "skipped" in row] == ["cancelled"]


def test_a_list_with_dates_beside_days_of_the_row_is_named(desk: Desk) -> None:
    shows = [{"day": "2030-05-24", "hour": "20:00"}, {"day": "2030-05-25", "hour": "20:00"}]
    runs = [
        {"id": "a7", "title": "Jazz", "start": "2030-05-24", "shows": shows},
        {"id": "b9", "title": "Rap", "start": "2030-06-24"},
    ]
    feed, said = drafted(desk, written(desk, "runs.json", json.dumps(runs)), "--zone", "Europe/Lisbon")
    found = guess(said, "explode")
    assert (found["column"], found["surety"], feed["rows"]) == ("shows", "unsure", [{"window": {"past": "skip"}}])
    assert "2 items with days in 2 rows" in found["why"]
    written(desk, "runs.json", json.dumps([{**run, "start": None} for run in runs]))
    feed, said = drafted(desk, "runs.json", "--zone", "Europe/Lisbon")
    assert feed["rows"][0]["explode"] == {"columns": "shows", "json": True, "key": ["shows.day", "shows.hour"]}
    assert list(events(desk)) == ["a7|2030-05-24|20:00", "a7|2030-05-25|20:00"]
