"""Runs that overlap or are killed: one is at work, the next waits or goes on, and every row becomes one event under one key."""

from __future__ import annotations

import re
import signal

import psutil
import pytest
from integration.desk import FEED, Command, Desk, assert_delivered, evenings, lines, mid_way, untidy_runs
from integration.service import Service
from integration.waiting import pause, until
from ledger_tables import let_leases_run_out
from sqlalchemy.exc import OperationalError

from state.ledger.lease import FRESH_S

pytestmark = pytest.mark.slow
WAYS: tuple[tuple[str, ...], ...] = (
    ("run", FEED, "--no-dagster", "--json"),
    ("run", FEED, "--no-dagster", "--json", "--wait"),
    ("run", FEED, "--no-dagster", "--json", "--publish-only"),
    ("run", FEED, "--json"),
    ("run", "--all", "--no-dagster", "--json"),
    ("run", FEED, "--no-dagster", "--json", "--dry-run"),
)


def test_a_second_run_leaves_and_says_who_holds_the_feed_or_waits_for_it_and_finds_all_done(desk: Desk, service: Service) -> None:
    first = mid_way(desk, service, 100, after=0, latency_ms=2_000)
    second, patient = desk.run(code=4), desk.start_run("--wait")
    until(lambda: "waiting" in patient.text(".err"), what="the word that it waits")
    status = desk.command("status", "--json").document["feeds"][0]
    service.switch(latency_ms=0)
    run_id = first.ended(0).run["run_id"]
    assert run_id in status["lease"]["name"]
    said = (f"held by run {run_id}", f"process {first.pid} on ", "since 20")
    assert [words for words in said if words not in second.run["message"]] == []
    assert "--wait" in second.run["hint"]
    waited = patient.ended(0)
    assert f"waiting, the feed is held by run {run_id}" in waited.words
    assert waited.run["read"]["unchanged"] == len(service.requests()) == 100
    assert service.titles() == evenings(100)


def test_of_runs_that_start_at_the_same_moment_one_publishes_and_no_row_goes_out_twice(any_desk: Desk, service: Service) -> None:
    service.switch(latency_ms=20)
    any_desk.run_with(lines(5), code=0)
    for rows in (45, 85, 125):
        any_desk.source(lines(rows))
        started = [any_desk.start(*way) for way in WAYS]
        for way, command in zip(WAYS, started, strict=True):
            said = command.ended()
            assert said.code in ({0} if {"--dry-run", "--wait"} & {*way} else {0, 4}), said.words
            assert said.code == 0 or re.search(r"held by run .* since 20", said.run["message"]), said.words
        assert service.titles() == evenings(rows)
    assert service.outcomes() == {"created": 125}
    assert list(untidy_runs(any_desk)) == []


def test_runs_that_come_to_an_empty_state_db_at_once_make_one_ledger(any_desk: Desk, service: Service) -> None:
    any_desk.source(lines(150))
    for run in [any_desk.start_run("--wait") for _ in range(3)]:
        run.ended(0)
    assert service.outcomes() == {"created": 150}
    assert_delivered(any_desk, service, 150)


AT_FIRST = 4
"""So many requests are in flight before the first answer."""


@pytest.mark.slow(about_s=20)
def test_a_run_that_was_stopped_for_long_sends_nothing_more(desk_on_postgres: Desk, service: Service) -> None:
    desk = desk_on_postgres
    # All that it may send is at the service, and no answer comes: it is never stopped in the middle of writing a request.
    service.switch(answer_delay_ms=int(FRESH_S * 1000))
    desk.mapping(in_flight=AT_FIRST)
    desk.source(lines(300))
    first = desk.start_run()
    until(lambda: first.has_ended or len(service.requests()) == AT_FIRST)
    until(lambda: _is_stopped_between_transactions(first, desk))
    service.switch(answer_delay_ms=0)
    desk.run(code=0)
    before = service.last_number()
    pause(FRESH_S)  # the process's own clock, which nothing else makes go on
    first.signal(signal.SIGCONT)
    said = first.ended(4)
    assert "taken this feed over" in said.run["message"]
    assert service.last_number() == before, "not even what it had claimed"
    assert said.run["publish"] is None, "its account would be another run's"
    assert len(service.events()) == 300
    assert service.outcomes() == {"created": 300, "replayed": AT_FIRST}, "only what was claimed was asked for once more"


def _is_stopped_between_transactions(run: Command, desk: Desk) -> bool:
    """Stop a run and let more time go by than a lease lives, as far as the state DB knows; one that is at work there goes on."""
    run.signal(signal.SIGSTOP)
    until(lambda: psutil.Process(run.pid).status() == psutil.STATUS_STOPPED)
    try:
        let_leases_run_out(desk.books.engine)
    except OperationalError:  # the run holds the lock
        run.signal(signal.SIGCONT)
        return False
    return True


ROWS = 2_300  # staged in more chunks than one
IN_FLIGHT = 16


def test_a_service_that_ignores_keys_sees_no_more_twice_than_were_in_flight(any_desk: Desk, service: Service) -> None:
    service.switch(idempotency="ignore")
    assert mid_way(any_desk, service, 300, after=100, latency_ms=100).kill().code == -signal.SIGKILL
    service.switch(latency_ms=0)
    any_desk.run(code=0)
    assert {*service.titles()} == {*evenings(300)}
    assert len(service.events()) <= 300 + IN_FLIGHT


def test_a_mapping_that_was_edited_after_a_crash_changes_only_what_was_never_sent(desk: Desk, service: Service) -> None:
    assert mid_way(desk, service, ROWS, after=ROWS // 3, latency_ms=10).kill().code == -signal.SIGKILL
    sent = service.bodies()
    service.switch(latency_ms=0)

    desk.mapping(title="{join: [Festival, {from: TITLE, do: [collapse]}], with: ': '}")
    assert desk.run(code=5).run["brakes"] == ["changed"]
    desk.run("--accept", "changed", code=0)

    assert not [request for request in service.requests() if request["status"] == 409]
    assert {len(bodies) for bodies in service.bodies().values()} == {1}
    events = service.events()
    assert len(events) == ROWS
    first = [event["title"] for event in events if event["idempotencyKey"] in sent]
    later = [event["title"] for event in events if event["idempotencyKey"] not in sent]
    assert all(title.startswith("Evening ") for title in first)
    assert 0 < len(later) <= ROWS - len(sent)
    # A row whose claim was written down before the kill, while its request had not left yet, counts as sent.
    kept = [title for title in later if title.startswith("Evening ")]
    assert len(kept) <= IN_FLIGHT
    assert len({title.removeprefix("Festival: ") for title in first + later}) == ROWS


def test_an_empty_state_db_leads_to_the_same_keys_and_no_event_twice(any_desk: Desk, service: Service) -> None:
    any_desk.run_with(lines(ROWS), code=0)
    first = service.bodies().keys()
    any_desk.forget()
    assert any_desk.run(code=0).run["publish"]["delivered"] == ROWS
    assert len(service.events()) == ROWS
    assert service.bodies().keys() == first
    assert service.outcomes() == {"created": ROWS, "replayed": ROWS}
