"""What a row becomes: an event, a draft, a skipped row, or a rejection."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
import yaml
from unit.mappings.conftest import Build, Mapper, Row, cases, event_of, mapped, rejected, said

from mappings.compiler.mapper import RowMapper, compile_feed, explain_row
from mappings.errors import ConfigError
from mappings.event import Directory, as_draft, with_cover
from mappings.outcome import Cover, Skipped, SourceRow, if_unknown
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
    assert said(outcome) == (
        "title required TITLE; startAt not_a_date DAY; classifications not_in_lookup KIND; offers[0].url not_a_url LINK"
    )
    date, kind = rejected(outcome).reasons[1:3]
    assert (date.found, date.step, date.hint) == ("01.07.2026", "date", 'write it like "2026-03-31"')
    assert 'is "Konzert" meant?' in kind.hint


def test_cells_survive_untouched_unless_a_step_says_otherwise(mapper: Mapper, row: Row) -> None:
    for text in ("02134", "12,50", "5.10", "1e5", "NA", "nan", "TRUE", "no", "  two  spaces "):
        assert event_of(mapper()(row(TITLE=text)))["title"] == text


def test_text_is_composed_unicode(mapper: Mapper, row: Row) -> None:
    assert event_of(mapper()(row(TITLE="Cafe\u0301")))["title"] == "Café"


@pytest.mark.parametrize(
    ("event", "cells", "told"),
    [
        ("timezone: {from: PLACE}", {"PLACE": "\ud800"}, "timezone not_a_zone PLACE"),
        ("", {"TITLE": "caf\udce9"}, "title bad_text TITLE"),
        ("description: {from: TITLE}\ntitle: x", {"TITLE": "\udce9"}, "description bad_text"),
        ("", {"ID": "caf\udce9"}, "bad_text ID"),
        ("", {"ID": " "}, "required ID"),
        *[
            ("", {"ID": one}, "bad_key ID")
            for one in ("9.18E+11", "1E+05", "9,18e+11", "1E-7", "4.5e-12", "#REF!", "#N/A", "######")
        ],
    ],
)
def test_bytes_that_are_no_text_and_keys_that_a_spreadsheet_mangled_reject_the_row(
    mapper: Mapper, row: Row, event: str, cells: dict[str, str], told: str
) -> None:
    assert said(mapper(event=event)(row(**cells))).strip() == told


RAGGED = Reason(ReasonCode.RAGGED, "", "", "x", "remove the surplus cell")
UNREAD = Reason(ReasonCode.BAD_TEXT, "", "TITLE", "", "open the workbook and save it")


@pytest.mark.parametrize(("problem", "told"), [(RAGGED, "ragged"), (UNREAD, "bad_text TITLE; bad_key ID")])
def test_what_comes_of_a_problem_of_reading_is_not_told_beside_it(problem: Reason, told: str, mapper: Mapper, row: Row) -> None:
    assert said(mapper()(SourceRow(row().location, {"ID": "1E+05", "TITLE": ""}, (problem,)))).strip() == told


def test_cells_of_a_joined_row_that_is_not_there_are_not_told_to_be_empty(row: Row, build: Build) -> None:
    places = {"source": {"kind": "csv", "path": "places.csv"}, "by": {"PLACE": "id"}, "prefix": "place.", "on_miss": "reject"}
    event = "locationName: {from: place.name}\ntimezone: {from: ZONE}"
    mapping = build(event=event)
    joined = mapping.source.model_copy(update={"join": (Join.model_validate(places),)})
    feed = compile_feed(mapping.model_copy(update={"source": joined}), Directory())
    unknown = Reason(ReasonCode.NOT_IN_LOOKUP, "", "PLACE", "v9", "it knows v1")
    assert said(feed(replace(row(PLACE="v9"), problems=(unknown,)))).strip() == "not_in_lookup PLACE; timezone required ZONE"


@pytest.mark.parametrize("sound", ["7E10", "E+1", "918000000000", "#12", "1e5x"])
def test_a_key_that_only_looks_odd_is_kept(sound: str, mapper: Mapper, row: Row) -> None:
    outcome = mapped(mapper()(row(ID=sound)))
    assert outcome.row_key == sound


LET = """let:
  parts: {from: P, do: [{split: ','}]}
  day: {from: D, do: [{date: '%Y-%m-%d'}]}
  other: {from: E, do: [{date: '%Y-%m-%d'}]}
  kind: {from: KIND}
