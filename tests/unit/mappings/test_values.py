"""Values of an event's fields: lookups, lists, pieces put together, what is left out of them, and what each policy does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from unit.mappings.conftest import Build, Mapper, Row, as_text, cases, cells_of, event_of, mapped, mistakes, rejected, said

from mappings.compiler.explain import explain_row
from mappings.compiler.mapper import compile_feed
from mappings.errors import ConfigError, MappingFileError
from mappings.event import Directory
from mappings.outcome import Rejection, RowLocation, RowOutcome, SourceRow
from mappings.spec.values import STEPS
from mappings.steps.step import Kind

FILES = {
    "words.csv": "word,slug\njazz,music\nacid jazz,club\nexpo,art\nŁódź,city\n",
    "cities.csv": "country,city,placeId\nPT,Lisboa,pt-lisboa\nPT,Porto,pt-porto\nES,Vigo,es-vigo\n",
    "zones.csv": "city,placeId,zone\nPorto,pt-porto,Europe/Lisbon\n",
}
TOP = """let:
  base: https://ex.org/e/
  word: {from: $base, do: [upper]}
  number: {from: NO, on_empty: omit}
  zone: {from: CITY, do: [{lookup: zones.csv}]}
"""
VALUES = cases(r"""
x: {from: A, do: [{lookup: words.csv, match: prefix}]} | A: jazz & more => music | A: acid jazz night => club
x: {from: A, do: [{lookup: words.csv, match: prefix, ignore: case}]} | A: EXPOsition => art
x: {from: A, do: [{lookup: words.csv, match: keyword}]} | A: late expo then jazz => music
x: {from: A, do: [{lookup: words.csv, match: keyword}]} | A: jazzy exposition => x not_in_lookup A
x: {from: A, do: [{lookup: words.csv, match: keyword, ignore: [case, accents]}]} | A: Acid Jâzz => music
x: {from: A, do: [{lookup: words.csv, ignore: [case, accents]}]} | A: łódź ~ A: LODZ => city
x: {from: A, do: [{lookup: words.csv, match: keyword, many: true}]} | A: acid jazz at the expo => music · club · art
x: {from: A, do: [{lookup: words.csv, match: keyword, on_miss: keep}]} | A: jazzy => jazzy
x: {from: A, do: [{lookup: words.csv, match: regex}]} | A: so much jazzy stuff => music
x: {from: A, do: [{lookup: words.csv, match: regex, ignore: [case]}]} | A: EXPO => art
x: {from: $zone, do: [{part: zone}, {split: /}, count]} | CITY: Porto => 2
approxLocation.city.placeId: {from: $zone, do: [{part: placeId}]} | CITY: Porto => placeId: pt-porto
x: {from: A, do: [{split: ','}, {map: {fair: [a, b], jazz: c}}, unique]} | A: "fair,jazz,fair" => a · b · c
x: {from: A, do: [{split: ','}, {map: {Fair: [a, b], Jazz: c}, on_miss: omit}]} | A: "Fair,Chess,Jazz" => a · b · c
x: {from: $number, do: [trim, {default: Main}]} | NO: "" => Main
x: {from: A, do: [{country: [en, de]}]} | A: " österreich" => AT
x: {from: A, do: [{price: ",", take: [from, to]}]} | A: "12,50 € – 15 €" => from: 12.5, to: 15
x: {from: A, do: [{number: "."}, {round: 0}]} | A: "2.5" => 3
x: {from: A, do: [{number: "."}, to_text]} | A: "12.50" => 12.50
x: {from: A, do: [{split: ';'}, {boolean: {'true': x, 'false': ''}}, {join: /}]} | A: x;x => true/true
x: {from: A, do: [{split: ';'}, {iso: date, on_error: omit}, first, to_text]} | A: TBA; 2026-05-08; 2026-05-15 => 2026-05-08
x: {from: A, do: [{split: ','}, {map: {a: art}, on_miss: omit}], on_empty: {use: [culture]}} | A: "a, x, a" => art · art
x: {from: A, do: [{split: ','}, {map: {a: art}, on_miss: omit}], on_empty: {use: [culture]}} | A: "x" ~ A: "" => culture
classifications: {from: A, do: [{split: ','}, {map: {a: art}, on_miss: keep}, unique]} | A: "a,c,b,a" => art · c · b
classifications: {from: A, do: [{split: '/'}, {split: ','}, {map: {a: x, b: y}, on_miss: omit}]} | A: "a,c/b" => x · y
title: {first_of: [{from: A}, {from: B, do: [{regex_extract: '[a-z]+'}]}, Untitled]} | A: one, B: two => one | B: two => two
title: {first_of: [{from: A}, {from: B, do: [{regex_extract: '[a-z]+'}]}, None]} | A: "" => None | B: "2" => title bad_text B
title: {choose: [{when: {column: A, is: present}, then: {from: B, on_empty: omit}}], on_empty: reject} | A: x => title required B
title: {choose: [{when: {column: A, is: present}, then: {from: B, on_empty: omit}}], on_empty: {use: None}} | A: "" => None
title: {from: TITLE} | TITLE: "Cafe\u0301" => Café | TITLE: 02134 => 02134 | TITLE: "12,50" => 12,50 | TITLE: 5.10 => 5.10
title: {from: TITLE} | TITLE: 1e5 => 1e5 | TITLE: NA => NA | TITLE: TRUE => TRUE | TITLE: no => no | TITLE: "  two  x" =>   two  x
title: {from: TITLE} | TITLE: "caf\udce9" => title bad_text TITLE | ID: "caf\udce9" => bad_text ID | ID: " " => required ID
title: x | ID: 9.18E+11 ~ ID: 1E+05 ~ ID: "9,18e+11" ~ ID: 1E-7 ~ ID: 4.5e-12 => bad_key ID
title: x | ID: "#REF!" ~ ID: "#N/A" ~ ID: "######" => bad_key ID
title: x | ID: 7E10 ~ ID: E+1 ~ ID: 918000000000 ~ ID: "#12" ~ ID: 1e5x => x
x: {from: A} | A: "\udce9" => x bad_text
timezone: {from: A} | A: "\ud800" => timezone not_a_zone A
title: {from: TITLE, do: [html_unescape]} | TITLE: Cafe&#769; => Café
locationName: {from: A, on_empty: omit} | A: "\u00a0 " => NOTHING
locationName: {join: [$base, seven], with: ''} | A: "" => https://ex.org/e/seven
locationName: {from: A, do: [{strip_prefix: none}, {prefix: 'no. '}, {default: unknown}]} | A: none ~ A: "" => unknown
locationName: {from: A, do: [{map: {a: b}, on_miss: omit}, {default: unknown}]} | A: none ~ A: "" => unknown
locationName: {from: A, do: [{map: {a: b}, on_miss: omit}, upper, {default: unknown}]} | A: none ~ A: "" => unknown
locationName: {join: ["place:us", {from: NO}]} | NO: " " => locationName required NO
locationName: {join: ["a", {from: NO, do: [trim]}, "b", {first_of: [{from: NO}, {from: A}]}], on_empty: omit} | NO: "" => NOTHING
locationName: {join: ["a", {from: NO, do: [trim]}, "b", {first_of: [{from: NO}, {from: A}]}], on_empty: omit} | NO: 7 => a 7 b 7
locationName: {join: [$base, $number], on_empty: omit} | NO: "" => NOTHING | NO: 7 => https://ex.org/e/ 7
locationName: {join: [$word, {from: NO}], on_empty: omit} | NO: "" => NOTHING | NO: 7 => HTTPS://EX.ORG/E/ 7
locationName: {join: [{join: [a, b]}, {join: [c, {from: NO}]}], on_empty: omit} | NO: "" => NOTHING | NO: 7 => a b c 7
locationName: {join: [{first_of: [a, b]}, {from: NO}], on_empty: omit} | NO: "" => NOTHING | NO: 7 => a 7
offers: [{name: $$5}] | A: "" => name: $5
offers: [{name: {from: A, on_empty: omit}}] | A: "" => NOTHING
offers: [{name: Box office, url: 'https://ex.org/desk'}] | A: "" => name: Box office, url: https://ex.org/desk
offers: [{when: {column: LEFT, greater: '0'}, name: {from: A}}] | LEFT: many, A: x => offers[0] not_a_number
endAt: {from: END} | END: 2026-07-01T17:00:00+00:00 => 2026-07-01T17:00:00+00:00
endAt: {from: END} | END: 2026-07-01T17:59:00+01:00 => endAt end_before_start END
startAt: {from: A} | A: 2026-02-30T10:00:00+00:00 => startAt not_a_date A
timezone: {from: A} | A: CET+1 => timezone not_a_zone A
status: {from: A} | A: x => status not_accepted A
channelId: {from: A} | A: x => channelId not_accepted A
approxLocation.city: {placeId: x, countryCode: {from: A}} | A: x1 => approxLocation.city.countryCode not_accepted A
offers: [{url: {from: A}}] | A: x => offers[0].url not_a_url A
title: [a, {from: A}] | A: x => title not_accepted A
coverImage: {image: {from: A}, on_error: reject} | A: tel:123 => coverImage not_a_url A
""")


@pytest.mark.parametrize(("event", "cells", "becomes"), VALUES)
def test_a_field_gets_what_its_value_says_of_the_row(mapper: Mapper, row: Row, event: str, cells: str, becomes: str) -> None:
    feed = mapper(event=event, top=TOP, files=FILES)
    outcome = feed(row(**cells_of(cells)))
    found = said(outcome, event.partition(":")[0].partition(".")[0])
    assert found.removeprefix("city: ") == becomes.replace("NOTHING", "")


UNKNOWN = cases("""
PT | Faro => CITY "Faro": the list has "Lisboa", "Porto"
PT | Lisbo => CITY "Lisbo": did you mean "Lisboa"? Otherwise add "Lisbo" to the list
ES | Porto => CITY "Porto": the list has "Vigo" | EMPTY => CITY "": fill in the column "CITY"
XX | Porto => LAND "XX": the list has "PT", "ES"
EMPTY | Porto => LAND "": fill in the column "LAND"
""")


@pytest.mark.parametrize(("land", "city", "reported"), UNKNOWN)
def test_of_several_key_values_the_first_that_is_unknown_is_reported(
    mapper: Mapper, row: Row, land: str, city: str, reported: str
) -> None:
    event = "approxLocation.city.placeId: {lookup: cities.csv, by: [{from: LAND}, {from: CITY}], ignore: case}"
    outcome = rejected(mapper(event=event, files=FILES)(row(LAND=land, CITY=city)))
    assert [f'{reason.column} "{reason.found}": {reason.hint}' for reason in outcome.reasons] == [reported]


@pytest.mark.parametrize(
    "steps", ["[html_to_text]", "[{strip_prefix: <br>}]", "[{split: '/'}, {map: {a: b}, on_miss: omit}, first]"]
)
def test_a_cell_of_which_the_steps_leave_nothing_is_shown_as_it_stands(steps: str, mapper: Mapper, row: Row) -> None:
    (reason,) = rejected(mapper(event=f"title: {{from: TITLE, do: {steps}}}")(row(TITLE="<br>"))).reasons
    assert (reason.code, reason.field, reason.found) == ("required", "title", "<br>")
    assert reason.hint == 'nothing usable was left of this cell; write another value in the column "TITLE"'


SIDE_BY_SIDE = """offers:
  for_each: [{from: NAMES, do: [{split: ";", keep_empty: true}]}, {from: LINKS, do: [{split: ";", keep_empty: true}]}]
  as: [name, link]
  give: {name: {from: $name, on_empty: {use: Tickets}}, url: {from: $link, do: [url]}}
