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

REAL = Path(__file__).parents[2] / "feeds" / "data"
OVERWRITTEN = "Creative Coding with Girl Scouts of Orange County"
AGENDA = "REF;NOME;INICIO;HORAS;LOCAL;CIDADE;CATEGORIA;LINK;ESTADO"
ROWS = (
    "LX-1;Fado à noite;13/05/2030;21h30;Casa do Fado;Lisboa;Música;https://example.org/1;",
    "LX-2;Feira;02/06/2030;;Praça;Lisboa;Feiras;https://example.org/2;cancelado",
    "LX-3;Hamlet;04/06/2030;20h;Teatro do Rio;Porto;Teatro;https://example.org/3;",
)


def drafted(desk: Desk, source: str, *words: str) -> tuple[Any, dict[str, Any]]:
    """Draft a feed called `drafted`; return the mapping as YAML reads it, and the command's document."""
    said = desk.run("init", source, "--feed", "drafted", "--json", *words)
    assert said.code == 0, said.err
    return yaml.safe_load((desk.folder / "feeds" / "drafted.yaml").read_text("utf-8")), said.document


def agenda(desk: Desk, *rows: str, header: str = AGENDA, encoding: str = "windows-1252") -> str:
    (desk.folder / "agenda.csv").write_bytes("\r\n".join([header, *(rows or ROWS), ""]).encode(encoding))
    return "agenda.csv"


def test_a_portuguese_agenda_is_read_and_mapped_by_its_own_words(desk: Desk) -> None:
    feed, said = drafted(desk, agenda(desk), "--zone", "Europe/Lisbon")
    assert feed["source"] == {
        "kind": "csv",
        "path": "../agenda.csv",
        "encoding": "windows-1252",
        "delimiter": ";",
        "required": ["REF", "NOME", "INICIO"],
    }
    assert feed["key"] == ["REF"]
    assert feed["let"]["starts"] == {"from": "INICIO", "do": [{"date": "%d/%m/%Y"}]}
    assert feed["let"]["clock"] == {"from": "HORAS", "do": [{"time": ["%Hh%M", "%Hh"]}], "on_empty": "omit"}
    assert feed["event"]["title"]["from"] == "NOME"
    assert feed["event"]["locationName"]["from"] == "LOCAL"
    assert feed["event"]["approxLocation.city"]["placeId"]["from"] == "CIDADE"
    assert feed["event"]["classifications"]["from"] == "CATEGORIA"
    assert feed["event"]["offers"][0]["url"]["from"] == "LINK"
    assert feed["rows"][0]["skip"]["in"] == ["cancelado"]
    assert (feed["event"]["status"], feed["event"]["timezone"]) == ("draft", "Europe/Lisbon")
    evidence = {guess["about"]: (guess["surety"], guess["why"]) for guess in said["guesses"]}
    assert evidence["key"] == ("sure", 'all 3 values of "REF" are there and different')


def test_the_file_passes_check_with_an_event_and_a_rejection_and_is_previewed(desk: Desk) -> None:
    feed, _ = drafted(desk, agenda(desk), "--zone", "Europe/Lisbon")
    assert [sorted(example.keys() - {"row"}) for example in feed["examples"]] == [["event"], ["rejected"]]
    checked = desk.run("check", "drafted", "--json")
    assert checked.code == 0
    told = [warning["message"] for warning in checked.document["feeds"][0]["warnings"]]
    assert told
    assert all("to be filled in" in message for message in told)
    account = desk.run("preview", "drafted", "--json").document["account"]
    assert (account["events"], account["skipped"], account["rejected"]) == (2, {"cancelled": 1}, 0)


def test_the_evidence_stands_beside_each_guess(desk: Desk) -> None:
    drafted(desk, agenda(desk))
    text = (desk.folder / "feeds" / "drafted.yaml").read_text("utf-8")
    assert '# sure: "INICIO" is called so; 3 of 3 filled cells fit %d/%m/%Y; 1 prove day-first' in text
    assert '# likely: "CIDADE" is Lisboa in 2 of 3 rows\n  zone: Europe/Lisbon' in text


def test_columns_that_the_draft_does_not_read_are_told(desk: Desk) -> None:
    header = "REF;NOME;INICIO;HORAS;SALA"
    _, said = drafted(desk, agenda(desk, "1;Fado;13/05/2030;à noite;A", "2;Jazz;14/05/2030;à tarde;", header=header))
    told = {guess["about"]: guess["column"] for guess in said["guesses"]}
    assert told["left aside"] == "HORAS"


