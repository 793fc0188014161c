"""What a row becomes: an event, a draft, a skipped row, or a rejection."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from unit.mappings.conftest import Build, Mapper, Row, event_of, mapped, reasons_of, rejected

from mappings.compiler.mapper import RowMapper, compile_feed, explain_row
from mappings.errors import ConfigError
from mappings.event import Directory, as_draft, with_cover
from mappings.outcome import Cover, MappedRow, Rejection, Skipped, SourceRow, if_unknown
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import fingerprint
from mappings.spec.source import Join


def test_a_row_becomes_canonical_json(mapper: Mapper, row: Row) -> None:
    outcome = mapped(mapper()(row()))
    assert outcome.body == (
        b'{"approxLocation":{"city":{"placeId":"pt-lisboa"}},"channelId":7,"classifications":["music"],'
        b'"startAt":"2026-07-01T18:00:00+01:00","timezone":"Europe/Lisbon","title":"Jazz"}'
    )
    assert (outcome.row_key, outcome.channel_id, outcome.warnings, outcome.cover) == ("1", 7, (), None)


def test_all_problems_of_a_row_are_told_at_once_with_what_would_be_accepted(mapper: Mapper, row: Row) -> None:
    event = (
        'startAt: {at: {day: {from: DAY, do: [{date: "%Y-%m-%d"}]}, zone: Europe/Lisbon, all_day: "00:00"}}\n'
        "classifications: {from: KIND, do: [{map: {Konzert: music, Theater: theatre}}]}\n"
        "offers: [{url: {from: LINK, do: [url]}}]"
    )
    outcome = mapper(event=event)(row(TITLE=" ", DAY="01.07.2026", KIND="Konzerte", LINK="mailto:a@example.org"))
    assert reasons_of(outcome) == [
        ("title", ReasonCode.REQUIRED, "TITLE"),
        ("startAt", ReasonCode.NOT_A_DATE, "DAY"),
        ("classifications", ReasonCode.NOT_IN_LOOKUP, "KIND"),
        ("offers[0].url", ReasonCode.NOT_A_URL, "LINK"),
    ]
    assert isinstance(outcome, Rejection)
    date, kind = outcome.reasons[1], outcome.reasons[2]
    assert (date.found, date.step) == ("01.07.2026", "date")
    assert date.hint == 'write it like "2026-03-31"'
    assert 'is "Konzert" meant?' in kind.hint


def test_one_bad_cell_that_spoils_two_fields_is_told_once(mapper: Mapper, row: Row) -> None:
    top = 'let: {day: {from: DAY, do: [{date: "%Y-%m-%d"}]}}\n'
    at = '{at: {day: $day, zone: Europe/Lisbon, all_day: "00:00"}}'
    outcome = mapper(top=top, event=f"startAt: {at}\nendAt: {at}")(row(DAY="soon"))
    assert reasons_of(outcome) == [("startAt", ReasonCode.NOT_A_DATE, "DAY")]


def test_cells_survive_untouched_unless_a_step_says_otherwise(mapper: Mapper, row: Row) -> None:
    for text in ("02134", "12,50", "5.10", "1e5", "NA", "nan", "TRUE", "no", "  two  spaces "):
        assert event_of(mapper()(row(TITLE=text)))["title"] == text


def test_text_is_composed_unicode_and_empties_are_left_out(mapper: Mapper, row: Row) -> None:
    event = "locationName: {from: PLACE, on_empty: omit}\noffers: [{name: {from: OFFER, on_empty: omit}}]"
    found = event_of(mapper(event=event)(row(TITLE="Cafe\u0301", PLACE="\u00a0 ", OFFER="")))
    assert found["title"] == "Café"
    stepped = mapper(event="title: {from: TITLE, do: [html_unescape]}")
    assert event_of(stepped(row(TITLE="Cafe&#769;")))["title"] == "Café"
    assert "locationName" not in found
    assert "offers" not in found


def test_half_a_character_in_a_zone_is_told_and_stops_no_run(mapper: Mapper, row: Row) -> None:
    found = mapper(event="timezone: {from: PLACE}")(row(PLACE="\ud800"))
    assert reasons_of(found) == [("timezone", ReasonCode.NOT_A_ZONE, "PLACE")]


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (Reason(ReasonCode.RAGGED, "", "", "x", "remove the surplus cell"), [("", ReasonCode.RAGGED, "")]),
        (
            Reason(ReasonCode.BAD_TEXT, "", "TITLE", "", "open the workbook and save it"),
            [("", ReasonCode.BAD_TEXT, "TITLE"), ("", ReasonCode.BAD_KEY, "ID")],
        ),
    ],
    ids=["cells stand in wrong columns", "a cell cannot be read"],
)
def test_what_comes_of_a_problem_of_reading_is_not_told_beside_it(
    problem: Reason, told: list[tuple[str, ReasonCode, str]], mapper: Mapper, row: Row
) -> None:
    assert reasons_of(mapper()(SourceRow(row().location, {"ID": "1E+05", "TITLE": ""}, (problem,)))) == told


def test_cells_of_a_joined_row_that_is_not_there_are_not_told_to_be_empty(row: Row, build: Build) -> None:
    places = {"source": {"kind": "csv", "path": "places.csv"}, "by": {"PLACE": "id"}, "prefix": "place.", "on_miss": "reject"}
    event = "locationName: {from: place.name}\ntimezone: {from: ZONE}"
    mapping = build(event=event)
    joined = mapping.source.model_copy(update={"join": (Join.model_validate(places),)})
    feed = compile_feed(mapping.model_copy(update={"source": joined}), Directory())
    lonely = SourceRow(
        row().location, row(PLACE="v9").cells, (Reason(ReasonCode.NOT_IN_LOOKUP, "", "PLACE", "v9", "it knows v1"),)
    )
    assert reasons_of(feed(lonely)) == [("", ReasonCode.NOT_IN_LOOKUP, "PLACE"), ("timezone", ReasonCode.REQUIRED, "ZONE")]


@pytest.mark.parametrize(
    ("event", "found", "field"),
    [
        ("title: {from: TITLE, do: [html_to_text]}", "<br>", "title"),
        ("locationName: {from: TITLE, do: [{strip_prefix: Hall}]}", "Hall", "locationName"),
        ("title: {from: TITLE, do: [{split: '/'}, {map: {musica: music}, on_miss: omit}, first]}", "c/arte", "title"),
        ("title: {from: TITLE, do: [{split: '/'}, {map: {a: b}, on_miss: omit}, first], on_empty: reject}", "c/arte", "title"),
    ],
)
def test_a_cell_of_which_the_steps_leave_nothing_is_shown_as_it_stands(
    event: str, found: str, field: str, mapper: Mapper, row: Row
) -> None:
    rejection = rejected(mapper(event=event)(row(TITLE=found)))
    assert [(one.code, one.field, one.found) for one in rejection.reasons] == [(ReasonCode.REQUIRED, field, found)]
    assert rejection.reasons[0].hint == 'nothing usable was left of this cell; write another value in the column "TITLE"'


@pytest.mark.parametrize("mangled", ["9.18E+11", "1E+05", "9,18e+11", "1E-7", "4.5e-12", "#REF!", "#N/A", "######"])
def test_a_key_that_a_spreadsheet_mangled_is_rejected(mangled: str, mapper: Mapper, row: Row) -> None:
    assert reasons_of(mapper()(row(ID=mangled))) == [("", ReasonCode.BAD_KEY, "ID")]


@pytest.mark.parametrize("sound", ["7E10", "E+1", "918000000000", "#12", "1e5x"])
def test_a_key_that_only_looks_odd_is_kept(sound: str, mapper: Mapper, row: Row) -> None:
    outcome = mapped(mapper()(row(ID=sound)))
    assert outcome.row_key == sound


def test_a_missing_key_is_rejected_unless_its_column_is_optional(build: Build, row: Row) -> None:
    assert reasons_of(compile_feed(build(), Directory())(row(ID=" "))) == [("", ReasonCode.REQUIRED, "ID")]
    mapping = build().model_copy(update={"key": ("ID", type(build().key_columns[0])(column="HOUR", optional=True))})
    outcome = mapped(compile_feed(mapping, Directory())(row(HOUR="")))
    assert outcome.row_key == "1|"


def test_unknown_items_of_a_list_are_dropped_one_by_one(mapper: Mapper, row: Row) -> None:
    event = (
        "classifications: {from: KIND, do: [{split: ','}, {map: {a: art, b: music}, on_miss: omit}], on_empty: {use: [culture]}}"
    )
    for cell, kinds in (("a, x, b", ["art", "music"]), ("x, y", ["culture"]), ("", ["culture"])):
        assert event_of(mapper(event=event)(row(KIND=cell)))["classifications"] == kinds
    kept = mapper(event=event.replace("on_miss: omit", "on_miss: keep").replace("}], on", "}, unique], on"))
    assert event_of(kept(row(KIND="a,c,b,a")))["classifications"] == ["art", "c", "music"]


def test_a_list_that_is_split_again_stays_one_list_where_a_later_step_refuses_an_item(mapper: Mapper, row: Row) -> None:
    steps = '[{split: "/"}, {split: ","}, {map: {a: x, b: y}, on_miss: omit}]'
    compiled = mapper(event=f"classifications: {{from: KIND, do: {steps}}}")
    assert event_of(compiled(row(KIND="a,c/b")))["classifications"] == ["x", "y"]


def test_first_of_takes_the_first_that_is_there_and_hides_no_error(mapper: Mapper, row: Row) -> None:
    event = "title: {first_of: [{from: A}, {from: B, do: [{regex_extract: '[a-z]+'}]}, Untitled]}"
    compiled = mapper(event=event)
    for first, second, title in (("one", "two", "one"), ("", "two", "two"), ("", "", "Untitled")):
        assert event_of(compiled(row(A=first, B=second)))["title"] == title
    assert reasons_of(compiled(row(A="", B="2"))) == [("title", ReasonCode.BAD_TEXT, "B")]


def test_pieces_are_joined_and_separators_vanish_beside_empty_ones(mapper: Mapper, row: Row) -> None:
    compiled = mapper(event="locationName: {join: [{from: A}, {from: B}, {from: C}], with: ', ', on_empty: omit}")
    assert event_of(compiled(row(A="Hall", B=" ", C="Porto")))["locationName"] == "Hall, Porto"
    assert "locationName" not in event_of(compiled(row(A="", B="", C="")))


def test_choose_may_say_what_to_do_when_its_branch_is_empty(mapper: Mapper, row: Row) -> None:
    choose = "{choose: [{when: {column: A, is: present}, then: {from: B, on_empty: omit}}], on_empty: %s}"
    assert reasons_of(mapper(event="title: " + choose % "reject")(row(A="x", B=""))) == [("title", ReasonCode.REQUIRED, "B")]
    assert event_of(mapper(event="title: " + choose % "{use: Untitled}")(row(A="", B="")))["title"] == "Untitled"


def test_a_dollar_name_is_a_named_value_and_two_dollars_are_a_dollar(mapper: Mapper, row: Row) -> None:
    top = "let: {place: {from: PLACE, do: [upper]}}\n"
    event = "locationName: $place\noffers: [{name: $$5}]"
    found = event_of(mapper(top=top, event=event)(row(PLACE="hall")))
    assert (found["locationName"], found["offers"]) == ("HALL", [{"name": "$5"}])


@pytest.mark.parametrize(
    ("condition", "cells", "holds"),
    [
        ("{column: A, equals: x}", {"A": " x "}, True),
        ("{column: A, equals: X}", {"A": "x"}, False),
        ("{column: A, equals: X, ignore: [case]}", {"A": "x"}, True),
        ("{column: A, in: [x, y]}", {"A": "y"}, True),
        ("{column: A, matches: '^x+$'}", {"A": "xx"}, True),
        ("{column: A, contains: [b, c]}", {"A": "abc"}, True),
        ("{value: $parts, contains: b}", {"P": "a,b"}, True),
        ("{column: A, is: missing}", {"A": "\u00a0"}, True),
        ("{column: A, is: present}", {"A": "x"}, True),
        ("{value: $day, before: 2026-07-01}", {"D": "2026-06-30"}, True),
        ("{value: $day, before: 2026-07-01}", {"D": ""}, False),
        ("{value: $day, after: $other}", {"D": "2026-06-30", "E": "2026-06-29"}, True),
        ("{value: $day, is: present}", {"D": "2026-06-30"}, True),
        ("{value: $day, in: ['2026-06-30', '2026-07-01']}", {"D": "2026-06-30"}, True),
        ("{value: $day, equals: '2026-06-30'}", {"D": "2026-07-01"}, False),
        ("{column: N, less: '10'}", {"N": "9.5"}, True),
        ("{column: N, greater: '10'}", {"N": ""}, False),
        ("{not: {column: A, equals: x}}", {"A": "x"}, False),
        ("{all: [{column: A, equals: x}, {column: B, equals: y}]}", {"A": "x", "B": "y"}, True),
        ("{any: [{column: A, equals: x}, {column: B, equals: y}]}", {"A": "", "B": "y"}, True),
    ],
)
def test_rows_are_left_out_under_a_label(condition: str, cells: dict[str, str], holds: bool, mapper: Mapper, row: Row) -> None:
    top = (
        "let:\n  parts: {from: P, do: [{split: ','}]}\n  day: {from: D, do: [{date: '%Y-%m-%d'}]}\n"
        "  other: {from: E, do: [{date: '%Y-%m-%d'}]}\n"
    )
    skipped = mapper(top=f"{top}rows: [{{skip: {condition}, because: not wanted}}]\n")(row(**cells))
    kept = mapper(top=f"{top}rows: [{{keep: {condition}, because: not wanted}}]\n")(row(**cells))
    assert isinstance(skipped, Skipped) is holds
    assert isinstance(kept, Skipped) is not holds
    left_out = skipped if holds else kept
    assert isinstance(left_out, Skipped)
    assert (left_out.because, left_out.row_key) == ("not wanted", "1")


def test_a_row_that_a_rule_leaves_out_names_the_rule_by_its_place_in_the_file(mapper: Mapper, row: Row) -> None:
    top = """rows:
  - skip: {column: KIND, equals: online}
    because: online only
  - assert: {column: TITLE, is: present}
    message: a title is needed
  - keep: {column: CITY, equals: Lisboa}
    because: elsewhere