"""
CONDITIONS = cases("""
{column: A, equals: x} | A: " x " => holds | A: X => fails
{column: A, equals: X, ignore: [case]} | A: x => holds | A: y => fails
{column: A, equals: $kind, ignore: [case]} | A: ROCK, KIND: rock => holds
{column: A, equals: $kind} | A: ROCK, KIND: rock => fails
{column: A, in: [x, y]} | A: y => holds | A: z => fails
{column: A, in: [rock, pop], ignore: [accents]} | A: rócḱ => holds
{column: A, matches: '^x+$'} | A: xx => holds | A: xy => fails
{column: A, matches: '^rock', ignore: [case]} | A: Rock night => holds
{column: A, contains: [b, c]} | A: abc => holds | A: a => fails
{column: A, contains: rock, ignore: [spaces]} | A: hard r o c k => holds
{value: $parts, contains: b} | P: "a,b" => holds | P: "a,c" => fails
{column: A, is: missing} | A: "\u00a0" => holds | A: x => fails
{column: A, is: present} | A: x => holds | A: "" => fails
{value: $day, before: 2026-07-01} | D: 2026-06-30 => holds | D: "" ~ D: 2026-07-01 => fails
{value: $day, after: $other} | D: 2026-06-30, E: 2026-06-29 => holds | D: 2026-06-29, E: 2026-06-29 => fails
{value: $day, is: present} | D: 2026-06-30 => holds
{value: $day, in: ['2026-06-30', '2026-07-01']} | D: 2026-06-30 => holds | D: 2026-06-29 => fails
{value: $day, equals: '2026-06-30'} | D: 2026-07-01 => fails
{column: N, less: '10'} | N: 9.5 => holds | N: 10 => fails
{column: N, greater: '10'} | N: "" ~ N: 10 => fails | N: 10.5 => holds
{not: {column: A, equals: x}} | A: x => fails
{all: [{column: A, equals: x}, {column: B, equals: y}]} | A: x, B: y => holds | A: x, B: z => fails
{any: [{column: A, equals: x}, {column: B, equals: y}]} | A: "", B: y => holds | A: "", B: "" => fails
""")


@pytest.mark.parametrize(("condition", "cells", "becomes"), CONDITIONS)
def test_rows_are_left_out_under_a_label(condition: str, cells: str, becomes: str, mapper: Mapper, row: Row) -> None:
    one = row(**yaml.load(f"{{{cells}}}", yaml.BaseLoader))
    for rule, is_left_out in (("skip", becomes == "holds"), ("keep", becomes == "fails")):
        outcome = mapper(top=f"{LET}rows: [{{{rule}: {condition}, because: not wanted}}]\n")(one)
        assert said(outcome) == ("not wanted" if is_left_out else "event")
        assert outcome.row_key == "1"


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


def test_slugs_that_the_service_does_not_know_are_rejected_with_the_nearest(mapper: Mapper, row: Row) -> None:
    directory = Directory(channels={"city": 3}, classifications=frozenset({"music", "theatre"}))
    feed = mapper(event="channelId: {channel: {from: CHANNEL}}\nclassifications: [{from: KIND}]", directory=directory)
    outcome = feed(row(CHANNEL="town", KIND="musik"))
    assert said(outcome) == "channelId not_accepted CHANNEL; classifications not_accepted KIND"
    assert rejected(outcome).reasons[1].hint == 'is "music" meant?'
    assert event_of(feed(row(CHANNEL="city", KIND="music")))["channelId"] == 3


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
    assert [f"{step.field} {step.step}: {step.goes_in} > {step.comes_out}" for step in explanation.steps] == [
        "title from TITLE:  >  Jazz &amp; blues",
        "title html_unescape:  Jazz &amp; blues >  Jazz & blues",
        "title collapse:  Jazz & blues > Jazz & blues",
        "$day from DAY:  > 2026-07-01",
        "$day date: 2026-07-01 > ",
        "classifications from KIND:  > a/b",
        "classifications split: a/b > a | b",
        "classifications map: a | b > art | music",
    ]
    (refused,) = (step.refused for step in explanation.steps if step.refused)
    assert "This is not a date" in refused
    assert "31/03/2026" in refused
    assert explanation.outcomes[0] == compile_feed(mapping, Directory())(told)


def test_steps_after_a_tolerated_refusal_are_shown_too(build: Build, row: Row) -> None:
    event = "classifications: {from: KIND, do: [{split: '/'}, {map: {a: art}, on_miss: warn}, upper]}"
    steps = explain_row(build(event=event), Directory(), row(KIND="a/b")).steps
    shown = [f"{step.step}: {step.goes_in} > {step.comes_out or bool(step.refused)}" for step in steps if step.field != "title"]
    assert shown[-5:] == ["split: a/b > a | b", "map: a | b > True", "map: a > art", "map: b > True", "upper: art > ART"]


def test_values_without_steps_tell_what_they_gave(build: Build, row: Row) -> None:
    event = (
        "title: {join: [{from: TITLE}, {from: MORE}], with: ': '}\n"
        "status: {choose: [{when: {column: MORE, is: missing}, then: draft}], otherwise: published}"
    )
    steps = explain_row(build(event=event), Directory(), row(MORE="live")).steps
    given = {(step.field, step.step): step.comes_out for step in steps}
    assert given[("title", "join")] == "Jazz: live"
    assert given[("status", "choose")] == "published"
