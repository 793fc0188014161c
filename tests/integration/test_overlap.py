"""Two runs of one feed: the second says who is at work and since when, or waits for it, and no row is sent twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from integration.desk import FEED, Command, Desk, Said, evenings, lines
from integration.service import Service
from integration.waiting import pause, until
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from pipelines.run.context import FRESH_S
from state.ledger.accounts import PublishAccount, ReadAccount

pytestmark = pytest.mark.slow


@pytest.fixture
def slow(service: Service) -> Service:
    """It takes its time with each row until a test has seen what it wanted to see, however busy this machine is."""
    service.switch(latency_ms=2_000)
    return service


def test_a_second_run_leaves_and_says_who_holds_the_feed(desk: Desk, slow: Service) -> None:
    desk.source(lines(100))
    first = desk.start_run()
    until(slow.requests)
    second = desk.run(code=4)
    status = desk.command("status", "--json").document["feeds"][0]
    slow.switch(latency_ms=0)
    run_id = first.ended(0).run["run_id"]
    assert f"held by run {run_id}" in second.run["message"]
    assert f"process {first.pid} on " in second.run["message"]
    assert "since 20" in second.run["message"]
    assert "--wait" in second.run["hint"]
    assert run_id in status["lease"]["name"]
    assert slow.titles() == evenings(100)


def test_a_patient_run_says_for_whom_it_waits_and_finds_all_done(desk: Desk, slow: Service) -> None:
    desk.source(lines(100))
    first = desk.start_run()
    until(slow.requests)
    second = desk.start_run("--wait")
    until(lambda: "waiting" in second.text(".err"), what="the word that it waits")
    slow.switch(latency_ms=0)
    run_id = first.ended(0).run["run_id"]
    said = second.ended(0)
    assert f"waiting, the feed is held by run {run_id}" in said.words
    assert said.run["read"]["unchanged"] == len(slow.requests()) == 100


ROUNDS = int(os.environ.get("EVENTSYNC_TEST_ROUNDS", "3"))
"""How often runs are started at the same moment; more than the suite's number makes a long rehearsal of it."""
WAYS: tuple[tuple[str, ...], ...] = (
    ("run", FEED, "--no-dagster", "--json"),
    ("run", FEED, "--no-dagster", "--json", "--wait"),
    ("run", FEED, "--no-dagster", "--json", "--publish-only"),
    ("run", "--all", "--no-dagster", "--json"),
    ("run", FEED, "--no-dagster", "--json", "--dry-run"),
)


def test_of_runs_that_start_at_the_same_moment_one_publishes_and_no_row_goes_out_twice(any_desk: Desk, service: Service) -> None:
    service.switch(latency_ms=20)
    any_desk.source(lines(5))
    any_desk.run(code=0)
    for number in range(ROUNDS):
        rows = 5 + (number + 1) * 40
        any_desk.source(lines(rows))
        started = [any_desk.start(*way) for way in WAYS]
        for way, command in zip(WAYS, started, strict=True):
            _assert_well_ended(way, command.ended())
        assert service.titles() == evenings(rows)
    assert service.outcomes() == {"created": 5 + ROUNDS * 40}
    _assert_every_run_is_closed_and_balances(any_desk)


@pytest.mark.slow(about_s=10)
def test_a_scheduled_run_among_commands_that_start_at_the_same_moment(desk_on_postgres: Desk, service: Service) -> None:
    desk = desk_on_postgres
    desk.edit("key: [ID]", 'schedule: {cron: "15 */2 * * *", timezone: Europe/Warsaw}\nkey: [ID]')
    service.switch(latency_ms=20)
    desk.source(lines(5))
    with _clock(desk) as clock:
        assert clock()["is_success"], "beside nobody the schedule delivers"
        desk.source(lines(120))
        ways = (*WAYS[:3], ("run", FEED, "--json"))
        started = [desk.start(*way) for way in ways]
        ticked = clock()
        for way, command in zip(ways, started, strict=True):
            _assert_well_ended(way, command.ended())
    assert ticked["skipped"] or ticked["run_id"]
    assert service.titles() == evenings(120)
    assert service.outcomes() == {"created": 120}
    assert "schedule" in {run["launched_by"] for run in desk.command("runs", "--json").document["runs"]}
    _assert_every_run_is_closed_and_balances(desk)


