"""Notes about a service, and a run's notices: on SQLite and on PostgreSQL, by several writers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier

from sqlalchemy import Engine

from mappings.row_key import FeedName
from state.ledger.ledger import Ledger
from state.notes import ServiceNotes, add_notices
from state.queries import LedgerQueries

HERE, ELSEWHERE, FEED = "https://events.example#default", "https://rehearsal.example#default", FeedName("agenda")


def now() -> datetime:
    return datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_a_note_is_read_as_it_was_last_written_and_only_at_its_destination(engine: Engine) -> None:
    notes = ServiceNotes(engine, HERE, now)
    assert notes.read("contract") is None
    notes.write("contract", "first")
    notes.write("contract", "łast")
    assert notes.read("contract") == "łast"
    assert notes.read("classifications") is None
    assert ServiceNotes(engine, ELSEWHERE, now).read("contract") is None


def test_of_several_writers_at_once_one_stands_and_none_fails(engine: Engine) -> None:
    notes, together = ServiceNotes(engine, HERE, now), Barrier(4)

    def write(writer: int) -> None:
        for number in range(6):
            together.wait(30)
            notes.write(f"note {number}", str(writer))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert {notes.read(f"note {number}") for number in range(6)} <= {"0", "1", "2", "3"}


def test_a_runs_notices_are_kept_in_order_and_each_once(engine: Engine) -> None:
    ledger = Ledger(engine, HERE, FEED, namespace="tests", now=now)
    ledger.begin_run("run-1", launched_by="a test")
    add_notices(engine, HERE, FEED, "run-1", ["the list changed"])
    ledger.begin_run("run-1", launched_by="a test")
    add_notices(engine, HERE, FEED, "run-1", ["the page changed", "the list changed"])
    run = LedgerQueries(engine).run(HERE, FEED, "run-1")
    assert run is not None
    assert run.notices == ("the list changed", "the page changed")


def test_notices_of_a_run_that_is_not_in_the_books_are_left_out(engine: Engine) -> None:
    add_notices(engine, HERE, FEED, "run-1", ["the list changed"])
    assert LedgerQueries(engine).runs() == ()
