"""`eventsync init`: a first mapping from a partner's file, which passes `check` and says how sure it is of what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter
import yaml
from unit.cli.conftest import Desk
from workbooks import write_xlsx

pytestmark = pytest.mark.usefixtures("late_in_2026")

REAL = Path(__file__).parents[2] / "feeds" / "data"
FIELD = Path(__file__).parents[2] / "field_cases"
OVERWRITTEN = "Creative Coding with Girl Scouts of Orange County"
AGENDA = "REF;NOME;INICIO;HORAS;LOCAL;CIDADE;CATEGORIA;LINK;ESTADO"
ROWS = (
    "LX-1;Fado à noite;13/05/2030;21h30;Casa do Fado;Lisboa;Música;https://example.org/1;",
    "LX-2;Feira;02/06/2030;;Praça;Lisboa;Feiras;https://example.org/2;cancelado",
    "LX-3;Hamlet;04/06/2030;20h;Teatro do Rio;Porto;Teatro;https://example.org/3;",
)


def drafted(desk: Desk, source: str, *words: str) -> tuple[Any, dict[str, Any]]:
    """Draft a feed called `drafted`; return the mapping as YAML reads it, and the command's document."""
    said = desk.run("init", source, "--feed", "drafted", "--json", "--force", *words, code=0)
    return yaml.safe_load(text_of(desk)), said.document


def text_of(desk: Desk) -> str:
    return (desk.folder / "feeds" / "drafted.yaml").read_text("utf-8")


def written(desk: Desk, name: str, text: str) -> str:
    (desk.folder / name).write_text(text, "utf-8")
    return name


def previewed(desk: Desk) -> list[Any]:
    return list(desk.told("preview", "drafted")["rows"])


def guess(said: dict[str, Any], about: str) -> dict[str, Any]:
    """The one guess about something."""
    (one,) = (one for one in said["guesses"] if one["about"] == about)
    return dict(one)


def agenda(desk: Desk, *rows: str, header: str = AGENDA, encoding: str = "windows-1252") -> str:
    (desk.folder / "agenda.csv").write_bytes("\r\n".join([header, *(rows or ROWS), ""]).encode(encoding))
    return "agenda.csv"


def test_a_portuguese_agenda_is_read_and_mapped_by_its_own_words(desk: Desk) -> None:
    feed, said = drafted(desk, agenda(desk), "--zone", "Europe/Lisbon")
    source = {"kind": "csv", "path": "../agenda.csv", "encoding": "windows-1252", "delimiter": ";"}
    assert feed["source"] == {**source, "required": ["REF", "NOME", "INICIO"]}
    assert feed["key"] == ["REF"]
    assert feed["let"]["starts"] == {"from": "INICIO", "do": [{"date": "%d/%m/%Y"}]}
    assert feed["let"]["clock"] == {"from": "HORAS", "do": [{"time": ["%Hh%M", "%Hh"]}], "on_empty": "omit"}
    event = feed["event"]
    columns = {name: event[name]["from"] for name in ("title", "locationName", "classifications")}
    assert columns == {"title": "NOME", "locationName": "LOCAL", "classifications": "CATEGORIA"}
    assert (event["approxLocation.city"]["placeId"]["from"], event["offers"][0]["url"]["from"]) == ("CIDADE", "LINK")
    assert (feed["rows"][0]["cancelled"]["in"], event["status"], event["timezone"]) == (["cancelado"], "draft", "Europe/Lisbon")
    assert [sorted(example.keys() - {"row"}) for example in feed["examples"]] == [["event"], ["rejected"]]
    key = guess(said, "key")
    assert (key["surety"], key["why"]) == ("sure", 'all 3 values of "REF" are filled and different')
    warnings = desk.run("check", "drafted", "--json", code=0).document["feeds"][0]["warnings"]
    assert {"to be filled in" in warning["message"] for warning in warnings} == {True}
    account = desk.told("preview", "drafted")["account"]
    assert (account["events"], account["skipped"], account["rejected"]) == (2, {"cancelled": 1}, 0)


def test_the_evidence_stands_beside_each_guess_and_columns_that_are_not_read_are_named(desk: Desk) -> None:
    drafted(desk, agenda(desk))
    assert '# sure: "INICIO" is a usual name for it; 3 of 3 filled cells fit %d/%m/%Y; 1 prove day-first' in text_of(desk)
    assert '# likely: "CIDADE" is Lisboa in 2 of 3 rows\n  zone: Europe/Lisbon' in text_of(desk)
    rows = ("1;Fado;13/05/2030;à noite;A", "2;Jazz;14/05/2030;à tarde;")
    _, said = drafted(desk, agenda(desk, *rows, header="REF;NOME;INICIO;OBRA;SALA"))
    assert {one["about"]: one["column"] for one in said["guesses"]}["left aside"] == "OBRA"


OPEN = ("1,Jazz,03/04/2030", "2,Fado,05/06/2030")


def test_day_and_month_are_not_guessed_where_nothing_proves_them(desk: Desk) -> None:
    feed, said = drafted(desk, agenda(desk, *OPEN, header="id,title,date"))
    for form in ("%d/%m/%Y", "%m/%d/%Y"):
        assert f'# starts: {{from: date, do: [{{date: "{form}"}}]}}' in text_of(desk)
    assert guess(said, "startAt")["surety"] == "unsure"
    assert [sorted(example.keys() - {"row"}) for example in feed["examples"]] == [["rejected"]]
    warnings = desk.run("check", "drafted", "--json", code=0).document["feeds"][0]["warnings"]
    assert any("none of the first 2 rows becomes an event" in one["message"] for one in warnings)
    _, said = drafted(desk, agenda(desk, "B7,Jazz,03/05/2030; 04/05/2030", "B9,Fado,05/05/2030", header="id,name,dates"))
    assert said["problems"] == []
    for form in ("%d/%m/%Y", "%m/%d/%Y"):
        assert f'# days: {{from: dates, do: [{{dates: "{form}", by: [";"]}}]}}' in text_of(desk)


