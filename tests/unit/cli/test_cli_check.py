"""`check`, `preview`, `explain` and `run --dry-run`: every mistake at its place, and what becomes of rows, without a trace."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from lookalikes.notices import Inbox, webhook
from unit.cli.conftest import MAPPING, Decider, Desk
from unit.cli.stories import follow, told_in

from connectors.event_api.answers import AnswerKind, Meaning
from connectors.event_api.lists import Classifications
from mappings.delivery import Answer
from mappings.yaml.loader import load_feed
from pipelines.cli.check_live import of_service
from pipelines.cli.findings import LiveFinding
from pipelines.cli.service_lists import ServiceAnswers
from pipelines.settings import PACKAGED_FEEDS

WITHOUT_EXAMPLES = MAPPING.partition("examples:")[0]


def live_of(document: Any) -> dict[str, Any]:
    """What was asked of the service and the source of the first feed, by what was asked."""
    return {answer["asked"]: answer for answer in document["feeds"][0]["live"]}


ROOT = Path(__file__).parents[3]
TWO_OF_ONE_KEY = "1 / 1 / 2,Hamlet,2030-05-03,20:00,,play / 1,Blues,2030-05-01,19:30,,play / 1 / 3,Hamlet,2030-05-03,20:00,,play"
OLD_FILE = """source 7,Medea,2020-05-04,20:00,,play / 8,Ajax,2020-05-10,20:00,,play
mapping online only -> online only\\n  - window: {past: skip, horizon: 10d}"""
STORIES = told_in(
    """
