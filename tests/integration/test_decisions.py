"""What a person decides, with real processes: killed runs, a service that forgets, and rows that nobody may forget."""

from __future__ import annotations

import pytest
from integration.desk import FEED, Desk, evenings, line, lines, mid_way
from integration.service import Service
from integration.waiting import until

pytestmark = pytest.mark.slow

ROWS = 8


def _killed_in_flight(desk: Desk, service: Service) -> None:
    """A run that was killed with its requests in flight: of some the event exists, and nobody knows which."""
    desk.mapping(in_flight=3)
    desk.source(lines(ROWS))
    service.switch(event_items="full", answer_delay_ms=400)
    run = desk.start_run()
    until(lambda: len(service.events()) >= 4)
    run.kill()
    service.switch(answer_delay_ms=0)


def _listed(desk: Desk, *words: str) -> list[str]:
    return [str(row["row_key"]) for row in desk.command("rows", FEED, *words, "--json").document["rows"]]


def test_rows_too_old_to_be_sent_again_are_looked_for_decided_on_and_delivered_once(any_desk: Desk, service: Service) -> None:
    desk = any_desk
    _killed_in_flight(desk, service)
    desk.mapping(in_flight=3, key_memory="0s")
    said = desk.run(code=1)
    uncertain = _listed(desk, "--state", "uncertain")
    assert 0 < len(uncertain) <= 3
    assert "uncertain for so long that the service may have forgotten their idempotency keys" in said.words
    assert f"eventsync reconcile {FEED}" in said.words
    requests = len(service.requests())
    assert desk.run().code == 1, "it is told again, and nothing is sent by guesswork"
    assert len(service.requests()) == requests

    found = desk.command("reconcile", FEED, "--json")
    counts = found.document["counts"]
    assert counts["sought"] == len(uncertain) == counts["found"] + counts["absent"]
    for row in found.document["rows"]:
        if row["verdict"] == "absent":
            desk.command("resolve", FEED, row["row_key"], "--resend", "--yes", code=0)
    desk.mapping(in_flight=3)  # on a busy machine a memory of no time at all is over before a request leaves
    desk.run(code=0)
    assert set(desk.states().values()) == {"delivered"}
    assert service.titles() == evenings(ROWS)
    desk.command("state", "verify", code=0)


def test_nobody_decides_about_a_feed_while_a_run_holds_it(any_desk: Desk, service: Service) -> None:
    any_desk.mapping(in_flight=1)
    any_desk.source(lines(60))  # a minute's work
    service.switch(answer_delay_ms=1_000)
    run = any_desk.start_run()
    until(service.requests)
    for words in (["resolve", FEED, "0", "--event-id", "7"], ["retry", FEED]):
        any_desk.command(*words).assert_told(4, "held by")
    run.kill()


def _renumbered(number: int, to: int, **more: str) -> str:
    return line(number, **more).replace(f"{number},", f"{to},", 1)


def _three_held(desk: Desk, service: Service) -> list[str]:
    """Rows 1 to 3 are delivered, and stand under other numbers now; return the rows that nothing is odd about."""
    others = [line(number) for number in range(10, 16)]
    desk.source([line(1), line(2), line(3), *others])
    desk.run(code=0)
    others += [line(number) for number in range(20, 26)]
    desk.source([*others, *(_renumbered(number, 100 + number) for number in (1, 2, 3))])
    assert desk.run().run["read"]["held"] == 3
    assert len(service.events()) == 15
    return others


def test_held_rows_are_taken_over_sent_or_ignored_as_a_person_says(any_desk: Desk, service: Service) -> None:
    desk = any_desk
    others = _three_held(desk, service)
    adopted = desk.command("resolve", FEED, "101", "--same-as", "--json", code=0)
    (row,) = adopted.document["rows"]
    assert (row["was"], row["state"], row["other_key"], row["is_changed"]) == ("held", "delivered", "1", True)
    desk.command("resolve", FEED, "102", "--resend", code=2)
    desk.command("resolve", FEED, "102", "--event-id", "9", code=2)
    desk.command("resolve", FEED, "102", "--release", code=0)
    desk.command("resolve", FEED, "103", "--ignore", code=0)
    assert len(service.events()) == 15, "a decision sends nothing"

    now = [*others, _renumbered(1, 101, genre="play"), _renumbered(2, 102), _renumbered(3, 103, genre="play")]
    desk.source(now)
    for _ in range(2):
        desk.run(code=0)
    states = desk.states()
    assert [states[key] for key in ("1", "101", "102", "103")] == ["superseded", "delivered", "delivered", "held"]
    assert _listed(desk, "--state", "drift") == ["101"]
    assert (service.titles().count("Evening 2"), service.titles().count("Evening 3")) == (2, 1)

    desk.command("resolve", FEED, "101", "--applied", code=0)
    desk.command("resolve", FEED, "103", "--undo", code=0)
    desk.run(code=0)
    assert _listed(desk, "--state", "drift") == []
    assert "103" in _listed(desk)
    assert len(service.events()) == 16


def test_an_event_of_another_feed_is_taken_over_while_no_run_holds_that_feed(desk: Desk, service: Service) -> None:
    desk.mapping(in_flight=1)
    desk.mapping(name="other.yaml", feed="other")
    desk.run_with(lines(3), code=0)
    desk.command("run", "other", "--no-dagster")
    run = mid_way(desk, service, 40, after=3, latency_ms=1_000)
    desk.command("resolve", "other", "1", "--same-as").assert_told(4, "town-hall is held by")
    run.kill()
    (adopted,) = desk.command("resolve", "other", "1", "--same-as", "--json", code=0).document["rows"]
    assert adopted["other_key"] == "1 of town-hall"
    desk.command("resolve", "other", "1", "--undo", code=0)