@pytest.mark.parametrize(("dates", "starts"), [("day-first", "2030-04-03"), ("month-first", "2030-03-04")])
def test_the_author_may_say_what_nothing_proves(desk: Desk, dates: str, starts: str) -> None:
    feed, _ = drafted(desk, agenda(desk, *OPEN, header="id,title,date"), "--dates", dates, "--zone", "Europe/Lisbon")
    assert feed["examples"][0]["event"]["startAt"].startswith(starts)


def test_another_column_may_prove_the_order(desk: Desk) -> None:
    source = agenda(desk, f"{OPEN[0]},05/04/2030", f"{OPEN[1]},25/06/2030", header="id,title,start,end")
    feed, said = drafted(desk, source)
    assert feed["let"]["starts"]["do"] == [{"date": "%d/%m/%Y"}]
    assert '"end" proves that this file is day-first' in guess(said, "startAt")["why"]


@pytest.mark.parametrize(
    ("header", "rows", "key"),
    [
        ("row,id,title,date", ["1,B7,Jazz,2030-01-01", "2,B9,Jazz,2030-01-01", "3,C1,Jazz,2030-01-01"], ["id"]),
        ("title,date,url", ["Jazz,2030-01-01,https://e.org/1", "Jazz,2030-01-01,https://e.org/2"], ["url"]),
        ("title,date,hall", ["Jazz,2030-01-01,A", "Jazz,2030-01-02,A", "Fado,2030-01-02,A"], ["title", "date"]),
        ("id,title,date", ["A1,Jazz,2030-01-01", "A1,Jazz,2030-01-02", "A2,Fado,2030-01-02"], ["id", "date"]),
    ],
)
def test_a_key_is_an_identifier_before_a_page_before_words(desk: Desk, header: str, rows: list[str], key: list[str]) -> None:
    assert drafted(desk, agenda(desk, *rows, header=header))[0]["key"] == key


WHEN = {
    "id,name,Datum,Uhrzeit": (
        ["A1,Jazz,2030-05-03 00:00:00.0,9-12 Uhr", "B2,Fado,2030-05-04 00:00:00.0,21:00-01:00"],
        ["03T09:00 03T12:00", "04T21:00 05T01:00"],
    ),
    "id,name,Startdatum,Enddatum,Uhrzeit": (
        ["A1,Jazz,2030-05-03,2030-05-03,19:30", "B2,Messe,2030-05-04,2030-05-06,10:00", "C3,Fest,2030-05-07,2030-05-07,"],
        ["03T19:30 ", "04T10:00 06T23:59", "07T00:00 07T23:59"],
    ),
    "id,name,Datum,Los geht's": (["A1,Jazz,2030-05-03,19:30", "B2,Fado,2030-05-04,20:00"], ["03T19:30 ", "04T20:00 "]),
    "id,name,von,bis,Zeit": (
        ["A1,Jazz,2030-05-03,,11am to 5pm", "B2,Messe,2030-05-04,2030-05-06,8pm", "C3,Fest,2030-05-07,2030-05-08,7-9pm"],
        ["03T11:00 03T17:00", "04T20:00 06T23:59", "07T19:00 08T21:00"],
    ),
    "id,name,start,end time": (
        ["A1,Jazz,2030-05-03 19:30,22:00", "B2,Fado,2030-05-04 22:00,02:00", "C3,Rap,2030-05-05 20:00,"],
        ["03T19:30 03T22:00", "04T22:00 05T02:00", "05T20:00 "],
    ),
}


@pytest.mark.parametrize("header", WHEN)
def test_days_and_times_in_several_columns_give_a_beginning_and_an_end(desk: Desk, header: str) -> None:
    rows, times = WHEN[header]
    drafted(desk, agenda(desk, *rows, header=header), "--zone", "Europe/Berlin")
    events = [row["event"] for row in previewed(desk)]
    assert [f"{event['startAt'][8:16]} {event.get('endAt', '')[8:16]}" for event in events] == times


def test_years_of_another_calendar_are_unsure_and_their_rows_rejected(desk: Desk) -> None:
    feed, said = drafted(desk, str(FIELD / "thai-years.csv"), "--zone", "Asia/Bangkok")
    (doubt,) = [one for one in said["guesses"] if one["about"] == "startAt" and one["surety"] == "unsure"]
    assert "2570-05-23 is more than 5 years after the run; 2570 looks like a year of the Buddhist calendar, 2027" in doubt["why"]
    assert all("event" not in example for example in feed.get("examples", ()))
    assert [[reason["code"] for reason in row["rejected"]] for row in previewed(desk)] == [["far_ahead"]] * 2
    _, said = drafted(desk, agenda(desk, "1,Jazz,2030-05-03,2206-05-03", header="id,title,start,end"))
    assert {about: guess(said, about)["surety"] for about in ("startAt", "endAt")} == {"startAt": "sure", "endAt": "unsure"}


PLAYED = [
    ("name,date,photo", ["Jazz,2030-05-03,https://e.org/p/1", "Jazz,2030-05-04,https://e.org/p/2"], "key", ["name", "date"]),
    ("name,dates,file", ["Jazz,3.5.2030; 5.5.2030,p/1.jpg", "Fado,28.5.2030,p/2.jpg"], "key", ["name"]),
    ("name,date,shown", ["Jazz,2030-05-03,03.05./05.05.", "Fado,2030-05-03,06.05."], "key", ["name", "date"]),
    ("id,date,name,venue_website,tickets", ["A,2030-05-03,Jazz,https://v.org,https://t.org/1"], "offers", [("url", "tickets")]),
    ("id,date,name,venue_website", ["A,2030-05-03,Jazz,https://v.org"], "offers", None),
    ("id,date,name,link,price", ["A,2030-05-03,Jazz,https://t.org/1,5 EUR"], "offers", [("url", "link")]),
    ("id,date,name,stadt_plz", ["A,2030-05-03,Jazz,D-70173", "B,2030-05-03,Jazz,D-70174"], "city", None),
    ("id,date,name,PLZ,Ort", ["A,2030-05-03,Jazz,70173,Stuttgart"], "city", "Ort"),
    ("id,date,name,Ort,Gemeinde", ["A,2030-05-03,Jazz,Mühle,Stuttgart"], "city", "Gemeinde"),
    ("id,date,name,Ort", ["A,2030-05-03,Jazz,Mühle"], "venue", "Ort"),
    ("Event ID,Event Name,Date,Event Borough", ["A,Jazz,2030-05-03,Queens"], "city", "Event Borough"),
    ("id,date,name,place_id,place", ["A,2030-05-03,Jazz,ChIJ1,Mill"], "venue", "place"),
    ("id,date,title,place name,place town name", ["A,2030-05-03,Jazz,Mill,Bonn"], "city", "place town name"),
    ("id,date,name,Plats,Ort", ["A,2030-05-03,Jazz,Folkets hus,Lund"], "venue", "Plats"),
]