# sound files end with 0 and their examples are counted, and a source that is not at hand is not missed
check => 0 | {feeds: [{feed: town-hall, path: feeds/town.yaml, problems: [], warnings: []}], ok: true}
check => {feeds: [{examples: {run: 2, failed: []}}]}
delete events.csv
check => 0
# a broken file does not hide what is found in the others
file feeds/broken.yaml feed: other\\nsource: {kind: csv}\\n
edit {title: required} -> {title: too_long}
check => 2 | {ok: false, feeds: {0: {feed: broken, problems: {0: {path: feeds/broken.yaml}}}, 1: {problems: []}}}
check => {feeds: {1: {examples: {run: 2, failed: [{number: 2, field: title, expected: too_long, found: required}]}}}}
# an encoding that is no character set is a mistake at its position
edit ../events.csv -> ../events.csv\\n  encoding: [idna, punycode, undefined, hex, unicode_escape, zlib, rot13]
check => 2 | feeds/town.yaml:5:14: "idna" is | "punycode" is | "undefined" is | "hex" is | "unicode_escape" is
check => 2 | "zlib" is | "rot13" is
# a failing example is shown field by field
edit event: {title: Jazz, startAt -> event: {title: Jaz, timezone: UTC, startAt
check => 2 | feeds/town.yaml:25:20: example 1, title: expected "Jaz", got "Jazz" | feeds/town.yaml:25:35: example 1, timezone:
# a wrong delimiter is one mistake that names the right one, however many columns are missing and whether the header is quoted
edit ../events.csv -> ../events.csv\\n  delimiter: ";"
check => 2 | feeds/town.yaml:5:14: events.csv separates its cells by ',', write `delimiter: ","` | : 1 mistake
file events.csv "ID";"TITLE"\\n"1";"Jazz"\\n
mapping
check => 2 | feeds/town.yaml:3:3: events.csv separates its cells by ';', write `delimiter: ";"` | : 1 mistake
# an encoding in which most rows are no text, or columns seem to be missing, is one mistake that names the right one
source 1,Müller,2030-05-01,19:30,,concert / 2,Jazz,2030-05-01,19:30,,concert / 3,Žižek,2030-05-01,19:30,,concert
check => 0
edit ../events.csv -> ../events.csv\\n  encoding: [ascii]
check => 2 | feeds/town.yaml:5:13: events.csv is not in ascii, so that 2 of its first 3 rows are rejected, write `encoding: utf-8`
source 1,Müller,2030-05-01,19:30,,concert / 2,Jazz,2030-05-01,19:30,,concert
check => 0 | !encoding
file events.csv ID,TITLÉ,DAY,HOUR,KIND,GENRE\\n
edit from: TITLE -> from: TITLÉ
check => 2 | events.csv is not in ascii, so that it seems to lack TITLÉ, write `encoding: utf-8` | 1 mistake
# what is unwise is a warning and no failure
edit key: [ID] -> key: [DAY]
check => 0 | warning: feeds/town.yaml:5:7:
mapping %Y-%m-%d -> %d/%m/%Y
check => 0 | warning: | none of the first | startAt: This is not a date | explain town-hall ROW
# a file may be named by its path wherever it lies
file elsewhere/readme.txt
env EVENTSYNC_FEEDS elsewhere
check feeds/town.yaml => 0 | {feeds: [{feed: town-hall}]}
check FOLDER/feeds/town.yaml => 0 | {feeds: [{feed: town-hall}]}
check drafts/none.yaml => 2 | cannot be read
# settings of Dagster that a person wrote are held against ours
check => 0 | !dagster.yaml
file dagster/dagster.yaml telemetry: {enabled: false}\\nfreshness: {enabled: true}\\n
check => 0 | lacks nux, python_logs, run_launcher,
# a live check of a sound feed asks the service and the source
check --live => 0 | {feeds: [{live: {0: {asked: service, told: …SERVICE}, 1: {asked: scopes}, 2: {asked: channels}}}]}
check --live => 0 | {feeds: [{live: {3: {asked: classifications, told: …version 20}, 5: {asked: contract}, 6: {asked: source}}}]}
check --live => 0 | {feeds: [{live: {4: {asked: places, state: could not be checked, told: …ask its owner whether it has krk}}}]}
check --live => 0 | {ok: true} | !"ok": false
check --live => 0 | key ready the service accepts it | scopes could not be checked | contract ready | notify not ready
# a live check says what is wrong with key and service and still looks at the source
env EVENT_API_KEY sk-wrong-key-9876
check --live => 3 | 9876 | !sk-wrong | service ready | key not ready the service refused | channels could not be checked
env EVENT_API_BASE_URL http://127.0.0.1:1
check --live => 6 | service not ready | key could not be checked | contract could not be checked | source ready
unset EVENT_API_BASE_URL
unset EVENT_API_KEY
check --live => 2 | EVENT_API_BASE_URL is not set | EVENT_API_KEY is not set | source ready csv ../events.csv
# a contract that asks for more is told ahead and costs one refused row
switch contract: new_required_field
check --live => 2 | {feeds: [{live: {5: {asked: contract, severity: error, ok: false, difference: {fields: [organizer]}}}}]}
run => 5 | `organizer` is required | 2 rows were not sent | check --live
states => pending 2, refused 1
switch contract: shorter_titles
source 1,A title that is longer than 40 characters,2030-05-01,19:30,,concert
check --live => 0 | contract ready POST /events: title: | we send 41: 1 of 2 payloads would be refused
# a probe is sent only where it is asked for and says whether the key may create events
check --live => 0 | `--probe`
check --probe => 0 | proves `events:create`, unless
key channels:read
check --probe => 3 | may not create events: 403 insufficient_scope
# a changed list of classifications is told once and its rows are rejected with a hint
edit play: theatre -> play: workshop
run => {runs: [{notices: []}]}
switch classification_list: revised
run => changed from 2026-03-02 to 2026-10-01 | this mapping uses workshop | did you mean "workshops"?
run => !changed from
# a live check compares the list with the version that the mapping was written for or that the last run had
edit feed: town-hall -> classifications_version: 2026-03-02\\nfeed: town-hall
check --live => 0 | classifications ready version 2026-03-02
switch classification_list: revised
check --live => 0 | written for version 2026-03-02, the service's list is now 2026-10-01
switch classification_list: first
run
switch classification_list: revised
check --live => 0 | gone: nightlife, workshop (now workshops?); new: podcast, workshops
# a column that the source at hand lacks is named at each place
edit from: TITLE -> from: TITEL
edit key: [ID] -> key: [IDD]
edit column: KIND -> column: KINDS
check => 2 | feeds/town.yaml:5:7: events.csv has no column "IDD", did you mean "ID"?
check => 2 | feeds/town.yaml:7:20: events.csv has no column "KINDS", did you mean "KIND"?
check => 2 | feeds/town.yaml:11:17: events.csv has no column "TITEL", did you mean "TITLE"?
# a shape that the columns of the source do not fit is named at its place
mapping ../events.csv -> ../events.csv\\n  fill_down: [HOURS]\\n  headings: {MONTH: {column: TITEL, matches: '^x'}}
check => 2 | feeds/town.yaml:5:15: events.csv has no column "HOURS" | feeds/town.yaml:6:30: events.csv has no column "TITEL"
mapping ../events.csv -> ../events.csv\\n  unpivot: {columns: [MONDAY, KIND2], into: title, cell: CELL}
check => 2 | feeds/town.yaml:5:23: events.csv has no column "MONDAY" | feeds/town.yaml:5:31: events.csv has no column "KIND2"
mapping ../events.csv -> ../events.csv\\n  headings: {title: {column: A, matches: x}}
check => 2 | feeds/town.yaml:5:21: in | 2 columns answer to "title"
mapping ../events.csv -> ../events.csv\\n  unpivot: {columns: [GENRE], into: DAY, cell: CELL}\\n  fill_down: CELL
check => 2 | feeds/town.yaml:5:12: "CELL" is used twice | feeds/town.yaml:5:22: the mapping reads "GENRE" too, read "CELL"
mapping ../events.csv -> ../events.csv\\n  headings: {MONTH: {column: A, matches: '^(?=x)'}}
check => 2 | feeds/town.yaml:5:42:
# each filled cell of a timetable has a place of its own and a heading that never comes is a notice
mapping ../events.csv -> ../events.csv\\n  unpivot: {columns: [MO, TU], into: GENRE, cell: HOUR}
edit   unpivot -> \\n  headings: {KIND: {column: A, matches: ^x}}\\n  unpivot
edit key: [ID] -> key: [ID, GENRE]
edit concert: music -> MO: music, TU: music
file events.csv ID,TITLE,DAY,MO,TU\\n1,Jazz,2030-05-01,19:30,20:30\\n2,Fado,2030-05-02,,25:99\\n
preview => {rows: {0: {place: events.csv:2 (column D), row_key: 1|MO}, 1: {place: events.csv:2 (column E), row_key: 1|TU}}}
preview => {rows: {2: {rejected: [{field: startAt}]}}}
explain 1|TU => {place: events.csv:2 (column E), outcomes: [{event: {startAt: '2030-05-01T20:30:00+02:00'}}]}
explain 'events.csv:3 (column E)' => {cells: {HOUR: '25:99'}}
run => 0 | events.csv:3 (column E) | no row of ../events.csv is a heading KIND
# a heading that is put in edits the rows below it and no others
mapping title: {from: TITLE, do: [collapse]} -> title: {join: [{from: TITLE}, {from: MONTH}], with: ", "}
edit ../events.csv -> ../events.csv\\n  headings: {MONTH: {column: A, matches: '^\\pL+$'}}\\n  fill_down: [GENRE]
source MAY / 1,Jazz,2030-05-01,19:30,,concert / 5,Hamlet,2030-05-03,20:00,, / 6,Othello,2030-05-04,20:00,,
run => 0
source MAY / 1,Jazz,2030-05-01,19:30,,concert / LATE / 5,Hamlet,2030-05-03,20:00,,concert / 6,Othello,2030-05-04,20:00,,
run --dry-run => {rehearsals: [{read: {drifted: 2, unchanged: 1}, vanished: 0, would_send: 0}]}
run => 0
waiting => drift 2
titles => Hamlet, MAY, Jazz, MAY, Othello, MAY
# a file to be included is checked with the feeds that include it
file feeds/_shared.yaml steps:\\n  tidy: [collapze]\\n
check feeds/_shared.yaml => 2 | is not a feed, and no feed beside it | include: [_shared.yaml]
edit key: [ID] -> include: [_shared.yaml]\\nkey: [ID]
check feeds/_shared.yaml => 2 | feeds/_shared.yaml is not a feed; these feeds include it: feeds/town.yaml
check feeds/_shared.yaml => 2 | feeds/_shared.yaml:2:10: unknown step "collapze", did you mean "collapse"?
file feeds/_shared.yaml steps:\\n  tidy: [collapse]\\n
check feeds/_shared.yaml => {feeds: [{feed: town-hall}], shared: [{path: feeds/_shared.yaml, included_by: [feeds/town.yaml]}]}
# each row is shown with its place and what becomes of it
offline
preview => {feed: town-hall, lists: offline, rows: {0: {place: events.csv:2, row_key: '1', event: {title: Jazz}}}}
preview => {rows: {1: {rejected: [{field: title, code: required}, {field: startAt, code: not_a_date}]}}}
preview => {rows: {2: {skipped: online only}, 5: {place: events.csv:7}}}
preview => 0 | offline (no service is configured) | "title": "Hamlet" | events.csv:3 REJECTED 2
preview => 0 | startAt (column DAY, found '2030-13-01') | events.csv:4 left out by the rule labelled "online only"
preview => 0 | read 6 (the whole source) = events 3 + left out 1 + rejected 2
# the account counts rows and names each unmapped value once
offline
source ROWS / 8,Odes,2030-05-04,20:00,,poetry / 9,Chess,2030-05-04,20:00,,game
preview --rows 0 --all => {account: {read: 8, events: 3, skipped: {online only: 1}, rejected: 4, is_whole: true}}
preview --rows 0 --all => {account: {reasons: {not_in_lookup: 3, required: 1, not_a_date: 1}}}
preview --rows 0 --all => {account: {unmapped: [{column: GENRE, found: poetry, count: 2}, {found: game, count: 1}]}}
# reading stops with the last row shown and the account says so
offline
preview --rows 2 => {account: {read: 2, is_whole: false}}
preview --rows 2 => 0 | so far; --all reads the whole source
# channels are the service's own, and while it is away the preview goes on offline
preview => {lists: live, rows: {0: {event: {channelId: 101}}}}
env EVENT_API_BASE_URL http://127.0.0.1:1
preview => {lists: offline, why_offline: …no usable answer}
# a preview leaves no file behind
offline
preview => 0
eventsync preview feeds/town.yaml => 0
files => events.csv, feeds
# a source without rows is nothing, and one that is not there is an error with its place
source
preview => {account: {read: 0}}
delete events.csv
preview => 2 | events.csv
# rows of one key that contradict each other are rejected as a run rejects them
source TWO_OF_ONE_KEY
preview => {rows: {0: {rejected: {0: {hint: another one is at events.csv:5}}}, 1: {absorbed: duplicate}}}
preview => {rows: {2: {event: {title: Hamlet}}, 3: {rejected: {0: {hint: the first one is at events.csv:2}}}}}
preview => {rows: {4: {rejected: {0: {hint: the first one is at events.csv:2}}}, 5: {held: '2'}}}
preview => {account: {reasons: {duplicate_key: 3}}}
preview => 0 | events.csv:2 REJECTED 1 | events.csv:7 HELD 3: it looks like a copy of 2
preview => 0 | = events 1 + left out 0 + duplicate 1 + rejected 3 + held 1
preview --only rejected => {rows: [{place: events.csv:2}, {place: events.csv:5}, {place: events.csv:6}]}
preview --only events => {rows: [{place: events.csv:4}]}
preview --only held => {rows: [{place: events.csv:7}]}
# a fresh draft shows its events while its channel and its classifications are still to be filled in
source ROWS
eventsync init events.csv --feed fresh --zone Europe/Warsaw
eventsync preview fresh => 0 | write the slug of one of your channels | "title": "Othello" | read 6
eventsync preview fresh => {lists: live, rows: {0: {event: {title: Jazz, classifications: [fill-in]}}}}
eventsync explain fresh 1 => {outcomes: [{event: {title: Jazz}}]} | still to be filled in
edit {channel: city-agenda} -> {channel: town-agenda}
preview => 2 | the key has no channel "town-agenda"
# a file with values to fill in is not called correct, and its payloads do not show whether the contract fits
source 1 / 4 / 5 / 6 / 7,Sonata,2030-05-05,20:00,,concert / 8,Octet,2030-05-06,20:00,,conzert
eventsync init events.csv --feed fresh --zone Europe/Warsaw => 0 | fresh.yaml is written, with 7 values to fill in
eventsync check fresh => 0 | fresh (feeds/fresh.yaml): 7 values to fill in, 2 examples passed | !correct
eventsync check fresh => {feeds: [{fill_ins: 7}]} | 7 values to fill in: fresh
eventsync check fresh --live => 2 | contract could not be checked | payloads of examples and first rows hold values | !correct
# a row to be explained is found by its key, its place or its number
source ROWS
explain 5 => {cells: {TITLE: Hamlet}, outcomes: [{event: {title: Hamlet}}]}
explain events.csv:6 => {cells: {TITLE: Hamlet}, outcomes: [{event: {title: Hamlet}}]}
explain 7 => {cells: {TITLE: Othello}, outcomes: [{event: {title: Othello}}]}
explain 'web  talk' => {cells: {ID: '3'}, outcomes: [{skipped: online only}]}
source 1 / 5 / 8,Jazz,2030-05-08,19:30,,concert
explain Jazz => 2 | 2 rows have the title 'Jazz': 1, 8 | by its key
# a row behind a cell of several lines is called by the row that a spreadsheet shows, and its line is named beside it
file events.csv ID,TITLE,DAY,HOUR,KIND,GENRE\\n1,"Jazz\\nand more",2030-05-01,19:30,,concert\\n\\n3,,2030-05-01,19:30,,concert\\n
preview => 0 | events.csv:2 | events.csv row 3 (line 4) | events.csv row 4 (line 5) REJECTED
preview => {rows: [{place: events.csv:2}, {place: events.csv:4 (row 3)}, {place: events.csv:5 (row 4)}]}
explain events.csv:5 => {cells: {ID: '3'}, place: events.csv:5 (row 4)}
explain 4 => {cells: {ID: '3'}}
explain 'events.csv row 4' => {cells: {ID: '3'}}
explain 'events.csv row 4 (line 5)' => 0 | events.csv row 4 (line 5), step by step
run => 0 | events.csv row 4 (line 5)
rows --csv problems.csv => 0 | events.csv row 4 (line 5)
# a row of several events is found by every name that commands print and each event has a heading
source 1,Jazz,2030-05-01+2030-05-02,19:30,,concert / 5,,2030-05-03+2030-05-04,20:00,,play
mapping online only -> online only\\n  - explode: {columns: DAY, by: '+'}
explain 1 => {outcomes: [{row_key: 1|2030-05-01}, {row_key: 1|2030-05-02}]}
explain 1|2030-05-02 => 0 | event 1|2030-05-01 | event 1|2030-05-02, starts 2030-05-02T19:30:00+02:00
explain 1|2030-05-02 => {steps: {2: {field: event, step: 1|2030-05-01}}, outcomes: [{row_key: 1|2030-05-01}, {warnings: []}]}
explain 5|2030-05-03 => 0 | events.csv:3, step by step | REJECTED 5 | event 5|2030-05-04
run --accept rejected => {runs: [{publish: {delivered: 2}}]}
explain 'event <Jazz>' => {place: events.csv:2, ledger: [{row_key: 1|2030-05-01}, {row_key: 1|2030-05-02}]}
explain es1-00000000000000000000000000000000 => 2 | 'es1-00000000000000000000000000000000' is not in the source as read now
explain nonesuch-at-all => 2 | write its key, number, place or title, or an event's key, idempotency key or number
# the step that refuses and the rule that leaves out are named
source ROWS
explain 2 => {outcomes: [{rejected: [{field: title}, {field: startAt}]}]}
explain 2 => 0 | refused: This is not a date
eventsync explain feeds/town.yaml 3 => 0 | left out by the rule labelled "online only"
# a row that is left out is explained by its rule and by what that saw
source ROWS / 8,Jam,2030-05-01,19:30,talk,concert
mapping equals: online} -> 'in': [online, web]}
explain 3 => {outcomes: [{skipped: online only, rule: {place: 1, at: 'feeds/town.yaml:7:5'}}]}
explain 3 => {outcomes: [{rule: {tests: [{step: 'KIND in ["online", "web"]', goes_in: online, comes_out: 'yes'}]}}]}
explain 3 => 0 | rule 1 (feeds/town.yaml:7:5): skip KIND in ["online", "web"] | KIND in ["online", "web"]: yes, found 'online'
explain 8 => {steps: {0: {field: rule 1, goes_in: talk, comes_out: 'no'}, 1: {comes_out: goes on}}} | !rule 1 (
mapping {column: KIND, equals: online} -> {not: {value: $day, after: $since}}
edit key: [ID] -> key: [ID]\\nlet: {day: {from: DAY, do: [{date: "%Y-%m-%d"}]}, since: $day}
explain 8 => 0 | skip not ($day after $since) | $day after $since: no, found '$day: 2030-05-01, $since: 2030-05-01'
# a duplicate and a held row name the other row, its event and what makes them alike
source 1 / 1 / 5 / 7,Hamlet,2030-05-03,20:00,,play
explain events.csv:3 => {outcomes: [{absorbed: duplicate, other: {place: 'events.csv:2', event_id: null, alike: {row key: '1'}}}]}
explain 7 => {outcomes: [{held: '5', other: {place: 'events.csv:4', row_key: '5', state: ''}}]}
explain 7 => 0 | the other row: events.csv:4, key 5 | title Hamlet, startAt 2030-05-03T20:00:00+02:00, placeId krk
run => {runs: [{read: {held: 1, duplicate: 1}}]}
explain events.csv:3 => {outcomes: [{other: {place: 'events.csv:2', state: delivered, event_id: <Jazz>}}]}
explain 7 => {outcomes: [{held: '5', other: {state: delivered, event_id: <Hamlet>, alike: {channelId: 101, title: Hamlet}}}]}
explain 7 => 0 | the other row: events.csv:4, key 5, delivered, event <Hamlet>
resolve 7 --release
explain 7 => {outcomes: [{event: {title: Hamlet}}]}
mapping online only -> online only\\n  - duplicates: {keep: last}
explain events.csv:2 => 0 | rule 2 (feeds/town.yaml:9:5): duplicates | the other row: events.csv:3, key 1, delivered
# a row that is not there is an error with the nearest key
source spring-gala,Jazz,2030-05-01,19:30,,concert
explain sprnig-gala => 2 | did you mean "spring-gala"?
# a row outside the window is left out until an event of it was sent
source 7,Medea,2020-05-04,20:00,,play
mapping online only -> online only\\n  - window: {past: skip}
explain 7 => 0 | left out by `window: {past: skip}`: already over | rule 2 (feeds/town.yaml:9:5): window | startAt: 2020-05-04
preview => {rows: [{skipped: already over}]}
mapping
run
mapping online only -> online only\\n  - window: {past: skip}
explain 7 => 0 | outside the window: already over; it is only compared with what was sent
run => {runs: [{read: {unchanged: 1, filtered: 0}}]}
# a preview sees the calendar of the day that is named, from its begin in the zone of the events
OLD_FILE
preview --as-of 2020-05-05 => {as_of: '2020-05-05T00:00:00+02:00', rows: [{skipped: already over}, {event: {title: Ajax}}]}
preview --as-of 2020-05-04T20:01 => {rows: [{skipped: already over}, {event: {title: Ajax}}]}
preview --as-of 2020-05-04T20:00:00+02:00 => {rows: [{event: {title: Medea}}, {event: {title: Ajax}}]}
preview --as-of 2020-04-30 => {rows: [{event: {title: Medea}}, {skipped: beyond the horizon}]}
preview => {as_of: null, rows: [{skipped: already over}, {skipped: already over}]}
preview --as-of 2020-05-05 => 0 | as of 2020-05-05 00:00 CEST
preview --as-of 4.5.2020 => 2 | --as-of 4.5.2020 | write it like 2026-05-01 or 2026-05-01T18:00
preview --as-of 9999-12-31 => 2 | --as-of 9999-12-31
edit timezone: Europe/Warsaw -> timezone: {from: GENRE}
preview --as-of 2020-05-05 => {as_of: '2020-05-05T00:00:00+00:00'}
edit key: -> schedule: {cron: 5 4 * * *, timezone: America/New_York}\\nkey:
preview --as-of 2020-05-05 => {as_of: '2020-05-05T00:00:00-04:00'}
# a row is explained as of the day that is named
OLD_FILE
explain 8 --as-of 2020-04-30 => {outcomes: [{skipped: beyond the horizon}]}
explain 8 --as-of 2020-05-01 => {as_of: '2020-05-01T00:00:00+02:00', outcomes: [{event: {title: Ajax}}]}
explain 8 --as-of never => 2 | --as-of never
# a rehearsal as of a day judges rows and what is gone by it and a run only where nothing is public
OLD_FILE
run --dry-run --as-of 2020-05-04 => {rehearsals: [{read: {new: 2}, first: [{row_key: '7'}, {row_key: '8'}]}]}
run --dry-run --as-of 2020-05-05 => 0 | dry run as of 2020-05-05 | left out: already over 1
run --as-of 2020-05-05 => {runs: [{read: {filtered: 1, new: 1}, publish: {delivered: 1}}]}
titles => Ajax
source
run --dry-run --as-of 2020-05-05 --accept shrink => {rehearsals: [{vanished: 1, past: 0, waiting: {vanished: 1}}]}
run --dry-run --as-of 2020-05-11 --accept shrink => {rehearsals: [{vanished: 0, past: 1, waiting: {}}]}
run --as-of 2020-05-05 --accept shrink => {runs: [{vanished: 1}]}
run --as-of 2020-05-05 --publish-only => 2 | --as-of and --publish-only cannot be combined
env EVENT_API_BASE_URL https://events.example.org
run --as-of 2020-05-05 => 2 | is not on this machine | --dry-run | eventsync sandbox
# a rehearsal minds limit and keys and what is not read
run --dry-run --limit 2 => {rehearsals: [{would_send: 2, first: [{row_key: '1'}, {row_key: '5'}]}]}
run --dry-run --keys 5,6 => {rehearsals: [{first: [{row_key: '5'}, {row_key: '6'}]}]}
run --stage-only
delete events.csv
run --dry-run --publish-only => {rehearsals: [{read: null, would_send: 3}]}
run --dry-run => 2 | there is no file
""".replace("TWO_OF_ONE_KEY", TWO_OF_ONE_KEY).replace("OLD_FILE", OLD_FILE)
)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_is_wrong_and_what_becomes_of_rows_is_shown_before_a_run(decider: Decider, story: str) -> None:
    follow(decider, story)


def test_every_mistake_is_shown_with_its_place_its_line_and_a_caret(desk: Desk) -> None:
    desk.mapping(MAPPING.replace("do: [collapse]", "do: [colapse]").replace("timezone: Europe/Warsaw", "timezone: Europe/Warsav"))
    said = desk.run("check")
    said.assert_told(2, 'feeds/town.yaml:11:29: unknown step "colapse", did you mean "collapse"?', "Europe/Warsav")
    lines = said.out.splitlines()
    snippet = next(number for number, line in enumerate(lines) if "do: [colapse]" in line and "unknown" not in line)
    assert lines[snippet].index("colapse") == lines[snippet + 1].index("^")


@pytest.mark.parametrize(
    ("old", "new", "asked", "told"),
    [
        ("channel: city-agenda", "channel: city-agneda", "channels", 'did you mean "city-agenda"?'),
        ("{channel: city-agenda}", '"999"', "channels", "no channel with the id 999"),
        ("theatre", "theater", "classifications", 'names "theater", which the service does not have, did you mean "theatre"?'),
        ("theatre", "fill-in", "classifications", 'names "fill-in", which the service does not have; the service has circus, '),
        ("from: TITLE", "from: TITEL", "source", 'lacks the column "TITEL" (closest: "TITLE")'),
    ],
)
def test_a_live_check_names_what_the_service_or_the_source_lacks(desk: Desk, old: str, new: str, asked: str, told: str) -> None:
    desk.mapping(WITHOUT_EXAMPLES.replace(old, new))
    # A source that is a file of this machine is looked at without --live, too.
    desk.run("check", code=2 if asked == "source" else 0)
    with desk.service():
        document = desk.run("check", "--live", "--json", code=2).document
    (failing,) = (answer for answer in live_of(document).values() if not answer["ok"])
    assert (failing["asked"], told in failing["told"], document["ok"]) == (asked, True, False)


TOKEN = "tok-8Kx2vLm9Zq4RtW"


@pytest.fixture
def hook(desk: Desk) -> Iterator[Inbox]:
    with webhook() as inbox, desk.service():
        desk.mapping(f"owner: agenda@example.org\nnotify: [ops, crew]\n{MAPPING}")
        addresses = f"json://us:{TOKEN}@127.0.0.1:{inbox.port}/ops?to={{owner}}"
        desk.monkeypatch.setenv("EVENTSYNC_NOTIFY", f"ops={addresses} {inbox.address('all')} crews=nosuch://{TOKEN}")
        yield inbox


def _notified(desk: Desk, *words: str) -> list[tuple[str, str]]:
    (feed,) = desk.told("check", *words)["feeds"]
    return [(one["severity"], one["told"]) for one in feed["live"] if one["asked"] == "notify"]


def test_a_live_check_says_who_would_be_notified_and_notify_sends_each_a_test(desk: Desk, hook: Inbox) -> None:
    missing = ("warning", 'EVENTSYNC_NOTIFY has no channel "crew"; did you mean "crews"?')
    assert _notified(desk, "--live") == [missing, ("ok", "notifications go to ops (agenda@example.org), all")]
    assert hook.told == []
    assert _notified(desk, "--notify")[-1] == ("ok", "a test message was sent to ops (agenda@example.org), all")
    assert sorted(hook.titles()) == ["a test", "a test"]


def test_a_channel_that_does_not_work_is_a_warning_without_the_address(desk: Desk, hook: Inbox) -> None:
    hook.status = 401
    desk.mapping(f"notify: crews\n{MAPPING}")
    said = desk.run("check", "--notify", code=0)
    lines = [line.partition("cannot be notified")[0].split() for line in said.out.splitlines() if "cannot be notified" in line]
    assert lines == [["notify", "not", "ready", "crews"], ["notify", "not", "ready", "all"]]
    assert TOKEN not in said.words


LISBON = load_feed(PACKAGED_FEEDS / "lisbon-agenda.yaml")


def _scopes(probe: Meaning) -> LiveFinding:
    lists = ServiceAnswers({"lisbon-agenda": 7}, Classifications("2026-03-02", frozenset()), key_tail="…0042", probe=probe)
    return next(one for one in of_service("https://events.example.org", lists, LISBON, []) if one.asked == "scopes")


_CREATED = "accepted an empty event and created event 4711: delete it by hand"


@pytest.mark.parametrize(
    ("probe", "severity", "exit_code", "says"),
    [
        (Meaning(AnswerKind.NO_ACCESS, Answer(403, "forbidden")), "error", 3, "may not create events"),
        (Meaning(AnswerKind.KEY_REFUSED, Answer(401, "invalid_api_key")), "error", 3, "refused the API key …0042"),
        (Meaning(AnswerKind.READ, Answer(201), value=4711), "error", 1, _CREATED),
        (Meaning(AnswerKind.FOREIGN, Answer(400, message="text/html, 12 bytes")), "warning", 0, "may create events: 400"),
        (Meaning(AnswerKind.FAILING, Answer(500, "internal_error")), "warning", 0, "may create events: 500"),
        (Meaning(AnswerKind.LOST, Answer(0, "timeout", "no whole answer in time")), "warning", 0, "no whole answer in time"),
    ],
)
def test_a_probe_is_told_for_what_it_proves(probe: Meaning, severity: str, exit_code: int, says: str) -> None:
    finding = _scopes(probe)
    assert (finding.severity, finding.ok, finding.exit_code) == (severity, severity != "error", exit_code)
    assert says in finding.told


@pytest.mark.parametrize("folder", ["feeds", str(ROOT / "tests" / "feeds")], ids=["two rows of one key", "partners' own"])
def test_a_preview_of_everything_counts_as_a_first_run_does(decider: Decider, folder: str) -> None:
    follow(decider, f"source {TWO_OF_ONE_KEY} / {'x' * 2_001},Jazz,2030-05-01,19:30,,concert")  # a key that is too long
    decider.desk.monkeypatch.setenv("EVENTSYNC_FEEDS", folder)
    rehearsed = decider.desk.told("run", "--all", "--dry-run")["rehearsals"]
    assert len(rehearsed) == 1 if folder == "feeds" else len(rehearsed) > 10
    for one in rehearsed:
        account = decider.desk.told("preview", one["feed"], "--rows", "0", "--all")["account"]
        counts = {name: account[name] for name in ("read", "expanded", "duplicate", "grouped", "rejected", "held")}
        counts |= {"new": account["events"], "filtered": sum(account["skipped"].values())}
        assert counts == {name: one["read"][name] for name in counts}, one["feed"]
    if folder == "feeds":
        assert account["reasons"] == {"duplicate_key": 3, "bad_key": 1}


def test_each_field_is_explained_from_the_raw_cell_to_the_value(decider: Decider) -> None:
    steps = decider.told("explain", "1")["steps"]
    told = [(step["field"], step["step"], step["goes_in"], step["comes_out"]) for step in steps]
    assert ("title", "from TITLE", "", "Jazz") in told
    assert ("startAt", "date", "2030-05-01", "2030-05-01") in told
    assert ("startAt", "at", "", "2030-05-01T19:30:00+02:00") in told
    shown = ("events.csv:2, step by step", '"classifications": [', "not in the ledger")
    decider.say("explain", "1").assert_told(0, *shown)


def test_a_rehearsal_makes_no_state_db_and_says_exactly_which_keys_the_run_then_sends(decider: Decider) -> None:
    follow(decider, "source ROWS")
    (told,) = decider.told("run", "--dry-run")["rehearsals"]
    assert not decider.desk.state.parent.exists()
    ran = decider.publish(code=0)
    counts = {name: count for name, count in told["read"].items() if count}
    assert (told["outcome"], counts) == ("rehearsed", {"read": 6, "filtered": 1, "rejected": 2, "new": 3})
    assert [row["place"] for row in told["first"]] == ["events.csv:2", "events.csv:6", "events.csv:7"]
    assert told["first"][0]["event"]["title"] == "Jazz"
    sent = {row["row_key"]: row["idempotency_key"] for row in decider.told("rows", "--state", "delivered")["rows"]}
    assert {row["row_key"]: row["idempotency_key"] for row in told["first"]} == sent
    assert (told["read"], told["would_send"]) == (ran["read"], ran["publish"]["delivered"])


AFTER_AN_EDIT = """\
source 1,Jazz again,2030-05-01,19:30,,concert / 5 / 7,Lear,2030-05-05,20:00,,play
run --dry-run => {rehearsals: [{read: {new: 1, drifted: 1, unchanged: 1}, vanished: 1, would_send: 1}]}
run --dry-run => {rehearsals: [{first: [{row_key: '7'}]}]}"""


def test_a_rehearsal_after_a_run_leaves_every_row_of_the_state_db_as_it_was(decider: Decider) -> None:
    decider.publish(code=0)
    with closing(sqlite3.connect(decider.desk.state)) as connection:
        before = list(connection.iterdump())
        follow(decider, AFTER_AN_EDIT)
        assert list(connection.iterdump()) == before
