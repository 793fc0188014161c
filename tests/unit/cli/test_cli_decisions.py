"""`eventsync retry`, `resolve`, `reconcile` and `diff` on a real state DB, against the sandbox service."""

from __future__ import annotations

import re

import pytest
import structlog
from unit.cli.conftest import GOOD, MAPPING, SECRET, Decider, Desk


@pytest.fixture
def in_conflict(decider: Decider) -> Decider:
    """The state DB was lost, and the service answers 409 for every key that it has seen: three rows in conflict."""
    assert decider.publish().code == 0
    decider.forget()
    decider.switch(idempotency="refuse")
    said = decider.publish()
    assert said.code == 1
    assert decider.states() == {"conflict": 3}
    return decider


def test_what_nobody_has_decided_on_reddens_every_run_until_somebody_does(in_conflict: Decider) -> None:
    again = in_conflict.publish()
    (run,) = again.document["runs"]
    assert (again.code, run["outcome"]) == (1, "needs attention")
    assert "3 (1, 5, 6) in conflict" in run["message"]
    assert "eventsync reconcile town-hall" in run["hint"]
    assert "eventsync resolve town-hall 1" in run["hint"]
    status = in_conflict.say("status")
    assert "waits for a person: conflict 3" in status.out
    assert "conflict: `eventsync reconcile town-hall` looks for them" in status.out
    for key in ("1", "5", "6"):
        assert in_conflict.say("resolve", key, "--ignore").code == 0
    assert in_conflict.publish().code == 0
    assert in_conflict.told("rows")["rows"] == []
    assert "ignored: 3: `eventsync rows town-hall --state ignored`" in in_conflict.say("status").out


def test_reconcile_takes_events_that_agree_in_title_and_start_and_rehearses_it_first(in_conflict: Decider) -> None:
    in_conflict.switch(event_items="full")
    dry = in_conflict.say("reconcile", "--dry-run", "--json")
    assert (dry.code, dry.document["counts"]) == (0, {"sought": 3, "found": 3, "candidates": 0, "absent": 0})
    assert in_conflict.states() == {"conflict": 3}

    said = in_conflict.say("reconcile")
    assert said.code == 0
    assert "3 of 3 events read; items tell approxLocation" in said.out
    assert "looked for 3 = delivered 3 + to be decided 0 + not found 0" in said.out
    assert in_conflict.states() == {"delivered": 3}
    ids = {row["row_key"]: str(row["event_id"]) for row in in_conflict.told("rows", "--state", "delivered")["rows"]}
    assert ids == {"1": in_conflict.event_id("Jazz"), "5": in_conflict.event_id("Hamlet"), "6": in_conflict.event_id("Othello")}
    assert in_conflict.publish().code == 0
    assert "nothing to look for" in in_conflict.say("reconcile").out


def test_a_title_alone_is_shown_with_the_command_that_decides_and_never_taken(in_conflict: Decider) -> None:
    said = in_conflict.say("reconcile", "--json")
    assert said.code == 1
    assert said.document["counts"] == {"sought": 3, "found": 0, "candidates": 3, "absent": 0}
    assert said.document["list"]["fields"] == ["id", "title"]
    first = said.document["rows"][0]
    assert first["help"] == f"eventsync resolve town-hall 1 --event-id {in_conflict.event_id('Jazz')}"
    assert in_conflict.states() == {"conflict": 3}
    assert in_conflict.say(*first["help"].split()[1:2], "1", "--event-id", in_conflict.event_id("Jazz")).code == 0
    assert in_conflict.states() == {"conflict": 2, "delivered": 1}


def test_rows_that_the_list_does_not_show_are_told_with_how_many_were_read(in_conflict: Decider) -> None:
    in_conflict.switch(event_items="full")
    in_conflict.desk.source((*GOOD[:2], "6,Macbeth,2030-05-04,20:00,,play"))
    in_conflict.change("/reset")
    said = in_conflict.say("reconcile")
    assert said.code == 1
    assert "if the list is complete: eventsync resolve town-hall 1 --resend" in " ".join(said.out.split())
    told = in_conflict.told("reconcile")["rows"][0]
    assert told["why"] == "no event of the list looks like it; 0 were read"


def test_a_key_that_may_not_read_events_is_told_what_to_ask_for(in_conflict: Decider) -> None:
    in_conflict.switch(list_scope="events:read")
    secret = in_conflict.change("/keys", name="few", scopes=["channels:read", "events:create"])["secret"]
    in_conflict.desk.monkeypatch.setenv("EVENT_API_KEY", secret)
    said = in_conflict.say("reconcile")
    assert said.code == 3
    assert "--resend" not in said.out + said.err
    assert "GET /events" in said.err
    assert "ask the key's owner" in said.err
    warned = in_conflict.told("resolve", "1", "--event-id", "77")
    assert "the service was not asked whether event 77 exists" in warned["warning"]