def test_day_and_month_are_not_guessed_where_nothing_proves_them(desk: Desk) -> None:
    source = agenda(desk, "1,Jazz,03/04/2030", "2,Fado,05/06/2030", header="id,title,date")
    feed, said = drafted(desk, source)
    text = (desk.folder / "feeds" / "drafted.yaml").read_text("utf-8")
    assert '# starts: {from: date, do: [{date: "%d/%m/%Y"}]}' in text
    assert '# starts: {from: date, do: [{date: "%m/%d/%Y"}]}' in text
    assert [guess["surety"] for guess in said["guesses"] if guess["about"] == "startAt"] == ["unsure"]
    assert [sorted(example.keys() - {"row"}) for example in feed["examples"]] == [["rejected"]]
    checked = desk.run("check", "drafted", "--json")
    assert checked.code == 0
    assert any("none of the first 2 rows becomes an event" in one["message"] for one in checked.document["feeds"][0]["warnings"])


@pytest.mark.parametrize(("dates", "starts"), [("day-first", "2030-04-03"), ("month-first", "2030-03-04")])
def test_the_author_may_say_what_nothing_proves(desk: Desk, dates: str, starts: str) -> None:
    source = agenda(desk, "1,Jazz,03/04/2030", "2,Fado,05/06/2030", header="id,title,date")
    feed, _ = drafted(desk, source, "--dates", dates, "--zone", "Europe/Lisbon")
    assert feed["examples"][0]["event"]["startAt"].startswith(starts)


def test_another_column_may_prove_the_order(desk: Desk) -> None:
    source = agenda(desk, "1,Jazz,03/04/2030,05/04/2030", "2,Fado,05/06/2030,25/06/2030", header="id,title,start,end")
    feed, said = drafted(desk, source)
    assert feed["let"]["starts"]["do"] == [{"date": "%d/%m/%Y"}]
    (why,) = (guess["why"] for guess in said["guesses"] if guess["about"] == "startAt")
    assert '"end" proves that this file is day-first' in why


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


def test_a_file_that_is_there_is_overwritten_only_by_force(desk: Desk) -> None:
    drafted(desk, agenda(desk))
    said = desk.run("init", "agenda.csv", "--feed", "drafted")
    assert said.code == 2
    assert "is there already" in said.err
    assert "--force" in said.err
    assert desk.run("init", "agenda.csv", "--feed", "drafted", "--force").code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("init", "no-such.csv"), "no-such.csv"),
        (("init", "agenda.csv", "--feed", "My Feed"), "write my-feed"),
        (("init", "agenda.csv", "--zone", "Lisbon"), "Europe/Lisbon"),
        (("init", "empty.csv"), "has no rows"),
        (("init", "page.html"), "is a web page"),
    ],
)
def test_what_cannot_be_drafted_says_why(desk: Desk, words: tuple[str, ...], told: str) -> None:
    agenda(desk)
    (desk.folder / "empty.csv").write_text("id,title\n", "utf-8")
    (desk.folder / "page.html").write_text("<!doctype html><html><body>login</body></html>", "utf-8")
    said = desk.run(*words)
    assert said.code == 2
    assert told in said.err


EVENTS = [
    {"id": "a", "name": "Jazz", "startDate": "2030-05-01T19:30:00+02:00", "venue": {"city": "Berlin"}},
    {"id": "b", "name": "Fado", "startDate": "2030-05-02T20:00:00+02:00", "venue": {"city": "Bonn"}},
]


def test_json_and_xml_are_drafted_too(desk: Desk) -> None:
    (desk.folder / "events.json").write_text(json.dumps({"data": {"events": EVENTS}}), "utf-8")
    feed, _ = drafted(desk, "events.json", "--zone", "Europe/Berlin")
    assert (feed["source"]["kind"], feed["source"]["records"]) == ("json", "data.events")
    assert feed["examples"][0]["event"]["startAt"] == "2030-05-01T19:30:00+02:00"
    assert feed["event"]["approxLocation.city"]["name"]["from"] == "venue.city"
    (desk.folder / "events.ndjson").write_text("\n".join(map(json.dumps, EVENTS)), "utf-8")
    assert drafted(desk, "events.ndjson", "--force")[0]["source"]["kind"] == "ndjson"
    items = "".join(f"<event><id>{one['id']}</id><title>{one['name']}</title><date>2030-05-01</date></event>" for one in EVENTS)
    (desk.folder / "events.xml").write_text(f"<feed><events>{items}</events></feed>", "utf-8")
    feed, _ = drafted(desk, "events.xml", "--force")
    assert (feed["source"]["kind"], feed["key"], feed["event"]["title"]["from"]) == ("xml", ["id"], "title")
    assert feed["source"]["records"] == "feed/events/event"


