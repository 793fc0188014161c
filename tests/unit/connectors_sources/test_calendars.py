"""Calendars: what RFC 5545 says, compared with recurring-ical-events on files that were written elsewhere."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from calendars import PUBLISHED, library_spans, overlapping, read_calendar
from unit.connectors_sources.reading import SPEC

from connectors.sources.catalogue import open_source
from mappings.outcome import OVER, TOO_FAR, SourceRow

FIELD_CASES = Path(__file__).parents[2] / "field_cases"
SPRING = datetime(2027, 1, 1, tzinfo=UTC)
DIFFERENT = {
    "Germany_Holidays.ics": "DTEND equal to DTSTART: a day, of which the library makes a moment",
}
"""Calendars that we read otherwise than the library, and why."""
REJECTED = {
    "bad_rrule_missing_until_event.ics": "UNTL",
    "end_before_start_event.ics": "give an end after that",
    "issue_132_swapped_start_and_end.ics": "give an end after that",
    "issue_201_mixed_datetime_and_date.ics": "its start and its end must both be days",
    "issue_201_test_matrix.ics": "there is END:VTOOD where the VTODO of line 7 should end",
}
"""Calendars of which something is rejected, with a part of the sentence. The library swaps start and end."""


def named_years(path: Path) -> tuple[datetime, int]:
    """Return the middle of the years that a calendar's events name, and how many lie on each side, and two more at the end."""
    times = r"(?:DTSTART|DTEND|RECURRENCE-ID|EXDATE|RDATE|UNTIL)[^:\n]*[:=](20\d\d)"
    named = [int(year) for year in re.findall(times, path.read_text("utf-8", "replace"))] or [2020]
    first = max(min(named), 2013)
    last = max(min(max(named) + 2, 2031), first)
    return datetime((first + last) // 2, 7, 1, tzinfo=UTC), (last - first) // 2 + 1


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.ics")), ids=lambda path: path.name)
def test_a_calendar_that_somebody_reported_gives_what_the_library_gives_or_is_rejected(path: Path) -> None:
    now, years = named_years(path)
    ours = read_calendar(path, now, years)
    if path.name in REJECTED:
        assert any(REJECTED[path.name] in sentence for sentence in ours.rejected), ours.rejected
        return
    assert not ours.rejected
    reach = now - timedelta(days=366 * years), now + timedelta(days=366 * years)
    is_equal = overlapping(ours.spans, reach) == library_spans(path, reach)
    assert is_equal is (path.name not in DIFFERENT)


def test_the_package_still_ships_its_calendars() -> None:
    assert len(list(PUBLISHED.glob("*.ics"))) >= 78


RIGHT = {
    "google-this-and-following.ics": "03-01 18:00+60, 03-08 18:00+60, 03-15 19:00+60, 03-22 19:00+60",
    "utc-exdate.ics": "03-05 01:00+120, 03-06 01:00+120, 03-08 01:00+120, 03-09 01:00+120",
    "rdate.ics": "03-05 18:00+120, 03-06 14:00+120, 03-06 18:00+120, 03-10 18:00+120, 03-11 18:00+120, 03-13 10:00+180",
    "this-and-future.ics": "03-01 18:00+60, 03-08 18:00+60, 03-15 19:00+60, 03-22 19:00+60",
    "series-over-several-days.ics": "03-05 17:00+2760, 03-12 00:00+4319, 04-05 16:00+2760, 04-12 00:00+4319",
    "all-day-equal-end.ics": "05-01 00:00+1439",
    "start-outside-rule.ics": (
        "01-31 18:00+0, 03-01 18:00+0, 03-01 18:00+0, 03-01 18:00+0, 03-01 18:00+0, 03-02 14:00+0, 03-02 18:00+0, 03-02 18:00+0, "
        "03-02 18:00+0, 03-03 14:00+0, 03-04 18:00+0, 03-08 18:00+0, 03-09 18:00+0, 03-11 18:00+0, 03-31 17:00+0, "
        "03-31 17:00+0, 04-30 17:00+0, 05-31 17:00+0, 05-31 17:00+0"
    ),
    "no-uid.ics": "03-01 18:00+0, 03-02 18:00+0",
    "raw-newline.ics": "03-05 18:00+0, 03-06 18:00+0",
}
"""The starts in UTC of each field case in 2027, and the minutes of each event."""


@pytest.mark.parametrize("name", RIGHT)
def test_the_calendars_from_the_field_give_the_right_events(name: str) -> None:
    ours = read_calendar(FIELD_CASES / name, SPRING)
    shown = [f"{start:%m-%d %H:%M}+{(end - start) // timedelta(minutes=1)}" for start, end in ours.spans]
    assert (", ".join(shown), ours.rejected, [label for label in ours.left_out if label != OVER]) == (RIGHT[name], [], [])


def rows(folder: Path, *events: str, now: datetime = SPRING, calendar: str = "", asked: str = "UID") -> list[SourceRow]:
    """Read a column of a calendar's events, each of parts that become lines; `calendar`: lines before them."""
    made = ["\n".join(["BEGIN:VEVENT", *event.split(), "END:VEVENT"]) for event in events]
    path = folder / "events.ics"
    path.write_text("\n".join(["BEGIN:VCALENDAR", *calendar.split(), *made, "END:VCALENDAR", ""]))
    return read(path, now, asked)


def read(path: Path, now: datetime = SPRING, asked: str = "UID") -> list[SourceRow]:
    spec = SPEC.validate_python({"kind": "ics", "path": path.name})
    with open_source(spec, path.parent, frozenset({asked}), now=now).read() as reading:
        return list(reading.rows)


def shown(found: list[SourceRow], *names: str) -> list[str]:
    """Return the cells of each row, the label of one that is no event, or the sentence of one that is rejected."""
    texts = []
    for row in found:
        cells = " ".join(row.cells.get(name, "") for name in names)
        label = f"{row.unread.because} after {row.unread.after}" if row.unread is not None else cells
        texts.append(row.problems[0].hint if row.problems else label)
    return texts


BERLIN, NEW_YORK = "TZID=Europe/Berlin", "TZID=America/New_York"
WEEKLY = f"UID:a DTSTART;{BERLIN}:20270301T190000 RRULE:FREQ=WEEKLY;COUNT=3"


def test_an_occurrence_keeps_its_own_time_as_its_identity_when_it_moves(tmp_path: Path) -> None:
    found = rows(
        tmp_path,
        WEEKLY,
        "UID:a RECURRENCE-ID:20270308T180000Z DTSTART:20270309T170000Z",
        f"UID:a RECURRENCE-ID;{BERLIN}:20270315T190000 STATUS:CANCELLED",
    )
    assert shown(found, "RECURRENCE-ID", "RECURRENCE-ID.TZID", "DTSTART", "STATUS") == [
        "2027-03-01T19:00:00 Europe/Berlin 2027-03-01T19:00:00 ",
        "2027-03-08T19:00:00 Europe/Berlin 2027-03-09T17:00:00Z ",
        "2027-03-15T19:00:00 Europe/Berlin 2027-03-15T19:00:00 CANCELLED",
    ]
    assert [str(row.location) for row in found] == [
        "events.ics:2 (2027-03-01T19:00:00)",
        "events.ics:7 (2027-03-08T19:00:00)",
        "events.ics:12 (2027-03-15T19:00:00)",
    ]


def test_occurrences_that_all_move_from_one_on_keep_their_identity(tmp_path: Path) -> None:
    later = f"UID:a RECURRENCE-ID;RANGE=THISANDFUTURE;{BERLIN}:20270308T190000 DTSTART;{BERLIN}:20270309T200000"
    assert shown(rows(tmp_path, WEEKLY, later), "RECURRENCE-ID", "DTSTART") == [
        "2027-03-01T19:00:00 2027-03-01T19:00:00",
        "2027-03-08T19:00:00 2027-03-09T20:00:00",
        "2027-03-15T19:00:00 2027-03-16T20:00:00",
    ]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("DTSTART:20270601T100000Z RRULE:FREQ=YEARLY", ["2027-06-01T10:00:00Z", f"{TOO_FAR} after 2027-12-30"]),
        ("DTSTART:20280601T100000Z RRULE:FREQ=YEARLY", [f"{TOO_FAR} after 2027-12-30"]),
        ("DTSTART:20200601T100000Z RRULE:FREQ=YEARLY;COUNT=2", [f"{OVER} after "]),
        ("DTSTART:20280601T100000Z", ["2028-06-01T10:00:00Z"]),
    ],
)
def test_a_row_stands_for_the_occurrences_that_are_not_read(tmp_path: Path, rule: str, expected: list[str]) -> None:
    assert shown(rows(tmp_path, f"UID:a {rule}"), "DTSTART") == expected


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ("DTSTART:20270301T100000Z RRULE:FREQ=SECONDLY", "more than 100,000 times"),
        ("DTSTART:20270301T100000Z RRULE:FREQ=MINUTELY;BYSECOND=0", "more than 100,000 times"),
        ("DTSTART:20300301T100000Z RRULE:FREQ=SECONDLY", "more than 100,000 times"),
        ("DTSTART:20271231T100000Z RRULE:FREQ=SECONDLY;BYMONTH=6", "more than 100,000 times"),
        ("DTSTART;VALUE=DATE:20270301 RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "names no day"),
        ("DTSTART:20270301T100000Z RRULE:FREQ=DAILY;INTERVAL=7;BYDAY=TU;COUNT=2", "names no day"),
        ("DTSTART:20270301T100000Z RRULE:FREQ=HOURLY;INTERVAL=24;BYHOUR=9,11;BYDAY=MO", "RRULE cannot be read"),
        ("DTSTART:20270301T100000Z RRULE:FREQ=SECONDLY;COUNT=-1", "more than 100,000 times"),
        ("DTSTART:20270301T100000Z RRULE:FREQ=DAILY;INTERVAL=0", "not one of RFC 5545"),
        ("DTSTART:20270301T100000Z RRULE:FREQ=FORTNIGHTLY", "RRULE cannot be read"),
        ("DTSTART:20270301T100000Z RRULE:W2", "not one of RFC 5545"),
        ("DTSTART:20270301T100000Z RRULE:FREQ=DAILY;COUNT=3 EXRULE:FREQ=WEEKLY", "EXRULE is not read"),
        ("DTSTART:20270301T100000Z DTEND:20270301T090000Z RRULE:FREQ=DAILY;COUNT=3", "ends before it begins"),
        ("DTSTART:soon RRULE:FREQ=DAILY;COUNT=3", "its start or its end cannot be read"),
        ("DTSTART:20270301T100000Z EXDATE:soon RRULE:FREQ=DAILY;COUNT=3", "EXDATE cannot be read: soon"),
        ("DTSTART;TZID=Nowhere:20270301T100000 RRULE:FREQ=DAILY;COUNT=3", '"Nowhere" of DTSTART is neither known nor defined'),
    ],
)
def test_a_series_that_cannot_be_read_is_rejected_with_a_sentence(tmp_path: Path, event: str, sentence: str) -> None:
    (row,) = rows(tmp_path, f"UID:a {event}")
    assert sentence in shown([row])[0]
    assert row.unread is not None
    assert row.problems[0].code == "bad_series"


