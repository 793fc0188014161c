"""`eventsync retry`, `resolve`, `reconcile` and `diff` on a real state DB, against the sandbox service."""

from __future__ import annotations

import re

import pytest
import structlog
from unit.cli.conftest import FEED, GOOD, MAPPING, SECRET, Decider, Desk, narrowed

CONFLICTS = {"sought": 3, "found": 0, "candidates": 3, "absent": 0}
FOUND = {"sought": 3, "found": 3, "candidates": 0, "absent": 0}


@pytest.fixture
def in_conflict(decider: Decider) -> Decider:
    """The state DB was lost, and the service answers 409 for every key that it has seen: three rows in conflict."""
    decider.publish(code=0)
    decider.forget()
    decider.service.switch(idempotency="refuse")
    decider.publish(code=1)
    assert decider.states() == {"conflict": 3}
    return decider


def test_what_is_not_decided_reddens_every_run_until_it_is(in_conflict: Decider) -> None:
    run = in_conflict.publish(code=1)
    assert (run["outcome"], "3 (1, 5, 6) in conflict" in run["message"]) == ("needs attention", True)
    assert "eventsync reconcile town-hall" in run["hint"]
    assert "eventsync resolve town-hall 1" in run["hint"]
    looks = "conflict: `eventsync reconcile town-hall` looks for them"
    in_conflict.say("status").assert_told(0, "waits for a person: conflict 3", looks)
    in_conflict.say("resolve", "1", "5", "--ignore", code=0)
    assert (in_conflict.listed(), in_conflict.listed("--state", "conflict")) == (["6"], ["6"])
    first, second = in_conflict.told("rows", "--state", "ignored")["rows"]
    assert (first["row_key"], second["row_key"], first["entry_state"]) == ("1", "5", "conflict")
    assert "ignored by" in first["hint"]
    assert in_conflict.told("resolve", "1", "--undo")["rows"][0]["what"] == "it is listed again"
    assert in_conflict.listed() == ["1", "6"]
    in_conflict.say("resolve", "1", "6", "--ignore", code=0)
    in_conflict.publish(code=0)
    in_conflict.say("status").assert_told(0, "ignored: 3: `eventsync rows town-hall --state ignored`")


def test_reconcile_takes_events_that_agree_in_title_and_start_and_rehearses_it_first(in_conflict: Decider) -> None:
    in_conflict.service.switch(event_items="full")
    assert in_conflict.told("reconcile", "--dry-run")["counts"] == FOUND
    assert in_conflict.states() == {"conflict": 3}
    shown = ("3 of 3 events read; items tell approxLocation", "looked for 3 = delivered 3 + to be decided 0 + not found 0")
    in_conflict.say("reconcile").assert_told(0, *shown)
    ids = {row["row_key"]: str(row["event_id"]) for row in in_conflict.told("rows", "--state", "delivered")["rows"]}
    assert ids == {"1": in_conflict.event_id("Jazz"), "5": in_conflict.event_id("Hamlet"), "6": in_conflict.event_id("Othello")}
    in_conflict.publish(code=0)
    in_conflict.say("reconcile").assert_told(0, "nothing to look for")


def test_a_title_alone_is_shown_with_the_command_that_decides_and_never_taken(in_conflict: Decider) -> None:
    said = in_conflict.say("reconcile", "--json", code=1)
    assert (said.document["counts"], said.document["list"]["fields"]) == (CONFLICTS, ["id", "title"])
    command = said.document["rows"][0]["help"]
    assert command == f"eventsync resolve town-hall 1 --event-id {in_conflict.event_id('Jazz')}"
    assert in_conflict.states() == {"conflict": 3}
    in_conflict.desk.run(*command.split()[1:], code=0)
    assert in_conflict.states() == {"conflict": 2, "delivered": 1}


