"""`eventsync retry`, `resolve`, `reconcile` and `diff` on a real state DB, against the sandbox service."""

from __future__ import annotations

import re
import shlex

import pytest
import structlog
from unit.cli.conftest import FEED, GOOD, SECRET, Decider, Desk
from unit.cli.stories import IN_CONFLICT, follow, told_in

STORIES = told_in(
    """
# what is not decided reddens every run until it is
in conflict
run => 1 | {runs: [{outcome: needs attention, message: "…3 (1, 5, 6) in conflict"}]}
run => 1 | {runs: [{hint: …eventsync reconcile town-hall…eventsync resolve town-hall 1}]}
status => 0 | waits for a person: conflict 3 | conflict: `eventsync reconcile town-hall` searches the service for them
resolve 1 5 --ignore => 0
listed => 6
listed --state conflict => 6
rows --state ignored => {rows: [{row_key: '1', entry_state: conflict, hint: …ignored by}, {row_key: '5'}]}
resolve 1 --undo => {rows: [{what: listed again}]}
listed => 1, 6
resolve 1 6 --ignore => 0
run => 0
status => 0 | ignored: 3: `eventsync rows town-hall --state ignored`
# reconcile takes events that agree in title and start and rehearses it first
in conflict
switch event_items: full
reconcile --dry-run => {counts: {sought: 3, found: 3, candidates: 0, absent: 0}}
states => conflict 3
reconcile => 0 | 3 of 3 events read; the list shows approxLocation | searched 3 = delivered 3 + to be decided 0 + not found 0
rows --state delivered => {rows: [{row_key: '1', event_id: <Jazz>}, {row_key: '5', event_id: <Hamlet>}, {event_id: <Othello>}]}
run => 0
reconcile => 0 | nothing to search for
# a title alone is shown with the command that decides and never taken; an event is one row's alone
in conflict
reconcile => 1 | {counts: {sought: 3, found: 0, candidates: 3, absent: 0}, list: {fields: [id, title]}}
reconcile => 1 | {rows: {0: {help: eventsync resolve town-hall 1 --event-id <Jazz>}}}
states => conflict 3
resolve 1 --event-id <Jazz> => 0 | {warning: '', rows: [{state: delivered, is_changed: true}]}
states => conflict 2, delivered 1
resolve 1 --event-id <Jazz> => {rows: [{is_changed: false}]}
rows --state delivered => {rows: [{event_id: <Jazz>, decision: {what: event_id}, problem: …said that it is event}]}
resolve 5 --event-id <Jazz> => 2 | event <Jazz> belongs to row 1 of town-hall already
resolve 5 --event-id 4711 => {warning: …event 4711 is not among the 3 events}
# sending again what may exist is asked about and goes out under the next key, at the risk that was told
in conflict
resolve 1 --resend => 2 | --yes sends the rows without asking
states => conflict 3
resolve 1 --resend --yes => {rows: [{what: the next run sends it under its next key, is_changed: true}]}
resolve 1 --resend --yes => {rows: [{is_changed: false}]}
run
states => conflict 2, delivered 1
titles => Hamlet, Jazz, Jazz, Othello
# a row that is uncertain for so long that its key may be forgotten is looked for
run
tables lose_answer 1
run => 1 | uncertain for so long that the service may have forgotten their idempotency keys | eventsync reconcile town-hall
switch event_items: full
reconcile => {counts: {sought: 1, found: 1, absent: 0}}
run => 0
titles => Hamlet, Jazz, Othello
# rows that the list does not show are named with how many were read
in conflict
switch event_items: full
reset
reconcile => 1 | if the list is complete: eventsync resolve town-hall 1 --resend
reconcile => {rows: {0: {why: no event of the list is similar; 0 were read}}}
# what cannot be decided says why and changes nothing
in conflict
source 1 / 5 / 6 / Hof-17,Chor,2030-05-05,20:00,,concert
run
resolve --applied => 2 | give either row keys or --state
resolve 1 --state drift --applied => 2 | give either row keys or --state
resolve --same-as 1 => 2 | applies to one row only
resolve 1 5 --same-as 6 => 2 | applies to one row only
resolve 1 --same-as => 2 | only a held row
resolve 1 --same-as --yes => 2 | only a held row
resolve 1 --release => 2 | only a held row
resolve 1 --removed => 2 | no event of it is known
resolve 1 --applied => 2 | no event of it is known
resolve 1 => 2
resolve 1 --resend --ignore => 2
resolve 1 --event-id 0 => 2
resolve 1 5 --event-id 3 => 2
resolve Hof-71 --ignore => 2 | did you mean "Hof-17"?
retry --keys Hof-16,1,nothing => 2 | no row Hof-16, nothing
states => conflict 3, delivered 1
# before the first run there is nothing to decide
retry => 2 | has not run yet
resolve 1 --ignore => 2 | has not run yet
reconcile => 2 | has not run yet
diff => 2 | has not run yet
status => 0 | town-hall has not run yet
runs town-hall => 0 | town-hall has not run yet
runs town-hall => {runs: []}
runs town-hull => 2 | there is no run or feed 'town-hull'
# a person decides where no service is configured
in conflict
unset EVENT_API_BASE_URL
unset EVENT_API_KEY
resolve 1 --ignore => 0
resolve 5 --event-id 12 => {warning: …EVENT_API_BASE_URL is not set}
reconcile => 2
# refused rows are sent again by the next run once a person says so
switch max_title_chars: 5
run => {runs: [{message: '2 (5, 6) refused by the service, within what the feed allows'}]}
run => 0 | rows that the service refused | title: must not be longer than 5 characters
run => {runs: [{refused: [{row_key: '5', problem: '…title: must not be longer than 5 characters'}, {row_key: '6'}]}]}
states => delivered 1, refused 2
status => 0 | 2 (5, 6) refused by the service, within what the feed allows
switch max_title_chars: 300
run => {runs: [{publish: {carried_over: 0}}]}
rows --state refused => {rows: {0: {hint: …eventsync retry town-hall --keys 5}}}
retry --keys 1,5 => {retried: {refused: 1, blocked: 0}, left_alone: [{row_key: '1', because: it is delivered}]}
retry => {retried: {refused: 1, blocked: 0}, to_send: eventsync run town-hall --publish-only}
run --publish-only => 0
states => delivered 3
titles => Hamlet, Jazz, Othello
# rows that may exist twice are named by the run that sent them, with the command that lists them
switch idempotency: ignore, faults: reset, fault_moment: after, fault_per_mille: 1000, fault_attempts: 1
run => 0 | row 1 may exist up to 2 times | what to do: `eventsync rows town-hall --state resent` lists
source 1 / 5 / 6 / Hof-17,Chor,2030-05-05,20:00,,concert
switch fault_per_mille: 0
run => 0 | new 1 = delivered 1 | !may exist | !what to do
run --stage-only => 0 | !may exist
listed --state resent => 1, 5, 6
# a run names the same next command as status
run
source 1,Jazz again,2030-05-01,19:30,,concert / 5 / 6
run => {runs: [{hint: '…`eventsync diff town-hall` shows them; …`eventsync resolve town-hall 1 --applied`'}]}
status => 0 | drift: `eventsync diff town-hall` shows them
source 1,Jazz again,2030-05-01,19:30,,concert / 5
run => 0 | what to do: `eventsync diff town-hall` shows them | `eventsync status town-hall` says what to do about the others
# a row that is gone and ignored is on the list again once it came back and is gone again
run
source 1 / 5
run
resolve 6 --ignore => 0
run
listed
source 1 / 5 / 6
run
source 1 / 5
run
listed => 6
resolve 6 --ignore => 0
listed
# a row whose identifier arrives later is held until a person says which event is its own
mapping key: [ID] -> key: {first_of: [ID, [TITLE, DAY]]}
source ,Jazz,2030-05-01,19:30,,concert / 5
run
source 1,Jazz,2030-05-01,19:30,,concert / 5
run => {runs: [{read: {held: 1, unchanged: 1}}]}
explain 1 => {outcomes: [{row_key: '1'}], ledger: [{row_key: '1', state: held}]}
resolve 1 --same-as => {rows: [{other_key: Jazz|2030-05-01, is_changed: true}]}
run --keys 1 => {runs: [{read: {read: 1, unchanged: 1}}]}
run => {runs: [{outcome: done, read: {held: 0, unchanged: 2}}]}
states => delivered 2, superseded 1
# a difference is shown path by path and as of when
run
diff => 0 | the source agrees with what was delivered
source 1,Jazz,2030-05-01,20:00,,play / 5
run
diff => {counts: {edited: 1, vanished: 1}, as_of: {is_whole: true}}
diff => {rows: [{kind: edited}, {kind: vanished, row_key: '6', changed: []}]}
diff => {rows: {0: {changed: [{path: classifications, delivered: [music], now: [theatre]}, {path: startAt}]}}}
diff => {rows: {0: {changed: {1: {path: startAt, delivered: '2030-05-01T19:30:00+02:00', now: '2030-05-01T20:00:00+02:00'}}}}}
diff => 0 | as of the read of
diff 1 => {row: {fields: {0: {path: approxLocation.city.placeId, is_changed: false}}}}
diff 1 => 0 | ≠
diff 11 => 2
# a draft that the source has published is told apart and set aside once it is done
run --status draft => 0
run
diff => {counts: {to be published by hand: 3}}
resolve 1 --ignore
listed => 5, 6
rows => {rows: {0: {hint: …--applied…--ignore}}}
diff => 0 | {counts: {to be published by hand: 2, ignored: 1}}
diff => {rows: [{is_set_aside: false}, {is_set_aside: false}, {row_key: '1', is_set_aside: true}]}
diff => 0 | (ignored)
# what the source asks for now is found where the list shows whole events, and a title is no proof
run => 0
forget
mapping {from: TITLE, do: [collapse]} -> {from: GENRE}
run => 1
mapping
run => 1
states => conflict 3
reconcile => {counts: {sought: 3, found: 0, candidates: 3, absent: 0}}
switch event_items: id
reconcile => 1 | the list shows neither title nor start of 3 events | !--resend
reconcile => {rows: [{help: ''}, {help: ''}, {help: ''}]}
switch event_items: full
reconcile => {counts: {sought: 3, found: 3, candidates: 0, absent: 0}}
states => delivered 3
diff => {rows: []}
run => 0
titles => Hamlet, Jazz, Othello
state verify => 0
# an event that differs in a detail is shown and not sent again
run => 0
forget
mapping concert: music -> concert: theatre
run => 1
switch event_items: full
reconcile => {rows: {0: {row_key: '1', verdict: candidate, why: …but not classifications}}}
reconcile => {rows: {0: {help: eventsync resolve town-hall 1 --event-id <Jazz>}}}
# a key that may not read events is told what to ask for
in conflict
switch list_scope: events:read
key channels:read events:create
reconcile => 3 | GET /events | ask the key's owner | !--resend
resolve 1 --event-id 77 => {warning: …could not check whether event 77 exists}
# a key that may not list its channels will do where no channel is named by its slug
key events:create
run => 3 | channels:read
mapping {channel: city-agenda} -> {channel: {from: GENRE}}
run => 3 | channels:read
mapping {channel: city-agenda} -> "101"
run => 0
"""
)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_decision_is_asked_for_made_and_kept(decider: Decider, story: str) -> None:
    follow(decider, story)