@pytest.mark.parametrize(("header", "rows", "part", "expected"), PLAYED)
def test_a_column_plays_no_part_that_it_only_resembles(
    desk: Desk, header: str, rows: list[str], part: str, expected: object
) -> None:
    feed, _ = drafted(desk, agenda(desk, *rows, header=header))
    offers = [(name, read["from"]) for offer in feed["event"].get("offers", ()) for name, read in offer.items()]
    city, venue = (feed["event"].get(field, {}) for field in ("approxLocation.city", "locationName"))
    played = {"key": feed["key"], "offers": offers or None, "city": city.get("name", {}).get("from"), "venue": venue.get("from")}
    assert played[part] == expected


def test_cancelled_titles_and_past_events_are_left_out(desk: Desk) -> None:
    titles = ("ABGESAGT: Jazz", "[Annulé] Fado", "【中止】能", "Rap", "Ball (2019)")
    rows = [f"{place},{title},{2019 if '2019' in title else 2030}-05-03" for place, title in enumerate(titles)]
    feed, said = drafted(desk, agenda(desk, *rows, header="id,title,date", encoding="utf-8"))
    assert guess(said, "cancelled")["why"] == "3 of 5 titles begin with abgesagt, annulé, 中止: such events are left out"
    assert feed["rows"][-1] == {"window": {"past": "skip"}}
    account = desk.told("preview", "drafted")["account"]
    assert (account["events"], account["skipped"]) == (1, {"cancelled": 3, "already over": 1})
    assert "window" not in {one["about"] for one in said["guesses"]}


@pytest.mark.parametrize("past", [True, False])
def test_a_sample_of_past_events_only_is_said_to_send_none(desk: Desk, past: bool) -> None:
    rows = ("1,Jazz,2019-05-03,2019-05-04", "2,Rap,2019-05-05,2019-05-06", f"3,Fado,2019-05-07,{2019 if past else 2090}-05-08")
    _, said = drafted(desk, agenda(desk, *rows, header="id,title,start date,end date"), "--zone", "Europe/Lisbon")
    over = "all 3 events of the sample are over, the last on 2019-05-08: a run would send none; to send them, write `past: keep`"
    assert [one["why"] for one in said["guesses"] if one["about"] == "window"] == [f"{over} in `window`"] * past
    assert (f"# unsure: {over}" in text_of(desk)) is past


ROLES_BY_CELLS = {
    "a title in another language is empty in some rows": (
        "title - en,title - fr,date|Concert,Le concert,D|,Le bal,D",
        ("title", "title - fr", "likely"),
    ),
    "tags are the same in all rows": (
        "title,tags,event category,date|Jazz,art,music,D|Ball,art,dance,D",
        ("classifications", "event category", "sure"),
    ),
    "a region is no status": (
        "title,state,event status,date|Jazz,CA,on,D|Ball,NY,Canceled,D",
        ("status", "event status", "sure"),
    ),
    "an address of a page is a status": (
        "title,eventStatus,date|Jazz,https://schema.org/EventScheduled,D|Ball,https://schema.org/EventCancelled,D",
        ("status", "eventStatus", "sure"),
    ),
    "a post has a day of its own": (
        "title,date,start_date|Jazz,2029-01-01,D|Ball,2029-01-02,D",
        ("startAt", "start_date", "sure"),
    ),
    "a sale ends before the event": (
        "title,sale end,date,end date|Jazz,2029-01-01,D,D|Ball,2029-01-02,D,D",
        ("endAt", "end date", "sure"),
    ),
    "of two columns with one name only the author knows the right one": (
        "title,date,title|Intern 1,D,Jazz|Intern 2,D,Ball",
        ("title", "title#1", "unsure"),
    ),
    "identifiers are no words": (
        "title,place,date|Jazz,ChIJ1,D|Ball,ChIJ2,D",
        ("locationName", "place", "likely"),
    ),
    "the name of another part is no title": (
        "what,timezone,date|Jazz,CET and more,D|Ball,CET and more,D",
        ("title", "what", "unsure"),
    ),
    "a year of another calendar": (
        "ชื่องาน,วันที่,เวลา|Jazz,13/05/2570,19.30 น.|Ball,14/05/2570,20.00 น.",
        ("title", "ชื่องาน", "sure"),
    ),
    "a remark begins with it": (
        "title,remarks,date|Jazz,Cancelled: no hall,D|Ball,please do not cancel,D",
        ("status", "remarks", "unsure"),
    ),
}


@pytest.mark.parametrize(("table", "expected"), ROLES_BY_CELLS.values(), ids=ROLES_BY_CELLS)
def test_of_columns_with_fitting_names_the_cells_decide(desk: Desk, table: str, expected: tuple[str, str, str]) -> None:
    header, *rows = table.replace("D", "2030-05-03").split("|")
    _, said = drafted(desk, agenda(desk, *rows, header=header, encoding="utf-8"))
    found = guess(said, expected[0])
    assert (found["about"], found["column"], found["surety"]) == expected
    if expected[0] == "status":
        assert desk.told("preview", "drafted")["account"]["skipped"] == {"cancelled": 1}