def test_a_rule_in_utc_is_rejected_if_the_zone_of_the_calendar_gives_other_days(tmp_path: Path) -> None:
    """RFC 5545 repeats it in UTC, programs that know X-WR-TIMEZONE in the zone of the calendar."""
    late = "UID:a DTSTART:20270302T020000Z RRULE:FREQ=WEEKLY;BYDAY=TU;COUNT=2"
    assert "in UTC than in America/New_York" in shown(rows(tmp_path, late, calendar="X-WR-TIMEZONE:America/New_York"))[0]
    assert shown(rows(tmp_path, late), "DTSTART") == ["2027-03-02T02:00:00Z", "2027-03-09T02:00:00Z"]
    same = "UID:a DTSTART:20270302T120000Z RRULE:FREQ=WEEKLY;COUNT=2"
    assert len(rows(tmp_path, same, calendar="X-WR-TIMEZONE:America/New_York")) == 2


def zone(name: str, offset: str) -> str:
    lines = ("BEGIN:VTIMEZONE", f"TZID:{name}", "BEGIN:STANDARD", "DTSTART:19700101T000000", f"TZOFFSETFROM:{offset}")
    return " ".join([*lines, f"TZOFFSETTO:{offset}", "END:STANDARD", "END:VTIMEZONE"])


