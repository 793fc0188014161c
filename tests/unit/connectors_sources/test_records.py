"""JSON, NDJSON, XML and iCalendar files as partners write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.connectors_sources.reading import column, read

from connectors.sources.contract import BadSourceError, MissingColumnsError
from mappings.reasons import ReasonCode

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def test_numbers_are_the_text_that_stands_there(tmp_path: Path) -> None:
    (row,) = read(
        tmp_path, '[{"a": 12.50, "b": 1e5, "c": 918000000000000123456, "d": true, "e": null, "f": "02134"}]', kind="json"
    )
    assert dict(row.cells) == {"a": "12.50", "b": "1e5", "c": "918000000000000123456", "d": "true", "e": "", "f": "02134"}


def test_nested_values_are_columns_named_by_their_path(tmp_path: Path) -> None:
    content = '{"data": {"page": 1, "events": [{"v": {"a": {"city": "Łódź"}}, "images": [{"url": "x"}, {"url": "y"}]}]}}'
    wanted = ["v.a.city", "images[1].url", "images[5].url"]
    (row,) = read(tmp_path, content, *wanted, kind="json", records="data.events", optional="images[5].url")
    assert dict(row.cells) == {
        "v.a.city": "Łódź",
        "images": '[{"url": "x"}, {"url": "y"}]',
        "images[1].url": "y",
        "images[5].url": "",
    }


def test_records_stand_in_lists_of_lists_too(tmp_path: Path) -> None:
    content = '[{"day": 1, "events": [{"id": 1}, {"id": 2}]}, {"day": 2}, {"events": [{"id": 3}]}]'
    rows = read(tmp_path, content, "id", kind="json", records="[*].events")
    assert [(row.cells["id"], row.location.number) for row in rows] == [("1", 1), ("2", 2), ("3", 3)]


def test_a_wrong_way_to_the_records_is_told_with_the_keys_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(BadSourceError, match='no "items"') as caught:
        read(tmp_path, '{"meta": 1, "events": []}', kind="json", records="items")
    assert "meta, events" in caught.value.hint


def test_lists_of_plain_values_are_joined_where_the_mapping_says_so(tmp_path: Path) -> None:
    rows = read(tmp_path, '[{"t": ["a", "b"]}, {"t": "c"}, {"t": []}]', kind="json", join_lists={"t": "; "})
    assert column(rows, "t") == ["a; b", "c", ""]
    assert column(read(tmp_path, '[{"t": ["a", 1.50]}]', kind="json"), "t") == ['["a", 1.50]']


def test_a_column_may_turn_up_late_and_one_that_never_does_is_missing(tmp_path: Path) -> None:
    content = "\n".join(['{"id": 1}'] * 3000 + ['{"id": 2, "end": "x"}'])
    assert column(read(tmp_path, content, "end", kind="ndjson"), "end")[-1] == "x"
    with pytest.raises(MissingColumnsError, match='"start"'):
        read(tmp_path, content, "start", kind="ndjson")


def test_a_list_without_records_lacks_no_columns(tmp_path: Path) -> None:
    assert read(tmp_path, '{"events": []}', "id", kind="json", records="events") == []
    assert read(tmp_path, "<agenda><events/></agenda>", "id", kind="xml", records="agenda/events/event") == []


@given(st.lists(st.fixed_dictionaries({"id": TEXTS}), min_size=1, max_size=5), st.integers(1, 3000))
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_record_may_stand_across_the_end_of_a_piece(tmp_path: Path, records: list[dict[str, str]], pad: int) -> None:
    long = [{"id": "x" * (63 * 1024 + pad)}, *records]
    assert column(read(tmp_path, json.dumps(long), "id", kind="json"), "id") == [record["id"] for record in long]


def test_a_line_that_is_no_json_is_a_problem_of_its_own(tmp_path: Path) -> None:
    rows = read(tmp_path, '{"a": 1}\n\n{"a": \n7\n', "a", kind="ndjson")
    assert [row.location.number for row in rows] == [1, 3, 4]
    assert [[problem.code for problem in row.problems] for row in rows] == [[], [ReasonCode.BAD_TEXT], [ReasonCode.BAD_TEXT]]
    with pytest.raises(BadSourceError, match="first line is no JSON object"):
        read(tmp_path, '[\n{"a": 1}\n]', kind="ndjson")


AGENDA = """<?xml version="1.0" encoding="iso-8859-1"?>
<agenda xmlns:dc="urn:x">
  <event id="7">
    <title>Käse &amp; Brot</title><price currency="EUR">12.50</price>
    <tag>a</tag><tag>b</tag><dc:date>2026-05-03</dc:date>
    <text>Come <b>now</b>!</text><html><![CDATA[<i>x</i>]]></html>
    <venue><city>Bonn</city></venue>
  </event>
  <event id="8"><title>Late</title><tag>c</tag></event>