def test_of_a_workbook_the_fullest_sheet_is_read(desk: Desk) -> None:
    with xlsxwriter.Workbook(desk.folder / "season.xlsx") as workbook:
        workbook.add_worksheet("About").write_row(0, 0, ["Season 2030", "tickets at the door"])
        plan = workbook.add_worksheet("Plan")
        for number, cells in enumerate((("Voorstelling", "Datum"), ("Jazz", "vr 3 mei 2030"), ("Bal", "za 4 mei 2030"))):
            plan.write_row(number, 0, cells)
    feed, said = drafted(desk, "season.xlsx", "--zone", "Europe/Amsterdam")
    assert (feed["source"]["sheet"], guess(said, "source.sheet")["surety"]) == ("Plan", "likely")
    assert (feed["event"]["title"]["from"], guess(said, "startAt")["surety"]) == ("Voorstelling", "sure")


def test_the_last_minute_of_a_day_that_a_database_appends_is_no_end(desk: Desk) -> None:
    rows = ("Jazz,2030-05-03,20:00,2030-05-03 23:59:00.0", "Ball,2030-05-04,21:00,2030-05-04 23:59:00.0")
    feed, _ = drafted(desk, agenda(desk, *rows, header="title,date,time,end date"))
    assert feed["let"]["ends"]["do"] == [{"date": "%Y-%m-%d 23:59:00.0"}]


@pytest.mark.parametrize("is_calendar", [False, True])
def test_examples_stay_true_once_the_zone_is_put(desk: Desk, is_calendar: bool) -> None:
    series = ("UID:s", "DTSTART:20200101T200000", "RRULE:FREQ=DAILY;COUNT=2")
    gone = ("UID:g", "DTSTART:20200601T200000")
    text = calendar(series, gone).replace("X-WR-TIMEZONE:Europe/Lisbon\n", "")
    source = written(desk, "a.ics", text) if is_calendar else agenda(desk, *OPEN, header="id,title,date")
    drafted(desk, source, *([] if is_calendar else ["--dates", "day-first"]))
    for zone in ("Asia/Tokyo", "America/Los_Angeles"):
        put = text_of(desk).replace("fill_in_zone: UTC", f"put_zone: {zone}").replace("$fill_in_zone", "$put_zone")
        written(desk, "feeds/put.yaml", put.replace("feed: drafted", "feed: put"))
        assert desk.run("check", "put", "--json", code=0).document["feeds"][0]["examples"]["failed"] == []


def test_zones_in_some_rows_leave_the_others_to_the_author(desk: Desk) -> None:
    rows = ("A,Jazz,2030-05-03 20:00,Europe/Paris", "B,Fado,2030-05-04 20:00,")
    feed, said = drafted(desk, agenda(desk, *rows, header="id,name,date,timezone"))
    assert feed["let"]["zone"] == {"first_of": [{"from": "timezone", "do": ["zone"]}, "$fill_in_zone"]}
    assert (guess(said, "timezone")["surety"], guess(said, "timezone")["why"][:31]) == (
        "unsure",
        '"timezone" names it in 1 of 2 r',
    )
    assert [row["event"]["startAt"][-6:] for row in previewed(desk)] == ["+02:00", "+00:00"]


def test_a_zone_that_is_not_certain_is_named(desk: Desk) -> None:
    _, said = drafted(desk, agenda(desk, "1,Jazz,2030-05-03,EST", "2,Ball,2030-05-04,CET", header="id,title,date,timezone"))
    found = guess(said, "timezone")
    assert (found["column"], found["surety"]) == ("timezone", "unsure")
    assert "\"timezone\" holds 'EST', which is no certain time zone" in found["why"]


def test_a_category_of_one_row_that_nearly_equals_another_is_pointed_out(desk: Desk) -> None:
    kinds = ("Konzert", "Konzert", "Konzret", "Theater", "Markt")
    rows = (f"{number},Evening,2030-05-03,{kind}" for number, kind in enumerate(kinds))
    drafted(desk, agenda(desk, *rows, header="id,title,date,category"))
    lines = [line.strip() for line in text_of(desk).splitlines() if ": fill-in # 1 row" in line]
    assert lines == [
        'Konzret: fill-in # 1 row; resembles "Konzert": remove this line if it is misspelt',
        "Theater: fill-in # 1 row",
        "Markt: fill-in # 1 row",
    ]


def test_a_file_that_is_there_is_overwritten_only_by_force_and_people_are_told_what_is_unsure(desk: Desk) -> None:
    words = ("init", str(REAL / "cl-rse.csv"), "--feed", "talks")
    desk.run(*words).assert_told(0, "values to fill in and 4 settings to review: key, timezone, window, left aside")
    desk.run(*words).assert_told(2, "exists already", "--force")
    desk.run(*words, "--force", code=0)


def test_what_cannot_be_drafted_says_why(desk: Desk) -> None:
    agenda(desk)
    written(desk, "empty.csv", "id,title\n")
    written(desk, "page.html", "<!doctype html><html><body>login</body></html>")
    for words, told in (
        (("no-such.csv",), "no-such.csv"),
        (("agenda.csv", "--feed", "My Feed"), "write my-feed"),
        (("agenda.csv", "--zone", "Lisbon"), "Europe/Lisbon"),
        (("empty.csv",), "has no rows"),
        (("page.html",), "this is HTML: a web page"),
    ):
        desk.run("init", *words).assert_told(2, told)


EVENTS = [
    {"id": "a", "name": "Jazz", "startDate": "2030-05-01T19:30:00+02:00", "venue": {"city": "Berlin"}},
    {"id": "b", "name": "Fado", "startDate": "2030-05-02T20:00:00+02:00", "venue": {"city": "Bonn"}},
]


def test_the_shows_of_a_house_have_their_own_titles(desk: Desk) -> None:
    shows = [{"id": f"f-{n}", "titulo": f"Obra {n}", "inicio": f"2030-05-{n + 1:02d}T20:00:00"} for n in range(12)]
    houses = [{"nombre": f"Teatro {n}", "funciones": shows[n * 4 : n * 4 + 4]} for n in range(3)]
    feed, _ = drafted(desk, written(desk, "a.json", json.dumps({"recintos": houses})), "--zone", "Europe/Madrid")
    assert feed["event"]["title"]["from"] == "funciones.titulo"
    for number, show in enumerate(shows):
        show["titulo"] = ("Estreno", "Segunda", "Tercera", "Final")[number % 4]
    feed, _ = drafted(desk, written(desk, "b.json", json.dumps({"recintos": houses})), "--zone", "Europe/Madrid")
    assert feed["event"]["title"]["from"] == "nombre"


