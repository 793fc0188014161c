"""`eventsync run --dry-run`: what a run would do, found out without doing any of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from unit.cli.conftest import FEED, Desk


def rehearsed(desk: Desk, *words: str, code: int = 0) -> Any:
    (one,) = desk.run("run", FEED, "--dry-run", *words, "--json", code=code).document["rehearsals"]
    return one


def dump(desk: Desk) -> list[str]:
    with closing(sqlite3.connect(desk.state)) as connection:
        return list(connection.iterdump())


def test_a_rehearsal_makes_no_state_db_and_says_exactly_which_keys_the_run_then_sends(desk: Desk) -> None:
    with desk.service():
        told = rehearsed(desk)
        assert not desk.state.parent.exists()
        ran = desk.sync(code=0)
    counts = {name: count for name, count in told["read"].items() if count}
    assert (told["outcome"], counts) == ("rehearsed", {"read": 6, "filtered": 1, "rejected": 2, "new": 3})
    assert [row["place"] for row in told["first"]] == ["events.csv:2", "events.csv:6", "events.csv:7"]
    assert told["first"][0]["event"]["title"] == "Jazz"
    with closing(sqlite3.connect(desk.state)) as connection:
        sent = dict(connection.execute("SELECT row_key, idempotency_key FROM ledger_entry").fetchall())
    assert {row["row_key"]: row["idempotency_key"] for row in told["first"]} == sent
    assert (told["read"], told["would_send"]) == (ran["read"], ran["publish"]["delivered"])


def test_a_rehearsal_after_a_run_leaves_every_row_of_the_state_db_as_it_was(desk: Desk) -> None:
    with desk.service():
        desk.sync(code=0)
        before = dump(desk)
        desk.source(
            ["1,Jazz again,2030-05-01,19:30,,concert", "5,Hamlet,2030-05-03,20:00,,play", "7,Lear,2030-05-05,20:00,,play"]
        )
        told = rehearsed(desk)
        assert dump(desk) == before
    assert (told["read"]["new"], told["read"]["drifted"], told["read"]["unchanged"], told["vanished"]) == (1, 1, 1, 1)
    assert (told["would_send"], told["first"][0]["row_key"]) == (1, "7")


def test_a_rehearsal_minds_limit_and_keys_and_what_is_not_read(desk: Desk) -> None:
    with desk.service():
        limited = rehearsed(desk, "--limit", "2")
        assert (limited["would_send"], len(limited["first"])) == (2, 2)
        assert [row["row_key"] for row in rehearsed(desk, "--keys", "5,6")["first"]] == ["5", "6"]
        desk.sync("--stage-only")
        (desk.folder / "events.csv").unlink()
        told = rehearsed(desk, "--publish-only")
        assert (told["read"], told["would_send"]) == (None, 3)
        desk.run("run", FEED, "--dry-run").assert_told(2, "there is no file")
