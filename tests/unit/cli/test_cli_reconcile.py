"""What `eventsync reconcile` makes of rows whose pinned body is not what the service shows: it never leads to a second event."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from unit.cli.conftest import MAPPING, Desk
from unit.cli.test_cli_decisions import GOOD, Decider

EDITED = MAPPING.partition("examples:")[0].replace("{from: TITLE, do: [collapse]}", "{from: GENRE}")


@pytest.fixture
def decider(desk: Desk) -> Iterator[Decider]:
    desk.source(GOOD)
    with desk.service() as announced:
        yield Decider(desk, announced.base_url)


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


def test_a_list_that_may_not_be_read_suggests_nothing(edited_back: Decider) -> None:
    edited_back.switch(list_scope="events:read")
    secret = edited_back.change("/keys", name="few", scopes=["channels:read", "events:create"])["secret"]
    edited_back.desk.monkeypatch.setenv("EVENT_API_KEY", secret)
    said = edited_back.say("reconcile")
    assert said.code == 3
    assert "--resend" not in said.out + said.err


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


def test_an_empty_list_that_was_read_whole_may_be_answered_by_sending_again(edited_back: Decider) -> None:
    edited_back.change("/reset")
    said = edited_back.say("reconcile")
    assert "if the list is complete: eventsync resolve town-hall 1 --resend" in " ".join(said.out.split())