def test_a_zone_that_the_file_defines_otherwise_than_its_name_says_rejects_the_events_that_differ(tmp_path: Path) -> None:
    series = f"UID:a DTSTART;{BERLIN}:20270301T190000 RRULE:FREQ=MONTHLY;COUNT=3"
    found = rows(tmp_path, series, f"UID:b DTSTART;{BERLIN}:20270701T190000", calendar=zone("Europe/Berlin", "+0100"))
    differ = "the time zone Europe/Berlin of the file and the one of that name differ then: +01:00 and +02:00"
    assert shown(found, "DTSTART") == ["2027-03-01T19:00:00", differ, differ, differ]


def test_a_zone_that_only_the_file_knows_gives_moments(tmp_path: Path) -> None:
    path = tmp_path / "events.ics"
    for name in ("Customized", "Mitteleuropäische Zeit "):
        rows(tmp_path, "UID:a DTSTART;TZID=Zone:20270301T190000 RRULE:FREQ=DAILY;COUNT=2", calendar=zone("Zone", "+0530"))
        path.write_text(re.sub(r"(TZID[:=])Zone", rf"\1{name}", path.read_text()))
        assert shown(read(path), "DTSTART", "DTSTART.TZID") == ["2027-03-01T13:30:00Z ", "2027-03-02T13:30:00Z "]


