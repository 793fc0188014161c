"""Partners' files with the faults of their kinds, mapped without Python: encodings, sheets, identifiers, corrections, days."""

from __future__ import annotations

import io
from datetime import time
from pathlib import Path
from typing import Any

import xlsxwriter
from contract.feed_runs import accounts_of, events_in, outcomes_in, reasons_in

from mappings.outcome import MappedRow, RowOutcome
from mappings.reasons import ReasonCode
from mappings.yaml.loader import parse_feed

EVENT = """
  channelId: {channel: city-agenda}
  timezone: Europe/Lisbon
  classifications: [culture]
  approxLocation.city: {placeId: pt-lisboa, name: Lisboa, countryCode: PT}
"""
"""What every event says where the test is about something else; stands in a mapping's place of EVENT."""


def outcomes(folder: Path, mapping: str, files: dict[str, bytes]) -> list[RowOutcome]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    text = mapping.replace("\n  EVENT\n", EVENT)
    return outcomes_in(parse_feed(text, folder / "feed.yaml"), folder)


def starts_in(found: list[RowOutcome], length: int | None = None) -> dict[str, Any]:
    """When each event starts, by row key; so many characters of it."""
    return {key: event["startAt"][:length] for key, event in events_in(found).items()}


def refused_in(found: list[RowOutcome]) -> dict[str, list[Any]]:
    """Column, code and raw value of each reason, by row key."""
    return {key: [reason[:3] for reason in reasons] for key, reasons in reasons_in(found).items()}


PADDED = """
feed: padded
source: {kind: csv, path: a.csv, encoding: [utf-8, windows-1252], delimiter: ";", empty_if: [k.A.]}
key: [Nr.]
event:
  EVENT
  title: {from: Titel, do: [collapse]}
  startAt: {at: {day: {from: Datum, do: [{date: "%d.%m.%Y"}]}, clock: {from: Beginn, do: [clock]}, zone: Europe/Lisbon}}
  offers:
    - name:
        choose: [{when: {column: Preis, equals: frei}, then: Eintritt frei}]
        otherwise: {from: Preis, do: [{price: ",", take: amount}, to_text, {suffix: " €"}]}
      url: {from: Karten, do: [url], on_empty: omit}
"""


def test_a_windows_file_with_padded_headers_is_read_by_the_names_a_person_sees(tmp_path: Path) -> None:
    text = (
        " Nr. ;Titel   ;  Datum;Beginn ;Preis;Karten\xa0\r\n"
        "007 ;\x93Jazz\x94 &  Blues ; 3.5.2026;19.30 Uhr;12,50 \x80;www.karten.example/7\r\n"
        "008;Fado;4.5.2026;20 Uhr;frei;k.A.\r\n"
    )
    found = events_in(outcomes(tmp_path, PADDED, {"a.csv": text.encode("latin-1")}))
    assert list(found) == ["007", "008"]
    assert found["007"]["title"] == "“Jazz” & Blues"
    assert found["007"]["startAt"] == "2026-05-03T19:30:00+01:00"
    assert found["007"]["offers"] == [{"name": "12.50 €", "url": "https://www.karten.example/7"}]
    assert found["008"]["offers"] == [{"name": "Eintritt frei"}]


KOREAN = """
feed: korean
source: {kind: csv, path: a.csv, encoding: [utf-8, cp949]}
key: [번호]
event:
  EVENT
  title: {from: 제목}
  startAt:
    at:
      day: {from: 날짜, do: [{date: "%Y년 %m월 %d일"}]}
      clock: {from: 시간, do: [{time: "%p %I시 %M분", locale: ko}]}
      zone: Asia/Seoul
"""


def test_two_broken_sequences_cost_one_row_and_warn_of_the_other(tmp_path: Path) -> None:
    rows = (
        "번호,제목,날짜,시간,비고\n1,불꽃축제,2026년 5월 3일,오후 7시 30분,BROKEN\n"
        "2,BROKEN축제,2026년 5월 4일,오전 9시 00분,\n3,재즈,2026년 5월 5일,오후 8시 00분,없음\n"
    )
    content = rows.encode("cp949").replace(b"BROKEN", b"\xff\x41")
    found = outcomes(tmp_path, KOREAN, {"a.csv": content})
    assert starts_in(found) == {
        "1": "2026-05-03T19:30:00+09:00",
        "3": "2026-05-05T20:00:00+09:00",
    }
    warned = [(one.row_key, why.code, why.column) for one in found if isinstance(one, MappedRow) for why in one.warnings]
    assert warned == [("1", ReasonCode.UNDECODABLE, "비고")]
    assert [reason[:2] for reason in reasons_in(found)["2"]] == [("제목", ReasonCode.UNDECODABLE)]