def test_json_xml_and_workbooks_are_drafted_too(desk: Desk) -> None:
    feed, _ = drafted(desk, written(desk, "a.json", json.dumps({"data": {"events": EVENTS}})), "--zone", "Europe/Berlin")
    assert (feed["source"]["kind"], feed["source"]["records"]) == ("json", "data.events")
    assert feed["examples"][0]["event"]["startAt"] == "2030-05-01T19:30:00+02:00"
    assert feed["event"]["approxLocation.city"]["name"]["from"] == "venue.city"
    feed, _ = drafted(desk, written(desk, "a.ndjson", "\n".join(map(json.dumps, EVENTS))))
    assert feed["source"]["kind"] == "ndjson"
    items = "".join(f"<event><id>{one['id']}</id><title>{one['name']}</title><date>2030-05-01</date></event>" for one in EVENTS)
    feed, _ = drafted(desk, written(desk, "a.xml", f"<feed><events>{items}</events></feed>"))
    assert (feed["source"]["kind"], feed["key"], feed["event"]["title"]["from"]) == ("xml", ["id"], "title")
    assert feed["source"]["records"] == "feed/events/event"
    grid = [["Summer 2030"], [], ["Nr", "Titel", "Datum"], ["0012", "Jazz", "2030-05-01"], ["0013", "Fado", ""]]
    for header, rows in (({"row": 3}, grid), (None, grid[2:])):
        write_xlsx(desk.folder / "plan.xlsx", rows)
        feed, _ = drafted(desk, "plan.xlsx", "--zone", "Europe/Berlin")
        assert (feed["source"]["kind"], feed["source"].get("header"), feed["key"]) == ("xlsx", header, ["Nr"])
        row = feed["examples"][0]["row"]
        assert (feed["event"]["title"]["from"], row["Nr"], row["Titel"]) == ("Titel", "0012", "Jazz")


GROUPED = (
    ("Nr,Venue,,Date,", ",Name,City,Start,End", "Nr,Venue Name,City,Date Start,End", {"rows": 2}),
    ("Nr,Venue,Venue,Date,Date", "Nr,Name,City,Start,End", "Nr Nr,Venue Name,Venue City,Date Start,Date End", {"rows": 2}),
    ("Nr,,,Termin,", "Nr,Titel,Ort,Beginn,Ende", "Nr Nr,Titel,Ort,Termin Beginn,Ende", {"rows": 2}),
    ("Summer,,,,", "Nr,Titel,Ort,Beginn,Ende", "Nr,Titel,Ort,Beginn,Ende", {"row": 2}),
    ("Host,Bonn,,,", "Nr,Titel,Ort,Beginn,Ende", "Nr,Titel,Ort,Beginn,Ende", {"row": 2}),
    ("Nr,Titel,Ort,Beginn,Ende", "A,Jazz,Bonn,2030-04-30,", "Nr,Titel,Ort,Beginn,Ende", None),
)


@pytest.mark.parametrize(("groups", "names", "columns", "header"), GROUPED)
@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_names_in_two_rows_are_read_together(
    desk: Desk, kind: str, groups: str, names: str, columns: str, header: dict[str, int] | None
) -> None:
    rows = [groups, names, "A1,Jazz,Bonn,2030-05-01,2030-05-02", "B2,Fado,Köln,2030-05-23,2030-05-24"]
    if kind == "csv":
        written(desk, "plan.csv", "\n".join(rows))
    else:
        write_xlsx(desk.folder / "plan.xlsx", [row.split(",") for row in rows])
    feed, said = drafted(desk, f"plan.{kind}", "--zone", "Europe/Berlin")
    assert (feed["source"].get("header"), said["columns"]) == (header, columns.split(","))
    assert guess(said, "startAt")["column"] == said["columns"][3]
    assert [row["event"]["startAt"][:10] for row in previewed(desk)][-2:] == ["2030-05-01", "2030-05-23"]


def test_elements_without_any_inside_are_records_by_their_attributes(desk: Desk) -> None:
    feed, _ = drafted(desk, str(FIELD / "attributes-only.xml"), "--zone", "Europe/Paris")
    assert (feed["source"]["records"], feed["key"], feed["event"]["title"]["from"]) == ("agenda/event", ["@id"], "@title")
    assert [row["event"]["startAt"][:16] for row in previewed(desk)] == [
        "2027-05-03T19:30",
        "2027-05-23T20:00",
        "2027-05-24T20:00",
    ]


ZONE = 'TZID="W. Europe Standard Time"'
EVENINGS = (
    ("UID:choir", f"DTSTART;{ZONE}:20300503T220000", f"DTEND;{ZONE}:20300504T003000", "RRULE:FREQ=DAILY;COUNT=3"),
    ("UID:choir", f"RECURRENCE-ID;{ZONE}:20300504T220000", f"DTSTART;{ZONE}:20300504T200000"),
    ("UID:fair", "DTSTART;VALUE=DATE:20300601", "DTEND;VALUE=DATE:20300603"),
    ("UID:utc", "DTSTART:20300601T170000Z"),
    ("UID:off", "STATUS:CANCELLED", "DTSTART:20300601T170000Z"),
)


def calendar(*events: tuple[str, ...]) -> str:
    lines = (line for event in events for line in ("BEGIN:VEVENT", "SUMMARY:Evening", *event, "END:VEVENT"))
    return "\n".join(("BEGIN:VCALENDAR", "X-WR-TIMEZONE:Europe/Lisbon", *lines, "END:VCALENDAR", ""))


