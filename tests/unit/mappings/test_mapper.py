"""What a row becomes: an event, a draft, a skipped row, or a rejection."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.mappings.conftest import Build, Mapper, Row, cases, cells_of, event_of, mapped, rejected, said

from mappings.compiler.explain import explain_row
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import ConfigError
from mappings.event import Directory, as_draft, with_cover
from mappings.outcome import SourceRow
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import fingerprint
from mappings.spec.source_base import Join


def test_a_row_becomes_canonical_json_and_stays_it_with_a_cover_and_as_a_draft(mapper: Mapper, row: Row) -> None:
    outcome = mapped(mapper()(row()))
    assert outcome.body == (
        b'{"approxLocation":{"city":{"placeId":"pt-lisboa"}},"channelId":7,"classifications":["music"],'
        b'"startAt":"2026-07-01T18:00:00+01:00","timezone":"Europe/Lisbon","title":"Jazz"}'
    )
    assert (outcome.row_key, outcome.channel_id, outcome.warnings, outcome.cover) == ("1", 7, (), None)
    assert b'"classifications":["music"],"coverImage":41,"startAt"' in with_cover(outcome.body, 41)
    assert b'"startAt":"2026-07-01T18:00:00+01:00","status":"draft","timezone"' in as_draft(outcome.body)


RAGGED = Reason(ReasonCode.RAGGED, "", "", "x", "remove the surplus cell")
UNREAD = Reason(ReasonCode.BAD_TEXT, "", "TITLE", "", "open the workbook and save it")


def test_what_comes_of_a_problem_of_reading_is_not_reported_beside_it(mapper: Mapper, row: Row) -> None:
    for problem, reported in ((RAGGED, "ragged"), (UNREAD, "bad_text TITLE; bad_key ID")):
        assert said(mapper()(SourceRow(row().location, {"ID": "1E+05", "TITLE": ""}, (problem,)))).strip() == reported


def test_cells_of_a_joined_row_that_is_not_there_are_not_reported_to_be_empty(row: Row, build: Build) -> None:
    places = {"source": {"kind": "csv", "path": "places.csv"}, "by": {"PLACE": "id"}, "prefix": "place.", "on_miss": "reject"}
    event = "locationName: {from: place.name}\ntimezone: {from: ZONE}"
    mapping = build(event=event)
    joined = mapping.source.model_copy(update={"join": (Join.model_validate(places),)})
    feed = compile_feed(mapping.model_copy(update={"source": joined}), Directory())
    unknown = Reason(ReasonCode.NOT_IN_LOOKUP, "", "PLACE", "v9", "it knows v1")
    assert said(feed(replace(row(PLACE="v9"), problems=(unknown,)))).strip() == "not_in_lookup PLACE; timezone required ZONE"


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
    one = row(**cells_of(cells))
    for rule, is_left_out in (("skip", becomes == "holds"), ("keep", becomes == "fails")):
        outcome = mapper(top=f"{LET}rows: [{{{rule}: {condition}, because: not wanted}}]\n")(one)
        assert said(outcome) == ("not wanted" if is_left_out else "event")
        assert outcome.row_key == "1"


def test_slugs_that_the_service_does_not_know_are_rejected_with_the_nearest_and_stop_the_feed_where_constant(
    mapper: Mapper, row: Row
) -> None:
    directory = Directory(channels={"city": 3}, classifications=frozenset({"music", "theatre"}))
    feed = mapper(event="channelId: {channel: {from: CHANNEL}}\nclassifications: [{from: KIND}]", directory=directory)
    outcome = feed(row(CHANNEL="town", KIND="musik"))
    assert said(outcome) == "channelId not_accepted CHANNEL; classifications not_accepted KIND"
    assert rejected(outcome).reasons[1].hint == 'did you mean "music"?'
    assert event_of(feed(row(CHANNEL="city", KIND="music")))["channelId"] == 3
    with pytest.raises(ConfigError, match='the key has no channel "citty", did you mean "city"'):
        mapper(event="channelId: {channel: citty}", directory=directory)
    offline, again = (event_of(mapper(event="channelId: {channel: citty}")(row()))["channelId"] for _ in range(2))
    assert offline == again > 0


STAND_IN = "https://img.example/default.png"
COVERS = cases(
    f"""