EDITORIAL = """
feed: editorial
source: {kind: xlsx, path: a.xlsx, sheet: Programme, header: {matches: "^Title$"}, optional: ["#1"]}
key: ["#1"]
let:
  day: # dates typed as such, and dates that a paste has turned into their serial numbers
    first_of:
      - {from: Date, do: [{iso: date}], on_error: omit}
      - {from: Date, do: [{serial: 1900}, day_of]}
  clock: {from: Time, do: [{empty_if: [TBA, tbc], ignore: [case]}, {clock: am_pm}], on_empty: omit}
event:
  EVENT
  title: {from: Title, do: [collapse]}
  startAt: {at: {day: $day, clock: $clock, zone: Europe/Lisbon, all_day: "00:00"}}
  status: {choose: [{when: {value: $clock, is: missing}, then: draft}], otherwise: published}
"""


def test_an_editors_sheet_keeps_its_nameless_columns_and_its_dozen_ways_of_telling_the_time(tmp_path: Path) -> None:
    told = [time(19, 30), "7pm", "7.30 p.m.", "19h30", "noon", "19:00", "TBA", "", "kl. 20", "7:30", "evening", "20:00 AM"]
    file = io.BytesIO()
    with xlsxwriter.Workbook(file) as book:
        page = book.add_worksheet("Programme")
        page.write_row(0, 0, ["Draft for the desk, do not send"])
        page.write_row(2, 0, ["", "Title", "", "Date", "Time"])
        clock, day = book.add_format({"num_format": "hh:mm"}), book.add_format({"num_format": "d mmm yyyy"})
        for number, said in enumerate(told, start=1):
            page.write_row(2 + number, 0, [f"E{number}", f"Talk {number}", "ask Ana"])
            page.write_number(2 + number, 3, 46145, day if number % 2 else None)  # 3 May 2026
            page.write(2 + number, 4, said, clock if isinstance(said, time) else None)
    found = outcomes(tmp_path, EDITORIAL, {"a.xlsx": file.getvalue()})
    events = events_in(found)
    clocks = ["19:30", "19:00", "19:30", "19:30", "12:00", "19:00", "00:00", "00:00", "20:00"]
    assert starts_in(found, 16) == {f"E{number}": f"2026-05-03T{clock}" for number, clock in enumerate(clocks, start=1)}
    assert [key for key, event in events.items() if event["status"] == "draft"] == ["E7", "E8"]
    assert refused_in(found) == {
        key: [("Time", ReasonCode.NOT_A_TIME, said)] for key, said in (("E10", "7:30"), ("E11", "evening"), ("E12", "20:00 AM"))
    }
    assert [one.location.place for one in found][:2] == ["Programme!A4", "Programme!A5"]


CAMPAIGNS = """
feed: campaigns
source: {kind: csv, path: campaigns.csv, required: [Id, Name, StartDate]}
key: [Id]
rows:
  - skip: {column: IsDeleted, equals: "true", ignore: [case]}
    because: deleted
  - cancelled: {column: Status, in: [Aborted]}
event:
  EVENT
  title: {from: Name}
  startAt: {at: {day: {from: StartDate, do: [{iso: date}]}, zone: Europe/Lisbon, all_day: "00:00"}}
"""


def test_identifiers_of_fifteen_characters_differ_by_capitals_alone_and_may_look_like_numbers(tmp_path: Path) -> None:
    text = (
        '"Id","Name","StartDate","Status","IsDeleted"\n"701D0000000AbCd","Jazz","2026-05-03","Planned","false"\n'
        '"701D0000000abcd","Fado","2026-05-04","Planned","false"\n"701300000000E12","Blues","2026-05-05","Planned","false"\n'
        '"701300000000456","Tango","2026-05-06","Aborted","false"\n"701300000000457","Swing","2026-05-07","Planned","TRUE"\n'
        '"7.013E+14","Samba","2026-05-08","Planned","false"\n'
    )
    found = outcomes(tmp_path, CAMPAIGNS, {"campaigns.csv": text.encode()})
    assert list(events_in(found)) == ["701D0000000AbCd", "701D0000000abcd", "701300000000E12"]
    assert accounts_of(found).skipped == {"cancelled": 1, "deleted": 1}
    assert [reason[:3] for reasons in reasons_in(found).values() for reason in reasons] == [
        ("Id", ReasonCode.BAD_KEY, "7.013E+14")
    ]