def test_a_row_is_delivered_as_the_event_that_a_person_names_unless_it_is_another_rows(in_conflict: Decider) -> None:
    jazz = in_conflict.event_id("Jazz")
    told = in_conflict.told("resolve", "1", "--event-id", jazz)
    assert (told["warning"], told["rows"][0]["state"], told["rows"][0]["is_changed"]) == ("", "delivered", True)
    assert not in_conflict.told("resolve", "1", "--event-id", jazz)["rows"][0]["is_changed"]
    (row,) = in_conflict.told("rows", "--state", "delivered")["rows"]
    assert (str(row["event_id"]), row["decision"]["what"]) == (jazz, "event_id")
    assert "said that it is event" in row["problem"]
    taken = in_conflict.say("resolve", "5", "--event-id", jazz)
    assert (taken.code, f"event {jazz} is row 1 of town-hall already" in taken.err) == (2, True)
    assert "event 4711 is not among the 3 events" in in_conflict.told("resolve", "5", "--event-id", "4711")["warning"]


def test_sending_again_what_may_exist_is_asked_about_and_goes_out_under_the_next_key(in_conflict: Decider) -> None:
    unasked = in_conflict.say("resolve", "1", "--resend")
    assert (unasked.code, "say --yes" in unasked.err) == (2, True)
    assert in_conflict.states() == {"conflict": 3}
    told = in_conflict.told("resolve", "1", "--resend", "--yes")["rows"][0]
    assert told["what"] == "the next run sends it under its next key"
    assert not in_conflict.told("resolve", "1", "--resend", "--yes")["rows"][0]["is_changed"]
    in_conflict.publish()
    assert in_conflict.states() == {"conflict": 2, "delivered": 1}
    assert [event["title"] for event in in_conflict.events()].count("Jazz") == 2, "the risk that was told"


def test_what_was_set_aside_is_listed_again_when_that_is_taken_back(in_conflict: Decider) -> None:
    in_conflict.say("resolve", "1", "5", "--ignore")
    assert [row["row_key"] for row in in_conflict.told("rows")["rows"]] == ["6"]
    assert [row["row_key"] for row in in_conflict.told("rows", "--state", "conflict")["rows"]] == ["6"]
    (first, second) = in_conflict.told("rows", "--state", "ignored")["rows"]
    assert (first["row_key"], second["row_key"], first["entry_state"]) == ("1", "5", "conflict")
    assert "ignored by" in first["hint"]
    assert in_conflict.told("resolve", "1", "--undo")["rows"][0]["what"] == "it is listed again"
    assert [row["row_key"] for row in in_conflict.told("rows")["rows"]] == ["1", "6"]


def test_rows_of_a_state_are_decided_after_a_question(decider: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    decider.publish()
    decider.desk.source([row.replace("20:00", "21:00") for row in GOOD])
    decider.publish()
    unasked = decider.say("resolve", "--state", "drift", "--applied")
    assert (unasked.code, "say --yes" in unasked.err) == (2, True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_args, **_options: False)
    declined = decider.say("resolve", "--state", "drift", "--applied")
    assert (declined.code, "nothing was changed" in declined.out) == (1, True)
    assert decider.told("rows", "--state", "drift")["rows"]
    monkeypatch.setattr("typer.confirm", lambda *_args, **_options: True)
    assert decider.say("resolve", "--state", "drift", "--applied").code == 0
    assert decider.told("rows")["rows"] == []
    assert decider.told("resolve", "--state", "drift", "--applied")["rows"] == [], "none is left"
    assert decider.say("resolve", "--state", "nonsense", "--applied").code == 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--applied"], "name either rows or a state"),
        (["1", "--state", "drift", "--applied"], "name either rows or a state"),
        (["--same-as", "1"], "names the one event of one row"),
        (["1", "5", "--same-as", "6"], "names the one event of one row"),
        (["1", "--same-as"], "only a held row"),
        (["1", "--same-as", "--yes"], "only a held row"),
        (["1", "--release"], "only a held row"),
        (["1", "--removed"], "no event of it is known"),
        (["1", "--applied"], "no event of it is known"),
        (["1"], ""),
        (["1", "--resend", "--ignore"], ""),
        (["1", "--event-id", "0"], ""),
        (["1", "5", "--event-id", "3"], ""),
    ],
)
def test_what_cannot_be_decided_says_why_and_changes_nothing(in_conflict: Decider, words: list[str], hint: str) -> None:
    said = in_conflict.say("resolve", *words)
    assert (said.code, hint in " ".join(said.err.split())) == (2, True), said.err
    assert in_conflict.states() == {"conflict": 3}


