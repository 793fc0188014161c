"""Mistakes in a mapping file and what is merely unwise: all at once, each at its place, with what was probably meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from unit.mappings.conftest import EVENT, HEAD, VALID, Build, cases, mistakes

from mappings.errors import MappingFileError
from mappings.yaml.loader import load_feed, parse_feed

TEN_MISTAKES = """\
feed: Lisbon Agenda
sorce: {kind: csv, path: a.csv}
source: {kind: csv, path: a.csv, encoding: [windoes-1252]}
key: [REF]
schedule: {cron: "61 * * * *", timezone: Europe/Lisbonn}
let:
  day: {from: INICIO, do: [{date: ["%d/%Q/%Y"]}]}
  a: {from: $b}
  b: {from: $a}
rows:
  - skip: {column: KIND, matches: "(unclosed"}
    because: closed
event:
  channelId: {channel: city-agenda}
  title: {from: NOME, do: [trimm]}
  startAt: {at: {day: $dya, zone: Europe/Lisbon, all_day: "00:00"}}
  timezone: Lisbon
  classifications: {from: KIND, on_emty: omit}
  approxLocation.city: {lookup: cities.csv, by: [PT, Lisboa]}
"""
EXPECTED = [
    (1, 7, '"Lisbon Agenda" is not a valid name', "write lower-case words joined by -"),
    (2, 1, 'unknown key "sorce"', 'did you mean "source"?'),
    (3, 45, '"windoes-1252" is not an encoding that Python knows', "windows-1252"),
    (5, 18, '"61" is not a minute in a cron line', "minutes go from 0 to 59"),
    (5, 42, '"Europe/Lisbonn" is not a time zone', 'did you mean "Europe/Lisbon"?'),
    (7, 28, 'there is no "%Q" in a format', ""),
    (8, 6, "the named values refer to each other in a circle: $a -> $b -> $a", ""),
    (11, 35, '"(unclosed" is not a regular expression', ""),
    (15, 28, 'unknown step "trimm"', 'did you mean "trim"?'),
    (16, 23, 'unknown name "$dya"', 'did you mean "$day"?'),
    (17, 13, '"Lisbon" is not accepted as timezone', "expected an IANA zone such as Europe/Lisbon"),
    (18, 33, 'unknown key "on_emty"', 'did you mean "on_empty"?'),
    (19, 33, 'there is no lookup file "cities.csv", neither beside the feed file nor in ../lookups/', 'did you mean "city.csv"?'),
]


def mistakes_in(text: str | bytes, tmp_path: Path) -> MappingFileError:
    path = tmp_path / "lisbon.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(MappingFileError) as raised:
        load_feed(path)
    return raised.value


def test_every_mistake_of_a_file_is_reported_at_once_with_its_place_and_what_was_probably_meant(tmp_path: Path) -> None:
    (tmp_path / "city.csv").write_text("city,placeId\nLisboa,pt-lisboa\n", "utf-8")
    error = mistakes_in(TEN_MISTAKES, tmp_path)
    assert [(problem.line, problem.column) for problem in error.problems] == [place[:2] for place in EXPECTED]
    for problem, (line, _, message, hint) in zip(error.problems, EXPECTED, strict=True):
        assert problem.message.startswith(message)
        assert hint in (problem.hint or problem.message)
        assert problem.snippet == TEN_MISTAKES.splitlines()[line - 1]
    assert f'{tmp_path}/lisbon.yaml:15:28: unknown step "trimm", did you mean "trim"?' in str(error)


FILES = {
    "cities.csv": "city,placeId,mayor\nLisboa,pt-lisboa,Ana\n",
    "kinds.csv": "kind,slug\nx,music\n",
    "one.csv": "kind\nx\n",
    "three.csv": "key,slug,zone\nx,a,b\n",
    "odd.csv": "key,slug\n(x,a\n",
    "ahead.csv": "key,slug\na(?=b),x\n",
}
FRAMES = {
    "do": "locationName: {from: A, do: [WRITTEN]}",
    "at": "startAt: {at: {day: {from: DAY, do: [{date: '%Y-%m-%d'}]}, zone: Europe/Lisbon, WRITTEN}}",
}
VALUES = cases(r"""
title | {form: TITLE, do: [trim]} => unknown value "form", did you mean "from"?
title | {from: TITLE, on_empty: ommit} => "ommit" is not among the choices, did you mean "omit"?
classifications | [{chose: x}] => unknown value "chose", did you mean "choose"?
approxLocation.city.placeId | {colour: red} => approxLocation.city.placeId is not an object: write one of from, first_of
approxLocation.city | {from: CITY} => approxLocation.city is an object, and this gives a text, a text alone belongs in
approxLocation.city | {lookup: kinds.csv, by: [{from: CITY}]} => :11:24: approxLocation.city is an object, and this gives a text
approxLocation.city | {from: CITY, do: [{lookup: kinds.csv}]} => :11:24: approxLocation.city is an object, and this gives a text
approxLocation.city | {lookup: cities.csv, by: {from: C}} => unknown field "mayor" in approxLocation.city
approxLocation.city.nam | {from: C} => unknown field "nam" in approxLocation.city, did you mean "name"?
approxLocation | {city: {placeId: x}}\n  approxLocation.city.placeId: x => is filled in two places
approxLocation | {when: {column: L, is: present}, city: {placeId: x}} => belong to an object in a list
startAt | {at: {day: {from: START}, zone: UTC}} => a text does not fit here, a date is needed
startAt | {from: START, do: [{date: "%d %B"}]} => does not give a whole date, it needs year, month and day
startAt | {from: START, do: [{time: "%I:%M"}]} => does not give a time of day, %I needs %p beside it
startAt | {from: START, do: [{date: DD.MM.YYYY}]} => has no directive such as %d, %m or %Y; the step iso reads ISO 8601
startAt | {from: START, do: [{datetime: "%Y-%m-%d %H:%M %Z"}]} => zone names such as EST are ambiguous
startAt | {from: START, do: [{date: "%Y-%m-%d"}]} => startAt is a moment, not a date, give its time zone
startAt | {in_zone: {moment: {from: S, do: [{iso: wall}]}, zone: UTC}} => a date and time without zone does not fit here
at | clock: "7pm" => "7pm" does not fit here | clock: {from: C, do: [clock], on_empty: {use: "7pm"}} => "7pm" cannot be used in
at | sentinels: "00:00" ~ exclusive: true => sentinels and exclusive apply to whole days only
at | all_day: "00:00", before_start: omit => before_start needs to know when the event starts
at | all_day: "00:00", start: "x", before_start: next_day => next_day is for ends that have a clock
at | all_day: "00:00", start: {from: FROM} => a text does not fit here | all_day: "00:00", before: omit => unknown key "before"
at | all_day: "29:00" => "29:00" is not a time of day | gap: reject => a day alone is no moment: it has no time of day
timezone | CET+1 => "CET+1" is not accepted as timezone
status | publishd => "publishd" is not accepted as status
description | {from: D} => if the service takes it, declare it with extra: [description]
audience | {age: {from: A}} => extra: [audience]
locatonName | {from: V} => :12:16: unknown field "locatonName" in the event, did you mean "locationName"?
locationName | {when: {column: L, is: present}, require: x} => belong to an object in a list
locationName | {for_each: {from: A}, as: item, give: $itme} => unknown name "$itme", did you mean "$item"
locationName | {for_each: {from: A}, as: [a, b], give: $a} => and `for_each` another number of lists
locationName | {for_each: {from: A}, as: [a], give: x}\n  status: {from: $a} => unknown name "$a"
locationName | {meta: run_date} => run_date needs a zone
offers | [{nme: {from: P}}] => :12:18: unknown field "nme" in offers, did you mean "name"?
offers | [{whn: {column: P, is: present}, name: x}] => unknown field "whn" in offers, did you mean "when"?
offers | {for_each: {from: P, do: [{split: ','}]}, as: p, give: {nmae: $p}} => did you mean "name"?
offers | [{url: {from: U}, price: {from: P}}] => extra: [offers.price] | {from: P} ~ tickets => this gives a text
offers | [{require: [ur], url: {from: L}}] => :12:23: this object has no field "ur", did you mean "url"?
offers | [{when: {colum: L, is: present}, url: {from: L}}] => unknown key "colum", did you mean "column"?
offers | {name: {from: P}} => this gives an object … [{name: ..., url: ...}]
offers | [{from: P}] ~ {from: P, do: [{split: ','}]} => this gives a list of texts
offers | {from: P, do: [{number: ','}]} => this gives a number
coverImage | {image: {from: P}, on_error: default} ~ {image: {from: P}, default: "https://img.example/a.png"} => belong together
coverImage | {image: {from: P}, on_error: default, default: "no address"} => is not a web address
coverImage | {image: {from: P}, on_error: defualt, default: "https://img.example/a.png"} => defualt
locationName | {from: X, on_error: omit} => on_error never applies: nothing can refuse this value
locationName | {from: X, do: [{date: "%Y-%m-%d", on_error: omit}], on_error: warn} => on_error never applies: nothing can refuse
locationName | {from: X, do: [fix_mojibake], on_error: draft} => on_error never applies: nothing can refuse this value
locationName | {from: X, do: [{map: {a: b}, on_miss: keep}], on_error: warn} => on_error never applies
locationName | {from: X, do: [{map: {a: b}, on_miss: omit, on_error: warn}]} => on_miss and on_error mean the same
locationName | {first_of: [{from: X}, Tickets], on_empty: omit} => on_empty never applies: one of these values is the same
locationName | {join: [{from: X}, Tickets], on_error: omit} => on_error never applies
locationName | {channel: city, on_empty: omit} => on_empty never applies: the channel is the same in every row
do | date => the step "date" needs parameters, write it like {date: | {truncate: many} => a whole number is needed
do | {date: "%Y-%m-%d"}, trim => cannot be used here: it works on a text, and would get a date
do | {lower: {locale: tr}} => or true beside other keys: {lower: true, locale: tr} | {split: ["", ","]} => a separator is empty
do | {price: ",", take: []} => at least one entry is needed | {regex_extract: 'a{9999}'} => repeat without counting
do | {regex_extract: '('} => needs a backslash | {regex_replace: '(a)', with: '\2'} => "\2" is not a valid replacement
do | {regex_extract: '(a)', group: 5} => there is no group 5 in the pattern | {split: ','}, {nth: 0} => there is no part 0
do | {date: "%Y", locale: klingon} => "klingon" is not a language | {lookup: odd.csv, match: regex} => is not a regular expression
do | {price: ",", currency: USDD} => "USDD" is not the ISO code of a currency, did you mean "USD"
do | {lookup: kinds.csv, match: regex, ignore: [accents]} => patterns can ignore case only
do | {lookup: kinds.csv, match: keyword, ignore: [spaces]} => no words to look for | {regex_extract: '(?x)a b'} => has the flag x
do | {lookup: three.csv, on_miss: keep} => take one column | {lookup: kinds.csv, match: kyword} => did you mean "keyword"
do | {last_in: kinds.csv, on_miss: keep} => "keep" is not among the choices | day_of => the step "day_of" cannot be used here
do | {lookup: one.csv} => one.csv has 1 columns … add a column with the result | {regex_extract: 'a\Z'} => has \Z, which RE2
do | {lookup: kinds.csv, take: slgu} => kinds.csv has no column "slgu"; it has kind, slug … name one of these columns
do | {map: {fair: [market, food]}, on_miss: keep} => leave on_miss: keep out
do | {length: {at_least: 80, at_most: 3}} => no text has at least 80 and at most 3 … {at_least: 3, at_most: 80}
do | {boolean: {'true': [x], 'false': [x]}} => cannot mean both … out of one of the two
do | {time: '%H:%M'}, unique, {truncate: 5} => it works on a text, and would get a time of day
do | {time: '%H:%M'}, {plus: 2h} ~ {plus: 2h} => the step "plus" cannot be used here: it works on dates
do | {date: '%d/%m/%Y'}, {plus: 2h} => a date has no hours to add to | {regex_extract: '(?<=a)b'} => has a look-behind, (?<=...)
do | {date: '%d/%m/%Y'}, clock_of => a day alone has no time of day | {regex_extract: '(?>a)b'} => has an atomic group, (?>...)
do | {regex_extract: '(a)\1'} => has a back-reference, \1 | {regex_replace: a, with: '\n'} => write \n and \t in double quotes
do | {lookup: ahead.csv, match: regex} ~ {regex_all: 'a(?=b)'} ~ {regex_split: 'a(?=b)'} => has a look-ahead, (?=...), which RE2
do | {regex_replace: 'a(?=b)', with: x} ~ {regex_extract: 'a(?=b)'} => has a look-ahead
do | {regex_extract: 'a(?!b)'} => has a negative look-ahead, (?!...) | {regex_extract: '(?a)b'} => invalid perl operator: (?a
do | {regex_extract: '(?<!a)b'} => has a negative look-behind, (?<!...)
do | {regex_extract: '(a)?(?(1)b|c)'} => invalid perl operator: (?(
do | {regex_extract: '(?P<n>a)(?P=n)'} => has a back-reference, (?P=name)
do | {regex_extract: 'a++b'} => bad repetition operator: ++ | {regex_extract: '\u00e9'} => has \u, which RE2 lacks
do | {regex_extract: 'a{1001}'} ~ {regex_extract: '(?:a{100}){100}'} => has counted repetitions of more than 1,000 times
do | {regex_extract: '[z-a]'} => is not a regular expression (RE2): invalid character class range
""")
TOPS = cases(r"""
rows | [{skipp: {column: A, is: missing}, because: x}] => unknown rule "skipp", did you mean "skip"?
rows | [{skip: {column: A}, because: x}] => a condition needs a test | [{window: {horizon: 99999999999d}}] => is not a duration
rows | [{skip: {column: A, before: 2026-01-01}, because: x}] => a column is text: before and after
rows | [{skip: {column: T, matches: 'a(?=b)'}, because: x}] => has a look-ahead
rows | [{skip: {column: X, contains: []}, because: x}] => at least one entry is needed
rows | [{skip: {column: X, contains: ""}, because: x}] => is true of every row … write the text to look for, or is: present
rows | [{skip: {column: X, contains: [a, "-"], ignore: punctuation}, because: x}] => contains "-" is true of every row
rows | [{skip: {column: X, is: present, ignore: [case]}, because: x}] => ignore never applies
rows | [{skip: {column: X, less: 5, ignore: case}, because: x}] => ignore never applies
rows | [{skip: {column: X, matches: rock, ignore: [accents]}, because: x}] => a pattern can ignore case only
rows | [{window: {longest: 3d, on_longer: skip}}] => "on_longer" was removed, leave it out
let | {item: x}\nrows: [{explode: {columns: A, by: ';'}}] => is reserved: it distinguishes the events of a row
rows |  => a list is needed, not "" … write its entries below `rows:`, or delete this line
let | {b: {from: $a}} => unknown name "$a"
let | {day: {from: D}}\nrows: [{recur: {from: "2026-05-01", horizon: 9d}}] => :4:12: "$day" is reserved
examples | [{row: {ID: 1}}] => an example needs one outcome | [{event: {title: x}}] => an example needs either row or rows
examples | [{row: {ID: 1}, rejected: {title: requird}}] => did you mean "required"?
publish | {brakes: {rejected: lots}} => "lots" is not a share | {max_pause: soon} => "soon" is not a duration
publish | {brakes: {rejected: 5}} => "5" is more than 100%, write "5%" if that is meant
publish | {shards: 4} => "shards" was removed … write "in_flight: 64", or divide the source into feeds
publish | {on_change: reprt} => "reprt" is not among the choices, did you mean "report"?
publish | {on_change: create_draft_again} => "create_draft_again" was removed … write "report", and change the event by hand
extra | [descripton] => :4:9: the event has no field "descripton" | [offers.price] => the event has no field "offers.price"
extra | ['offers[0].url'] => "offers[0].url" is not a field of the event
schedule | {cron: "0 0 31 2 *"} => "31" is a day that never comes | {cron: "0 0 30 feb *"} => "30" is a day that never comes
schedule | {cron: "0 0 31 4,6,sep *"} => "31" is a day that never comes | {cron: "*/90 * * * *"} => "*/90" is not a minute
schedule | {cron: "0 0 * mon *"} => "mon" is not a month | {cron: "0 0 * * jan"} => "jan" is not a weekday
schedule | {cron: "@daily"} => "@daily" is not a cron line
""")
RULES = cases(r"""
5:5 | - [skip] ~ - skip => a rule is needed here, one of skip, keep, cancelled
5:11 | - skip: [a] => a condition is needed here, one of column, value, all, any, not
5:5 | - recurr: {from: x} => unknown rule "recurr", did you mean "recur"?
5:12 | - recur: {from: "2026-05-01", weekdays: MO} => a recurrence needs an end, write until, horizon or both
5:19 | - recur: {from: {from: DAY}, horizon: 9d} => a date is needed here, not a text, do: [{date: "%Y-%m-%d"}]
5:12 | - recur: {from: "2026-05-01", nth: 1, horizon: 9d} => nth counts weekdays, and none are given
5:12 | - recur: {from: "2026-05-01", rrule: {from: R}, weekdays: MO, horizon: 9d} => rrule and weekdays say the same thing twice
5:12 | - recur: {until: '2026-05-01'} => a recurrence needs its first day, or all of its days, write from, or days
5:12 | - recur: {days: {from: DAY}, until: '2026-05-01'} => days lists all days: leave out until, weekdays, rrule and extra
5:14 | - explode: {columns: A} => explode needs either `by`, the separator, or `json: true`, write by: ";" or json: true
5: | - explode: {columns: A, by: ';', key: B} => the key names a column that is not exploded, there are A
5: | - explode: {columns: [A, B], json: true} => json: true works on one column only
6:5 | - recur: {from: "2026-05-01", horizon: 9d}\n  - explode: {columns: A, by: ";"} => explode must come before recur, move it up
6:5 | - window: {}\n  - window: {} => the rule "window" occurs twice, keep one of them
6:5 | - group: {collect: offers}\n  - duplicates: {keep: first} => group and duplicates cannot be combined
5:22 | - group: {collect: oferrs} => the event has no field "oferrs", the fields of the event are channelId, title
5: | - duplicates: {keep: newest} => `by` and `keep: newest` belong together, write both, or neither
5:36 | - duplicates: {keep: newest, by: UPDATED} => a date, a moment or a number is needed, to decide which row is newest
5:5 | - assert: {column: A, is: present} => the key "message" is missing
5:19 | - skip: {value: $day, before: '2026-05-01'}\n    because: x => unknown name "$day"
7:15 | - assert: {column: A, is: present}\n    message: x\n    severity: ignore => "ignore" is not among the choices
""")
SOURCES = cases(r"""
csv | null: ["-"] => did you mean "empty_if"? | null_in: {PRICE: ["-"]} => did you mean "empty_in"?
csv | sep: ';' => did you mean "delimiter"?
csv | unpivot: {colums: [A], into: B, cell: C} => did you mean "columns"?
csv | unpivot: {columns: [A, A], into: B, cell: C} => named twice | unpivot: {columns: A, into: B, cell: B} => "B" is used twice
csv | headings: {A: {column: A, match: x}} => did you mean "matches"?
csv | headings: {A: {column: A, matches: x}}, columns: {A: [B]} => "A" is used twice … a new column
google_sheets | spreadsheet: 1TownHallProgramme0000000, write_back: {status: S}, unpivot: {columns: A, into: B, cell: C} => beside
google_sheets | spreadsheet: 1TownHallProgramme0000000, write_back: {status: S}, fill_down: S => writes into it
csv | join: {source: {kind: csv, path: b.csv}, on: {A: b}, prefix: v.} => did you mean "by"?
csv | join: {source: {kind: csv, path: b.csv}, by: {A: b}, prefix: v., on_miss: empty} => did you mean "omit"?
csv | delimiter: ";", quote: ";" => delimiter and quote are the same character … look at a line
csv | quote: "|", escape: "|" => quote and escape are the same character … no escape if quotes are doubled
csv | encoding: latin9000 => "latin9000" is not an encoding … `eventsync init FILE` guesses it
salesforce | api: rest => a source of kind salesforce has `object` or `query`
salesforce | object: Event__c, query: SELECT Id FROM Event__c => a source of kind salesforce has `object` or `query`
salesforce | query: SELECT Id FROM E, where: {field: Name, value: x} => where cannot stand beside a query
salesforce | query: SELECT Id FROM E, incremental: {} => incremental cannot stand beside a query
salesforce | api: bulk, query: "SELECT Id, (SELECT Name FROM Sessions__r) FROM E" => cannot be read in bulk
salesforce | object: E, children: {Sessions__r: [Name]} => "children" was removed
salesforce | query: SELECT COUNT(Id) FROM E, api: bulk => cannot be read in bulk
salesforce | object: Event__c; DROP => is not an API name | object: Event__c, fields: ["Name, (SELECT"] => is not a field
salesforce | object: E, where: {field: Name} => = needs a value
salesforce | object: E, where: {field: Name, op: missing, value: x} => compares with nothing
salesforce | object: E, where: {field: Name, value: [x, y]} => compares with one value
salesforce | object: E, where: {field: Name, op: inclueds, value: x} => is not a comparison … did you mean "includes"
salesforce | object: E, incremental: {overlapp: 5m} => did you mean "overlap"
salesforce | object: E, incremental: {overlap: -5m} => without the minus
salesforce | object: E, incremental: {full_every: 0s} => more than zero
""")


def check_mistake(build: Build, problem: str, **parts: object) -> None:
    reported = mistakes(build, **parts)
    assert all(part in reported for part in problem.split(" … "))


@pytest.mark.parametrize(("field", "written", "problem"), VALUES)
def test_a_mistake_in_a_value_is_reported_in_the_authors_words(build: Build, field: str, written: str, problem: str) -> None:
    frame = FRAMES.get(field, f"{field}: WRITTEN")
    event = frame.replace("WRITTEN", written).replace("\\n  ", "\n")
    check_mistake(build, problem, event=event, top="extra: []\n", files=FILES)


@pytest.mark.parametrize(("key", "written", "problem"), TOPS)
def test_a_mistake_beside_the_event_is_reported_in_the_authors_words(build: Build, key: str, written: str, problem: str) -> None:
    check_mistake(build, problem, top=f"{key}: {written}\n".replace("\\n", "\n"))


@pytest.mark.parametrize(("place", "rules", "problem"), RULES)
def test_a_mistake_in_a_rule_is_reported_at_its_place(build: Build, place: str, rules: str, problem: str) -> None:
    reported = mistakes(build, top=f"rows:\n  {rules}\n".replace("\\n", "\n"))
    assert re.search(rf"sample\.yaml:{place}.*{re.escape(problem)}", reported)


@pytest.mark.parametrize(("kind", "words", "problem"), SOURCES)
def test_a_mistake_in_a_source_is_reported_with_what_is_meant(tmp_path: Path, kind: str, words: str, problem: str) -> None:
    source = "kind: csv, path: sample.csv" if kind == "csv" else f"kind: {kind}"
    with pytest.raises(MappingFileError) as refused:
        parse_feed(HEAD.replace("kind: csv, path: sample.csv", f"{source}, {words}") + EVENT, tmp_path / "a.yaml")
    assert [all(part in str(one) for part in problem.split(" … ")) for one in refused.value.problems].count(True) == 1


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("  title: {from: TITLE}\n", "", 'the event lacks the required field "title"'),
        ("  title: {from: TITLE}\n", "  tittle: {from: TITLE}\n", 'is it written as "tittle"?'),
        ("city.placeId: pt-lisboa\n", "city.name: Lisboa\n", '"approxLocation.city.placeId"'),
        ("key: [ID]", "key: [ID]\nkey: [ID]", 'the key "key" occurs twice, first in line 3'),
        ("key: [ID]", 'key: [""]', ":3:7: "),
        ("  title", "\ttitle", "6:1: this is not YAML: there is a tab here: indent with spaces"),
        ("{from: TITLE}", "[broken", "this is not YAML"),
        ("key: [ID]", "owner: Jo\x07o", "3:10: this is not YAML: there is a control character here"),
        ("key: [ID]", "owner: Jo\udce3o", "3:10: the file is not UTF-8 from here on"),
    ],
)
def test_a_file_that_is_no_mapping_is_reported_at_its_place(old: str, new: str, reported: str, tmp_path: Path) -> None:
    assert old in VALID
    assert reported in str(mistakes_in(VALID.replace(old, new, 1).encode("utf-8", "surrogateescape"), tmp_path))


@pytest.mark.parametrize("nest", [b"[", b"- ", b"{a: ", b"? "])
def test_bottomless_nesting_is_reported_before_it_exhausts_the_machine(tmp_path: Path, nest: bytes) -> None:
    (problem,) = mistakes_in(b"a:\n  " + nest * 200_000, tmp_path).problems
    assert problem.message == "the file nests too deeply or repeats an anchor without end"


def test_anchors_that_multiply_are_reported_once(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join(['*' + before] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)]
    messages = [problem.message for problem in mistakes_in("\n".join(lines).encode(), tmp_path).problems]
    assert messages.count("the file nests too deeply or repeats an anchor without end") == 1


def test_a_lookup_file_that_is_no_table_is_reported(build: Build) -> None:
    city = "approxLocation.city: {lookup: cities.csv, by: [PT]}"
    message = mistakes(build, event=city, files={"cities.csv": 'country,placeId\nPT,"' + "x" * 11_000_000 + '"\n'})
    assert "line 2 of the lookup file cities.csv cannot be read" in message


def test_what_no_check_foresaw_is_a_problem_of_its_file_that_asks_to_be_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mappings.yaml.loader.read_yaml", lambda _: 1 / 0)
    with pytest.raises(MappingFileError) as raised:
        parse_feed(VALID, tmp_path / "sample.yaml")
    (problem,) = raised.value.problems
    assert (problem.line, problem.column) == (1, 1)
    assert re.match(r"a fault of eventsync while loading this file: ZeroDivisionError in \w+\.py, line \d+", problem.message)
    assert problem.hint == "please report it, with the file"


def test_what_is_merely_unwise_in_a_broken_file_is_reported_as_well(tmp_path: Path) -> None:
    let = "let: {day: {from: DAY}}\nevent:\n  locationName: $dya"
    (warning,) = mistakes_in(VALID.replace("event:", let), tmp_path).warnings
    assert (warning.line, warning.message) == (4, 'nothing uses the named value "day"')
    assert warning.hint == 'is it meant by "$dya"?'


def warned(build: Build, **parts: object) -> list[str]:
    """Return the warnings about a feed, but that about its examples."""
    reported = [str(warning).partition(": ")[2] for warning in build(**parts).warnings]
    return [message for message in reported if "example" not in message]


UNWISE = cases(r"""
rows | [{skip: {column: A, in: [x, y]}, because: 1}, {skip: {column: A, equals: x}, because: 2}] => rule 1 leaves out
rows | [{skip: {column: A, is: present}, because: 1}, {skip: {column: A, matches: x}, because: 2}] => rule 1 leaves out
rows | [{skip: {column: A, matches: '^\W*off'}, because: 1}] => \W also matches letters and digits beyond ASCII, such as é, write
rows | [{window: {}}] => an empty `window` leaves out past events | [{window: {horizon: 90d}}] => NOTHING
rows | [{keep: {column: A, equals: x}, because: 1}, {keep: {column: A, in: [x, y]}, because: 2}] => rule 1 leaves out
rows | [{skip: {column: A, equals: x}, because: 1}, {skip: {column: A, in: [x, y]}, because: 2}] => NOTHING
rows | [{skip: {column: A, equals: x, ignore: case}, because: 1}, {skip: {column: A, equals: x2}, because: 2}] => NOTHING
rows | [{skip: {column: A, equals: x}, because: 1}, {skip: {column: B, equals: x}, because: 2}] => NOTHING
rows | [{skip: {not: {column: A, equals: x}}, because: 1}, {skip: {column: A, equals: x}, because: 2}] => NOTHING
let | {spare: {from: A}} => nothing uses the named value "spare"
locationName | {choose: [{when: {column: A, in: x}, then: x}, {when: {column: A, equals: x}, then: y}]} => branch 1 takes
locationName | {from: S, do: [{date: ["%d/%m/%Y", "%Y-%m-%d", "%m/%d/%Y"]}]} => "%d/%m/%Y" and "%m/%d/%Y" both fit 03/04
locationName | {from: S, do: [{date: ["%d/%m/%Y", "%m/%d/%Y"]}]} => keep the one that the partner writes
locationName | {from: A, do: [trim, trim]} => the step "trim" does nothing a second time
locationName | {from: A, do: [collapse, trim]} => the step "trim" does nothing after "collapse"
locationName | {from: A, do: [lower, {map: {Jazz: music}}]} => "Jazz" never matches: the step "lower" comes before, write "jazz"
locationName | fill-in => a value is still to be filled in ("fill-in")
classifications | {from: KIND, do: [{map: {a: fill-in, b: fill-in, c: music}}]} => 2 values are still to be filled in
classifications | {from: KIND, do: [{map: {a: fill-in, b: fill-in, c: music}}]} => eventsync check --live
""")

OFFERED = [
    ("available", ""),
    ("avaliable", '"avaliable" is not a value that … available, did you mean "available"?'),
    ("sold-out", '"sold-out" is not a value that … see with one event whether the service takes another value'),
    ("{from: A, do: [{map: {yes: available, no: sold-out}}]}", '"sold-out" is not a value'),
    ("{from: A, do: [{map: {yes: available}, on_miss: {use: unknown}}]}", '"unknown" is not a value'),
    ("{from: A, do: [{map: {yes: x}}, {map: {x: available}}]}", ""),
    ("{from: A, do: [trim, {lookup: stock.csv}]}", '"gone" is not a value'),
    ("{lookup: stock.csv, by: A, on_empty: {use: none}}", '"none" is not a value … "gone" is not a value'),
    ("{choose: [{when: {column: A, is: present}, then: limited}], otherwise: available}", '"limited" is not a value'),
    ("{choose: [{when: {column: A, is: present}, then: available}], otherwise: none}", '"none" is not a value'),
    ("{first_of: [{from: A}, soon]}", '"soon" is not a value'),
    ("{from: A, on_empty: {use: open}}", '"open" is not a value'),
    ("$stock", 'sample.yaml:5:36: "few" is not a value'),
]


@pytest.mark.parametrize(("written", "message"), OFFERED)
def test_a_text_that_the_service_is_not_known_to_take_is_reported_wherever_it_comes_from(
    build: Build, written: str, message: str
) -> None:
    top = "let:\n  stock: {from: A, on_empty: {use: few}}\n" if written == "$stock" else ""
    event = f"offers:\n    - {{url: {{from: LINK}}, availability: {written}}}"
    found = build(event=event, top=top, files={"stock.csv": "A,STATE\n1,available\n2,gone\n"}).warnings
    reported = "\n".join(str(one) for one in found if "example" not in str(one))
    assert all(part in reported for part in message.split(" … "))
    assert message or not reported, reported


@pytest.mark.parametrize(
    "written", ["{from: A, do: [{map: {yes: publishd}}]}", "{choose: [{when: {column: A, is: present}, then: publishd}]}"]
)
def test_a_status_that_the_service_refuses_is_a_mistake_wherever_it_comes_from(build: Build, written: str) -> None:
    check_mistake(build, '"publishd" is not accepted as status, did you mean "published"?', event=f"status: {written}")


@pytest.mark.parametrize(("key", "written", "message"), UNWISE)
def test_what_has_no_effect_or_two_meanings_is_reported_once(build: Build, key: str, written: str, message: str) -> None:
    is_event = key not in {"rows", "let"}
    parts = {"event": f"{key}: {written}"} if is_event else {"top": f"{key}: {written}\n"}
    found = warned(build, **parts)
    assert [message in one for one in found] == [True] * (message != "NOTHING")


def test_a_key_that_partners_edit_is_warned_about(tmp_path: Path) -> None:
    reported = map(str, parse_feed(HEAD.replace("[ID]", "[ID, TITLE]") + EVENT, tmp_path / "sample.yaml").warnings)
    assert any('3:11: the key uses "TITLE", which partners edit (it fills title)' in line for line in reported)


def test_a_misspelt_column_of_an_example_is_warned_about(build: Build) -> None:
    mapping = build(top="examples:\n  - row: {ID: '1', TITEL: Jazz, NOTE: x}\n    rejected: {title: required}\n")
    (warning,) = mapping.warnings
    assert (warning.message, warning.hint) == ('the mapping reads no column "TITEL"', 'did you mean "TITLE"?')
    assert any("the feed has no examples" in str(one) for one in build().warnings)


def test_a_mapping_that_expands_a_calendar_again_gets_the_new_lines(tmp_path: Path) -> None:
    rule = "rows:\n  - recur: {when: {column: RRULE, is: present}, from: $d, rrule: {from: RRULE}, horizon: 9d}\n"
    let = "let: {d: {from: DTSTART, do: [{characters: 1, to: 10}, {iso: date}]}}\n"
    head = HEAD.replace("{kind: csv, path: sample.csv}", "{kind: ics, path: a.ics}").replace("[ID]", "[UID]")
    found = [str(one) for one in parse_feed(head + let + rule + EVENT, tmp_path / "sample.yaml").warnings]
    assert any("3:6: all occurrences of a series have this key, write key: [UID, {column: RECURRENCE-ID" in one for one in found)
    (repeated,) = [one for one in found if "each occurrence of a series is a row of its own" in one]
    assert "leave this rule out: source: {series: {from: -30d, to: 365d}}" in repeated


@pytest.mark.parametrize(
    "path",
    ["https://user:geheim42@partner.example/a.csv", "https://partner.example/a.csv?token=geheim42", "sftp://u:geheim42@h/a.csv"],
)
def test_a_secret_in_an_address_is_reported_and_not_repeated(tmp_path: Path, path: str) -> None:
    text = (HEAD + EVENT).replace("sample.csv", f'"{path}"')
    mapping = parse_feed(text, tmp_path / "sample.yaml")
    warning = next(warning for warning in mapping.warnings if "secret" in warning.message)
    assert (warning.line, warning.column) == (2, 27)
    assert "***" in warning.snippet
    assert "geheim42" not in f"{warning}{warning.snippet}"


@pytest.mark.parametrize(
    ("extra", "event"),
    [
        ("description", "description: {from: D}"),
        ("audience", "audience: {age: {from: A}}"),
        ("audience.age", "audience.age: {from: A}"),
        ("offers.price", "offers: [{url: {from: U}, price: {from: P}}]"),
        ("approxLocation.city.mayor", "approxLocation.city: {lookup: cities.csv, by: {from: C}}"),
    ],
)
def test_a_field_that_the_feed_declares_is_sent(build: Build, extra: str, event: str) -> None:
    for declared in (extra, f"[{extra}]"):
        assert warned(build, event=event, top=f"extra: {declared}\n", files=FILES) == []