YEARS = """
feed: years
source: {kind: csv, path: "permits-*.csv"}
key: [PERMIT]
rows:
  - duplicates: {keep: last}
event:
  EVENT
  title: {from: NAME}
  startAt: {at: {day: {from: DAY, do: [{iso: date}]}, zone: Europe/Lisbon, all_day: "00:00"}}
"""


def test_a_later_file_corrects_what_an_earlier_one_said(tmp_path: Path) -> None:
    files = {
        "permits-2026.csv": b"PERMIT,NAME,DAY\nP1,Parade,2026-05-03\nP2,Run,2026-05-04\n",
        "permits-2026-corrections-10.csv": b"PERMIT,NAME,DAY\nP1,Parade,2026-05-24\n",
        "permits-2026-corrections-9.csv": b"PERMIT,NAME,DAY\nP1,Parade,2026-05-17\nP3,Fair,2026-05-05\n",
    }
    found = outcomes(tmp_path, YEARS, files)
    assert starts_in(found, 10) == {
        "P1": "2026-05-24",
        "P2": "2026-05-04",
        "P3": "2026-05-05",
    }


PERMITS = """
feed: permits
source: {kind: csv, path: permits.csv, required: [ID, NAME, STARTS]}
key: [ID]
event:
  EVENT
  title: {from: NAME, do: [fix_mojibake, collapse, title]}
  startAt: {from: STARTS, do: [{datetime: "%m/%d/%Y %I:%M %p"}, {wall_time_in: America/New_York}]}
"""


def test_permits_with_broken_letters_are_mended_and_hours_that_never_were_refused(tmp_path: Path) -> None:
    text = (
        "ID,NAME,STARTS\n1,ST. PATRICKâ€™S PARADE,03/08/2026 02:30 AM\n2,CAFÃ‰ ON THE SQUARE,03/08/2026 03:00 AM\n"
        "3,NIGHT RUN,11/01/2026 01:30 AM\n4,BLOCK PARTY,13/01/2026 10:00 AM\n5,FAIR,07/04/2026 20:00 PM\n"
    )
    found = outcomes(tmp_path, PERMITS, {"permits.csv": text.encode()})
    events = events_in(found)
    assert {key: (event["title"], event["startAt"]) for key, event in events.items()} == {
        "2": ("Café On The Square", "2026-03-08T03:00:00-04:00"),
        "3": ("Night Run", "2026-11-01T01:30:00-04:00"),  # the first of the two
    }
    assert [(one.row_key, why.code) for one in found if isinstance(one, MappedRow) for why in one.warnings] == [
        ("2", ReasonCode.REPAIRED)
    ]
    assert refused_in(found) == {
        "1": [("STARTS", ReasonCode.NO_SUCH_TIME, "03/08/2026 02:30 AM")],
        "4": [("STARTS", ReasonCode.NOT_A_DATE, "13/01/2026 10:00 AM")],
        "5": [("STARTS", ReasonCode.NOT_A_DATE, "07/04/2026 20:00 PM")],
    }


SEVERAL = """
feed: several
source: {kind: csv, path: a.csv, delimiter: ";"}
key: [ID]
let:
  days: {from: DATES, do: [{dates: "%d %B %Y", by: [",", " and ", " & "]}]}
rows:
  - recur: {days: $days, at_most: 20}
event:
  EVENT
  title: {from: NAME}
  startAt: {at: {day: $day, clock: {from: TIME, do: [clock]}, zone: Europe/Lisbon}}
"""