def test_a_wall_time_that_the_clocks_skip_is_the_moment_that_the_rfc_says(tmp_path: Path) -> None:
    series = f"UID:a DTSTART;{BERLIN}:20270327T023000 RRULE:FREQ=DAILY;COUNT=3"
    times = ["2027-03-27T02:30:00", "2027-03-28T01:30:00Z", "2027-03-29T02:30:00"]
    assert shown(rows(tmp_path, series), "DTSTART") == times


def test_of_two_versions_of_an_event_the_one_with_the_higher_sequence_is_read(tmp_path: Path) -> None:
    old, new = "UID:a DTSTART:20270301T100000Z SEQUENCE:1", "UID:a DTSTART:20270302T100000Z SEQUENCE:2"
    assert shown(rows(tmp_path, new, old), "DTSTART") == ["2027-03-02T10:00:00Z"]
    assert len(rows(tmp_path, old, old.replace("0301", "0303"))) == 2
    rule = " RRULE:FREQ=DAILY;COUNT=2"
    assert shown(rows(tmp_path, old + rule, new + rule), "DTSTART") == ["2027-03-02T10:00:00Z", "2027-03-03T10:00:00Z"]
    (row,) = rows(tmp_path, old + rule, old.replace("0301", "0303") + rule)
    assert "the events of the lines 2 and 8 have the same UID and SEQUENCE" in shown([row])[0]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (["DTSTART:20270301T100000Z EXDATE:20270301T100000Z"], [f"{OVER} after "]),
        (
            ["DTSTART:20270301T100000Z", "RECURRENCE-ID:20270301T100000Z DTSTART:20270302T110000Z"],
            ["2027-03-01T10:00:00Z 2027-03-02T11:00:00Z"],
        ),
    ],
)
def test_an_event_without_a_rule_has_exceptions_as_a_series_has(tmp_path: Path, events: list[str], expected: list[str]) -> None:
    assert shown(rows(tmp_path, *(f"UID:a {event}" for event in events)), "RECURRENCE-ID", "DTSTART") == expected


