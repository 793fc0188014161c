"""Whatever kills a run, the next one goes on: every row becomes one event, under one key, with one body."""

from __future__ import annotations

import os
import random
import signal
from time import monotonic

import pytest
from integration.desk import FEED, Desk, evenings, line, lines
from integration.service import Service
from integration.waiting import pause, until

ROWS = 2_300  # staged in more chunks than one
IN_FLIGHT = 16
KILLS = int(os.environ.get("EVENTSYNC_TEST_KILLS", "3"))
"""How often the run is killed; more than the suite's number makes a long rehearsal of it."""
SEED = int(os.environ.get("EVENTSYNC_TEST_SEED", random.randrange(1_000_000)))

pytestmark = pytest.mark.slow


def _strike(desk: Desk, service: Service, dice: random.Random, staging_s: float, most_sent: int) -> bool:
    """Start a run and kill it, while it starts and stages or after it has sent some; tell whether the blow met it."""
    before = service.last_number()
    run = desk.start_run()
    if dice.random() < 0.4:
        pause(dice.uniform(0, staging_s))
    else:
        mark = before + dice.randint(1, most_sent)
        until(lambda: run.has_ended or service.has_request_after(mark), what="some requests")
        pause(dice.uniform(0, 0.01))
    return run.kill().code == -signal.SIGKILL


def _staging_time_s(desk: Desk, service: Service) -> float:
    """How long a run works before it sends its first event, measured on an undisturbed one."""
    began = monotonic()
    run = desk.start_run()
    until(lambda: run.has_ended or service.requests())
    staging_s = monotonic() - began
    run.ended(0)
    service.change("/reset")
    desk.forget()
    return staging_s


def _assert_every_row_once(service: Service, rows: int) -> None:
    assert service.titles() == evenings(rows)
    assert [len(bodies) for bodies in service.bodies().values()] == [1] * rows, "a key was sent with two bodies"
    assert not [request for request in service.requests() if request["status"] == 409]
    assert len({event["idempotencyKey"] for event in service.events()}) == rows


@pytest.mark.slow(about_s=12)
def test_rows_are_delivered_once_however_often_the_run_is_killed(desk: Desk, service: Service) -> None:
    print(f"EVENTSYNC_TEST_SEED={SEED} EVENTSYNC_TEST_KILLS={KILLS}")
    dice = random.Random(SEED)
    desk.source(lines(ROWS))
    service.switch(latency_ms=10)
    staging_s = _staging_time_s(desk, service)

    hits = 0
    for _ in range(KILLS):
        hits += _strike(desk, service, dice, staging_s, most_sent=max(ROWS // KILLS, 20))
    print(f"{hits} of {KILLS} blows met a run at work, {len(service.requests())} requests so far")
    desk.run(code=0)

    assert hits > KILLS // 3
    _assert_every_row_once(service, ROWS)
    assert set(desk.states().values()) == {"delivered"}
    again = sum(request["outcome"] == "replayed" for request in service.requests())
    assert again <= hits * IN_FLIGHT, "a kill leaves at most as many unanswered rows as requests were in flight"


def test_a_service_that_ignores_keys_sees_no_more_twice_than_were_in_flight(any_desk: Desk, service: Service) -> None:
    any_desk.source(lines(300))
    service.switch(idempotency="ignore", latency_ms=20)
    run = any_desk.start_run()
    until(lambda: len(service.requests()) > 100)
    assert run.kill().code == -signal.SIGKILL
    any_desk.run(code=0)

    assert {*service.titles()} == {*evenings(300)}
    assert len(service.events()) <= 300 + IN_FLIGHT


@pytest.mark.slow(about_s=12)
def test_the_installed_command_survives_the_same(desk: Desk, service: Service) -> None:
    desk.source(lines(200))
    service.switch(latency_ms=20)
    run = desk.installed("run", FEED, "--no-dagster", "--json")
    until(lambda: len(service.requests()) > 40)
    run.kill()
    run.communicate()
    stopped = desk.installed("run", FEED, "--no-dagster", "--json")
    until(lambda: len(service.events()) > 120)
    stopped.send_signal(signal.SIGTERM)
    stopped.communicate()
    assert stopped.returncode == 130
    done = desk.installed("run", FEED, "--no-dagster", "--json")
    out, err = done.communicate()

    assert done.returncode == 0, out + err
    _assert_every_row_once(service, 200)


def test_a_mapping_that_was_edited_after_a_crash_changes_only_what_was_never_sent(desk: Desk, service: Service) -> None:
    desk.source(lines(ROWS))
    service.switch(latency_ms=10)
    run = desk.start_run()
    until(lambda: len(service.requests()) > ROWS // 3)
    assert run.kill().code == -signal.SIGKILL
    sent = service.bodies()
    service.switch(latency_ms=0)

    desk.mapping(title="{join: [Festival, {from: TITLE, do: [collapse]}], with: ': '}")
    desk.run(code=0)

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
    any_desk.source(lines(ROWS))
    any_desk.run(code=0)
    first = service.bodies().keys()
    any_desk.forget()
    assert any_desk.run(code=0).run["publish"]["delivered"] == ROWS
    assert len(service.events()) == ROWS
    assert service.bodies().keys() == first
    assert service.outcomes() == {"created": ROWS, "replayed": ROWS}


def test_a_run_that_stages_only_and_one_that_publishes_only_add_up_to_one(any_desk: Desk, service: Service) -> None:
    any_desk.source(lines(20))
    assert any_desk.run("--stage-only", code=0).run["outcome"] == "staged"
    assert service.requests() == []
    (any_desk.folder / "events.csv").unlink()  # publishing never needs the source
    any_desk.run("--publish-only", code=0)
    _assert_every_row_once(service, 20)


def test_a_row_that_comes_after_a_crash_is_delivered_with_the_rest(desk: Desk, service: Service) -> None:
    desk.source(lines(300))
    service.switch(latency_ms=20)
    run = desk.start_run()
    until(lambda: len(service.requests()) > 50)
    run.kill()
    service.switch(latency_ms=0)
    desk.source([*lines(300), line(300)])
    desk.run(code=0)
    _assert_every_row_once(service, 301)
