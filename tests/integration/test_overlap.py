"""Two runs of one feed: the second says who is at work and since when, or waits for it, and no row is sent twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from integration.desk import FEED, Command, Desk, Said, lines
from integration.service import Service
from integration.waiting import pause, until
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from pipelines.run.context import FRESH_S

pytestmark = pytest.mark.slow


def test_a_second_run_leaves_and_says_who_holds_the_feed(desk: Desk, service: Service) -> None:
    service.switch(latency_ms=100)
    desk.source(lines(200))
    first = desk.start_run()
    until(service.requests)
    second = desk.run()
    status = desk.command("status", "--json").document["feeds"][0]
    said = first.ended()

    assert second.code == 4, second.words
    assert said.run["run_id"] in second.run["message"], "the holder is named"
    assert f"process {first.pid} on " in second.run["message"]
    assert "since 20" in second.run["message"]
    assert "--wait" in second.run["hint"]
    assert said.run["run_id"] in status["lease"]["name"]
    assert said.code == 0, said.words
    assert len(service.events()) == 200


def test_a_patient_run_waits_for_the_first_and_finds_all_done(desk: Desk, service: Service) -> None:
    service.switch(latency_ms=50)
    desk.source(lines(200))
    first = desk.start_run()
    until(service.requests)
    second = desk.start_run("--wait")
    assert first.ended().code == 0
    said = second.ended()

    assert said.code == 0, said.words
    assert said.run["read"]["unchanged"] == 200
    assert len(service.requests()) == 200


def test_a_killed_runs_lease_does_not_keep_the_next_one_out(desk: Desk, service: Service) -> None:
    service.switch(latency_ms=50)
    desk.source(lines(100))
    first = desk.start_run()
    until(service.requests)
    first.kill()
    said = desk.run()

    assert said.code == 0, said.words
    assert len(service.events()) == 100


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
    assert any_desk.run().code == 0
    for number in range(ROUNDS):
        rows = 5 + (number + 1) * 40
        any_desk.source(lines(rows))
        started = [any_desk.start(*way) for way in WAYS]
        for way, command in zip(WAYS, started, strict=True):
            _assert_well_ended(way, command.ended())
        assert service.titles() == sorted(f"Evening {each}" for each in range(rows))
    assert Counter(request["outcome"] for request in service.requests()) == {"created": 5 + ROUNDS * 40}
    for run in any_desk.command("runs", "--json").document["runs"]:
        assert run["finished_at"], "no page stays open"
        _assert_balanced(run)


@pytest.mark.slow(about_s=10)
def test_a_scheduled_run_among_commands_that_start_at_the_same_moment(desk_on_postgres: Desk, service: Service) -> None:
    desk = desk_on_postgres
    _put_on_schedule(desk)
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
    assert service.titles() == sorted(f"Evening {number}" for number in range(120))
    assert Counter(request["outcome"] for request in service.requests()) == {"created": 120}
    runs = desk.command("runs", "--json").document["runs"]
    assert "schedule" in {run["launched_by"] for run in runs}
    for run in runs:
        assert run["finished_at"], "no page stays open"
        _assert_balanced(run)


def _put_on_schedule(desk: Desk) -> None:
    mapping = desk.folder / "feeds" / "town.yaml"
    schedule = 'schedule: {cron: "15 */2 * * *", timezone: Europe/Warsaw}\n'
    mapping.write_text(mapping.read_text("utf-8").replace("key: [ID]\n", f"{schedule}key: [ID]\n"), "utf-8")


@contextmanager
def _clock(desk: Desk) -> Iterator[Callable[[], Any]]:
    """A process whose Dagster lets the feed's schedule tick, and carries the run out, whenever it is called."""
    script, pipe = Path(__file__).with_name("clockwork.py"), subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, script, FEED], cwd=desk.folder, env=desk.env, stdin=pipe, stdout=pipe, text=True
    ) as process:
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
    assert said.code in {0, 4}, said.words
    if "--dry-run" in way:
        assert said.code == 0, said.words
        return
    if "--wait" in way:
        assert said.code == 0, said.words
    _assert_balanced(said.run)
    if said.code == 4:
        assert "held by run " in said.run["message"]
        assert "since 20" in said.run["message"]


def _assert_balanced(run: Mapping[str, Any]) -> None:
    read, publish = run["read"], run["publish"]
    if read:
        assert read["read"] == sum(
            read[name] for name in ("filtered", "duplicate", "rejected", "held", "unchanged", "drifted", "new", "gone")
        )
    if publish:
        ends = ("delivered", "delivered_unconfirmed", "refused", "blocked", "uncertain", "conflict", "pending")
        assert publish["new"] + publish["carried_over"] == sum(publish[name] for name in ends)


def test_different_feeds_run_beside_each_other_on_one_state_db(any_desk: Desk, service: Service) -> None:
    names = [f"feed-{number}" for number in range(4)]
    for name in names:
        any_desk.mapping(name=f"{name}.yaml", feed=name, title=f'{{join: [{{from: TITLE}}, " in {name}"]}}')
    any_desk.source(lines(150))
    started = [any_desk.start("run", name, "--no-dagster", "--json") for name in names]
    for command in started:
        said = command.ended()
        assert said.code == 0, said.words
        assert "locked" not in said.err
    assert len(service.events()) == 150 * len(names)


def test_a_patient_run_says_for_whom_it_waits(desk: Desk, service: Service) -> None:
    service.switch(latency_ms=100)
    desk.source(lines(60))
    first = desk.start_run()
    until(service.requests)
    said = desk.run("--wait")

    assert said.code == 0, said.words
    assert f"waiting, the feed is held by run {first.ended().run['run_id']}" in " ".join(said.err.split())


def test_a_stopped_run_that_wakes_after_another_took_over_claims_nothing_more(desk: Desk, service: Service) -> None:
    first, before = _overtaken(desk, service)
    first.signal(signal.SIGCONT)
    said = first.ended()

    assert said.code == 4, said.words
    assert "taken this feed over" in said.run["message"]
    # It was stopped for seconds only, so that what it had claimed may still leave.
    assert service.last_number() - before <= 16
    _assert_once_but_for_what_was_claimed(service)


@pytest.mark.slow(about_s=20)
def test_a_run_that_was_stopped_for_long_sends_nothing_more(desk_on_postgres: Desk, service: Service) -> None:
    first, before = _overtaken(desk_on_postgres, service)
    pause(FRESH_S)  # the process's own clock, which nothing else makes go on
    first.signal(signal.SIGCONT)
    said = first.ended()

    assert said.code == 4, said.words
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
    second = desk.run()
    assert second.code == 0, second.words
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
    except (sqlite3.OperationalError, OperationalError):
        run.signal(signal.SIGCONT)
        return False
    return True


def _let_the_lease_expire(desk: Desk) -> None:
    """Raises what the driver says where the run holds the lock."""
    if desk.books.url.startswith("sqlite"):
        with closing(sqlite3.connect(desk.folder / "state.db", timeout=0.2)) as database:
            long_ago = [f"2000-01-01T00:0{minute}:00.000000+00:00" for minute in (0, 1)]
            database.execute("UPDATE lease SET heartbeat_at = ?, expires_at = ?", long_ago)
            database.commit()
        return
    with desk.books.engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = '200ms'"))
        times = ", ".join(f"{name} = {name} - interval '1 hour'" for name in ("heartbeat_at", "expires_at"))
        connection.execute(text(f"UPDATE lease SET {times}"))