@pytest.mark.parametrize(
    ("start", "original", "expected"),
    [
        (f";{BERLIN}:20270301T190000", ";VALUE=DATE:20270302", "2027-03-02T19:00:00"),
        (f";{BERLIN}:20270301T190000", ":20270302T190000", "2027-03-02T19:00:00"),
        (":20270301T190000Z", ":20270302T190000", "2027-03-02T19:00:00Z"),
        (";VALUE=DATE:20270301", f";{BERLIN}:20270302T000000", "2027-03-02"),
    ],
)
def test_a_moved_occurrence_keeps_its_identity_if_that_is_written_in_another_form(
    tmp_path: Path, start: str, original: str, expected: str
) -> None:
    moved = f"UID:a RECURRENCE-ID{original} DTSTART:20270302T110000Z"
    found = rows(tmp_path, f"UID:a DTSTART{start} RRULE:FREQ=DAILY;COUNT=2", moved)
    assert shown(found, "RECURRENCE-ID", "DTSTART")[1] == f"{expected} 2027-03-02T11:00:00Z"


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ("DTSTART:20270301T100000Z DURATION:1h", "its DURATION cannot be added to its start: 1h"),
        ("DTSTART:20270301T100000Z DURATION:-PT1H", "its DURATION cannot be added to its start"),
        ("DTSTART:20270301T100000Z DURATION:P999999999999D", "its DURATION cannot be added to its start"),
        ("DTSTART;VALUE=DATE:20270301 DURATION:PT3H", "its DURATION cannot be added to its start"),
        (f"DTSTART;VALUE=DATE:20270301 DTEND;{BERLIN}:20270302T100000", "both be days, times with a zone, or times without one"),
        (f"DTSTART:20270301T100000 DTEND;{BERLIN}:20270301T120000", "both be days, times with a zone, or times without one"),
        (f"DTSTART;{BERLIN}:20270301T100000Z", "DTSTART is in UTC (Z) and in the time zone Europe/Berlin"),
    ],
)
def test_an_event_whose_time_is_contradictory_is_rejected_with_a_sentence(tmp_path: Path, event: str, sentence: str) -> None:
    for rule in ("", " RRULE:FREQ=DAILY;COUNT=2"):
        (row,) = rows(tmp_path, f"UID:a {event}{rule}")
        assert sentence in shown([row])[0]
    assert not rows(tmp_path, f"UID:a {event.replace('2027', '2025')}")[0].problems


def test_an_exception_in_two_zones_at_once_rejects_the_series(tmp_path: Path) -> None:
    found = rows(tmp_path, f"{WEEKLY} EXDATE;{BERLIN}:20270308T190000Z")
    assert "EXDATE is in UTC (Z) and in the time zone Europe/Berlin" in shown(found)[0]


@pytest.mark.parametrize("name", ["DTSTART", "DTEND", "RECURRENCE-ID"])
def test_an_event_with_two_values_of_a_time_is_rejected(tmp_path: Path, name: str) -> None:
    times = {
        "DTSTART": "20270301T100000Z",
        "DTEND": "20270301T110000Z",
        "RECURRENCE-ID": "20270301T100000Z",
        name: "20270301T103000Z",
    }
    event = " ".join(["UID:a", *(f"{one}:{text}" for one, text in times.items()), f"{name}:20270301T104500Z"])
    (row,) = rows(tmp_path, event, asked=name)
    assert name in str(row.problems)
    (row,) = rows(tmp_path, f"{event} RRULE:FREQ=DAILY;COUNT=2", asked=name)
    assert row.problems