"""
    outcomes = [mapper(top=top)(row(KIND=kind, CITY=city)) for kind, city in (("online", ""), ("", "Porto"), ("", "Lisboa"))]
    assert [outcome.rule for outcome in outcomes if isinstance(outcome, Skipped)] == [1, 3]
    blank = mapper(top=top)(row(ID="", TITLE=""))
    assert isinstance(blank, Skipped)
    assert blank.rule == 0


def test_the_window_is_seen_from_the_moment_of_the_run(build: Build, row: Row) -> None:
    mapping = build(top="rows: [{window: {past: skip, horizon: 30d}}]\n", event="startAt: {from: START}")
    compiled = compile_feed(mapping, Directory(), datetime(2026, 7, 1, tzinfo=UTC))
    labels = {"2026-06-30T23:00:00+00:00": "already over", "2026-08-01T00:00:00+00:00": "beyond the horizon"}
    for start, label in labels.items():
        outcome = mapped(compiled(row(START=start)))
        assert (outcome.outside, event_of(outcome)["startAt"]) == (label, start)
        assert if_unknown(outcome) == Skipped(outcome.location, label, outcome.row_key)
    wanted = mapped(compiled(row(START="2026-07-20T00:00:00+00:00")))
    assert (wanted.outside, if_unknown(wanted)) == ("", wanted)
    unusable = compiled(row(START="2026-06-30T23:00:00+00:00", TITLE=""))
    assert unusable == Skipped(unusable.location, "already over", unusable.row_key)
    with pytest.raises(ConfigError, match="the moment of the run was not said"):
        compile_feed(mapping, Directory())


def test_an_end_before_the_start_is_rejected(mapper: Mapper, row: Row) -> None:
    outcome = mapper(event="endAt: {from: END}")(row(END="2026-07-01T17:59:00+01:00"))
    assert reasons_of(outcome) == [("endAt", ReasonCode.END_BEFORE_START, "END")]
    assert isinstance(mapper(event="endAt: {from: END}")(row(END="2026-07-01T17:00:00+00:00")), MappedRow)


@pytest.mark.parametrize(
    ("event", "field", "code"),
    [
        ("startAt: {from: X}", "startAt", ReasonCode.NOT_A_DATE),
        ("timezone: {from: X}", "timezone", ReasonCode.NOT_A_ZONE),
        ("status: {from: X}", "status", ReasonCode.NOT_ACCEPTED),
        ("channelId: {from: X}", "channelId", ReasonCode.NOT_ACCEPTED),
        ("approxLocation.city: {placeId: x, countryCode: {from: X}}", "approxLocation.city.countryCode", ReasonCode.NOT_ACCEPTED),
        ("offers: [{url: {from: X}}]", "offers[0].url", ReasonCode.NOT_A_URL),
        ("title: [a, {from: X}]", "title", ReasonCode.NOT_ACCEPTED),
    ],
)
def test_what_the_service_refuses_is_refused_here(event: str, field: str, code: ReasonCode, mapper: Mapper, row: Row) -> None:
    outcome = mapper(event=event)(row(X="2026-02-30T10:00:00+00:00"))
    assert [(found, why) for found, why, _ in reasons_of(outcome)] == [(field, code)]


def test_slugs_that_the_service_does_not_know_are_rejected_with_the_nearest(mapper: Mapper, row: Row) -> None:
    directory = Directory(channels={"city": 3}, classifications=frozenset({"music", "theatre"}))
    event = "channelId: {channel: {from: CHANNEL}}\nclassifications: [{from: KIND}]"
    outcome = mapper(event=event, directory=directory)(row(CHANNEL="town", KIND="musik"))
    assert reasons_of(outcome) == [
        ("channelId", ReasonCode.NOT_ACCEPTED, "CHANNEL"),
        ("classifications", ReasonCode.NOT_ACCEPTED, "KIND"),
    ]
    assert isinstance(outcome, Rejection)
    assert outcome.reasons[1].hint == 'is "music" meant?'
    assert event_of(mapper(event=event, directory=directory)(row(CHANNEL="city", KIND="music")))["channelId"] == 3


def test_a_constant_channel_that_the_key_does_not_have_stops_the_feed(mapper: Mapper, row: Row) -> None:
    with pytest.raises(ConfigError, match='the key has no channel "citty", did you mean "city"'):
        mapper(event="channelId: {channel: citty}", directory=Directory(channels={"city": 3}))
    offline = event_of(mapper(event="channelId: {channel: citty}")(row()))["channelId"]
    assert offline == event_of(mapper(event="channelId: {channel: citty}")(row()))["channelId"]
    assert offline > 0


@pytest.mark.parametrize(("on_error", "status"), [("omit", None), ("draft", "draft")])
def test_a_cover_travels_beside_the_body_and_a_bad_one_by_its_policy(
    on_error: str, status: str | None, mapper: Mapper, row: Row
) -> None:
    compiled = mapper(event=f"coverImage: {{image: {{from: IMG}}, on_error: {on_error}}}")
    good = mapped(compiled(row(IMG="http://media.example.org/a b.jpg".replace(" ", "%20"))))
    assert good.cover is not None
    assert (good.cover.url, good.cover.on_error) == ("http://media.example.org/a%20b.jpg", on_error)
    assert "coverImage" not in event_of(good)
    bad = mapped(compiled(row(IMG="tel:123")))
    assert (bad.cover, event_of(bad).get("status"), len(bad.warnings)) == (None, status, 1)
    empty = mapped(compiled(row(IMG="")))
    assert (empty.cover, empty.warnings) == (None, ())
    assert good.fingerprint != empty.fingerprint


def test_a_cover_that_matters_rejects_the_row(mapper: Mapper, row: Row) -> None:
    compiled = mapper(event="coverImage: {image: {from: IMG}, on_error: reject}")
    assert reasons_of(compiled(row(IMG="tel:123"))) == [("coverImage", ReasonCode.NOT_A_URL, "IMG")]


def test_a_body_takes_its_covers_id_or_becomes_a_draft_and_stays_canonical(mapper: Mapper, row: Row) -> None:
    outcome = mapped(mapper()(row()))
    assert b'"classifications":["music"],"coverImage":41,"startAt"' in with_cover(outcome.body, 41)
    assert b'"startAt":"2026-07-01T18:00:00+01:00","status":"draft","timezone"' in as_draft(outcome.body)


def test_only_the_columns_that_the_mapping_reads_decide_over_the_digest(mapper: Mapper, row: Row) -> None:
    compiled = mapper()
    assert compiled.columns == {"ID", "TITLE"}
    assert compiled.key_and_digest(row(OTHER="a")) == compiled.key_and_digest(row(OTHER="b"))
    assert compiled.key_and_digest(row(TITLE="a")) != compiled.key_and_digest(row(TITLE="b"))
    assert compiled.key_and_digest(row(ID="")) is None
    outcome = mapped(compiled(row()))
    assert compiled.key_and_digest(row()) == (outcome.row_key, outcome.row_digest)


def test_bytes_that_are_no_text_reject_the_row(mapper: Mapper, row: Row) -> None:
    assert reasons_of(mapper()(row(TITLE="caf\udce9"))) == [("title", ReasonCode.BAD_TEXT, "TITLE")]
    assert reasons_of(mapper(event="description: {from: TITLE}\ntitle: x")(row(TITLE="\udce9"))) == [
        ("description", ReasonCode.BAD_TEXT, "")
    ]
    assert reasons_of(mapper()(row(ID="caf\udce9"))) == [("", ReasonCode.BAD_TEXT, "ID")]


def test_a_lookup_by_two_values_gives_an_object_or_says_what_is_near(mapper: Mapper, row: Row) -> None:
    files = {"cities.csv": "country,city,placeId,name,countryCode\nPT,Lisboa,pt-lisboa,Lisboa,PT\nPT,Évora,pt-evora,Évora,PT\n"}
    event = "approxLocation.city: {lookup: cities.csv, by: [PT, {from: CITY}], ignore: [case, accents]}"
    compiled = mapper(event=event, files=files)
    assert event_of(compiled(row(CITY="EVORA ")))["approxLocation"]["city"] == {
        "placeId": "pt-evora",
        "name": "Évora",
        "countryCode": "PT",
    }
    outcome = compiled(row(CITY="Lisbo"))
    assert reasons_of(outcome) == [("approxLocation.city", ReasonCode.NOT_IN_LOOKUP, "CITY")]
    assert isinstance(outcome, Rejection)
    assert 'is "Lisboa" meant?' in outcome.reasons[0].hint


def test_a_lookup_may_give_several_results_or_take_one_column(mapper: Mapper, row: Row) -> None:
    files = {"kinds.csv": "kind,slug,note\nFado,music,x\nFado,culture,y\n"}
    event = "classifications: {from: KIND, do: [{lookup: kinds.csv, take: slug, many: true}]}"
    assert event_of(mapper(event=event, files=files)(row(KIND="Fado")))["classifications"] == ["music", "culture"]


STAND_IN = 'coverImage: {image: {from: PICTURE}, on_error: default, default: "https://img.example/default.png"}\n'


def test_a_default_image_travels_with_the_row_and_stands_in_for_an_address_that_is_none(mapper: Mapper, row: Row) -> None:
    compiled = mapper(event=STAND_IN.replace("{from: PICTURE}", "{from: PICTURE, do: [url]}"))
    sound, broken = (mapped(compiled(row(PICTURE=text))) for text in ("https://img.example/a.png", "see attachment"))
    assert sound.cover == Cover("https://img.example/a.png", "default https://img.example/default.png")
    assert sound.cover.stand_in == "https://img.example/default.png"
    assert (broken.cover, len(broken.warnings)) == (Cover("https://img.example/default.png", "omit"), 1)


DRAFTS = "publish: {draft_on_warning: true}\n"
EVENT = """status: published
locationName: {from: PLACE, do: [fix_mojibake], on_empty: warn}
coverImage: {image: {from: IMG, on_empty: omit}}"""
READ = Reason(ReasonCode.UNDECODABLE, "", "NOTES", "x", "save the file as UTF-8")


@pytest.mark.parametrize(
    ("cells", "warnings", "status"),
    [
        ({"PLACE": "Mill"}, (), "published"),
        ({"PLACE": ""}, (), "draft"),
        ({"PLACE": "CafÃ©"}, (), "draft"),
        ({"PLACE": "Mill", "IMG": "no picture"}, (), "draft"),
        ({"PLACE": "Mill"}, (READ,), "draft"),
    ],
)
def test_a_row_with_a_warning_is_a_draft_under_its_own_key(
    cells: dict[str, str], warnings: tuple[Reason, ...], status: str, build: Build, row: Row
) -> None:
    one = replace(row(**cells), warnings=warnings)
    plain, careful = (mapped(compile_feed(build(event=EVENT, top=top), Directory())(one)) for top in ("", DRAFTS))
    assert event_of(plain)["status"] == "published"
    assert event_of(careful) == event_of(plain) | {"status": status}
    same = (plain.row_key, plain.duplicate_digest, plain.warnings)
    assert (careful.row_key, careful.duplicate_digest, careful.warnings) == same
    assert careful.fingerprint == fingerprint(careful.body, careful.cover.url if careful.cover else "")
    assert careful.row_digest != plain.row_digest


def test_a_warning_of_a_later_row_of_one_event_drafts_the_event(build: Build, row: Row) -> None:
    group = "rows:\n  - group: {collect: [classifications]}\n"
    kinds = "status: published\nclassifications: {from: KIND, do: [{split: ','}]}"
    later = replace(row(KIND="art"), warnings=(READ,))
    mapper: RowMapper = compile_feed(build(event=kinds, top=DRAFTS + group), Directory())
    outcome = mapped(next(iter(mapper.over([row(KIND="music"), later]))))
    event = event_of(outcome)
    assert (event["status"], event["classifications"]) == ("draft", ["music", "art"])
    assert [reason.code for reason in outcome.warnings] == [ReasonCode.UNDECODABLE]


def test_each_step_of_a_row_is_shown_with_its_input(build: Build, row: Row) -> None:
    top = 'let: {day: {from: DAY, do: [{date: "%d/%m/%Y"}]}}\n'
    event = (
        "title: {from: TITLE, do: [html_unescape, collapse]}\n"
        "startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: '10:00'}}\n"
        "classifications: {from: KIND, do: [{split: '/'}, {map: {a: art, b: music}}]}"
    )
    mapping = build(top=top, event=event)
    told = row(TITLE=" Jazz &amp; blues", DAY="2026-07-01", KIND="a/b")
    explanation = explain_row(mapping, Directory(), told)
    steps = [(step.field, step.step, step.goes_in, step.comes_out) for step in explanation.steps]
    assert steps == [
        ("title", "from TITLE", "", " Jazz &amp; blues"),
        ("title", "html_unescape", " Jazz &amp; blues", " Jazz & blues"),
        ("title", "collapse", " Jazz & blues", "Jazz & blues"),
        ("$day", "from DAY", "", "2026-07-01"),
        ("$day", "date", "2026-07-01", ""),
        ("classifications", "from KIND", "", "a/b"),
        ("classifications", "split", "a/b", "a | b"),
        ("classifications", "map", "a | b", "art | music"),
    ]
    (refused,) = (step.refused for step in explanation.steps if step.refused)
    assert "This is not a date" in refused
    assert "31/03/2026" in refused
    assert explanation.outcomes[0] == compile_feed(mapping, Directory())(told)


def test_steps_after_a_tolerated_refusal_are_shown_too(build: Build, row: Row) -> None:
    event = "classifications: {from: KIND, do: [{split: '/'}, {map: {a: art}, on_miss: warn}, upper]}"
    steps = explain_row(build(event=event), Directory(), row(KIND="a/b")).steps
    told = [(step.step, step.goes_in, step.comes_out, bool(step.refused)) for step in steps if step.field == "classifications"]
    assert told == [
        ("from KIND", "", "a/b", False),
        ("split", "a/b", "a | b", False),
        ("map", "a | b", "", True),
        ("map", "a", "art", False),
        ("map", "b", "", True),
        ("upper", "art", "ART", False),
    ]


def test_values_without_steps_tell_what_they_gave(build: Build, row: Row) -> None:
    event = (
        "title: {join: [{from: TITLE}, {from: MORE}], with: ': '}\n"
        "status: {choose: [{when: {column: MORE, is: missing}, then: draft}], otherwise: published}"
    )
    steps = explain_row(build(event=event), Directory(), row(MORE="live")).steps
    given = {(step.field, step.step): step.comes_out for step in steps}
    assert given[("title", "join")] == "Jazz: live"
    assert given[("status", "choose")] == "published"
