"""One feed published by several processes: what they share balances, and their deaths lose and double nothing."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from integration.desk import Command, Desk, assert_delivered, line, lines, untidy_runs
from integration.service import Service
from integration.waiting import pause, until
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from state.ledger.lease import FRESH_S, SIDE_BY_SIDE

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("EVENTSYNC_TEST_KILLS", "14"))
ROWS = max(900, 60 * KILLS)
SHARDS = ("--shards", "4")
KILLED, LOST, HELD = -signal.SIGKILL, 1, 4


def at_work(desk: Desk) -> dict[int, int]:
    """The processes that publish a shard, by its number."""
    feeds = desk.command("status", "--json").document["feeds"]
    return {worker["shard"]: worker["pid"] for feed in feeds for worker in feed["workers"] if worker["shard"]}


def killable(run: Command) -> Iterator[int]:
    """The run's process and those that work for it."""
    with suppress(psutil.NoSuchProcess):
        yield run.pid
        yield from (child.pid for child in psutil.Process(run.pid).children(recursive=True))


def test_shards_are_published_by_processes_of_their_own_and_the_run_is_their_sum(any_desk: Desk, service: Service) -> None:
    service.switch(latency_ms=200)
    any_desk.source(lines(ROWS))
    run = any_desk.start_run(*SHARDS)
    until(lambda: len(at_work(any_desk)) == 4, what="four shards at work")
    assert len({*at_work(any_desk).values(), run.pid}) == 5
    held = any_desk.run(code=HELD)
    assert "shard" in held.run["message"]
    service.switch(latency_ms=0)
    said = run.ended(0).run
    assert (said["publish"]["new"], said["publish"]["delivered"]) == (ROWS, ROWS)
    assert all(abs(shard["publish"]["delivered"] - ROWS // 4) < SIDE_BY_SIDE for shard in said["shards"])
    assert_delivered(any_desk, service, ROWS)
    shown = any_desk.command("runs", said["run_id"], code=0)
    assert "by 4 workers" in shown.out
    assert any_desk.run(*SHARDS, code=0).run["shards"] == [], "nothing is owed"


def test_a_feed_with_few_rows_a_limit_or_chosen_keys_is_not_divided(desk: Desk, service: Service) -> None:
    desk.edit("publish:\n", "publish:\n  shards: 8\n")
    desk.run_with(lines(199), code=0)
    desk.source(lines(600))
    assert desk.run("--limit", "300", "--accept", "new", code=0).run["shards"] == []
    assert "shards cannot be combined" in desk.run("--limit", "3", *SHARDS, code=2).words
    assert service.outcomes() == {"created": 499}


def test_a_row_in_two_that_is_refused_stops_no_shard_as_it_stops_no_run_of_one_worker(desk: Desk, service: Service) -> None:
    service.switch(max_title_chars=20)
    desk.source(line(number, title=f"Evening {number}" + " of long titles" * (number % 2)) for number in range(400))
    said = desk.run("--shards", "2", code=1).run
    assert (said["outcome"], said["publish"]["delivered"], said["publish"]["refused"]) == ("needs attention", 200, 200)


def test_processes_that_are_killed_at_random_lose_and_double_nothing(any_desk: Desk, service: Service) -> None:
    dice, kills = random.Random(18), 0
    service.switch(latency_ms=250)
    any_desk.source(lines(ROWS))
    while True:
        run = any_desk.start_run(*SHARDS, "--wait")
        while not run.has_ended and kills < KILLS:
            pause(dice.uniform(0.2, 0.9))
            family = [*killable(run)]
            if len(family) > 1 or dice.random() < 0.1:
                with suppress(ProcessLookupError):
                    os.kill(dice.choice(family), signal.SIGKILL)
                kills += 1
        if kills >= KILLS:
            service.switch(latency_ms=0)
        said = run.ended()
        assert said.code in {0, KILLED, LOST}, said.words
        if said.code == LOST:
            assert "ended early: its rows stay pending" in said.words
        if said.code == 0:
            break
    assert_delivered(any_desk, service, ROWS)
    assert {len(bodies) for bodies in service.bodies().values()} == {1}
    assert service.outcomes()["created"] == len(service.bodies()) == ROWS
    assert set(service.outcomes()) <= {"created", "replayed"}
    assert list(untidy_runs(any_desk)) == []


def test_the_account_of_a_run_says_that_a_worker_is_missing_from_it(desk: Desk, service: Service) -> None:
    service.switch(latency_ms=300)
    desk.source(lines(ROWS))
    run = desk.start_run(*SHARDS)
    until(lambda: len(at_work(desk)) == 4 and len(service.requests()) > 20)
    os.kill(at_work(desk)[2], signal.SIGKILL)
    service.switch(latency_ms=0)
    said = run.ended(LOST).run
    assert "by 3 of 4 workers" in desk.command("runs", said["run_id"], code=0).out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_command_stops_all_shards_in_good_order(desk: Desk, service: Service, number: signal.Signals) -> None:
    service.switch(latency_ms=300)
    desk.source(lines(ROWS))
    run = desk.start_run(*SHARDS)
    until(lambda: len(at_work(desk)) == 4 and len(service.requests()) > 20)
    run.signal(number)
    said = run.ended(130).run
    assert [shard["outcome"] for shard in said["shards"]] == ["interrupted"] * 4
    assert said["publish"]["delivered"] == len(service.events())
    service.switch(latency_ms=0)
    desk.run(*SHARDS, code=0)
    assert service.outcomes() == {"created": ROWS}


def test_shards_that_cannot_begin_say_why(desk_on_postgres: Desk, service: Service) -> None:
    desk, impatient = desk_on_postgres, "options=-c%20lock_timeout%3D300ms"
    desk.run_with(lines(400), *SHARDS, code=0)
    desk.source(lines(800))
    with desk.books.engine.begin() as connection:
        connection.execute(text("SELECT token FROM lease WHERE shard > 0 FOR UPDATE"))
        busy = desk.run(*SHARDS, "--accept", "new", code=6, EVENTSYNC_STATE_URL=f"{desk.books.url}&{impatient}").run
    # Shards that waited for the same row are named together.
    assert re.search(r"shards? 1\b[0-9, ]* of 4: the state DB", busy["message"])
    assert [shard["outcome"] for shard in busy["shards"]] == ["paused"] * 4
    desk.run(*SHARDS, code=0)
    assert_delivered(desk, service, 800)


def test_a_killed_shard_that_its_database_server_still_serves_is_no_other_run(desk_on_postgres: Desk, service: Service) -> None:
    desk = desk_on_postgres
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
    service.switch(latency_ms=300)
    desk.source(lines(ROWS))
    run = desk.start_run(*SHARDS)
    until(lambda: len(at_work(desk)) == 4)
    with desk.books.engine.begin() as connection, desk.books.engine.connect() as beside:
        # One of shard 2: several could wait for each other, as the worker takes them in an order of its own.
        connection.execute(text("SELECT id FROM ledger_entry WHERE id / 10 % 4 = 1 ORDER BY id DESC LIMIT 1 FOR UPDATE"))
        until(lambda: beside.execute(waiting).scalar_one())
        os.kill(at_work(desk)[2], signal.SIGKILL)
        service.switch(latency_ms=0)
        assert "a worker of the run has died" in run.ended(LOST).run["message"]
    desk.run(*SHARDS, code=0)
    assert_delivered(desk, service, ROWS)
    assert list(untidy_runs(desk)) == []


@pytest.mark.slow(about_s=30)
def test_a_shard_that_was_stopped_for_longer_than_its_lease_sends_nothing_more(desk_on_postgres: Desk, service: Service) -> None:
    desk = desk_on_postgres
    service.switch(latency_ms=500)
    desk.source(lines(ROWS))
    first = desk.start_run(*SHARDS)
    until(lambda: len(at_work(desk)) == 4 and len(service.requests()) > 20)
    stopped = psutil.Process(at_work(desk)[3])
    until(lambda: is_stopped_between_transactions(stopped, desk))
    service.switch(latency_ms=0)
    desk.run("--wait", code=0)
    before = service.last_number()
    pause(FRESH_S)  # the process's own clock, which nothing else makes go on
    stopped.resume()
    said = first.ended(LOST)
    assert "shard 3 of 4: ended early" in said.run["message"]
    assert "taken this feed over" in said.err
    assert service.last_number() == before, "not even what it had claimed"
    assert_delivered(desk, service, ROWS)
    assert list(untidy_runs(desk)) == []


def is_stopped_between_transactions(process: psutil.Process, desk: Desk) -> bool:
    """Stop a worker and let its lease expire, as far as the state DB knows; one that is at work there goes on."""
    process.suspend()
    until(lambda: process.status() == psutil.STATUS_STOPPED)
    times = ", ".join(f"{name} = {name} - interval '1 hour'" for name in ("heartbeat_at", "expires_at"))
    try:
        with desk.books.engine.begin() as connection:
            connection.execute(text("SET LOCAL lock_timeout = '200ms'"))
            connection.execute(text(f"UPDATE lease SET {times} WHERE pid = {process.pid}"))
    except OperationalError:  # the worker holds the lock
        process.resume()
        return False
    return True