def test_rows_that_the_list_does_not_show_are_named_with_how_many_were_read(in_conflict: Decider) -> None:
    in_conflict.service.switch(event_items="full")
    in_conflict.service.change("/reset")
    in_conflict.say("reconcile").assert_told(1, "if the list is complete: eventsync resolve town-hall 1 --resend")
    assert in_conflict.told("reconcile")["rows"][0]["why"] == "no event of the list looks like it; 0 were read"


def test_a_key_that_may_not_read_events_is_told_what_to_ask_for(in_conflict: Decider) -> None:
    in_conflict.service.switch(list_scope="events:read")
    secret = in_conflict.service.change("/keys", name="few", scopes=["channels:read", "events:create"])["secret"]
    in_conflict.desk.monkeypatch.setenv("EVENT_API_KEY", secret)
    said = in_conflict.say("reconcile")
    said.assert_told(3, "GET /events", "ask the key's owner")
    assert "--resend" not in said.words
    warned = in_conflict.told("resolve", "1", "--event-id", "77")
    assert "the service was not asked whether event 77 exists" in warned["warning"]


def test_a_row_is_delivered_as_the_event_that_a_person_names_unless_it_is_another_rows(in_conflict: Decider) -> None:
    jazz = in_conflict.event_id("Jazz")
    first = {"warning": "", "rows": [{"state": "delivered", "is_changed": True}]}
    assert narrowed(in_conflict.told("resolve", "1", "--event-id", jazz), first) == first
    assert not in_conflict.told("resolve", "1", "--event-id", jazz)["rows"][0]["is_changed"]
    (row,) = in_conflict.told("rows", "--state", "delivered")["rows"]
    assert (str(row["event_id"]), row["decision"]["what"]) == (jazz, "event_id")
    assert "said that it is event" in row["problem"]
    in_conflict.say("resolve", "5", "--event-id", jazz).assert_told(2, f"event {jazz} is row 1 of town-hall already")
    assert "event 4711 is not among the 3 events" in in_conflict.told("resolve", "5", "--event-id", "4711")["warning"]


def test_sending_again_what_may_exist_is_asked_about_and_goes_out_under_the_next_key(in_conflict: Decider) -> None:
    in_conflict.say("resolve", "1", "--resend").assert_told(2, "say --yes")
    assert in_conflict.states() == {"conflict": 3}
    (row,) = in_conflict.told("resolve", "1", "--resend", "--yes")["rows"]
    assert row["what"] == "the next run sends it under its next key"
    assert not in_conflict.told("resolve", "1", "--resend", "--yes")["rows"][0]["is_changed"]
    in_conflict.publish()
    assert in_conflict.states() == {"conflict": 2, "delivered": 1}
    assert in_conflict.service.titles().count("Jazz") == 2, "the risk that was told"


def test_rows_of_a_state_are_decided_after_a_question(decider: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    decider.publish()
    decider.desk.source([row.replace("20:00", "21:00") for row in GOOD])
    decider.publish()
    words = ("resolve", "--state", "drift", "--applied")
    decider.say(*words).assert_told(2, "say --yes")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_args, **_options: False)
    decider.say(*words).assert_told(1, "nothing was changed")
    assert decider.listed() == ["5", "6"]
    monkeypatch.setattr("typer.confirm", lambda *_args, **_options: True)
    decider.say(*words, code=0)
    assert decider.listed() == []
    assert decider.told(*words)["rows"] == [], "none is left"
    decider.say("resolve", "--state", "nonsense", "--applied", code=2)


def test_what_cannot_be_decided_says_why_and_changes_nothing(in_conflict: Decider) -> None:
    in_conflict.desk.source((*GOOD, "Hof-17,Chor,2030-05-05,20:00,,concert"))
    in_conflict.publish()
    for words, hint in (
        ("resolve --applied", "name either rows or a state"),
        ("resolve 1 --state drift --applied", "name either rows or a state"),
        ("resolve --same-as 1", "names the one event of one row"),
        ("resolve 1 5 --same-as 6", "names the one event of one row"),
        ("resolve 1 --same-as", "only a held row"),
        ("resolve 1 --same-as --yes", "only a held row"),
        ("resolve 1 --release", "only a held row"),
        ("resolve 1 --removed", "no event of it is known"),
        ("resolve 1 --applied", "no event of it is known"),
        ("resolve 1", ""),
        ("resolve 1 --resend --ignore", ""),
        ("resolve 1 --event-id 0", ""),
        ("resolve 1 5 --event-id 3", ""),
        ("resolve Hof-71 --ignore", 'did you mean "Hof-17"?'),
        ("retry --keys Hof-16,1,nothing", "no row Hof-16, nothing"),
    ):
        in_conflict.say(*words.split()).assert_told(2, hint)
    assert in_conflict.states() == {"conflict": 3, "delivered": 1}