def test_a_calendar_is_drafted_with_its_zones_its_series_and_its_exclusive_ends(desk: Desk) -> None:
    drafted(desk, written(desk, "office.ics", calendar(*EVENINGS)), "--zone", "Europe/Berlin")
    written(desk, "feeds/drafted.yaml", text_of(desk).replace("to: 365d", "to: 7000d"))
    rows = previewed(desk)
    found = [(row["row_key"], row["event"]["startAt"], row["event"].get("endAt")) for row in rows if "event" in row]
    assert found == [
        ("choir|2030-05-03T22:00:00", "2030-05-03T22:00:00+02:00", "2030-05-04T00:30:00+02:00"),
        ("choir|2030-05-04T22:00:00", "2030-05-04T20:00:00+02:00", None),
        ("choir|2030-05-05T22:00:00", "2030-05-05T22:00:00+02:00", "2030-05-06T00:30:00+02:00"),
        ("fair|", "2030-06-01T00:00:00+01:00", "2030-06-02T23:59:00+01:00"),
        ("utc|", "2030-06-01T18:00:00+01:00", None),
    ]
    assert [row["skipped"] for row in rows if "skipped" in row] == ["cancelled"]


@pytest.mark.parametrize(
    ("events", "key", "surety"),
    [
        (
            [("UID:1", "DTSTART:20300601T170000Z"), ("UID:2", "DTSTART:20300602T170000Z")],
            "[UID, {column: RECURRENCE-ID, optional: true}]",
            "sure",
        ),
        (
            [("UID:1", "DTSTART:20300601T170000Z", "RRULE:FREQ=SECONDLY")],
            "[UID, {column: RECURRENCE-ID, optional: true}]",
            "sure",
        ),
        ([("DTSTART:20300601T170000Z",), ("DTSTART:20300602T170000Z",)], "[DTSTART, SUMMARY]", "unsure"),
        (
            [("UID:1", "DTSTART:20300601T170000Z"), ("DTSTART:20300602T170000Z",)],
            "[UID, {column: RECURRENCE-ID, optional: true}]",
            "unsure",
        ),
        (
            [("UID:1", "DTSTART:20300601T170000Z"), ("UID:1", "DTSTART:20300602T170000Z")],
            "[UID, {column: RECURRENCE-ID, optional: true}]",
            "unsure",
        ),
    ],
)
def test_the_uid_of_a_calendar_is_a_sure_key_only_if_each_event_has_its_own(
    desk: Desk, events: list[tuple[str, ...]], key: str, surety: str
) -> None:
    _, said = drafted(desk, written(desk, "office.ics", calendar(*events)), "--zone", "Europe/Berlin")
    assert f"key: {key}" in text_of(desk)
    assert guess(said, "key")["surety"] == surety


def test_a_value_merged_over_several_rows_is_meant_for_each(desk: Desk) -> None:
    with xlsxwriter.Workbook(desk.folder / "plan.xlsx") as workbook:
        page = workbook.add_worksheet("Repertuar")
        page.merge_range("A1:D1", "Maj 2030")
        page.write_row("A2", ["Nr", "Miasto", "Tytuł", "Data"])
        for first, city in ((3, "Kraków"), (6, "Łódź")):
            page.merge_range(f"B{first}:B{first + 2}", city)
            for number in range(first, first + 3):
                page.write_row(f"C{number}", [f"Jazz {number}", f"2030-05-{number:02d}"])
                page.write_string(f"A{number}", f"K-{number * 7}")
    feed, said = drafted(desk, "plan.xlsx", "--zone", "Europe/Warsaw")
    assert (feed["source"]["header"], feed["source"]["merged"]) == ({"row": 2}, "spread")
    assert guess(said, "source.merged")["surety"] == "sure"
    rows = previewed(desk)
    assert [row["event"]["approxLocation"]["city"]["name"] for row in rows] == ["Kraków"] * 3 + ["Łódź"] * 3


def test_cells_merged_across_a_row_are_left_as_they_are(desk: Desk) -> None:
    with xlsxwriter.Workbook(desk.folder / "plan.xlsx") as workbook:
        page = workbook.add_worksheet("Programm")
        for row, cells in enumerate((["Nr", "Titel", "Datum"], ["K-1", "Jazz", "2030-05-01"], [], ["K-2", "Fado", "2030-06-01"])):
            page.write_row(row, 0, cells)
        page.merge_range("A3:C3", "Juni")
    feed, _ = drafted(desk, "plan.xlsx", "--zone", "Europe/Berlin")
    assert "merged" not in feed["source"]


def test_the_categories_of_a_calendar_are_told_apart_however_few_events_have_several(desk: Desk) -> None:
    event = ("UID:1", "DTSTART:20300601T180000Z", "DURATION:PT2H", "CATEGORIES:Musique,Concert")
    without_zone = calendar(event).replace("X-WR-TIMEZONE:Europe/Lisbon\n", "")
    feed, _ = drafted(desk, written(desk, "agenda.ics", without_zone), "--zone", "Europe/Paris")
    split, known = feed["event"]["classifications"]["do"]
    assert (split, set(known["map"])) == ({"split": ";"}, {"Musique", "Concert"})
    assert previewed(desk)[0]["event"]["endAt"] == "2030-06-01T22:00:00+02:00"


KRAKOW_DAYS = ("data_rozpoczecia", "data_zakonczenia")
FOUND: dict[str, tuple[str, str, str, list[str], int | None]] = {
    "acmw-events.csv": (OVERWRITTEN, "Start", "End", [OVERWRITTEN, "Start"], 6),
    "cl-rse.csv": ("titulo", "fecha_iso", "", ["titulo", "fecha_iso"], 6),
    "confs-tech-general-2024.json": ("name", "startDate", "endDate", ["url", "startDate"], 129),
    "confs-tech-javascript-2019.json": ("name", "startDate", "endDate", ["url", "startDate"], 174),
    "de-ticketmaster.csv": ("event_name", "event_date", "", ["event_url", "event_date"], 100),
    "../../../mappings/feeds/samples/osaka-fireworks.csv": ("name", "date", "time", ["id"], 6),
    "pl-krakow.csv": ("tytul", *KRAKOW_DAYS, ["id_strony", KRAKOW_DAYS[0]], None),
    "pl-krakow-tiktak.csv": ("tytul", *KRAKOW_DAYS, ["tytul", KRAKOW_DAYS[0], "godzina_rozpoczecia"], 26),
    "sf-campaign-ladev.json": ("Name", "StartDate", "EndDate", ["attributes.referenceId"], 4),
    "sf-campaign-tree.csv": ("name", "", "", ["name"], 0),
    "sf-campaign-tree.json": ("name", "", "", ["attributes.referenceId"], 0),
    "w3c-csvw-events.csv": ("Name", "Start Date", "", ["Ticket Url"], 2),
}
"""What a person sees in each file: the columns of the title, the first and the last day and a key, and how many events it has."""
ZONES = {"de-ticketmaster.csv": ("zone", "Europe/Berlin", "likely")}
"""Whose clocks their cities speak for; nothing speaks for the others'."""


