"""Whatever kills a run, the next one goes on: every row becomes one event, under one key, with one body."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter, defaultdict
from time import monotonic

import pytest
from integration.desk import FEED, Desk, line, lines
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


def _finish(desk: Desk) -> None:
    said = desk.run()
    assert said.code == 0, said.words


def _staging_time_s(desk: Desk, service: Service) -> float:
    """How long a run works before it sends its first event, measured on an undisturbed one."""
    began = monotonic()
    run = desk.start_run()
    until(lambda: run.has_ended or service.requests())
    staging_s = monotonic() - began
    assert run.ended().code == 0
    service.change("/reset")
    desk.forget()
    return staging_s


def _assert_every_row_once(service: Service, rows: int) -> None:
    assert service.titles() == sorted(f"Evening {number}" for number in range(rows))
    requests = service.requests()
    bodies: dict[str, set[str]] = defaultdict(set)
    for request in requests:
        bodies[request["idempotency_key"]].add(request["digest"])
    assert len(bodies) == rows
    assert {len(digests) for digests in bodies.values()} == {1}, "a key was sent with two bodies"
    assert not [request for request in requests if request["status"] == 409]
    assert set(Counter(event["idempotencyKey"] for event in service.events()).values()) == {1}


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
    _finish(desk)

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
    _finish(any_desk)

    assert {event["title"] for event in service.events()} == {f"Evening {number}" for number in range(300)}
    assert len(service.events()) <= 300 + IN_FLIGHT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_run_that_is_asked_to_stop_ends_in_good_order(any_desk: Desk, service: Service, number: signal.Signals) -> None:
    any_desk.source(lines(400))
    service.switch(latency_ms=40)
    run = any_desk.start_run()
    until(lambda: len(service.requests()) > 60)
    run.signal(number)
    said = run.ended()

    assert said.code == 130, said.words
    assert said.run["outcome"] == "interrupted"
    left = Counter(any_desk.states().values())
    assert left["pending"] > 0
    assert left["delivered"] == len(service.events()), "what was in flight was waited for and written down"
    assert said.run["publish"]["delivered"] == left["delivered"]
    assert said.run["publish"]["pending"] == left["pending"]

    _finish(any_desk)
    _assert_every_row_once(service, 400)
    assert Counter(request["outcome"] for request in service.requests()) == {"created": 400}


def test_a_stage_that_is_asked_to_stop_sends_nothing_and_is_done_again(desk: Desk, service: Service) -> None:
    desk.source(lines(30_000))
    run = desk.start_run("--stage-only")
    until(lambda: run.has_ended or desk.states())
    run.signal(signal.SIGTERM)
    said = run.ended()

    assert said.code == 130, said.words
    assert service.requests() == []
    desk.source(lines(50))
    _finish(desk)
    _assert_every_row_once(service, 50)


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
    sent = {request["idempotency_key"]: request["digest"] for request in service.requests()}
    service.switch(latency_ms=0)

    desk.mapping(title="{join: [Festival, {from: TITLE, do: [collapse]}], with: ': '}")
    _finish(desk)

    requests = service.requests()
    assert not [request for request in requests if request["status"] == 409]
    assert all(sent[one["idempotency_key"]] == one["digest"] for one in requests if one["idempotency_key"] in sent)
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
    _finish(any_desk)
    first = {event["idempotencyKey"] for event in service.events()}
    any_desk.forget()
    said = any_desk.run()

    assert said.code == 0, said.words
    assert said.run["publish"]["delivered"] == ROWS
    assert len(service.events()) == ROWS
    requests = service.requests()
    assert {request["idempotency_key"] for request in requests} == first
    assert Counter(request["outcome"] for request in requests) == {"created": ROWS, "replayed": ROWS}


def test_a_run_that_stages_only_and_one_that_publishes_only_add_up_to_one(any_desk: Desk, service: Service) -> None:
    any_desk.source(lines(20))
    staged = any_desk.run("--stage-only")
    assert (staged.code, staged.run["outcome"]) == (0, "staged")
    assert service.requests() == []
    (any_desk.folder / "events.csv").unlink()  # publishing never needs the source
    published = any_desk.run("--publish-only")
    assert published.code == 0, published.words
    _assert_every_row_once(service, 20)


def test_a_row_that_comes_after_a_crash_is_delivered_with_the_rest(desk: Desk, service: Service) -> None:
    desk.source(lines(300))
    service.switch(latency_ms=20)
    run = desk.start_run()
    until(lambda: len(service.requests()) > 50)
    run.kill()
    service.switch(latency_ms=0)
    desk.source([*lines(300), line(300)])
    _finish(desk)
    _assert_every_row_once(service, 301)
