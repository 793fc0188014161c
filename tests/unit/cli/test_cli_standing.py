"""What was done and what waits for a person, as commands and `metrics` show it; and the state DB: verified, pruned, moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from prometheus import samples
from unit.cli.conftest import FEED, HEADER, MAPPING, ROWS, Decider, Desk
from unit.cli.stories import RUN_TWICE, follow, told_in

from pipelines.clock import now
from pipelines.metrics import GAUGES, Gauge, Sample, exposition, serving_metrics
from pipelines.settings import current_settings
from state.ledger.ledger import Ledger
from state.opening import open_database
from state.queries import LedgerQueries

RECURRING = (
    "online only\\n  - cancelled: {column: TITLE, equals: 'off'}\\n"
    """  - recur: {from: {from: DAY, do: [{date: "%Y-%m-%d"}]}, until: "2030-05-06", weekdays: [SA, MO, WE]}"""
)
"""In the first week of May 2030 a Wednesday, a Saturday and a Monday."""
STORIES = told_in(
    """
# rows that the service has refused redden every run until a person decides
source EVENINGS
switch max_title_chars: 5
run
run
run
run
run => 1 | {runs: [{outcome: needs attention, message: "…24 (0, 1, 2, …) refused by the service, more than the feed allows"}]}
run => 1 | {runs: [{standing: {refused: {count: 24, first: ['0', '1', '2']}}, read: {still_refused: 24, unchanged: 0, read: 24}}]}
run --publish-only => 1
run --stage-only => 1
waiting => refused 24
run --full => {runs: [{read: {still_refused: 24}}]}
runs --limit 1 => 0 | read 24 = still refused 24
runs --limit 1 => {runs: [{standing: {refused: {count: 24, first: ['0', '1', '2']}}}]}
resolve 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 --ignore
run => 0
switch max_title_chars: 300
retry
waiting => none
# a warning is listed in every later run with its raw cells
mapping online only -> online only\\n  - {assert: {not: {column: TITLE, equals: Jazz}}, message: no jazz, severity: warn}
run => 0 | {runs: [{standing: {warning: {count: 1, first: ['1']}}, message: …1 (1) used with a warning}]}
run => 0 | {runs: [{standing: {warning: {count: 1, first: ['1']}}, message: …1 (1) used with a warning}]}
waiting => warning 1
rows --state warning => {rows: [{row_key: '1', cells: {TITLE: Jazz}}]}
resolve 1 --ignore
run => {runs: [{standing: {}}]}
waiting => none
# a value that is in no lookup is shown once: with its row, or counted over more rows than are shown
source 1 / 4 / 5 / 6
run => 0 | poetry | !values that are in no lookup
run => {runs: [{unmapped: [{found: poetry, count: 1}]}]}
source DREARY
run => 5 | values that are in no lookup | GENRE poetry 12
# an optional piece of a join that is empty names the place where that is allowed, to the engineer alone
mapping status: published -> locationName: {join: [{from: KIND, on_empty: omit}, Hall]}\n  status: published
source 1
run
rows => {rows: [{hint: '…"KIND"; …`on_empty: omit` belongs beside `join`, not in a piece'}]}
rows --state rejected --csv out.csv => 0 | KIND: Fill it in, or leave the row out until it is known. | !on_empty
eventsync vocabulary join => 0 | then the on_empty beside join decides, not that of a piece
mapping status: published -> locationName: {join: [{from: KIND, on_empty: omit}, Hall], on_empty: omit}\n  status: published
run => {runs: [{read: {rejected: 0, new: 1}}]}
# a row that is unusable now says that its event is online
run
source 1,,2030-05-01,19:30,,concert / 5 / 6
run
rows --state rejected => {rows: [{event_id: <Jazz>, problem: "…online as event <Jazz>, row now unusable"}]}
rows --state rejected --csv out.csv => 0 | An earlier version of this row is online
report --html page.html => 0 | An earlier version of this row is online
# a row that a rule leaves out is vanished by that rule everywhere
run
source 1,Jazz,2030-05-01,19:30,online,concert / 5 / 6
run
waiting => vanished 1
rows --state vanished => {rows: [{vanished_by: 'rule 1: online only', problem: …left out since …by rule 1}]}
diff => 0 | vanished by rule 1: online only
report --html page.html => 0 | Left out of what is put online
# a removed event whose row is back is listed with the command that creates it again
run
source 5 / 6
run
resolve 1 --removed
source 1 / 5 / 6
run
waiting => drift 1
rows => {rows: [{problem: '…was removed by hand, and the row is back in the source', hint: …resolve town-hall 1 --resend}]}
diff => {counts: {'removed by hand, back in the source': 1}}
status => 0 | 1 removed by hand and back in the source
report => {sections: {online: {rows: 2}}}
# a superseded key names the key that has the event and waits for nothing
run
source 8,Jazz,2030-05-01,19:30,,concert / 5 / 6
run
resolve 8 --same-as 1
waiting => none
rows --state superseded => {rows: [{problem: its event was moved to 8, candidate: {row_key: '8'}}]}
# an event that is over drops out of every list
mapping online only -> online only\\n  - cancelled: {column: KIND, equals: off}
run
source 1,Jazz,2030-05-01,19:30,off,concert / 5
run
waiting => drift 1, vanished 1
rows --state drift => {rows: [{problem: cancelled at the source since it was sent, hint: …withdraw event}]}
tables end_event 1
tables end_event 6
waiting => none
diff => {rows: []}
# a held row of a past event does not wait, and every command says so
source 1,Jazz,2020-05-01,19:30,,concert
run
source 8,Jazz,2020-05-01,19:30,,concert
run --accept copies => 0 | held 1 | also: 1 held of past events, which do not wait
waiting => none
status => 0 | held 1 (1 of past events) | waits for a person: nothing
report => {rows_read: 1, sections: {held: {rows: 0}, left-out: {rows: 1}}}
# held rows share their commands, and a vanished row that one of them resembles names it
source ROWS
run
source 11,Jazz,2030-05-01,19:30,,concert / 15,Hamlet,2030-05-03,20:00,,play / 6
run --accept copies --accept rejected
rows => 0 | `eventsync resolve town-hall --state held --same-as` moves | !town-hall 11 --same-as | !remove event
rows --state vanished => {rows: [{hint: '…row 11 is held and looks like it'}, {hint: '…row 15 is held'}]}
rows --state held => {rows: [{hint: …resolve town-hall 11 --same-as}, {hint: …resolve town-hall 15 --same-as}]}
resolve 11 --release
rows => 0 | resolve town-hall 15 --same-as | !--state held --same-as
rows --state vanished => {rows: [{hint: …remove event}, {hint: '…row 15 is held'}]}
# a run that a brake stops still counts what waits
run
source 1 / 5,Hamlet again,2030-05-03,20:00,,play / 6
run
source 10,,,,, / 11,,,,, / 12,,,,, / 13,,,,, / 14,,,,, / 15,,,,,
run => 5 | {runs: [{standing: {drift: {first: ['5']}}}]}
run => 5 | waits for a person: drift 1; see `eventsync status town-hall`
# people are shown what was done
run twice
status => 0 | waits for a person: rejected 2, drift 1, vanished 1 | held by: no run
eventsync status => 0 | rejected 2, drift 1, vanished 1
eventsync status => 0 | 1 of 1 feed needs attention: town-hall; `eventsync status town-hall` shows what to do
rows => 0 | GENRE: "poetry" is not one of the words that we know here.
runs => 0 | read 6 = filtered 1 + rejected 2 + new 3 | new 3 = delivered 3 | read 4 = rejected 2 + unchanged 1 + drifted 1
explain 5 => 0 | in the ledger: delivered, event <Hamlet>
# scripts read what was done
run twice
feeds => {feeds: [{counts: {delivered: 3}, drifted: 1, vanished: 1, last_run: {outcome: done}}]}
status => {feeds: [{waiting: {rejected: 2, drift: 1, vanished: 1}, gate: {is_open: true}, lease: null}]}
rows => {rows: {0: {state: rejected, row_key: '2'}, 1: {state: rejected, row_key: '4'}, 3: {state: vanished, row_key: '6'}}}
rows => {rows: {2: {state: drift, row_key: '1', hint: …change event <Jazz> by hand}}}
rows --state drift => {rows: [{row_key: '1', problem: 'changed since it was sent: title'}]}
rows --state delivered --limit 1 => {rows: [{row_key: '1'}], is_more: true}
explain 5 => {lists: live, ledger: [{state: delivered, row_key: '5'}]}
# the CSV file repeats the partner's columns, and no cell of it is a formula
run twice
rows --state rejected --csv out.csv => 0 | "ID","TITLE","DAY","HOUR","KIND","GENRE","place","problem","hint"
rows --state rejected --csv out.csv => 0 | events.csv:3 | DAY: ""2030-13-01"" is not a date. | DAY: Enter one like 2026-03-31.
rows --state rejected --csv out.csv => 0 | "'=HYPERLINK(1)" | ""poetry"" is not one of the words
rows --state drift --csv out.csv => 0 | "row key","state","event" | "1","drift",
# status needs no service and names the one that was run against
run
env EVENT_API_BASE_URL https://elsewhere.example
eventsync status => 0 | the state DB has runs at SERVICE
unset EVENT_API_BASE_URL
eventsync status => {feeds: [{feed: town-hall}]}
# feeds lists sources, schedules and broken files without a key
unset EVENT_API_KEY
edit key: -> schedule: {cron: "15 6 * * *", timezone: Europe/Warsaw}\\nkey:
file feeds/broken.yaml feed: x
feeds => 0 | 15 6 * * * (Europe/Warsaw) | csv ../events.csv | broken: feeds/broken.yaml
feeds => {feeds: [{feed: town-hall, schedule: {cron: 15 6 * * *, timezone: Europe/Warsaw}}], broken: [{path: feeds/broken.yaml}]}
eventsync status => 0 | broken: feeds/broken.yaml has
eventsync status => {broken: [{path: feeds/broken.yaml}]}
# a feed that a brake has stopped needs a person
source 1 / 2,,,,, / 3,,,,, / 4,,,,, / 5,,,,, / 6,,,,,
run => 5
eventsync status => 0 | sending is stopped: rejected | 1 of 1 feed needs attention
# the report counts what is new since the last read or a moment
source 1 / 2
run
source 1 / 2 / 4 / 5
run
report => {sections: {mend: {rows: 2, new: 1, shown: 2}, online: {rows: 2, new: 1, shown: 2}}}
report --since 1d => {sections: {mend: {new: 2}}}
report --since 2099-01-01 => {sections: {mend: {new: 0}}}
report --since soon => 2 | soon
report --link javascript:alert({id}) => 2 | javascript:alert({id})
report --link https://x.example/ => 2 | https://x.example/
report --html no/x => 2 | no/x
# before the first run the report says so and nothing is made
report --html page.html => 0 | Rows to mend (0)
report => {read_at: null}
files => events.csv, feeds, page.html
# only rows that are staged are sent, as they were staged, and keys of no row are named
run --publish-only => 2 | nothing was staged yet
run --keys 1,77,5,none => 1 | keys that are not in the source: 77, none
run --publish-only --status draft => 2 | keep their status
titles => Hamlet, Jazz
# values that no lookup knows are listed once each by the run and afterwards
source ROWS / 8,Odes,2030-05-04,20:00,,poetry / 9,Chess,2030-05-04,20:00,,game
run => {runs: [{unmapped: [{column: GENRE, found: poetry, count: 2}, {column: GENRE, found: game, count: 1}]}]}
rows --unmapped => {unmapped: [{column: GENRE, found: poetry, count: 2}, {column: GENRE, found: game, count: 1}]}
# a wrong address or key is said with what would help, and nothing is lost by it
env EVENT_API_BASE_URL http://127.0.0.1:1
run => 6 | no usable answer | run again
unset EVENT_API_BASE_URL
unset EVENT_API_KEY
run => 2 | EVENT_API_BASE_URL | EVENT_API_KEY
env EVENT_API_BASE_URL SERVICE
env EVENT_API_KEY sandbox-key-revoked
run => 3 | revoked | …oked | EVENT_API_KEY | !key-revoked
states => none
env EVENT_API_KEY sandbox-key-reader
run => 3 | events:create
states => pending 3
titles =>
key channels:read events:create
run => 0
titles => Hamlet, Jazz, Othello
# rows of a channel without access are blocked until access is given
mapping {channel: city-agenda} -> "105"
run => 1 | {runs: [{publish: {blocked: 3}, message: …blocked}]}
rows --state blocked => {rows: [{hint: …channel 105}, {row_key: '5'}, {row_key: '6'}]}
allow members-only
run => 0
titles => Hamlet, Jazz, Othello
# deliveries are read once each, and none of their rows vanishes
mapping ../events.csv -> ../in/town-*.csv\\n  files: new
file in/town-1.csv HEADER\\n1,Jazz,2030-05-01,19:30,,concert\\n5,Hamlet,2030-05-03,20:00,,play\\n
run => 0
file in/town-2.csv HEADER\\n6,Othello,2030-05-04,20:00,,play\\n
run => 0 | {runs: [{read: {read: 1, new: 1}}]}
delete in/town-1.csv
run => 0 | {runs: [{read: {read: 0}, vanished: 0}]}
titles => Hamlet, Jazz, Othello
# days of a row are picked, delivered once and listed when their row goes
mapping online only -> RECURRING
edit day: {from: DAY, do: [{date: ["%Y-%m-%d"]}]} -> day: $day
run --keys 5|2030-05-04 => 0 | {runs: [{read: {new: 1}}]}
rows --state delivered => {rows: [{row_key: '5|2030-05-04'}]}
run --stage-only => 0
run --keys 1,6|2030-05-06 => 0 | {runs: [{read: {read: 2, expanded: 2}, publish: {delivered: 4}}]}
titles => Hamlet, Jazz, Jazz, Jazz, Othello
run => 0
titles => Hamlet, Hamlet, Jazz, Jazz, Jazz, Othello, Othello
source 1,off,2030-05-01,19:30,,concert / 6
run => 0
diff => {counts: {vanished: 2, 'cancelled at the source': 3}}
# a sound state DB is called so and what is wrong is listed with its row
run
state verify => 0 | no findings
state verify => {findings: [], entries: 3, state_db: …state.db}
tables damage_answers 1
state verify => 1 | the last answer cannot be read
state verify => {findings: [{check: entry, feed: town-hall, which: '1'}]}
# an older schema is named and left as it is
run
tables call_schema 0006
state verify => {schema: '0006', findings: {0: {problem: …or the next run upgrades it}}}
state verify => {schema: '0006', findings: {0: {problem: …or the next run upgrades it}}}
# where nothing was run there is nothing to verify or carry, and nothing is made
state verify => 0 | the first run creates it
state verify => {schema: null}
state export out.gz => 2 | there is no
state migrate sqlite:///new.db => 2 | there is no
state import no.gz => 2 | there is no
files => events.csv, feeds
# the past is counted, then taken out, and no row is sent again
source ROWS
run
tables age
prune --older-than 90d --dry-run => {is_dry: true, removed: {problems: 2, runs: 0, answers: 3, backfills: 0}}
prune --older-than 90d => 0 | VACUUM
prune --older-than 90d => {removed: {problems: 0, answers: 0}}
run => {runs: [{read: {new: 0, unchanged: 3}}]}
state verify => 0
# an age that is none or too young is refused
prune --older-than 90 => 2 | --older-than
prune --older-than soon => 2 | --older-than
prune --older-than 12h => 2 | --older-than
prune --older-than=-3d => 2 | --older-than
prune --older-than 9999999w => 2 | --older-than
# a state DB goes into a file and comes back elsewhere
run
state export backup.ndjson.gz => 0 | scope
state export backup.ndjson.gz => 2 | there already
state import backup.ndjson.gz => 2 | not empty
env EVENTSYNC_STATE_URL sqlite:///restored.db
state import backup.ndjson.gz => {rows: {scope: 1}}
rows --state delivered => {rows: [{row_key: '1', event_id: <Jazz>}, {row_key: '5', event_id: <Hamlet>}, {event_id: <Othello>}]}
state verify => 0
# a state DB moves, and the next run there sends nothing again
run
state migrate sqlite:///elsewhere/new.db => 0 | Now set EVENTSYNC_STATE_URL
env EVENTSYNC_STATE_URL sqlite:///elsewhere/new.db
run => {runs: [{read: {new: 0, unchanged: 3}}]}
state migrate sqlite:///elsewhere/new.db => 2
# a state DB on its way to a server shows no password
run
state migrate postgresql://ann:s3cr3t-w0rd@127.0.0.1:1/x?connect_timeout=2 => 6 | !s3cr3t
state migrate mysql://ann:s3cr3t-w0rd@db/x => 2 | !s3cr3t | !EVENTSYNC_STATE_URL
# a service that moved to another address knows its rows there, once
run
state rename --service SERVICE https://new.example/api/public/v1/ => {from: SERVICE, to: https://new.example, feeds: [town-hall]}
state verify => 0
state rename --service SERVICE https://new.example => 2 | knows no feed at SERVICE
# a service is not renamed to one whose rows are known
run
env EVENTSYNC_NAMESPACE other
run --stage-only
tables move_feeds other https://new.example
state rename --service SERVICE https://new.example => 2 | knows rows at https://new.example already
""".replace("HEADER", HEADER)
    .replace("RECURRING", RECURRING)
    .replace("EVENINGS", " / ".join(f"{n},Evening {n},2030-05-01,19:30,,concert" for n in range(24)))
    .replace("DREARY", " / ".join(f"{n},Evening {n},2030-05-01,19:30,,poetry" for n in range(12)))
)


def test_a_run_that_fails_says_why_before_it_says_what_waits(desk: Desk) -> None:
    with desk.service():
        desk.source(["1,Jazz,2030-05-01,19:30,,concert"])
        desk.sync(code=0)
        desk.source(["1,Blues,2030-05-01,19:30,,concert"])
        desk.sync(code=0)
        desk.source(["1,Blues,2030-05-01,19:30,,concert"], header=HEADER.replace("TITLE", "NAME"))
        _, why, *_, waits = desk.run("run", FEED, "--no-dagster", code=5).out.splitlines()
    assert "TITLE" in why
    assert waits.strip() == "waits for a person: drift 1; see `eventsync status town-hall`"


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_commands_show_what_was_done_and_what_waits_and_keep_the_state_db(decider: Decider, story: str) -> None:
    follow(decider, story)


def test_runs_are_listed_youngest_first_and_found_by_the_beginning_of_their_ids(decider: Decider) -> None:
    follow(decider, RUN_TWICE)
    desk = decider.desk
    latest, first = desk.told("runs", FEED)["runs"]
    assert latest["started_at"] >= first["started_at"]
    assert desk.told("runs", "--limit", "1")["runs"] == [latest]
    desk.run("runs", first["run_id"][:-1]).assert_told(0, "left out: online only 1", "events.csv:5")
    assert desk.told("runs", latest["run_id"])["stage"]["vanished"] == 1
    desk.run("runs", "nothing", code=2)
    for words, shown in (("", 0), (FEED, 1), ("--runs 2", 2), (f"{FEED} --runs 0", 0)):
        said = desk.run("status", *words.split()).out
        assert [one["run_id"] in said for one in (latest, first)] == [number < shown for number in range(2)], words
    assert [len(desk.told("status", *words)["feeds"][0]["runs"]) for words in ((), ("--runs", "1"))] == [2, 1]
    follow(decider, "tables end_runs 2020-01-01T12:00:00+00:00")
    desk.run("runs", first["run_id"]).assert_told(0, "duration unknown (the clock was set back during the run)")


def test_a_run_that_was_killed_has_no_exit_code(decider: Decider) -> None:
    run_id = decider.publish()["run_id"]
    follow(decider, "tables lose_runs")
    said = decider.desk.run("runs", run_id)
    said.assert_told(0, "lost", "killed; the next run took over after")
    assert "None" not in said.out


def test_feeds_that_need_a_person_come_first(desk: Desk) -> None:
    desk.mapping(MAPPING.replace("feed: town-hall", "feed: arena").replace("events.csv", "arena.csv"), "arena.yaml")
    (desk.folder / "arena.csv").write_text(f"{HEADER}\n", "utf-8")
    desk.source(["2,,,,,", "3,,,,,", "4,,,,,"])
    with desk.service():
        desk.run("run", "--all", "--no-dagster", code=5)
    said = desk.run("status").out
    assert said.index("town-hall") < said.index("arena")


def test_before_the_first_run_every_command_answers_and_makes_nothing(desk: Desk) -> None:
    for words in ("feeds", "status", "status town-hall", "rows town-hall", "runs", "metrics", "prune --older-than 90d"):
        desk.run(*words.split(), code=0)
        desk.run(*words.split(), "--json", code=0)
    assert "values that are in no lookup: none" in desk.run("rows", FEED, "--unmapped").out
    assert not desk.state.parent.exists()


@contextmanager
def at_work(decider: Decider) -> Iterator[None]:
    """Hold the feed as a run does."""
    engine = open_database(f"sqlite:///{decider.desk.state}")
    (book,) = (one.book for one in LedgerQueries(engine).status() if one.book.feed == FEED)
    with Ledger(engine, book.destination, book.feed, namespace="default", now=now).acquire_lease("eventsync run"):
        yield
    engine.dispose()


def test_a_held_row_names_the_other_key_with_its_feed_and_the_commands(decider: Decider) -> None:
    decider.publish()
    decider.desk.mapping(MAPPING.replace("feed: town-hall", "feed: opera").replace("events.csv", "opera.csv"), "opera.yaml")
    more = [f"x{n},Aria {n},2030-06-0{n},19:30,,concert" for n in range(1, 6)]
    (decider.desk.folder / "opera.csv").write_text("\n".join([HEADER, "o1,Jazz,2030-05-01,19:30,,concert", *more]), "utf-8")
    run = decider.desk.run("run", "opera", "--no-dagster", "--json").run
    assert run["standing"] == {"held": {"count": 1, "first": ["o1"]}}
    (row,) = decider.desk.told("rows", "opera", "--state", "held")["rows"]
    assert row["candidate"] == {"row_key": "1", "feed": FEED, "namespace": ""}
    assert (row["problem"], row["cells"]["TITLE"]) == ("it looks like the event of 1 of town-hall", "Jazz")
    assert all(f"eventsync resolve opera o1 --{option}" in row["hint"] for option in ("same-as", "release", "ignore"))
    assert "superseded" not in decider.desk.run("status", "opera").out
    beside = f"the other row: events.csv:2, key 1, feed {FEED}, delivered, event {decider.event_id('Jazz')}"
    decider.desk.run("explain", "opera", "o1").assert_told(
        0, "HELD o1: it looks like a copy of 1", beside, "alike: channelId 101"
    )
    with at_work(decider):
        decider.desk.run("resolve", "opera", "o1", "--same-as").assert_told(4, "town-hall is held by eventsync run")
    (adopted,) = decider.desk.told("resolve", "opera", "o1", "--same-as")["rows"]
    assert adopted["other_key"] == "1 of town-hall"


def test_what_a_run_holds_is_neither_moved_nor_renamed_nor_decided_on(decider: Decider) -> None:
    decider.publish(code=0)
    with at_work(decider):
        follow(decider, "state migrate sqlite:///new.db => 4 | held by eventsync run")
        follow(decider, "state rename --service SERVICE https://new.example => 4")
        follow(decider, "retry => 4 | held by eventsync run")


def value(page: str, name: str, **labels: str) -> float:
    (found,) = samples(page, f"eventsync_{name}", feed=FEED, **labels)
    return found


@contextmanager
def _served() -> Iterator[tuple[httpx.URL, httpx.Client]]:
    with serving_metrics(current_settings(), "127.0.0.1", 0) as url, httpx.Client(trust_env=False, timeout=60) as http:
        yield httpx.URL(url), http


def test_the_numbers_are_those_of_the_feed(desk: Desk) -> None:
    with desk.service():
        desk.sync(code=0)
        desk.source(ROWS[:-1])
        desk.sync(code=0)
        status = desk.told("status")["feeds"][0]
        page = desk.run("metrics", code=0).out
    named = re.findall(r"^# TYPE (\w+) gauge$", page, re.MULTILINE)
    assert named == [name for name in GAUGES if name != "eventsync_braked"]
    assert {state: value(page, "rows", state=state) for state in status["counts"]} == status["counts"]
    assert value(page, "rows_waiting", state="vanished") == status["waiting"]["vanished"] == 1
    assert value(page, "rows_waiting", state="conflict") == 0, "a number to watch is there before it is needed"
    assert (value(page, "last_read_rows", outcome="read"), value(page, "gate_open")) == (5, 1)
    ends, done = (value(page, f"{name}_timestamp_seconds") for name in ("last_run_end", "last_done"))
    assert ends == done >= value(page, "last_run_start_timestamp_seconds")


def test_a_run_that_a_brake_stopped_is_the_last_one_but_not_the_last_that_was_done(desk: Desk) -> None:
    with desk.service():
        desk.sync(code=0)
        before = value(desk.run("metrics").out, "last_done_timestamp_seconds")
        desk.source([f"{number},,2030-05-01,19:30,,concert" for number in range(9)])
        desk.sync(code=5)
        page = desk.run("metrics").out
    assert value(page, "last_done_timestamp_seconds") == before
    assert (value(page, "last_run_exit_code"), value(page, "gate_open"), value(page, "braked", brake="rejected")) == (5, 0, 1)


def test_a_file_for_the_collector_is_whole_at_any_moment(desk: Desk) -> None:
    desk.run("metrics", "--out", "eventsync.prom", code=0)
    assert samples((desk.folder / "eventsync.prom").read_text("utf-8"), "eventsync_state_db_up") == [1]
    assert sorted(path.name for path in desk.folder.iterdir() if path.is_file()) == ["events.csv", "eventsync.prom"]


def test_a_state_db_that_cannot_be_read_is_a_number_too_and_heals(desk: Desk) -> None:
    with _served() as (url, http):
        desk.state.parent.mkdir()
        desk.state.write_bytes(b"no database at all, whatever its name says" * 100)
        assert samples(http.get(url).text, "eventsync_state_db_up") == [0]
        desk.state.unlink()
        answer = http.get(url)
        assert samples(answer.text, "eventsync_state_db_up") == [1]
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert http.post(url).status_code == 405
        desk.run("metrics", "--port", str(url.port), "--host", url.host).assert_told(2, "Address already in use")
    desk.run("metrics", "--json", code=0)


@pytest.mark.parametrize("text", ['C:\\feeds "new"\nline', "é ☃", "{}=,", ""])
def test_whatever_a_label_says_prometheus_reads_it_back(text: str) -> None:
    page = exposition([Gauge("eventsync_rows", "Rows.", (Sample({"feed": text, "state": "x"}, 1.5),))])
    assert samples(page, "eventsync_rows", feed=text) == [1.5]


def test_every_name_is_one_that_prometheus_takes() -> None:
    for name in GAUGES:
        assert re.fullmatch(r"eventsync_[a-z_]+(?<!_total)(?<!_count)(?<!_sum)(?<!_bucket)", name)


def test_a_run_says_that_an_example_fails_and_how_many_of_its_events_are_drafts(decider: Decider) -> None:
    decider.desk.mapping(MAPPING.replace("event: {title: Jazz,", "event: {title: Blues,"))
    said = decider.desk.run("run", FEED, "--no-dagster", "--status", "draft", "--limit", "2", code=0)
    said.assert_told(0, "notice: 1 of 2 examples fail: `eventsync check town-hall` shows them", "delivered 2 (as drafts)")
    assert "delivered 1 + " not in decider.desk.run("run", FEED, "--no-dagster", code=0).words


def test_the_row_in_which_a_file_is_cut_off_is_not_sent_until_the_file_is_whole(desk: Desk) -> None:
    lines = [HEADER, "1,Jazz,2030-05-01,19:30,,concert", "5,Hamlet,2030-05-03,20:00,online,", "6,Othello,2030-05-04,20:00,,play"]
    file = desk.folder / "events.csv"
    desk.mapping(MAPPING.replace("theatre}}]}", "theatre}}], on_empty: omit}"))
    with desk.service() as service:
        for text, delivered in (("\n".join(lines)[:-5], 1), ("\n".join(lines), 1), ("\n".join(lines)[:-5], 0)):
            file.write_text(text, "utf-8")
            run = desk.sync("--accept", "rejected")
            assert (run["publish"]["delivered"], run["vanished"]) == (delivered, 0)
        assert sorted(event["title"] for event in service.events()) == ["Jazz", "Othello"]


def test_rows_behind_the_cut_of_a_file_are_not_gone(desk: Desk) -> None:
    lines = [HEADER, *(f"{number},Night {number},2030-05-0{number},20:00,,play" for number in range(1, 9))]
    desk.mapping(MAPPING.replace("theatre}}]}", "theatre}}], on_empty: omit}"))
    with desk.service():
        for text, vanished in (("\n".join(lines), 0), ("\n".join(lines[:-1])[:-5], 0), ("\n".join(lines[:-2]), 2)):
            (desk.folder / "events.csv").write_text(text, "utf-8")
            run = desk.sync("--accept", "rejected")
            assert (run["vanished"], any("the file is cut off" in one for one in run["notices"])) == (
                vanished,
                text[-4:] != "play",
            )


def test_day_and_month_in_the_other_order_are_named_as_the_cause(desk: Desk) -> None:
    dates = ("15/3/2031", "3/4/2031", "19/4/2031", "5/3/2031", "24/5/2031", "13/6/2031")
    desk.source([f"{number},Jazz,{date},19:30,,concert" for number, date in enumerate(dates)])
    desk.mapping(MAPPING.replace("%Y-%m-%d", "%m/%d/%Y").partition("examples:")[0])
    with desk.service():
        run = desk.sync(code=5)
        assert run["message"].endswith(
            "; 4 of the first 4 rejected cells of DAY fit day-first: the order of day and month seems to have changed"
        )
        assert "--accept rejected` sends rows whose day and month are probably swapped, too (2 rows will be sent)" in run["hint"]
        desk.mapping(MAPPING.replace("%Y-%m-%d", "%d.%m.%Y").partition("examples:")[0])
        desk.source(ROWS[:1] + ROWS[4:])
        assert "fit " not in desk.sync(code=5)["message"]