@pytest.mark.parametrize("name", FOUND)
def test_each_real_feed_gives_a_file_that_passes_check_and_finds_title_days_and_key(desk: Desk, name: str) -> None:
    feed, said = drafted(desk, str(REAL / name))
    title, day, last_day, key, events = FOUND[name]
    assert said["problems"] == []
    assert feed["event"]["title"]["from"] == title
    told = {one["about"]: one["column"] for one in reversed(said["guesses"])}
    assert (told["startAt"], told.get("endAt", "")) == (day, last_day)
    assert feed["let"].get("starts", {}).get("from", "") == day
    assert [part if isinstance(part, str) else part["column"] for part in feed["key"]] == key
    assert (guess(said, "key")["surety"] == "sure") == (key == ["id"]), "all others have no identifier that is the partner's own"
    fill_in, zone, surety = ZONES.get(name, ("fill_in_zone", "UTC", "unsure"))
    assert (feed["let"][fill_in], guess(said, "timezone")["surety"]) == (zone, surety)
    written(desk, "feeds/drafted.yaml", text_of(desk).replace("{past: skip}", "{past: keep}"))
    account = desk.told("preview", "drafted", "--rows", "0", "--all")["account"]
    assert account["events"] == events or (events is None and account["events"] > 0)


def test_a_zone_is_found_by_whatever_name_and_the_instants_beside_it(desk: Desk) -> None:
    rows = ("B7,Jazz,2030-07-01T17:00:00Z,US/Eastern", "B9,Fado,2030-07-02T17:00:00Z,asia/calcutta")
    feed, _ = drafted(desk, agenda(desk, *rows, header="id,name,start_utc,tz"))
    assert feed["event"]["timezone"] == {"from": "tz", "do": ["zone"]}
    assert feed["examples"][0]["event"]["startAt"] == "2030-07-01T13:00:00-04:00"


def test_days_of_several_in_one_cell_are_events_of_their_own_and_lists_of_texts_are_joined(desk: Desk) -> None:
    shows = [
        {"id": "x7", "name": "Jazz", "days": "3, 5 and 7 May 2030", "hour": "19 Uhr 30", "tags": ["Music", "Open air"]},
        {"id": "k2", "name": "Fado", "days": "8 May 2030", "hour": "kl. 20", "tags": ["Music"]},
    ]
    feed, _ = drafted(desk, written(desk, "shows.json", json.dumps(shows)), "--zone", "Europe/Lisbon")
    assert feed["source"]["join_lists"] == {"tags": "; "}
    split, mapped = feed["event"]["classifications"]["do"]
    assert (split, sorted(mapped["map"])) == ({"split": "; "}, ["Music", "Open air"])
    days = {row["row_key"]: row["event"]["startAt"] for row in previewed(desk)}
    jazz = {f"x7|2030-05-{day}": f"2030-05-{day}T19:30:00+01:00" for day in ("03", "05", "07")}
    assert days == {**jazz, "k2|2030-05-08": "2030-05-08T20:00:00+01:00"}


def test_the_first_and_the_last_day_in_one_cell_are_the_beginning_and_the_end(desk: Desk) -> None:
    rows = ("B7,Jazz,3-5 May 2030", "B9,Fado,28 Feb - 2 Mar 2030", "C1,Rap,9 May 2030")
    drafted(desk, agenda(desk, *rows, header="id,name,date"), "--zone", "Europe/Lisbon")
    days = [(row["event"]["startAt"][:10], row["event"].get("endAt", "")[:10]) for row in previewed(desk)]
    assert days == [("2030-05-03", "2030-05-05"), ("2030-02-28", "2030-03-02"), ("2030-05-09", "")]


def test_the_zone_of_rows_of_several_countries_is_left_to_the_author(desk: Desk) -> None:
    rows = ("B7,Jazz,2030-07-01,Germany,Berlin", "B9,Fado,2030-07-02,Portugal,Faro", "C1,Rap,2030-07-02,USA,Reno")
    feed, said = drafted(desk, agenda(desk, *rows, header="id,name,date,country,city"))
    assert feed["let"]["fill_in_zone"] == "UTC"
    assert guess(said, "timezone")["why"] == '"country" names 3 countries: write the partner\'s zone, such as Europe/Lisbon'


def test_a_branch_of_a_library_is_the_venue(desk: Desk) -> None:
    rows = ("1,Storytime,09/20/2030,Eastside Branch", "2,Book Club,09/21/2030,Central Library")
    feed, _ = drafted(desk, agenda(desk, *rows, header="Event ID,Event Name,Date,Branch"))
    assert feed["event"]["locationName"]["from"] == "Branch"


CASES = Path(__file__).parents[2] / "field_cases"


def starts(desk: Desk) -> list[str]:
    """The times of day at which the previewed rows start, with those at which they end."""
    shown = [row.get("event", {}) for row in previewed(desk)]
    return [" to ".join(event[name][11:16] for name in ("startAt", "endAt") if name in event) or "rejected" for event in shown]


@pytest.mark.parametrize(
    ("name", "times"),
    [("korean-times.csv", ["19:30", "10:30", "19:00 to 21:00"]), ("access-times.csv", ["19:30", "20:00"])],
)
def test_times_are_read_as_korean_files_and_access_write_them(desk: Desk, name: str, times: list[str]) -> None:
    drafted(desk, str(CASES / name), "--zone", "Asia/Seoul")
    assert starts(desk) == times