@contextmanager
def _clock(desk: Desk) -> Iterator[Callable[[], Any]]:
    """A process whose Dagster lets the feed's schedule tick, and carries the run out, whenever it is called."""
    command, pipe = [sys.executable, Path(__file__).with_name("clockwork.py"), FEED], subprocess.PIPE
    with subprocess.Popen(command, cwd=desk.folder, env=desk.env, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said, heard = process.stdout, process.stdin
        assert json.loads(said.readline()) == "ready"

        def tick() -> Any:
            heard.write("tick\n")
            heard.flush()
            return json.loads(said.readline())

        yield tick
        process.terminate()


def _assert_well_ended(way: tuple[str, ...], said: Said) -> None:
    assert said.code in ({0} if {"--dry-run", "--wait"} & {*way} else {0, 4}), said.words
    if said.code == 4:
        assert "held by run " in said.run["message"]
        assert "since 20" in said.run["message"]


def _assert_every_run_is_closed_and_balances(desk: Desk) -> None:
    for run in desk.command("runs", "--json").document["runs"]:
        assert run["finished_at"], "no page stays open"
        for account, told in ((ReadAccount, run["read"]), (PublishAccount, run["publish"])):
            assert not told or account(**told).imbalance() == 0


def test_different_feeds_run_beside_each_other_on_one_state_db(any_desk: Desk, service: Service) -> None:
    names = [f"feed-{number}" for number in range(4)]
    for name in names:
        any_desk.mapping(name=f"{name}.yaml", feed=name, title=f'{{join: [{{from: TITLE}}, " in {name}"]}}')
    any_desk.source(lines(150))
    started = [any_desk.start("run", name, "--no-dagster", "--json") for name in names]
    for command in started:
        said = command.ended(0)
        assert "locked" not in said.err
    assert len(service.events()) == 150 * len(names)


@pytest.mark.slow(about_s=20)
def test_a_run_that_was_stopped_for_long_sends_nothing_more(desk_on_postgres: Desk, service: Service) -> None:
    first, before = _overtaken(desk_on_postgres, service)
    pause(FRESH_S)  # the process's own clock, which nothing else makes go on
    first.signal(signal.SIGCONT)
    said = first.ended(4)
    assert "taken this feed over" in said.run["message"]
    assert service.last_number() == before, "not even what it had claimed"
    assert said.run["publish"] is None, "its account would be another run's"
    _assert_once_but_for_what_was_claimed(service)


def _overtaken(desk: Desk, service: Service) -> tuple[Command, int]:
    """A run that is stopped while it sends, and whose feed another one has taken over and brought to its end; the number
    of the last request.
    """
    service.switch(latency_ms=300)
    desk.source(lines(300))
    first = desk.start_run()
    until(lambda: len(service.requests()) > 30)
    until(lambda: _is_stopped_between_transactions(first, desk))
    service.switch(latency_ms=0)
    desk.run(code=0)
    return first, service.last_number()


def _assert_once_but_for_what_was_claimed(service: Service) -> None:
    assert len(service.events()) == 300
    again = Counter(request["idempotency_key"] for request in service.requests())
    assert sum(count - 1 for count in again.values()) <= 2 * 16, "only what was claimed was asked for once more"


def _is_stopped_between_transactions(run: Command, desk: Desk) -> bool:
    """Stop a run and let more time go by than a lease lives, as far as the state DB knows; one that is at work there goes on."""
    run.signal(signal.SIGSTOP)
    until(lambda: psutil.Process(run.pid).status() == psutil.STATUS_STOPPED)
    try:
        _let_the_lease_expire(desk)
    except OperationalError:
        run.signal(signal.SIGCONT)
        return False
    return True


def _let_the_lease_expire(desk: Desk) -> None:
    """Raises what the driver says where the run holds the lock."""
    with desk.books.engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = '200ms'"))
        times = ", ".join(f"{name} = {name} - interval '1 hour'" for name in ("heartbeat_at", "expires_at"))
        connection.execute(text(f"UPDATE lease SET {times}"))