"""
OF_ONE_CELL = """x:
  for_each: {from: PRICES, do: [{split: ";"}], on_empty: omit}
  as: item
  give: {name: {join: ["Ticket", $item]}, price: {from: $item, do: [{price: ","}, {part: from}], on_error: omit}}
  on_empty: omit
"""
NESTED = """x:
  for_each: {from: DAYS, do: [{split: ";"}]}
  as: day
  give:
    name: {from: $day, do: [{split: ":"}, first]}
    acts: {for_each: {from: $day, do: [{split: ":"}, last, {split: ","}]}, as: act, give: {from: $act, do: [upper]}}
"""
WANTED = """offers:
  for_each: {from: LINKS, do: [{split: ";"}]}
  as: link
  give: {when: {value: $link, contains: ex.org}, require: url, name: Tickets, url: {from: $link, do: [url], on_error: omit}}
  on_empty: omit
"""
CONSTANTS = """offers:
  for_each: [[Tickets, Members], [{from: A, on_empty: omit}, {from: B, on_empty: omit}]]
  as: [name, url]
  give: {name: $name, url: $url}
  on_empty: omit
"""
TWO = """offers:
  - when: {column: SALE, equals: open}
    require: [url]
    name: {from: NAME, on_empty: {use: Tickets}}
    url: {from: LINK, do: [url]}
    availability: available
  - name: Box office
    url: {from: DESK, do: [url], on_empty: omit}
    availability: {from: LEFT, on_empty: omit}