</agenda>"""


def test_elements_attributes_and_what_stands_inside_them_are_columns(tmp_path: Path) -> None:
    first, second = read(tmp_path, AGENDA.encode("iso-8859-1"), "@id", "tag[1]", kind="xml", records="event")
    assert dict(first.cells) == {
        "@id": "7",
        "title": "Käse & Brot",
        "price": "12.50",
        "price.@currency": "EUR",
        "tag": '["a", "b"]',
        "dc:date": "2026-05-03",
        "text": "Come now!",
        "text.b": "now",
        "html": "<i>x</i>",
        "venue.city": "Bonn",
        "tag[1]": "b",
    }
    assert (second.cells["title"], second.cells["price"], second.cells["tag"]) == ("Late", "", "c")
    assert str(second.location) == "events.file:9 (record 2)"


def test_prefixes_can_be_dropped_and_repeated_elements_joined(tmp_path: Path) -> None:
    spec = {"kind": "xml", "records": "agenda/event", "namespaces": "drop", "join_lists": {"tag": ", "}}
    rows = read(tmp_path, AGENDA.encode("iso-8859-1"), "date", **spec)
    assert column(rows, "tag") == ["a, b", "c"]
    assert column(rows, "date") == ["2026-05-03", ""]


@pytest.mark.parametrize(
    ("start", "length", "end", "zone"),
    [
        ("DTSTART;TZID=Europe/Paris:20270301T180000", "PT1H30M", "2027-03-01T19:30:00", "Europe/Paris"),
        ("DTSTART:20270301T233000Z", "PT45M", "2027-03-02T00:15:00Z", ""),
        ("DTSTART;VALUE=DATE:20270301", "P2D", "2027-03-03", ""),
        ("DTSTART;VALUE=DATE:20270301", "+P1W", "2027-03-08", ""),
        ("DTSTART;VALUE=DATE:20270301", "PT3H", "", ""),
        ("DTSTART:20270301T180000", "-PT1H", "", ""),
        ("DTSTART:20270301T180000", "P", "", ""),
        ("DTSTART:20270301T180000", "PT", "", ""),
        ("DTSTART:20270301T180000", "P1DT", "", ""),
        ("DTSTART:99991231T180000", "P99999D", "", ""),
        ("DTSTART:soon", "PT1H", "", ""),
        ("DTSTART:20270301T180000\nDTEND:20270301T200000", "PT1H", "2027-03-01T20:00:00", ""),
    ],
)
def test_an_event_that_tells_how_long_it_lasts_has_the_end_that_follows(
    tmp_path: Path, start: str, length: str, end: str, zone: str
) -> None:
    (row,) = read(tmp_path, calendar(f"UID:1 {start} DURATION:{length}"), "DTEND", "DTEND.TZID", "DURATION", kind="ics")
    assert (row.cells["DTEND"], row.cells["DTEND.TZID"], row.cells["DURATION"]) == (end, zone if end else "", length)


@pytest.mark.parametrize(
    ("declared", "encoding"),
    [
        *((name, name) for name in ("utf-8", "utf-16", "shift_jis")),
        *(("utf-16", "utf-8"), ("UTF-16", "utf-8-sig"), ("utf-32", "utf-8"), ("utf-8", "utf-8-sig"), ("utf-8", "utf-16")),
        *(("utf-16", "utf-16-le"), ("x", "utf-16-be")),
    ],
)
def test_xml_is_in_the_encoding_that_it_declares_unless_its_bytes_contradict_it(
    tmp_path: Path, declared: str, encoding: str
) -> None:
    content = f'<?xml version="1.0" encoding="{declared}"?><a><event><t>花火</t></event></a>'.encode(encoding)
    assert column(read(tmp_path, content, kind="xml", records="event"), "t") == ["花火"]


@pytest.mark.parametrize("declared", ["idna", "punycode", "undefined", "hex", "no-such"])
def test_xml_that_declares_what_is_no_encoding_of_text_is_bad(tmp_path: Path, declared: str) -> None:
    content = f'<?xml version="1.0" encoding="{declared}"?><a><event><t>x</t></event></a>'
    with pytest.raises(BadSourceError, match=f'"{declared}", which is no encoding of text'):
        read(tmp_path, content, kind="xml", records="event")


CALENDAR = """BEGIN:VCALENDAR
X-WR-TIMEZONE:Europe/Berlin
BEGIN:VTIMEZONE
TZID:Europe/Berlin
BEGIN:STANDARD
DTSTART:19701025T030000
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
UID:1@example.org
SUMMARY;LANGUAGE=de:Jazz\\, Blues\\nund m
 ehr