def test_several_days_in_one_cell_are_as_many_events_each_with_a_key_for_life(tmp_path: Path) -> None:
    text = "ID;NAME;TIME;DATES\nA;Jazz;21h;3, 5 and 7 May 2026\nB;Fado;20h;30 April & 1 May 2026\nC;Tango;20h;3 May 2026, TBA\n"
    found = outcomes(tmp_path, SEVERAL, {"a.csv": text.encode()})
    assert starts_in(found) == {
        "A|2026-05-03": "2026-05-03T21:00:00+01:00",
        "A|2026-05-05": "2026-05-05T21:00:00+01:00",
        "A|2026-05-07": "2026-05-07T21:00:00+01:00",
        "B|2026-04-30": "2026-04-30T20:00:00+01:00",
        "B|2026-05-01": "2026-05-01T20:00:00+01:00",
    }
    assert [reason[:3] for reason in reasons_in(found)["C"]] == [("DATES", ReasonCode.NOT_A_DATE, "3 May 2026, TBA")]


INSTANTS = """
feed: instants
source: {kind: ndjson, path: a.ndjson}
key: [id]
let:
  zone: {from: tz, do: [zone]}
  starts: {in_zone: {moment: {from: start_utc, do: [{iso: moment}]}, zone: $zone}}
event:
  channelId: {channel: city-agenda}
  title: {from: name}
  startAt: $starts
  endAt: {from: $starts, do: [{plus: 90m}]}
  timezone: $zone
  classifications: [music]
  approxLocation.city: {placeId: us-boston, name: Boston, countryCode: US}
"""


def test_instants_are_shown_on_the_clocks_of_zones_by_whatever_name(tmp_path: Path) -> None:
    zones = ("US/Eastern", "Eastern Standard Time", "asia/calcutta", "Europe/Kiev", "EST", "UTC+2")
    lines = (
        f'{{"id": {n}, "name": "Jazz", "start_utc": "2026-07-01T17:00:00Z", "tz": "{zone}"}}\n' for n, zone in enumerate(zones)
    )
    found = outcomes(tmp_path, INSTANTS, {"a.ndjson": "".join(lines).encode()})
    assert [(event["startAt"], event["endAt"][11:16], event["timezone"]) for event in events_in(found).values()] == [
        ("2026-07-01T13:00:00-04:00", "14:30", "America/New_York"),
        ("2026-07-01T13:00:00-04:00", "14:30", "America/New_York"),
        ("2026-07-01T22:30:00+05:30", "00:00", "Asia/Kolkata"),
        ("2026-07-01T20:00:00+03:00", "21:30", "Europe/Kyiv"),
    ]
    assert refused_in(found) == {
        "4": [("tz", ReasonCode.NOT_A_ZONE, "EST")],
        "5": [("tz", ReasonCode.NOT_A_ZONE, "UTC+2")],
    }


SERIES = """
feed: series
source: {kind: ics, path: a.ics, required: [UID, SUMMARY, DTSTART, RRULE, EXDATE]}
key: [UID]
let:
  first: {from: DTSTART, do: [{iso: wall}]}
rows:
  - recur:
      when: {column: RRULE, is: present}
      from: {from: $first, do: [day_of]}
      rrule: {from: RRULE}
      except: {from: EXDATE, do: [{split: ";"}, {iso: wall}, day_of], on_empty: omit}
      horizon: 3650d
event:
  EVENT
  title: {from: SUMMARY}
  startAt: {at: {day: $day, clock: {from: $first, do: [clock_of]}, zone: Europe/Lisbon}}
"""


def test_a_calendar_s_weekly_series_leaves_out_the_days_it_excludes(tmp_path: Path) -> None:
    text = (
        "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:jam\r\nSUMMARY:Jam session\r\nDTSTART;TZID=Europe/Lisbon:20260316T210000\r\n"
        "RRULE:FREQ=WEEKLY;BYDAY=MO;COUNT=4\r\nEXDATE;TZID=Europe/Lisbon:20260323T210000\r\nEND:VEVENT\r\n"
        "BEGIN:VEVENT\r\nUID:once\r\nSUMMARY:Gala\r\nDTSTART;TZID=Europe/Lisbon:20260501T200000\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    assert starts_in(outcomes(tmp_path, SERIES, {"a.ics": text.encode()})) == {
        "jam|2026-03-16": "2026-03-16T21:00:00+00:00",
        "jam|2026-03-30": "2026-03-30T21:00:00+01:00",  # the clocks went forward the day before
        "jam|2026-04-06": "2026-04-06T21:00:00+01:00",
        "once": "2026-05-01T20:00:00+01:00",
    }