"""
OFFERS = [
    (SIDE_BY_SIDE, {"NAMES": "Adult;;Child;", "LINKS": "ex.org/1;ex.org/2;ex.org/3;"}, "Adult 1 · Tickets 2 · Child 3"),
    (SIDE_BY_SIDE, {"NAMES": "a;b", "LINKS": "ex.org/1;mailto:x@y.z"}, "offers[1].url not_a_url LINKS"),
    (OF_ONE_CELL, {"PRICES": "12,50 €; free seats"}, "Ticket 12,50 € 12.5 · Ticket free seats 0"),
    (OF_ONE_CELL, {"PRICES": ""}, ""),
    (NESTED, {"DAYS": "Fri: a, b ; Sat: c"}, "A · B Fri · C Sat"),
    (WANTED, {"LINKS": "ex.org/a;elsewhere.org;mailto:x@ex.org"}, "Tickets a"),
    (CONSTANTS, {"A": "", "B": "https://ex.org/b"}, "Members b"),
    (CONSTANTS, {"A": ""}, ""),
    (TWO, {"SALE": "open", "LINK": "ex.org/a"}, "available Tickets a"),
    (TWO, {"SALE": "closed", "LINK": "no address at all"}, ""),
    (TWO, {"SALE": "open", "LINK": "", "DESK": "ex.org/desk"}, "Box office desk"),
    (TWO, {"SALE": "open", "LINK": "mailto:a@ex.org"}, "offers[0].url not_a_url LINK"),
    (TWO, {"LEFT": "few"}, "few Box office"),
]


@pytest.mark.parametrize(("event", "cells", "expected"), OFFERS)
def test_a_list_of_objects_holds_what_is_there_and_wanted(
    build: Build, row: Row, event: str, cells: dict[str, str], expected: str
) -> None:
    mapping = build(event=event)
    (outcome,) = explain_row(mapping, Directory(), row(**cells)).outcomes
    assert outcome == compile_feed(mapping, Directory())(row(**cells))
    if isinstance(outcome, Rejection):
        assert said(outcome) == expected
        return
    objects = event_of(outcome).get(event.partition(":")[0], [])
    assert as_text([" ".join(as_text(part).rpartition("/")[2] for part in each.values()) for each in objects]) == expected


@pytest.mark.parametrize(
    ("top", "event", "problem"),
    [
        ("let: {item: x}\n", "x: {for_each: {from: A}, as: item, give: $item}", "is the name of another value"),
        ("let: {b: {from: $a}}\n", "x: {for_each: {from: A}, as: a, give: $b}", 'unknown name "$a"'),
        ("let: {b: {for_each: {from: A}, as: a, give: $a}}\n", "x: $b", "are allowed only in the event"),
    ],
)
def test_the_name_of_an_item_is_its_lists_own(build: Build, top: str, event: str, problem: str) -> None:
    assert problem in mistakes(build, top=top, event=event)


META = """source_row: {meta: row}
file: {meta: file, do: [upper]}
tab: {meta: tab, on_empty: omit}
imported: {meta: run_date, zone: Asia/Tokyo}
"""


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("events.csv:42", "17 | EVENTS.CSV |  | 2026-05-02"),
        ("2026/may.json:9 (record 3)", "17 | 2026/MAY.JSON |  | 2026-05-02"),
        ("book.xlsx/Programme!A17", "17 | BOOK.XLSX | Programme | 2026-05-02"),
    ],
)
def test_where_a_row_stands_and_when_the_run_began_can_be_values(build: Build, place: str, expected: str) -> None:
    feed = compile_feed(build(event=META), Directory(), datetime(2026, 5, 1, 20, tzinfo=UTC))
    outcome = feed(SourceRow(RowLocation(place, 17), {"ID": "1", "TITLE": "Jazz"}))
    assert said(outcome, "source_row", "file", "tab", "imported") == expected
    with pytest.raises(ConfigError, match="the time of the run was not given"):
        compile_feed(build(event=META), Directory())


@pytest.mark.parametrize(
    "step",
    [
        *('{prefix: "place:us-"}', "{suffix: ' (repeat)'}", "{pad: 5}", "{hash: 12}", '{resolve: "https://ex.org/agenda/"}'),
        *('{url_template: "https://ex.org/e/{}"}', "{set_query: {from: agenda}}", "{regex_replace: '^', with: x}"),
    ],
)
def test_no_step_makes_something_of_what_the_steps_before_it_left_empty(step: str, mapper: Mapper, row: Row) -> None:
    compiled = mapper(event=f"locationName: {{from: NO, do: [{{strip_prefix: none}}, {step}], on_empty: omit}}")
    for cell in ("none", "none  "):
        assert said(compiled(row(NO=cell)), "locationName") == ""
    listed = mapper(event=f"classifications: {{from: NO, do: [{{split: ';', keep_empty: true}}, {step}], on_empty: omit}}")
    assert len(event_of(listed(row(NO="a;;b")))["classifications"]) == 2


LOOKUP = {"categories.csv": "path,slug\ncategories/music/jazz,music\nmusic,music\n"}
REFUSED: dict[str, tuple[str, str, str]] = {
    "a date": ("trim", '{date: "%Y-%m-%d"}', "soon"),
    "a part of a list": ('{split: "|"}', "{nth: 3}", "a|b"),
    "a pattern": ("trim", "{regex_all: a}", "x" * 200_000),
    "a repair": ("trim", "fix_mojibake", "CafÃ©"),
    "a lookup": ("trim", "{lookup: categories.csv}", "chess"),
    "a list of words": ("trim", "{map: {a: b}}", "chess"),
    "a way of categories": ('{split: "|"}', "{last_in: categories.csv}", "categories|fado"),
    "a moment": ('{datetime: "%Y-%m-%d %H:%M"}', "{wall_time_in: Europe/Lisbon}", "2026-03-29 01:30"),
}
"""A step before it, the step, and a cell that it refuses."""
POLICIES = ("reject", "omit", "warn", "draft", "{use: X}", "{use: X, warn: true}", "{use: X, draft: true}")


def result_of(outcome: RowOutcome, path: str = "locationName") -> tuple[object, bool, bool]:
    """Return the field (or the rejection), whether the row has a warning, and whether it is a draft."""
    if isinstance(outcome, Rejection):
        return "rejected", False, False
    event = event_of(outcome)
    return event.get(path), bool(mapped(outcome).warnings), event.get("status") == "draft"


def expected(policy: str, kept: object = None) -> tuple[object, bool, bool]:
    found = "X" if "use" in policy else kept if policy in {"warn", "draft"} else None
    return ("rejected", False, False) if policy == "reject" else (found, "warn" in policy or "draft" in policy, "draft" in policy)


def with_policy(step: str, policy: str, key: str = "on_error") -> str:
    name = f"{{{step}: true" if not step.startswith("{") else step[:-1]
    return f"{name}, {key}: {policy}}}"


@pytest.mark.parametrize("kind", REFUSED)
def test_each_policy_of_a_step_changes_what_becomes_of_what_it_refuses(kind: str, mapper: Mapper, row: Row) -> None:
    before, step, cell = REFUSED[kind]
    key = "on_miss" if any(word in step for word in ("map:", "lookup:", "last_in:")) else "on_error"
    for policy in POLICIES:
        event = f"locationName: {{from: X, do: [{before}, {with_policy(step, policy, key)}]}}"
        found = result_of(mapper(event=event, files=LOOKUP)(row(X=cell)))
        assert found == expected(policy, "Café" if kind == "a repair" else None), policy


BEFORE = {
    Kind.LIST: '{split: "|"}, ',
    Kind.OBJECT: '{price: ",", take: [from, to]}, ',
    Kind.ANY: '{datetime: "%Y-%m-%d %H:%M"}, ',
}
"""A step that gives what a step takes that takes no text."""


@pytest.mark.parametrize("name", sorted(name for name, step in STEPS.items() if not step.refuses))
def test_a_policy_of_a_step_that_refuses_nothing_is_a_mistake_with_its_place(name: str, mapper: Mapper) -> None:
    step = STEPS[name].examples[0].step
    before = BEFORE.get(STEPS[name].takes, "")
    with pytest.raises(MappingFileError, match=f'on_error never applies: the step "{name}" refuses nothing') as caught:
        mapper(event=f"locationName: {{from: X, do: [{before}{with_policy(step, 'omit')}]}}")
    assert caught.value.problems[0].column > len("  locationName: {from: X, do: [")


DATE = '{date: "%Y-%m-%d"}'
AT = 'at: {day: {from: X, do: [{date: "%Y-%m-%d"}]}, zone: Europe/Lisbon, all_day: "00:00"}'
IN_ZONE = "in_zone: {moment: {from: X, do: [{iso: moment}]}, zone: Europe/Lisbon}"
KINDS = {
    "from": f"from: X, do: [{DATE}]",
    "from a name": "from: $day",
    "first_of": f"first_of: [{{from: X, do: [{DATE}]}}]",
    "join": f"join: [{{from: X, do: [{DATE}]}}, {{from: EMPTY}}]",
    "choose": f"choose: [{{when: {{column: EMPTY, is: missing}}, then: {{from: X, do: [{DATE}]}}}}]",
    "at": AT,
    "in_zone": IN_ZONE,
    "plus": "plus: {moment: {from: X, do: [{iso: moment}]}, length: {from: X, do: [duration]}}",
    "lookup": f"lookup: categories.csv, by: {{from: X, do: [{DATE}]}}",
    "a lookup": "lookup: categories.csv, by: {from: X}",
    "for_each": f"for_each: {{from: X, do: [{DATE}]}}, as: item, give: $item",
}
LET = f"let: {{day: {{from: X, do: [{DATE}]}}}}\n"


@pytest.mark.parametrize(
    ("kind", "key", "cell"),
    [
        *[(kind, key, cell) for kind in KINDS for key, cell in (("on_empty", ""), ("on_error", "soon")) if kind != "a lookup"],
        ("a lookup", "on_miss", "chess"),
    ],
)
def test_each_policy_of_a_value_changes_what_becomes_of_it(kind: str, key: str, cell: str, mapper: Mapper, row: Row) -> None:
    top = LET if kind == "from a name" else ""
    for policy in POLICIES:
        compiled = mapper(event=f"locationName: {{{KINDS[kind]}, {key}: {policy}}}", top=top, files=LOOKUP)
        assert result_of(compiled(row(X=cell))) == expected(policy), policy


@pytest.mark.parametrize(("key", "cell"), [("on_empty", ""), ("on_error", "town")])
def test_each_policy_of_a_channel_changes_what_becomes_of_it(key: str, cell: str, mapper: Mapper, row: Row) -> None:
    for policy in POLICIES:
        event = f"channelId: {{channel: {{from: X}}, {key}: {policy}}}".replace("use: X", "use: 7")
        compiled = mapper(event=event, directory=Directory(channels={"city": 7}))
        found, warned, is_draft = result_of(compiled(row(X=cell)), "channelId")
        is_used = policy.startswith("{")
        assert (found, warned, is_draft) == ((7, *expected(policy)[1:]) if is_used else ("rejected", False, False)), policy


@pytest.mark.parametrize("outer", ["on_error: omit", "on_error: {use: X}"])
def test_a_step_that_says_reject_rejects_whatever_the_value_says(outer: str, mapper: Mapper, row: Row) -> None:
    step = '{date: "%Y-%m-%d", on_error: reject}'
    other = '{date: "%d/%m/%Y"}'
    choose = f"{{choose: [{{when: {{column: X, is: present}}, then: {{from: X, do: [{step}]}}}}], {outer}}}"
    for value in (choose, f"{{first_of: [{{from: X, do: [{step}]}}, {{from: Y, do: [{other}]}}], {outer}}}"):
        assert result_of(mapper(event=f"locationName: {value}")(row(X="soon"))) == ("rejected", False, False)
    piece = "{join: [{from: X, on_empty: reject}, {from: Y}], on_empty: omit}"
    assert result_of(mapper(event=f"locationName: {piece}")(row(X="", Y="y"))) == ("rejected", False, False)