def test_help_of_resolve_teaches_every_decision_by_an_example(desk: Desk) -> None:
    said = desk.run("resolve", "--help")
    for option in ("applied", "ignore", "same-as", "release", "event-id", "resend", "removed", "undo", "state"):
        assert re.search(rf"eventsync resolve lisbon-agenda .*--{option}", said.out), option


def test_before_the_first_run_there_is_nothing_to_decide(decider: Decider) -> None:
    for words in ("retry", "resolve 1 --ignore", "reconcile", "diff"):
        decider.say(*words.split()).assert_told(2, "nothing was run yet")


def test_a_person_decides_where_no_service_is_configured(in_conflict: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENT_API_BASE_URL")
    monkeypatch.delenv("EVENT_API_KEY")
    in_conflict.say("resolve", "1", "--ignore", code=0)
    assert "EVENT_API_BASE_URL is not set" in in_conflict.told("resolve", "5", "--event-id", "12")["warning"]
    in_conflict.say("reconcile", code=2)


def test_refused_rows_are_sent_again_by_the_next_run_once_a_person_says_so(decider: Decider) -> None:
    decider.service.switch(max_title_chars=5, stored_refusals="validation")
    told = decider.publish()["message"]
    assert decider.states() == {"refused": 2, "delivered": 1}
    assert told == "2 (5, 6) refused by the service, within what the feed allows"
    decider.say("status").assert_told(0, told)
    decider.service.switch(max_title_chars=300)
    assert decider.publish()["publish"]["carried_over"] == 0
    assert "eventsync retry town-hall --keys 5" in decider.told("rows", "--state", "refused")["rows"][0]["hint"]
    decider.say("retry", "--state", "uncertain", code=2)
    decider.say("retry", "--state", "pending", code=2)
    assert decider.told("retry", "--state", "blocked")["retried"] == {"refused": 0, "blocked": 0}
    told = decider.told("retry", "--keys", "1,5")
    assert told["retried"] == {"refused": 1, "blocked": 0}
    assert told["left_alone"] == [{"row_key": "1", "because": "it is delivered"}]
    told = decider.told("retry")
    assert told["retried"] == {"refused": 1, "blocked": 0}
    decider.desk.run(*told["to_send"].split()[1:], "--no-dagster", "--json", code=0)
    assert decider.states() == {"delivered": 3}
    assert decider.service.titles() == ["Hamlet", "Jazz", "Othello"]


def test_a_rehearsal_tells_what_would_wait_for_a_person_and_ends_as_a_run_would(in_conflict: Decider) -> None:
    in_conflict.desk.source(("1,Jazz,2030-05-01,20:00,,play", *GOOD[1:]))
    said = in_conflict.desk.run("run", FEED, "--dry-run", "--json", code=1)
    (told,) = said.document["rehearsals"]
    assert (told["outcome"], told["waiting"]) == ("needs attention", {"conflict": 3, "drift": 1})
    in_conflict.desk.run("run", FEED, "--dry-run").assert_told(1, "would wait for a person: conflict 3, drift 1")
    ran = in_conflict.publish()
    assert (told["message"], told["hint"]) == (ran["message"], ran["hint"])


def test_a_difference_is_shown_path_by_path_and_as_of_when(decider: Decider) -> None:
    decider.publish()
    decider.say("diff").assert_told(0, "the source says what was delivered")
    decider.desk.source(("1,Jazz,2030-05-01,20:00,,play", GOOD[1]))
    decider.publish()
    told = decider.told("diff")
    assert {kind: count for kind, count in told["counts"].items() if count} == {"edited": 1, "vanished": 1}
    assert told["as_of"]["is_whole"]
    edited, vanished = told["rows"]
    assert [(one["path"], one["delivered"], one["now"]) for one in edited["changed"]] == [
        ("classifications", ["music"], ["theatre"]),
        ("startAt", "2030-05-01T19:30:00+02:00", "2030-05-01T20:00:00+02:00"),
    ]
    assert (vanished["kind"], vanished["row_key"], vanished["changed"]) == ("vanished", "6", [])
    decider.say("diff").assert_told(0, "as of the read of")
    fields = decider.told("diff", "1")["row"]["fields"]
    assert {field["path"]: field["is_changed"] for field in fields}["approxLocation.city.placeId"] is False
    decider.say("diff", "1").assert_told(0, "≠")
    decider.say("diff", "11", code=2)


def test_a_draft_that_the_source_has_published_is_told_apart_and_set_aside_once_it_is_done(decider: Decider) -> None:
    decider.publish("--status", "draft", code=0)
    decider.publish()
    assert decider.told("diff")["counts"]["to be published by hand"] == 3
    decider.say("resolve", "1", "--ignore")
    hint = decider.told("rows")["rows"][0]["hint"]
    assert (decider.listed(), "--applied" in hint, "--ignore" in hint) == (["5", "6"], True, True)
    told = decider.told("diff")
    assert (told["counts"]["to be published by hand"], told["counts"]["ignored"]) == (2, 1)
    assert [(row["row_key"], row["is_set_aside"]) for row in told["rows"]] == [("5", False), ("6", False), ("1", True)]
    decider.say("diff").assert_told(0, "(ignored)")


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


EDITED = MAPPING.partition("examples:")[0].replace("{from: TITLE, do: [collapse]}", "{from: GENRE}")


@pytest.fixture
def edited_back(decider: Decider) -> Decider:
    """The ledger was lost, the mapping edited, a run made, the mapping edited back, and another run made."""
    decider.publish(code=0)
    decider.forget()
    for text in (EDITED, MAPPING):
        decider.desk.mapping(text)
        decider.publish(code=1)
    assert decider.states() == {"conflict": 3}
    return decider


def test_what_the_source_asks_for_now_is_found_where_the_list_shows_whole_events(edited_back: Decider) -> None:
    assert edited_back.told("reconcile")["counts"] == CONFLICTS, "a title is no proof"
    edited_back.service.switch(event_items="full")
    assert edited_back.told("reconcile")["counts"] == FOUND
    assert (edited_back.states(), edited_back.told("diff")["rows"]) == ({"delivered": 3}, [])
    edited_back.publish(code=0)
    assert len(edited_back.service.events()) == 3
    edited_back.desk.run("state", "verify", code=0)


def test_a_list_that_shows_neither_title_nor_start_is_named_and_nothing_is_suggested(edited_back: Decider) -> None:
    edited_back.service.switch(event_items="id")
    said = edited_back.say("reconcile")
    said.assert_told(1, "the list shows neither title nor start of 3 events")
    assert "--resend" not in said.words
    assert {row["help"] for row in edited_back.told("reconcile")["rows"]} == {""}


def test_an_event_that_differs_in_a_detail_is_shown_and_not_sent_again(decider: Decider) -> None:
    decider.publish(code=0)
    decider.forget()
    decider.desk.mapping(MAPPING.partition("examples:")[0].replace("concert: music", "concert: theatre"))
    decider.publish(code=1)
    decider.service.switch(event_items="full")
    (row,) = (row for row in decider.told("reconcile")["rows"] if row["row_key"] == "1")
    assert (row["verdict"], "but not classifications" in row["why"]) == ("candidate", True)
    assert row["help"] == f"eventsync resolve town-hall 1 --event-id {decider.event_id('Jazz')}"