def test_a_workbook_is_drafted_too(desk: Desk) -> None:
    write_xlsx(
        desk.folder / "plan.xlsx", [["Nr", "Titel", "Datum"], ["0012", "Jazz", "2030-05-01"], ["0013", "Fado", "2030-05-02"]]
    )
    feed, _ = drafted(desk, "plan.xlsx", "--zone", "Europe/Berlin")
    assert (feed["source"]["kind"], feed["key"], feed["event"]["title"]["from"]) == ("xlsx", ["Nr"], "Titel")
    assert feed["examples"][0]["row"]["Nr"] == "0012"


OFFICE = """BEGIN:VCALENDAR
X-WR-TIMEZONE:Europe/Lisbon
BEGIN:VEVENT
UID:choir
SUMMARY:Choir
DTSTART;TZID="W. Europe Standard Time":20300503T220000
DTEND;TZID="W. Europe Standard Time":20300504T003000
RRULE:FREQ=DAILY;COUNT=3
END:VEVENT
BEGIN:VEVENT
UID:choir
SUMMARY:Choir, moved
RECURRENCE-ID;TZID="W. Europe Standard Time":20300504T220000
DTSTART;TZID="W. Europe Standard Time":20300504T200000
END:VEVENT
BEGIN:VEVENT
UID:fair
SUMMARY:Fair
DTSTART;VALUE=DATE:20300601
DTEND;VALUE=DATE:20300603
END:VEVENT
BEGIN:VEVENT
UID:utc
SUMMARY:Call
DTSTART:20300601T170000Z
END:VEVENT
BEGIN:VEVENT
UID:off
SUMMARY:Off
STATUS:CANCELLED
DTSTART:20300601T170000Z
END:VEVENT
END:VCALENDAR
"""


def test_a_calendar_is_drafted_with_its_zones_its_series_and_its_exclusive_ends(desk: Desk) -> None:
    (desk.folder / "office.ics").write_text(OFFICE, "utf-8")
    drafted(desk, "office.ics", "--zone", "Europe/Berlin")
    file = desk.folder / "feeds" / "drafted.yaml"
    file.write_text(file.read_text("utf-8").replace("horizon: 365d", "horizon: 9999d"), "utf-8")
    rows = desk.run("preview", "drafted", "--json").document["rows"]
    found = [(row["row_key"], row["event"]["startAt"], row["event"].get("endAt")) for row in rows if "event" in row]
    assert found == [
        ("choir||2030-05-03", "2030-05-03T22:00:00+02:00", "2030-05-04T00:30:00+02:00"),
        ("choir||2030-05-05", "2030-05-05T22:00:00+02:00", "2030-05-06T00:30:00+02:00"),
        ("choir|2030-05-04T22:00:00", "2030-05-04T20:00:00+02:00", None),
        ("fair|", "2030-06-01T00:00:00+01:00", "2030-06-02T23:59:00+01:00"),
        ("utc|", "2030-06-01T18:00:00+01:00", None),
    ]
    assert [row["skipped"] for row in rows if "skipped" in row] == ["cancelled"]


def test_the_header_of_a_sheet_is_found_below_its_title_and_empty_rows(desk: Desk) -> None:
    grid = [["Summer 2030"], [], ["Nr", "Titel", "Datum"], ["0012", "Jazz", "2030-05-01"], ["0013", "Fado", ""]]
    write_xlsx(desk.folder / "plan.xlsx", grid)
    feed, _ = drafted(desk, "plan.xlsx", "--zone", "Europe/Berlin")
    assert (feed["source"]["header"], feed["key"]) == ({"row": 3}, ["Nr"])
    assert feed["examples"][0]["row"]["Titel"] == "Jazz"


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
    assert [guess["surety"] for guess in said["guesses"] if guess["about"] == "source.merged"] == ["sure"]
    rows = desk.run("preview", "drafted", "--json").document["rows"]
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
    event = "BEGIN:VEVENT\nUID:1\nSUMMARY:Jazz\nDTSTART:20300601T180000Z\nDURATION:PT2H\nCATEGORIES:Musique,Concert\nEND:VEVENT\n"
    (desk.folder / "agenda.ics").write_text(f"BEGIN:VCALENDAR\n{event}END:VCALENDAR\n")
    feed, _ = drafted(desk, "agenda.ics", "--zone", "Europe/Paris")
    split, known = feed["event"]["classifications"]["do"]
    assert (split, set(known["map"])) == ({"split": ";"}, {"Musique", "Concert"})
    assert desk.run("preview", "drafted", "--json").document["rows"][0]["event"]["endAt"] == "2030-06-01T22:00:00+02:00"


