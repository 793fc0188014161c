"""What a person decides, with real processes: killed runs, a service that forgets, and rows that nobody may forget."""

from __future__ import annotations

import pytest
from integration.desk import FEED, Desk, line, lines
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
    said = desk.run()
    assert said.code == 1, said.words
    uncertain = _listed(desk, "--state", "uncertain")
    assert 0 < len(uncertain) <= 3
    assert "uncertain for so long that the service may have forgotten their keys" in said.words
    assert f"eventsync reconcile {FEED}" in said.words
    requests = len(service.requests())
    assert desk.run().code == 1, "it is told again, and nothing is sent by guesswork"
    assert len(service.requests()) == requests

    found = desk.command("reconcile", FEED, "--json")
    counts = found.document["counts"]
    assert counts["sought"] == len(uncertain) == counts["found"] + counts["absent"]
    for row in found.document["rows"]:
        if row["verdict"] == "absent":
            decided = desk.command("resolve", FEED, row["row_key"], "--resend", "--yes")
            assert decided.code == 0, decided.words
    said = desk.run()
    assert said.code == 0, said.words
    assert set(desk.states().values()) == {"delivered"}
    assert service.titles() == sorted(f"Evening {number}" for number in range(ROWS))
    assert desk.command("state", "verify").code == 0


def test_nobody_decides_about_a_feed_while_a_run_holds_it(any_desk: Desk, service: Service) -> None:
    desk = any_desk
    desk.mapping(in_flight=1)
    desk.source(lines(60))  # a minute's work
    service.switch(answer_delay_ms=1_000)
    run = desk.start_run()
    until(lambda: bool(service.requests()))
    for words in (["resolve", FEED, "0", "--event-id", "7"], ["retry", FEED]):
        said = desk.command(*words)
        assert said.code == 4, said.words
        assert "held by" in said.words
    run.kill()


def test_a_held_row_goes_out_or_is_forgotten_as_a_person_says(desk: Desk, service: Service) -> None:
    first = line(1)
    desk.source([first])
    assert desk.run().code == 0
    copies = [first.replace("1,", f"{number},", 1) for number in (21, 22)]
    desk.source([first, *copies])
    assert desk.run().run["read"]["held"] == 2
    assert _listed(desk, "--state", "held") == ["21", "22"]

    assert desk.command("resolve", FEED, "21", "--resend").code == 0
    assert desk.command("resolve", FEED, "22", "--ignore").code == 0
    assert desk.command("resolve", FEED, "22", "--event-id", "9").code == 2
    said = desk.run()
    assert said.run["read"] | {"held": 1, "new": 1, "unchanged": 1} == said.run["read"]
    assert service.titles() == ["Evening 1", "Evening 1"]
    assert _listed(desk) == []

    assert desk.command("resolve", FEED, "22", "--undo").code == 0
    desk.run()
    assert _listed(desk) == ["22"]


def test_a_ledger_that_was_lost_is_made_whole_from_the_services_list(desk: Desk, service: Service) -> None:
    desk.source(lines(120))
    service.switch(event_items="full", idempotency="refuse")
    assert desk.run().code == 0
    desk.forget()
    said = desk.run()
    assert said.code == 1, said.words
    assert set(desk.states().values()) == {"conflict"}
    assert desk.command("reconcile", FEED).code == 0
    assert desk.run().code == 0
    assert set(desk.states().values()) == {"delivered"}
    assert len(service.events()) == 120
    assert desk.command("state", "verify").code == 0


def test_a_missing_scope_that_the_service_has_stored_is_overcome_by_the_next_run_once_the_scope_is_there(
    desk: Desk, service: Service
) -> None:
    service.switch(channel_denied="insufficient_scope", stored_refusals="all")
    service.change("/channels/access", channel="city-agenda", allowed=False)
    desk.mapping(channel="101")
    desk.source(lines(9))
    assert desk.run().code == 3
    service.change("/channels/access", channel="city-agenda", allowed=True)
    said = desk.run()
    assert said.code == 0, said.words
    assert (len(service.events()), set(desk.states().values())) == (9, {"delivered"})
    assert desk.command("state", "verify").code == 0


def test_refused_rows_whose_refusal_is_stored_go_out_under_the_next_key_after_a_retry(desk: Desk, service: Service) -> None:
    service.switch(max_title_chars=5)
    desk.source(lines(3))
    desk.run()
    assert set(desk.states().values()) == {"refused"}
    service.switch(max_title_chars=300)
    assert desk.command("retry", FEED).code == 0
    said = desk.run()
    assert said.code == 0, said.words
    assert len(service.events()) == 3
    assert desk.command("state", "verify").code == 0
    assert {row["attempts"] for row in desk.command("rows", FEED, "--state", "delivered", "--json").document["rows"]} == {1}