DTSTART;TZID="Europe/Berlin":20260503T193000
DTEND:20260503T200000Z
RRULE:FREQ=WEEKLY;COUNT=3
EXDATE:20260510T193000,20260517T193000
EXDATE:20260524T193000
CATEGORIES:Music,Arts\\, Crafts
URL:https://example.org/a?b=c\\d
BEGIN:VALARM
SUMMARY:not this
END:VALARM
END:VEVENT
BEGIN:VEVENT
UID:2@example.org
DTSTART;VALUE=DATE:20260601
DTEND;VALUE=DATE:20260603
RECURRENCE-ID:20260601
STATUS:CANCELLED
END:VEVENT
END:VCALENDAR
"""


def test_events_of_a_calendar_have_their_properties_as_columns(tmp_path: Path) -> None:
    first, second = read(tmp_path, CALENDAR.replace("\n", "\r\n"), "UID", "SUMMARY", "LOCATION", "DTSTART.TZID", kind="ics")
    assert {name: cell for name, cell in first.cells.items() if cell} == {
        "X-WR-TIMEZONE": "Europe/Berlin",
        "UID": "1@example.org",
        "SUMMARY": "Jazz, Blues\nund mehr",
        "SUMMARY.LANGUAGE": "de",
        "DTSTART": "2026-05-03T19:30:00",
        "DTSTART.TZID": "Europe/Berlin",
        "DTEND": "2026-05-03T20:00:00Z",
        "RRULE": "FREQ=WEEKLY;COUNT=3",
        "EXDATE": "2026-05-10T19:30:00;2026-05-17T19:30:00;2026-05-24T19:30:00",
        "CATEGORIES": "Music;Arts, Crafts",
        "URL": "https://example.org/a?b=c\\d",
    }
    cells = [second.cells[name] for name in ("DTSTART", "DTEND", "RECURRENCE-ID", "STATUS")]
    assert cells == ["2026-06-01", "2026-06-03", "2026-06-01", "CANCELLED"]
    assert (str(second.location), second.cells["LOCATION"]) == ("events.file:24", "")


def calendar(*events: str) -> str:
    """Return a calendar of events whose lines are separated by spaces."""
    lines = ["\n".join(["BEGIN:VEVENT", *event.split(), "END:VEVENT"]) for event in events]
    return "\n".join(["BEGIN:VCALENDAR", *lines, "END:VCALENDAR\n"])


def test_days_of_a_series_that_stand_as_events_of_their_own_are_excepted_from_it(tmp_path: Path) -> None:
    lisbon = ";TZID=Europe/Lisbon:202705"
    content = calendar(
        f"UID:yoga RECURRENCE-ID{lisbon}10T180000 DTSTART{lisbon}11T180000",
        f"UID:yoga DTSTART{lisbon}03T180000 RRULE:FREQ=WEEKLY;COUNT=4 EXDATE{lisbon}17T180000",
        f"UID:choir DTSTART{lisbon}03T180000 RRULE:FREQ=WEEKLY;COUNT=4",
        f"UID:choir RECURRENCE-ID{lisbon}24T180000 STATUS:CANCELLED",
    )
    rows = read(tmp_path, content, "UID", "EXDATE", kind="ics")
    assert column(rows, "EXDATE") == ["", "2027-05-17T18:00:00;2027-05-10T18:00:00", "2027-05-24T18:00:00", ""]


def test_a_character_cut_in_two_by_a_fold_is_whole_again(tmp_path: Path) -> None:
    content = CALENDAR.encode().replace(b"SUMMARY;LANGUAGE=de:Jazz", b"SUMMARY:Caf\xc3\n \xa9")
    assert read(tmp_path, content, kind="ics")[0].cells["SUMMARY"].startswith("Café")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello", "no iCalendar file"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\n", r":2: the file ends within the VEVENT"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR\n", r":3: END:VCALENDAR stands where the VEVENT of line 2 should end"),
        ("BEGIN:X\n" * 100, "stand inside one another"),
    ],
)
def test_a_calendar_that_is_none_is_refused(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(BadSourceError, match=said):
        read(tmp_path, content, kind="ics")


@pytest.mark.parametrize("kind", ["json", "ndjson", "xml"])
def test_undecodable_bytes_are_a_problem_in_a_mapped_column_and_a_warning_elsewhere(tmp_path: Path, kind: str) -> None:
    content = b"<a><event><t>\xe9</t><u>\xe9</u></event></a>" if kind == "xml" else b'{"t": "\xe9", "u": "\xe9"}'
    spec = {"records": "event"} if kind == "xml" else {}
    (row,) = read(tmp_path, b"[%s]" % content if kind == "json" else content, "t", kind=kind, **spec)
    assert [(problem.code, problem.column, problem.found) for problem in row.problems] == [(ReasonCode.UNDECODABLE, "t", "\\xe9")]
    assert [warning.column for warning in row.warnings] == ["u"]


@pytest.mark.parametrize("kind", ["json", "ndjson"])
def test_a_name_that_stands_twice_in_one_object_rejects_its_row_if_the_column_is_used(tmp_path: Path, kind: str) -> None:
    records = ['{"id": "1", "title": "A", "title": "B", "v": {"city": "X", "city": "Y"}}', '{"id": "2", "title": "C"}']
    content = "\n".join(records) if kind == "ndjson" else f"[{', '.join(records)}]"
    first, second = read(tmp_path, content, "id", "title", kind=kind)
    assert [(reason.column, reason.found) for reason in first.problems] == [("title", "A | B")]
    assert 'the name "title" stands twice' in first.problems[0].hint
    assert [(reason.column, reason.found) for reason in first.warnings] == [("v.city", "X | Y")]
    assert not second.problems
    assert not second.warnings


def test_a_name_that_says_the_same_twice_does_no_harm(tmp_path: Path) -> None:
    (row,) = read(tmp_path, '[{"id": 1, "id": 1, "v": {"a": null, "a": null}}]', "id", kind="json")
    assert (row.cells["id"], row.problems, row.warnings) == ("1", (), ())


@pytest.mark.parametrize(
    ("record", "wanted", "told"),
    [
        ('{"o": [{"u": 1}, {"u": 2, "u": 3}]}', "o", ["o"]),
        ('{"o": [{"u": 1}, {"u": 2, "u": 3}]}', "o[1].u", ["o[1].u"]),
        ('{"o": {"u": 1, "u": 3}}', "o[0].u", ["o[0].u"]),
        ('{"o": [{"u": 1, "u": 3}]}', "o[0]", ["o[0]"]),
        ('{"o": {"u": 1}, "o": {"w": 2}}', "o.w", ["o.w"]),
        ('{"o": {"u": 1}, "ou": 2}', "ou", []),
        ('{"o": 1, "o": null, "ou": 2}', "ou", []),
    ],
)
def test_a_repeated_name_is_told_of_the_columns_that_are_made_of_it(
    tmp_path: Path, record: str, wanted: str, told: list[str]
) -> None:
    (row,) = read(tmp_path, f"[{record}]", wanted, kind="json", optional=wanted)
    assert [reason.column for reason in row.problems] == told


def test_a_name_that_stands_twice_in_the_json_of_a_cell_rejects_the_row_if_it_is_used(tmp_path: Path) -> None:
    content = 'id;info\n1;"{""city"": ""X"", ""city"": ""Y"", ""n"": 1}"\n2;"{""city"": ""X"", ""n"": 1, ""n"": 2}"\n'
    first, second = read(tmp_path, content, "info.city", delimiter=";", json_columns=["info"])
    assert [(reason.column, reason.found) for reason in first.problems] == [("info.city", "X | Y")]
    assert not second.problems
    assert [(reason.column, reason.found) for reason in second.warnings] == [("info.n", "1 | 2")]


def test_attributes_of_one_name_after_their_prefixes_are_dropped_are_a_list(tmp_path: Path) -> None:
    content = '<a xmlns:x="urn:x"><event href="one" x:href="two"/><event href="three"/></a>'
    rows = read(tmp_path, content, kind="xml", records="event", namespaces="drop")
    assert column(rows, "@href") == ['["one", "two"]', "three"]
