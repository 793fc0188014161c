"""Partners' files that are hard on the calendar, mapped without Python: clocks that jump, lists of days, instants, series."""

from __future__ import annotations

from pathlib import Path

from contract.feed_runs import events_in, reasons_in
from contract.partner_files import outcomes

from mappings.outcome import MappedRow
from mappings.reasons import ReasonCode

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
    assert {key: [reason[:3] for reason in reasons] for key, reasons in reasons_in(found).items()} == {
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
    assert {key: event["startAt"] for key, event in events_in(found).items()} == {
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
    assert {key: [reason[:3] for reason in reasons] for key, reasons in reasons_in(found).items()} == {
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
    events = events_in(outcomes(tmp_path, SERIES, {"a.ics": text.encode()}))
    assert {key: event["startAt"] for key, event in events.items()} == {
        "jam|2026-03-16": "2026-03-16T21:00:00+00:00",
        "jam|2026-03-30": "2026-03-30T21:00:00+01:00",  # the clocks went forward the day before
        "jam|2026-04-06": "2026-04-06T21:00:00+01:00",
        "once": "2026-05-01T20:00:00+01:00",
    }