@pytest.mark.parametrize(
    "event",
    [
        f"DTSTART;{BERLIN}:00010101T000000",
        f"DTSTART;{NEW_YORK}:99991231T230000",
        "DTSTART:00010101T000000Z RRULE:FREQ=YEARLY",
        "DTSTART:99991231T230000Z RRULE:FREQ=DAILY",
        f"DTSTART;{NEW_YORK}:20270301T190000 DURATION:P2912300D",
        "DTSTART:,",
        "DTSTART:20270301T100000Z RRULE:FREQ=DAILY;COUNT=2 EXDATE:,",
        f"DTSTART:20270301T100000Z RRULE:FREQ=DAILY;INTERVAL={'9' * 400}",
        f"DTSTART:20270301T100000Z SEQUENCE:{'9' * 5000}",
        "DTSTART:20270301T100000Z RRULE:FREQ=DAILY;COUNT=2 RECURRENCE-ID:00010101T000000Z",
    ],
)
def test_a_fault_in_one_event_leaves_the_others(tmp_path: Path, event: str) -> None:
    assert shown(rows(tmp_path, f"UID:a {event}", "UID:b DTSTART:20270301T100000Z"), "UID")[-1] == "b"


def test_a_zone_that_two_calendars_of_a_file_define_differently_rejects_its_events(tmp_path: Path) -> None:
    series = "UID:a DTSTART;TZID=Customized:20270301T190000 RRULE:FREQ=DAILY;COUNT=2"
    two = f"{zone('Customized', '+0500')} {zone('Customized', '-0300')}"
    assert '"Customized" of DTSTART is neither known nor defined once' in shown(rows(tmp_path, series, calendar=two))[0]


def test_a_zone_whose_clocks_change_each_day_is_not_followed(tmp_path: Path) -> None:
    daily = zone("Customized", "+0100").replace(" END:STANDARD", f" RRULE:FREQ=YEARLY;BYMONTH=1{',1' * 300} END:STANDARD")
    series = "UID:a DTSTART;TZID=Customized:20270301T190000 RRULE:FREQ=DAILY;COUNT=2"
    assert "is neither known nor defined once" in shown(rows(tmp_path, series, calendar=daily))[0]


def test_a_comment_after_the_end_of_the_calendar_is_no_part_of_it(tmp_path: Path) -> None:
    rows(tmp_path, "UID:a DTSTART:20270301T100000Z")
    path = tmp_path / "events.ics"
    path.write_text(f"{path.read_text()}X-COMMENT:Cached\n")
    assert len(read(path)) == 1


def texts(folder: Path, lines: str, name: str) -> str:
    (folder / "events.ics").write_bytes(f"BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:a\n{lines}\nEND:VEVENT\nEND:VCALENDAR\n".encode())
    spec = SPEC.validate_python({"kind": "ics", "path": "events.ics"})
    with open_source(spec, folder, frozenset({name}), now=SPRING).read() as reading:
        return next(reading.rows).cells[name]


@pytest.mark.parametrize(
    ("lines", "name", "expected"),
    [
        ("SUMMARY:Concert of the\nBerlin Quartet\nLOCATION:Mill\nRiverside 3", "SUMMARY", "Concert of the\nBerlin Quartet"),
        ("LOCATION:Mill\nRiverside 3", "LOCATION", "Mill\nRiverside 3"),
        (
            "SUMMARY:Doors\nEnd: 22:00\nTickets: 12 EUR\nEND:of the show",
            "SUMMARY",
            "Doors\nEnd: 22:00\nTickets: 12 EUR\nEND:of the show",
        ),
        ("SUMMARY:Jazz\n\nLocation: the mill", "SUMMARY", "Jazz\nLocation: the mill"),
        ("SUMMARY:Jazz\nLOCATION:Mill", "SUMMARY", "Jazz"),
        ("SUMMARY:Jazz\nFBURL:Mill", "SUMMARY", "Jazz"),
        ("SUMMARY;ENCODING=QUOTED-PRINTABLE;CHARSET=UTF-8:Caf=C3=A9 =\nimprovis=C3=A9\nUID:a", "SUMMARY", "Café improvisé"),
        ("SUMMARY;ENCODING=QUOTED-PRINTABLE;CHARSET=ISO-8859-1:Caf=E9", "SUMMARY", "Café"),
    ],
)
def test_a_text_with_raw_line_breaks_or_in_quoted_printable_is_whole(
    tmp_path: Path, lines: str, name: str, expected: str
) -> None:
    assert texts(tmp_path, lines, name) == expected