def test_help_of_resolve_teaches_every_decision_by_an_example(desk: Desk) -> None:
    said = desk.run("resolve", "--help")
    for option in ("--applied", "--ignore", "--same-as", "--release", "--event-id", "--resend", "--removed", "--undo", "--state"):
        assert re.search(rf"eventsync resolve lisbon-agenda .*{option}", said.out), option


def test_rows_that_are_not_there_are_answered_with_the_nearest(in_conflict: Decider) -> None:
    in_conflict.desk.source((*GOOD, "Hof-17,Chor,2030-05-05,20:00,,concert"))
    in_conflict.publish()
    said = in_conflict.say("resolve", "Hof-71", "--ignore")
    assert (said.code, 'did you mean "Hof-17"?' in said.err) == (2, True)
    both = in_conflict.say("retry", "--keys", "Hof-16,1,nothing")
    assert both.code == 2
    assert "no row Hof-16, nothing" in both.err


def test_before_the_first_run_there_is_nothing_to_decide(decider: Decider) -> None:
    for words in (["retry"], ["resolve", "1", "--ignore"], ["reconcile"], ["diff"]):
        said = decider.say(*words)
        assert (said.code, "nothing was run yet" in said.err) == (2, True), words


def test_a_person_decides_where_no_service_is_configured(in_conflict: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENT_API_BASE_URL")
    monkeypatch.delenv("EVENT_API_KEY")
    assert in_conflict.say("resolve", "1", "--ignore").code == 0
    told = in_conflict.told("resolve", "5", "--event-id", "12")
    assert "EVENT_API_BASE_URL is not set" in told["warning"]
    assert in_conflict.say("reconcile").code == 2


def test_refused_rows_are_sent_again_by_the_next_run_once_somebody_says_so(decider: Decider) -> None:
    decider.switch(max_title_chars=5, stored_refusals="validation")
    told = decider.publish().document["runs"][0]["message"]
    assert decider.states() == {"refused": 2, "delivered": 1}
    assert told == "2 (5, 6) refused by the service, within what the feed allows"
    assert f"    {told}" in "\n".join(decider.say("status").out.splitlines())
    decider.switch(max_title_chars=300)
    assert decider.publish().document["runs"][0]["publish"]["carried_over"] == 0
    hint = decider.told("rows", "--state", "refused")["rows"][0]["hint"]
    assert "eventsync retry town-hall --keys 5" in hint

    told = decider.told("retry")
    assert told["retried"] == {"refused": 2, "blocked": 0}
    assert decider.told("retry")["retried"] == {"refused": 0, "blocked": 0}
    run = decider.desk.run(*told["to_send"].split()[1:], "--no-dagster", "--json")
    assert (run.code, decider.states()) == (0, {"delivered": 3})
    assert sorted(event["title"] for event in decider.events()) == ["Hamlet", "Jazz", "Othello"]


def test_a_rehearsal_tells_what_would_wait_for_a_person_and_ends_as_a_run_would(decider: Decider) -> None:
    decider.switch(idempotency="refuse")
    decider.publish()
    decider.forget()
    decider.publish()
    decider.desk.source(("1,Jazz,2030-05-01,20:00,,play", *GOOD[1:]))
    said = decider.desk.run("run", "town-hall", "--dry-run", "--json")
    (told,) = said.document["rehearsals"]
    assert (said.code, told["outcome"], told["waiting"]) == (1, "needs attention", {"conflict": 3, "drift": 1})
    assert "would wait for a person: conflict 3, drift 1" in decider.desk.run("run", "town-hall", "--dry-run").out
    ran = decider.publish().document["runs"][0]
    assert (told["message"], told["hint"]) == (ran["message"], ran["hint"])


def test_only_rows_that_were_turned_away_are_retried(decider: Decider) -> None:
    decider.switch(max_title_chars=5)
    decider.publish()
    assert decider.say("retry", "--state", "uncertain").code == 2
    assert decider.told("retry", "--state", "blocked")["retried"] == {"refused": 0, "blocked": 0}
    assert decider.say("retry", "--state", "pending").code == 2
    told = decider.told("retry", "--keys", "1,5")
    assert told["retried"] == {"refused": 1, "blocked": 0}
    assert told["left_alone"] == [{"row_key": "1", "because": "it is delivered"}]


def test_a_difference_is_shown_path_by_path_and_as_of_when(decider: Decider) -> None:
    decider.publish()
    assert "the source says what was delivered" in decider.say("diff").out
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
    assert "as of the read of" in decider.say("diff").out

    one = decider.told("diff", "1")["row"]
    assert {field["path"]: field["is_changed"] for field in one["fields"]}["approxLocation.city.placeId"] is False
    assert "≠" in decider.say("diff", "1").out
    assert decider.say("diff", "11").code == 2


def test_a_draft_that_the_source_has_published_is_told_apart_and_set_aside_once_it_is_done(decider: Decider) -> None:
    assert decider.desk.run("run", "town-hall", "--no-dagster", "--status", "draft").code == 0
    decider.publish()
    assert decider.told("diff")["counts"]["to be published by hand"] == 3
    decider.say("resolve", "1", "--ignore")
    assert [row["row_key"] for row in decider.told("rows")["rows"]] == ["5", "6"]
    (first, _) = decider.told("rows", "--state", "drift")["rows"]
    assert (first["row_key"], "--applied" in first["hint"], "--ignore" in first["hint"]) == ("5", True, True)
    told = decider.told("diff")
    assert (told["counts"]["to be published by hand"], told["counts"]["ignored"]) == (2, 1)
    assert [(row["row_key"], row["is_set_aside"]) for row in told["rows"]] == [("5", False), ("6", False), ("1", True)]
    assert "(ignored)" in decider.say("diff").out


@pytest.mark.parametrize("words", [("reconcile", "town-hall"), ("resolve", "town-hall", "1", "--event-id", "1")], ids=" ".join)
def test_what_a_decision_logs_of_the_service_is_no_part_of_its_document(desk: Desk, words: tuple[str, ...]) -> None:
    with desk.service():
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        structlog.reset_defaults()
        desk.run(*words, "--json")
        structlog.get_logger().warning("the pace is not shared any more", trouble=f"somebody repeats {SECRET}")
    said = desk.capsys.readouterr()
    assert said.out == ""
    assert "the pace is not shared" in said.err
    assert SECRET not in said.err


EDITED = MAPPING.partition("examples:")[0].replace("{from: TITLE, do: [collapse]}", "{from: GENRE}")


@pytest.fixture
def edited_back(decider: Decider) -> Decider:
    """The ledger was lost, the mapping edited, a run made, the mapping edited back, and another run made."""
    assert decider.publish().code == 0
    decider.forget()
    decider.desk.mapping(EDITED)
    assert decider.publish().code == 1
    decider.desk.mapping()
    assert decider.publish().code == 1
    assert decider.states() == {"conflict": 3}
    return decider


def test_what_the_source_asks_for_now_is_found_where_the_list_shows_whole_events(edited_back: Decider) -> None:
    edited_back.switch(event_items="full")
    dry = edited_back.say("reconcile", "--dry-run", "--json")
    assert (dry.code, dry.document["counts"]) == (0, {"sought": 3, "found": 3, "candidates": 0, "absent": 0})
    assert edited_back.say("reconcile").code == 0
    assert edited_back.states() == {"delivered": 3}
    assert edited_back.told("diff")["rows"] == []
    assert edited_back.publish().code == 0
    assert len(edited_back.events()) == 3
    assert edited_back.desk.run("state", "verify").code == 0


def test_a_title_that_the_source_asks_for_now_is_a_candidate_and_never_sent_again(edited_back: Decider) -> None:
    said = edited_back.say("reconcile", "--json")
    assert said.document["counts"] == {"sought": 3, "found": 0, "candidates": 3, "absent": 0}
    assert [row["help"] for row in said.document["rows"]] == [
        f"eventsync resolve town-hall {key} --event-id {edited_back.event_id(title)}"
        for key, title in (("1", "Jazz"), ("5", "Hamlet"), ("6", "Othello"))
    ]


def test_a_list_that_shows_neither_title_nor_start_is_named_and_nothing_is_suggested(edited_back: Decider) -> None:
    edited_back.switch(event_items="id")
    said = edited_back.say("reconcile")
    assert said.code == 1
    assert "the list shows neither title nor start of 3 events" in " ".join(said.out.split())
    assert "--resend" not in said.out + said.err
    assert {row["help"] for row in edited_back.told("reconcile")["rows"]} == {""}


def test_an_event_that_differs_in_a_detail_is_shown_and_not_sent_again(decider: Decider) -> None:
    assert decider.publish().code == 0
    decider.forget()
    decider.desk.mapping(MAPPING.partition("examples:")[0].replace("concert: music", "concert: theatre"))
    assert decider.publish().code == 1
    decider.switch(event_items="full")
    (row,) = (row for row in decider.told("reconcile")["rows"] if row["row_key"] == "1")
    assert row["verdict"] == "candidate"
    assert "but not classifications" in row["why"]
    assert row["help"] == f"eventsync resolve town-hall 1 --event-id {decider.event_id('Jazz')}"
