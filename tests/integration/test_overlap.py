"""Two runs of one feed: the second says who is at work and since when, or waits for it, and no row is sent twice."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest
from integration.desk import FEED, Command, Desk, Said, lines
from integration.service import Service
from integration.waiting import until

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
            read[name] for name in ("filtered", "duplicate", "rejected", "held", "unchanged", "drifted", "new")
        )
    if publish:
        ends = ("delivered", "delivered_unconfirmed", "refused", "blocked", "uncertain", "conflict", "pending")
        assert publish["new"] + publish["carried_over"] == sum(publish[name] for name in ends)


def test_different_feeds_run_beside_each_other_on_one_state_db(any_desk: Desk, service: Service) -> None:
    names = [f"feed-{number}" for number in range(4)]
    for name in names:
        any_desk.mapping(name=f"{name}.yaml", feed=name)
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
    service.switch(latency_ms=150)
    desk.source(lines(200))
    first = desk.start_run()
    until(lambda: len(service.requests()) > 30)
    until(lambda: _is_stopped_between_transactions(first, desk))
    second = desk.run()
    assert second.code == 0, second.words
    before = service.last_number()
    first.signal(signal.SIGCONT)
    said = first.ended()

    assert said.code == 4, said.words
    assert "taken this feed over" in said.run["message"]
    # It was stopped for seconds only, so that what it had claimed may still leave; a stop of a lease's length is `holding`'s.
    assert service.last_number() - before <= 16
    assert len(service.events()) == 200
    again = Counter(request["idempotency_key"] for request in service.requests())
    assert sum(count - 1 for count in again.values()) <= 2 * 16, "only what was claimed was asked for once more"


def _is_stopped_between_transactions(run: Command, desk: Desk) -> bool:
    """Stop a run and let more time go by than a lease lives, as far as the state DB knows; one that has it locked goes on."""
    run.signal(signal.SIGSTOP)
    with closing(sqlite3.connect(desk.folder / "state.db", timeout=0.2)) as database:
        try:
            database.execute("UPDATE lease SET beat_s = beat_s - 3600")
            database.commit()
        except sqlite3.OperationalError:
            run.signal(signal.SIGCONT)
            return False
    return True