def test_rows_of_a_state_are_decided_after_a_question(decider: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    decider.publish()
    decider.desk.source([row.replace("20:00", "21:00") for row in GOOD])
    decider.publish()
    words = ("resolve", "--state", "drift", "--applied")
    decider.say(*words).assert_told(2, "add --yes")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_args, **_options: False)
    decider.say(*words).assert_told(1, "nothing was changed")
    assert decider.listed() == ["5", "6"]
    monkeypatch.setattr("typer.confirm", lambda *_args, **_options: True)
    decider.say(*words, code=0)
    assert decider.listed() == []
    assert decider.told(*words)["rows"] == [], "none is left"
    decider.say("resolve", "--state", "nonsense", "--applied", code=2)


ODD_KEYS = ("-5", "--yes", "--", "a,b", ",", "a\\b", "a\\,-b", "x|y", "Jazz, Blues & Co", "O'Hara", "a\\")


def test_what_the_lists_suggest_works_whatever_the_key_is(decider: Decider) -> None:
    decider.service.switch(max_title_chars=5)
    decider.desk.source([f'"{key}",Evening,2030-05-{day:02d},19:30,,concert' for day, key in enumerate(ODD_KEYS, start=1)])
    decider.publish()
    hints = [row["hint"] for row in decider.told("rows")["rows"]]
    decider.service.switch(max_title_chars=300)
    decider.desk.source([f'"{key}",Matinee,2030-05-{day:02d},19:30,,concert' for day, key in enumerate(ODD_KEYS, start=1)])
    assert decider.publish()["publish"]["delivered"] == len(ODD_KEYS)
    decider.desk.source([f'"{key}",Concert,2030-05-{day:02d},19:30,,concert' for day, key in enumerate(ODD_KEYS, start=1)])
    hints += [decider.publish()["hint"], *(row["hint"] for row in decider.told("rows")["rows"])]
    suggested = [shlex.split(command) for hint in hints for command in re.findall(r"`eventsync ([^`]*)`", hint)]
    assert len(suggested) > 4 * len(ODD_KEYS)
    assert {" ".join(words): said.words for words in suggested if (said := decider.desk.run(*words)).code} == {}
    assert decider.listed() == []
    keys = [words[-1] for words in suggested if "--keys" in words]
    assert decider.publish("--keys", ",".join(keys))["read"]["unchanged"] == len(ODD_KEYS)


