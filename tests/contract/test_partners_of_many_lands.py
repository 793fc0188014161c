"""Partners' files with the faults of their kinds, mapped without Python: encodings, sheets, identifiers, corrections."""

from __future__ import annotations

import io
from datetime import time
from pathlib import Path

import xlsxwriter
from contract.feed_runs import accounts_of, events_in, reasons_in
from contract.partner_files import outcomes

from mappings.outcome import MappedRow
from mappings.reasons import ReasonCode

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
    assert {key: event["startAt"] for key, event in events_in(found).items()} == {
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
    assert {key: event["startAt"][:16] for key, event in events.items()} == {
        "E1": "2026-05-03T19:30",
        "E2": "2026-05-03T19:00",
        "E3": "2026-05-03T19:30",
        "E4": "2026-05-03T19:30",
        "E5": "2026-05-03T12:00",
        "E6": "2026-05-03T19:00",
        "E7": "2026-05-03T00:00",
        "E8": "2026-05-03T00:00",
        "E9": "2026-05-03T20:00",
    }
    assert [key for key, event in events.items() if event["status"] == "draft"] == ["E7", "E8"]
    refused = {key: [reason[:3] for reason in reasons] for key, reasons in reasons_in(found).items()}
    assert refused == {
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
    assert {key: event["startAt"][:10] for key, event in events_in(found).items()} == {
        "P1": "2026-05-24",
        "P2": "2026-05-04",
        "P3": "2026-05-05",
    }