def test_days_that_are_written_as_midnights_leave_the_time_to_its_own_column(desk: Desk) -> None:
    rows = ("1,Jazz,2030-05-03T00:00:00.000Z,19:30", "2,Fado,2030-05-14T00:00:00.000Z,")
    drafted(desk, agenda(desk, *rows, header="id,title,date,time"), "--zone", "America/New_York")
    assert '# unsure: "date" is a usual name for it;' in text_of(desk)
    assert '"time" holds the times: only their days are read' in text_of(desk)
    assert [row["event"]["startAt"] for row in previewed(desk)] == ["2030-05-03T19:30:00-04:00", "2030-05-14T00:00:00-04:00"]


def test_a_column_of_times_that_cannot_be_read_is_named_and_its_rows_are_rejected(desk: Desk) -> None:
    rows = ("1,Jazz,2030-05-03,abends", "2,Fado,2030-05-04,19:30", "3,Rock,2030-05-05,~noonish 7", "4,Folk,2030-05-06,")
    _, said = drafted(desk, agenda(desk, *rows, header="id,title,date,Uhrzeit"), "--zone", "Europe/Berlin")
    start = [(one["column"], one["surety"]) for one in said["guesses"] if one["about"] == "startAt"]
    assert start == [("date", "unsure"), ("Uhrzeit", "unsure")]
    assert "1 of 3 filled cells" in text_of(desk)
    assert "does not fit: 'abends', '~noonish 7'; rows with such cells are rejected" in text_of(desk)
    assert starts(desk) == ["rejected", "19:30", "rejected", "00:00"]


@pytest.mark.parametrize(
    ("header", "cells", "times", "surety"),
    [
        ("date,start,end", ["2030-05-03,1930,2100", "2030-05-04,0900,1000"], ["19:30 to 21:00", "09:00 to 10:00"], "sure"),
        ("date,Uhrzeit", ["20300503,193000", "20300504,090000"], ["19:30", "09:00"], "sure"),
        ("date,start", ["2030-05-03,19:30 CET", "2030-05-04,20:00 CET"], ["rejected"] * 2, "unsure"),
        ("date,الوقت", ["2030-05-03,7:30 م", "2030-05-04,10:00 ص"], ["rejected"] * 2, "unsure"),
        ("EventDate,StartTime", ["2030-05-03,2000-01-01 19:30:00", "2030-05-04,2000-01-01 20:00:00"], ["19:30", "20:00"], "sure"),
        ("date,from,to", ["2030-05-03,19:30,24:00", "2030-05-04,20:00,22:00"], ["19:30 to 00:00", "20:00 to 22:00"], "sure"),
        ("일시", ["2030-05-03 오후 7:30:00", "2030-05-14 오전 10:30:00"], ["19:30", "10:30"], ""),
        ("start", ["1904059800", "1904148000"], ["19:30", "20:00"], ""),
        ("start,end", ["1904059800000,1904065200000", "1904148000000,"], ["19:30 to 21:00", "20:00"], ""),
        ("start,phone", ["2030-05-03 19:30,1904059800"], ["19:30"], ""),
        ("date,time,duration", ["2030-05-03,19:30,90 min", "2030-05-04,20:00,"], ["19:30 to 21:00", "20:00"], "sure"),
        ("date,from", ["2030-05-03,7:30", "2030-05-04,8:00"], ["07:30", "08:00"], "likely"),
        (
            "days,title,시작일,날짜/시간",
            ["3,J,2030-05-03,2030-05-03~2030-05-04", "2,F,2030-05-04,2030-05-04~2030-05-04"],
            ["00:00"] * 2,
            "",
        ),
    ],
)
def test_a_time_is_read_or_its_row_rejected(desk: Desk, header: str, cells: list[str], times: list[str], surety: str) -> None:
    rows = [f"{number},Jazz {number},{cell}" for number, cell in enumerate(cells)]
    _, said = drafted(desk, agenda(desk, *rows, header=f"id,name,{header}", encoding="utf-8"), "--zone", "Europe/Berlin")
    assert starts(desk) == times
    clock = [one["surety"] for one in said["guesses"] if one["about"] == "startAt"][1:]
    assert clock == [surety] * bool(surety)


@pytest.mark.parametrize("numbers", [("0612345678", "0698765432"), ("2125550143", "1904059800")])
def test_numbers_of_ten_digits_such_as_telephones_are_no_times(desk: Desk, numbers: tuple[str, ...]) -> None:
    rows = [f"{number},Jazz {number},{cell}" for number, cell in enumerate(numbers)]
    feed, _ = drafted(desk, agenda(desk, *rows, header="id,name,start", encoding="utf-8"), "--zone", "Europe/Berlin")
    assert "epoch" not in str(feed)


@pytest.mark.parametrize(
    ("header", "cells", "step", "surety", "times"),
    [
        ("start,duration", "2030-05-03T10:00:00+02:00,00:45", "duration", "sure", "10:00 to 10:45"),
        ("start,Dauer", "2030-05-03T10:00:00+02:00,1 Std. 30 Min.", "duration", "sure", "10:00 to 11:30"),
        ("date,time,running time", "2030-05-03,19:30,PT1H30M", "duration", "sure", "19:30 to 21:00"),
        ("date,time,duration_minutes", "2030-05-03,23:30,90", {"duration": "minutes"}, "likely", "23:30 to 01:00"),
    ],
)
def test_an_event_of_which_the_file_says_the_length_has_an_end(
    desk: Desk, header: str, cells: str, step: Any, surety: str, times: str
) -> None:
    source = agenda(desk, *(f"{number},Jazz {number},{cells}" for number in range(3)), header=f"id,title,{header}")
    feed, said = drafted(desk, source, "--zone", "Europe/Berlin")
    assert (feed["let"]["length"]["do"], guess(said, "endAt")["surety"]) == ([step], surety)
    assert starts(desk) == [times] * 3


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("date,time,duration", "2030-05-03,19:30,90"),
        ("date,duration", "2030-05-03,2 h"),
        ("date,time,end,length", "2030-05-03,19:30,2030-05-04,2 h"),
    ],
)
def test_no_length_is_guessed(desk: Desk, header: str, cells: str) -> None:
    feed, _ = drafted(desk, agenda(desk, f"1,Jazz,{cells}", f"2,Fado,{cells}", header=f"id,title,{header}"))
    assert "length" not in feed["let"]