FOUND: dict[str, tuple[str, str, str, list[str], int | None]] = {
    "acmw-events.csv": (OVERWRITTEN, "Start", "End", [OVERWRITTEN, "Start"], 6),
    "cl-rse.csv": ("titulo", "fecha_iso", "", ["titulo", "fecha_iso"], 6),
    "confs-tech-general-2024.json": ("name", "startDate", "endDate", ["url", "startDate"], 129),
    "confs-tech-javascript-2019.json": ("name", "startDate", "endDate", ["url", "startDate"], 174),
    "de-ticketmaster.csv": ("event_name", "event_date", "", ["event_url", "event_date"], 100),
    "../../../mappings/feeds/samples/osaka-fireworks.csv": ("name", "date", "", ["id"], 6),
    "pl-krakow.csv": ("tytul", "data_rozpoczecia", "data_zakonczenia", ["id_strony", "data_rozpoczecia"], None),
    "pl-krakow-tiktak.csv": (
        "tytul",
        "data_rozpoczecia",
        "data_zakonczenia",
        ["tytul", "data_rozpoczecia", "godzina_rozpoczecia"],
        26,
    ),
    "sf-campaign-ladev.json": ("Name", "StartDate", "EndDate", ["attributes.referenceId"], 4),
    "sf-campaign-tree.csv": ("name", "", "", ["name"], 0),
    "sf-campaign-tree.json": ("name", "", "", ["attributes.referenceId"], 0),
    "w3c-csvw-events.csv": ("Name", "Start Date", "", ["Ticket Url"], 2),
}
"""What a person sees in each file: the columns of the title, the first and the last day and a key, and how many events it has."""
ZONES = {"de-ticketmaster.csv": ("Europe/Berlin", True)}
"""Whose clocks their cities speak for, and whether that is likely; nothing speaks for the others'."""
SURE_KEYS = {"../../../mappings/feeds/samples/osaka-fireworks.csv"}
"""All others have no identifier that is the partner's own, and the file must say so."""


@pytest.mark.parametrize("name", FOUND)
def test_each_real_feed_gives_a_file_that_passes_check_and_finds_title_days_and_key(desk: Desk, name: str) -> None:
    feed, said = drafted(desk, str(REAL / name))
    title, day, last_day, key, events = FOUND[name]
    assert said["problems"] == []
    assert feed["event"]["title"]["from"] == title
    told = {guess["about"]: guess["column"] for guess in reversed(said["guesses"])}
    assert (told["startAt"], told.get("endAt", "")) == (day, last_day)
    assert feed["let"].get("starts", {}).get("from", "") == day
    assert [part if isinstance(part, str) else part["column"] for part in feed["key"]] == key
    (surety,) = (guess["surety"] for guess in said["guesses"] if guess["about"] == "key")
    assert (surety == "sure") == (name in SURE_KEYS)
    (surety,) = (guess["surety"] for guess in said["guesses"] if guess["about"] == "timezone")
    zone, is_likely = ZONES.get(name, ("UTC", False))
    assert (feed["let"]["zone" if is_likely else "fill_in_zone"], surety) == (zone, "likely" if is_likely else "unsure")
    account = desk.run("preview", "drafted", "--rows", "0", "--all", "--json").document["account"]
    assert account["events"] == events or (events is None and account["events"] > 0)


def test_a_zone_is_found_by_whatever_name_and_the_instants_beside_it(desk: Desk) -> None:
    (desk.folder / "a.csv").write_text(
        "id,name,start_utc,tz\nB7,Jazz,2030-07-01T17:00:00Z,US/Eastern\nB9,Fado,2030-07-02T17:00:00Z,asia/calcutta\n", "utf-8"
    )
    feed, _ = drafted(desk, "a.csv")
    assert feed["event"]["timezone"] == {"from": "tz", "do": ["zone"]}
    assert feed["examples"][0]["event"]["startAt"] == "2030-07-01T13:00:00-04:00"