def test_an_event_that_shows_something_else_than_its_row_is_pointed_out(decider: Decider) -> None:
    decider.publish()
    jazz, event_id = GOOD[0], decider.event_id("Jazz")
    decider.forget()
    decider.desk.source([jazz.replace("Jazz", "Blues"), *GOOD[1:]])
    decider.publish(code=1)
    decider.service.switch(event_items="full")
    warning = decider.told("resolve", "1", "--event-id", event_id)["warning"]
    assert warning == f"event {event_id} shows another title than row 1: change it by hand; no list names the difference"


def test_help_of_resolve_teaches_every_decision_by_an_example(desk: Desk) -> None:
    said = desk.run("resolve", "--help")
    for option in ("applied", "ignore", "same-as", "release", "event-id", "resend", "removed", "undo", "state"):
        assert re.search(rf"eventsync resolve lisbon-agenda .*--{option}", said.out), option


def test_a_rehearsal_tells_what_would_wait_for_a_person_and_ends_as_a_run_would(decider: Decider) -> None:
    follow(decider, f"{IN_CONFLICT}\nsource 1,Jazz,2030-05-01,20:00,,play / 5 / 6")
    (told,) = decider.desk.run("run", FEED, "--dry-run", "--json", code=1).document["rehearsals"]
    assert (told["outcome"], told["waiting"]) == ("needs attention", {"conflict": 3, "drift": 1})
    decider.say("run", "--dry-run").assert_told(1, "would wait for a person: conflict 3, drift 1")
    ran = decider.publish()
    assert (told["message"], told["hint"]) == (ran["message"], ran["hint"])


@pytest.mark.parametrize("words", ["reconcile town-hall", "resolve town-hall 1 --event-id 1"])
def test_what_a_decision_logs_of_the_service_is_no_part_of_its_document(
    desk: Desk, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with desk.service():
        desk.sync(code=0)
        structlog.reset_defaults()
        desk.told(*words.split())
        structlog.get_logger().warning("the pace is not shared any more", trouble=f"a proxy repeats {SECRET}")
    said = capsys.readouterr()
    assert (said.out, "the pace is not shared" in said.err, SECRET in said.err) == ("", True, False)