ONE, on_error: omit | IMG: http://img.example/a%20b.jpg => http://img.example/a%20b.jpg omit | IMG: tel:123 => 1 warning
ONE, on_error: draft | IMG: http://img.example/a%20b.jpg => http://img.example/a%20b.jpg draft | IMG: "" => no cover
ONE, on_error: draft | IMG: tel:123 => draft, 1 warning
ONE, on_error: default, default: "{STAND_IN}" | IMG: https://img.example/a.png => https://img.example/a.png default {STAND_IN}
ONE, on_error: default, default: "{STAND_IN}" | IMG: see attachment => {STAND_IN} omit, 1 warning
[ONE, TWO], on_error: draft | IMG: ex.org/a.jpg, SMALL: ex.org/b.jpg => https://ex.org/a.jpg draft
[ONE, TWO], on_error: draft | IMG: see below, SMALL: none ex.org/b.jpg ~ SMALL: ex.org/b.jpg => https://ex.org/b.jpg draft
[ONE, TWO], on_error: draft | IMG: see below => draft, 1 warning | IMG: "" => no cover
""".replace("ONE", "{from: IMG, do: [url]}").replace("TWO", "{from: SMALL, do: [{split: ' '}]}")
)


@pytest.mark.parametrize(("policy", "cells", "becomes"), COVERS)
def test_a_cover_travels_beside_the_body_and_a_bad_one_by_its_policy(
    policy: str, cells: str, becomes: str, mapper: Mapper, row: Row
) -> None:
    compiled = mapper(event=f"coverImage: {{image: {policy}}}")
    outcome = mapped(compiled(row(**cells_of(cells))))
    cover = [f"{outcome.cover.url} {outcome.cover.on_error}"] if outcome.cover else []
    found = [*cover, said(outcome, "status"), "1 warning" * len(outcome.warnings)]
    assert (", ".join(filter(None, found)) or "no cover") == becomes
    assert "coverImage" not in event_of(outcome)
    assert (outcome.fingerprint != mapped(compiled(row())).fingerprint) is (bool(cover) or "draft" in becomes)
    assert not outcome.cover or outcome.cover.stand_in == STAND_IN * ("default " in becomes)


def test_only_the_columns_that_the_mapping_reads_decide_over_the_digest(mapper: Mapper, row: Row) -> None:
    compiled = mapper()
    assert compiled.columns == {"ID", "TITLE"}
    assert compiled.digest(row(OTHER="a")) == compiled.digest(row(OTHER="b"))
    assert compiled.digest(row(TITLE="a")) != compiled.digest(row(TITLE="b"))
    assert compiled.key_of(row(ID="")) == ""
    outcome = mapped(compiled(row()))
    assert (compiled.key_of(row()), compiled.digest(row())) == (outcome.row_key, outcome.row_digest)


DRAFTS = "publish: {draft_on_warning: true}\n"
EVENT = """status: published
locationName: {from: PLACE, do: [fix_mojibake], on_empty: warn}
coverImage: {image: {from: IMG, on_empty: omit}}"""
READ = Reason(ReasonCode.UNDECODABLE, "", "NOTES", "x", "save the file as UTF-8")


@pytest.mark.parametrize(
    ("cells", "warnings"), [({}, ()), ({"PLACE": ""}, ()), ({"PLACE": "CafÃ©"}, ()), ({"IMG": "no picture"}, ()), ({}, (READ,))]
)
def test_a_row_with_a_warning_is_a_draft_under_its_own_key(
    cells: dict[str, str], warnings: tuple[Reason, ...], build: Build, row: Row
) -> None:
    one = replace(row(**{"PLACE": "Mill"} | cells), warnings=warnings)
    plain, careful = (mapped(compile_feed(build(event=EVENT, top=top), Directory())(one)) for top in ("", DRAFTS))
    assert event_of(plain)["status"] == "published"
    assert event_of(careful) == event_of(plain) | {"status": "draft" if cells or warnings else "published"}
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


SHOWN = cases("""
title: {from: TITLE, do: [html_unescape, collapse]} | TITLE: " Jazz &amp; blues" => from TITLE:  >  Jazz &amp; blues; \
html_unescape:  Jazz &amp; blues >  Jazz & blues; collapse:  Jazz & blues > Jazz & blues
classifications: {from: KIND, do: [{split: '/'}, {map: {a: art, b: music}}]} | KIND: a/b => from KIND:  > a/b; \
split: a/b > a · b; map: a · b > art · music
classifications: {from: KIND, do: [{split: '/'}, {map: {a: art}, on_miss: warn}, upper]} | KIND: a/b => from KIND:  > a/b; \
split: a/b > a · b; map: a · b > refused; map: a > art; map: b > refused; upper: art > ART
title: {join: [{from: TITLE}, {from: M}], with: ': '} | M: live => from TITLE:  > Jazz; from M:  > live; join:  > Jazz: live
status: {choose: [{when: {column: MORE, is: missing}, then: draft}], otherwise: published} | MORE: live => \
MORE is missing: live > no; choose:  > published
$day: {from: DAY, do: [{date: "%d/%m/%Y"}]} | DAY: 2026-07-01 => from DAY:  > 2026-07-01; date: 2026-07-01 > refused
""")


@pytest.mark.parametrize(("value", "cells", "shown"), SHOWN)
def test_each_step_of_a_row_is_shown_with_its_input(value: str, cells: str, shown: str, build: Build, row: Row) -> None:
    name, _, written = value.partition(": ")
    top, event = (f"let: {{day: {written}}}\n", "locationName: {from: $day}") if name == "$day" else ("", value)
    mapping, one = build(event=event, top=top), row(**cells_of(cells))
    explained = explain_row(mapping, Directory(), one)
    steps = [step for step in explained.steps if step.field == name]
    found = [f"{step.step}: {step.goes_in} > {'refused' if step.refused else step.comes_out}" for step in steps]
    assert "; ".join(found).replace(" | ", " · ") == shown
    assert all("This is not a date" in step.refused for step in steps if step.refused and name == "$day")
    assert explained.outcomes[0] == compile_feed(mapping, Directory())(one)