def test_days_of_several_in_one_cell_are_events_of_their_own_and_lists_of_texts_are_joined(desk: Desk) -> None:
    shows = [
        {"id": "x7", "name": "Jazz", "days": "3, 5 and 7 May 2030", "hour": "19 Uhr 30", "tags": ["Music", "Open air"]},
        {"id": "k2", "name": "Fado", "days": "8 May 2030", "hour": "kl. 20", "tags": ["Music"]},
    ]
    (desk.folder / "shows.json").write_text(json.dumps(shows), "utf-8")
    feed, _ = drafted(desk, "shows.json", "--zone", "Europe/Lisbon")
    assert feed["source"]["join_lists"] == {"tags": "; "}
    split, mapped = feed["event"]["classifications"]["do"]
    assert (split, sorted(mapped["map"])) == ({"split": "; "}, ["Music", "Open air"])
    rows = desk.run("preview", "drafted", "--json").document["rows"]
    assert [(row["row_key"], row["event"]["startAt"]) for row in rows] == [
        ("x7|2030-05-03", "2030-05-03T19:30:00+01:00"),
        ("x7|2030-05-05", "2030-05-05T19:30:00+01:00"),
        ("x7|2030-05-07", "2030-05-07T19:30:00+01:00"),
        ("k2|2030-05-08", "2030-05-08T20:00:00+01:00"),
    ]


def test_an_open_order_of_day_and_month_stays_open_in_lists_of_days_too(desk: Desk) -> None:
    (desk.folder / "a.csv").write_text("id,name,dates\nB7,Jazz,03/05/2030; 04/05/2030\nB9,Fado,05/05/2030\n", "utf-8")
    _, said = drafted(desk, "a.csv")
    assert said["problems"] == []
    text = (desk.folder / "feeds" / "drafted.yaml").read_text("utf-8")
    assert '# days: {from: dates, do: [{dates: "%d/%m/%Y", by: [";"]}]}' in text
    assert '# days: {from: dates, do: [{dates: "%m/%d/%Y", by: [";"]}]}' in text


def test_the_first_and_the_last_day_in_one_cell_are_the_beginning_and_the_end(desk: Desk) -> None:
    (desk.folder / "a.csv").write_text(
        "id,name,date\nB7,Jazz,3-5 May 2030\nB9,Fado,28 Feb - 2 Mar 2030\nC1,Rap,9 May 2030\n", "utf-8"
    )
    drafted(desk, "a.csv", "--zone", "Europe/Lisbon")
    rows = desk.run("preview", "drafted", "--json").document["rows"]
    assert [(row["event"]["startAt"][:10], row["event"].get("endAt", "")[:10]) for row in rows] == [
        ("2030-05-03", "2030-05-05"),
        ("2030-02-28", "2030-03-02"),
        ("2030-05-09", ""),
    ]


def test_rows_of_several_countries_have_each_its_own_zone_and_those_of_many_zones_are_left_to_the_author(desk: Desk) -> None:
    rows = "B7,Jazz,2030-07-01,Germany\nB9,Fado,2030-07-02,Portugal\nC1,Rap,2030-07-02,USA\n"
    (desk.folder / "a.csv").write_text(f"id,name,date,country\n{rows}", "utf-8")
    feed, said = drafted(desk, "a.csv")
    mapped, rest = feed["let"]["zone"]["first_of"]
    assert (mapped["do"][0]["map"], rest) == ({"Germany": "Europe/Berlin", "Portugal": "Europe/Lisbon"}, "$fill_in_zone")
    (why,) = (guess["why"] for guess in said["guesses"] if guess["about"] == "timezone")
    assert why == '"country" names 3 countries; no single zone is that of USA'
    told = desk.run("preview", "drafted", "--json").document["rows"]
    assert [row["event"]["startAt"][19:] for row in told] == ["+02:00", "+01:00", "+00:00"]


def test_people_are_told_at_the_end_what_the_draft_is_unsure_of(desk: Desk) -> None:
    said = desk.run("init", str(REAL / "cl-rse.csv"), "--feed", "talks")
    assert "places to look at; unsure of: key, timezone, left aside" in said.out + said.err
