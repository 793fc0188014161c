"""`eventsync run --dry-run`: what a run would do, found out without doing any of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from unit.cli.conftest import Desk


def dump(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_a_rehearsal_before_the_first_run_makes_no_state_db_and_tells_what_would_be_sent(desk: Desk) -> None:
    with desk.service():
        said = desk.run("run", "town-hall", "--dry-run", "--json")
    told = said.document["rehearsals"][0]
    assert (said.code, told["outcome"], told["would_send"]) == (0, "rehearsed", 3)
    assert told["read"] == {
        "read": 6,
        "expanded": 0,
        "filtered": 1,
        "duplicate": 0,
        "grouped": 0,
        "rejected": 2,
        "held": 0,
        "unchanged": 0,
        "drifted": 0,
        "new": 3,
        "gone": 0,
        "still_refused": 0,
    }
    assert [row["place"] for row in told["first"]] == ["events.csv:2", "events.csv:6", "events.csv:7"]
    assert told["first"][0]["event"]["title"] == "Jazz"
    assert not desk.state.exists()
    assert not desk.state.parent.exists()


def test_a_rehearsal_after_a_run_leaves_every_row_of_the_state_db_as_it_was(desk: Desk) -> None:
    with desk.service():
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        before = dump(desk.state)
        desk.source(
            ["1,Jazz again,2030-05-01,19:30,,concert", "5,Hamlet,2030-05-03,20:00,,play", "7,Lear,2030-05-05,20:00,,play"]
        )
        said = desk.run("run", "town-hall", "--dry-run", "--json")
        after = dump(desk.state)
    told = said.document["rehearsals"][0]
    assert after == before
    assert (told["read"]["new"], told["read"]["drifted"], told["read"]["unchanged"], told["vanished"]) == (1, 1, 1, 1)
    assert (said.code, told["would_send"], told["first"][0]["row_key"]) == (0, 1, "7")


def test_a_rehearsal_says_exactly_which_keys_the_run_then_sends(desk: Desk) -> None:
    with desk.service():
        rehearsed = desk.run("run", "town-hall", "--dry-run", "--json").document["rehearsals"][0]
        ran = desk.run("run", "town-hall", "--no-dagster", "--json").document["runs"][0]
    with sqlite3.connect(desk.state) as connection:
        sent = dict(connection.execute("SELECT row_key, idempotency_key FROM ledger_entry").fetchall())
    connection.close()
    assert {row["row_key"]: row["idempotency_key"] for row in rehearsed["first"]} == sent
    assert rehearsed["read"] == ran["read"]
    assert ran["publish"]["delivered"] == rehearsed["would_send"] == 3


def test_a_rehearsal_minds_limit_and_keys(desk: Desk) -> None:
    with desk.service():
        limited = desk.run("run", "town-hall", "--dry-run", "--limit", "2", "--json").document["rehearsals"][0]
        picked = desk.run("run", "town-hall", "--dry-run", "--keys", "5,6", "--json").document["rehearsals"][0]
    assert (limited["would_send"], len(limited["first"])) == (2, 2)
    assert [row["row_key"] for row in picked["first"]] == ["5", "6"]


def test_a_rehearsal_of_publishing_only_does_not_read_the_source(desk: Desk) -> None:
    with desk.service():
        desk.run("run", "town-hall", "--no-dagster", "--stage-only")
        (desk.folder / "events.csv").unlink()
        told = desk.run("run", "town-hall", "--dry-run", "--publish-only", "--json").document["rehearsals"][0]
    assert (told["read"], told["would_send"]) == (None, 3)


def test_a_rehearsal_of_a_dead_source_tells_what_a_run_would_end_in(desk: Desk) -> None:
    (desk.folder / "events.csv").unlink()
    with desk.service():
        said = desk.run("run", "town-hall", "--dry-run")
    assert said.code == 2
    assert "there is no file" in said.out
