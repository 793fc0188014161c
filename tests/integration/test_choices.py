"""What a person may ask of one run: fewer rows, chosen rows, drafts; and what is reported but never acted on."""

from __future__ import annotations

from collections import Counter

import pytest
from integration.desk import FEED, Desk, line, lines
from integration.service import Service

pytestmark = pytest.mark.slow

ROWS = 12


@pytest.fixture(autouse=True)
def _source(desk: Desk) -> None:
    desk.source(lines(ROWS))


def _listed(desk: Desk, state: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = desk.command("rows", FEED, "--state", state, "--json").document["rows"]
    return found


def test_a_limit_sends_the_first_rows_and_keeps_the_rest_for_the_next_run(desk: Desk, service: Service) -> None:
    said = desk.run("--limit", "5")
    assert said.code == 0, said.words
    assert service.titles() == [f"Evening {number}" for number in range(5)]
    assert said.run["publish"]["pending"] == ROWS - 5

    said = desk.run()
    assert said.code == 0, said.words
    assert said.run["publish"]["carried_over"] == ROWS - 5
    assert len(service.events()) == len(service.requests()) == ROWS


def test_only_the_rows_of_the_given_keys_are_read_and_sent(desk: Desk, service: Service) -> None:
    said = desk.run("--keys", "3,7")
    assert said.code == 0, said.words
    assert service.titles() == ["Evening 3", "Evening 7"]
    assert desk.run().code == 0
    assert len(service.events()) == len(service.requests()) == ROWS


def test_a_run_of_drafts_leaves_its_events_to_be_published_by_hand(desk: Desk, service: Service) -> None:
    assert desk.run("--status", "draft").code == 0
    assert {event["status"] for event in service.events()} == {"draft"}

    said = desk.run()
    assert said.run["read"]["drifted"] == ROWS
    assert len(service.requests()) == ROWS, "there is no update endpoint: nothing is sent"
    drift = _listed(desk, "drift")
    assert len(drift) == ROWS
    assert all("by hand" in str(row["hint"]) for row in drift)


def test_an_edited_row_is_reported_as_drift_and_not_sent(desk: Desk, service: Service) -> None:
    assert desk.run().code == 0
    desk.source([line(0, title="Another evening"), *lines(ROWS)[1:]])
    said = desk.run()

    assert said.code == 0, said.words
    assert said.run["read"] | {"drifted": 1, "unchanged": ROWS - 1} == said.run["read"]
    assert len(service.requests()) == ROWS
    (row,) = _listed(desk, "drift")
    assert row["row_key"] == "0"
    assert "title" in str(row["problem"])

    desk.source(lines(ROWS))
    assert desk.run().run["read"]["unchanged"] == ROWS
    assert _listed(desk, "drift") == []


def test_a_row_that_is_gone_is_reported_and_welcome_back(desk: Desk, service: Service) -> None:
    assert desk.run().code == 0
    desk.source(lines(ROWS)[2:])
    said = desk.run()
    assert said.code == 0, said.words
    assert said.run["vanished"] == 2
    assert {row["row_key"] for row in _listed(desk, "vanished")} == {"0", "1"}

    desk.source(lines(ROWS))
    assert desk.run().code == 0
    assert _listed(desk, "vanished") == []
    assert len(service.requests()) == ROWS


def test_a_rehearsal_writes_and_sends_nothing(desk: Desk, service: Service) -> None:
    assert desk.run("--limit", "4").code == 0
    before = desk.states()
    said = desk.run("--dry-run")

    assert said.code == 0, said.words
    assert desk.states() == before
    assert len(service.requests()) == 4


def test_the_same_rows_in_another_order_or_from_a_reworded_mapping_change_nothing(desk: Desk, service: Service) -> None:
    assert desk.run().code == 0
    desk.source(reversed(lines(ROWS)))
    desk.mapping(title="{from: TITLE, do: [trim, collapse]}")
    said = desk.run()
    assert said.run["read"]["unchanged"] == ROWS, said.words
    assert len(service.requests()) == ROWS


def test_rows_under_one_key_are_never_both_sent(desk: Desk, service: Service) -> None:
    desk.source([*lines(ROWS), line(3, title="A different evening")])
    said = desk.run()

    assert said.run["read"]["duplicate"] + said.run["read"]["rejected"] > 0
    assert all(count == 1 for count in Counter(one["idempotency_key"] for one in service.requests()).values())
    assert len(service.events()) <= ROWS


def test_namespaces_keep_two_deployments_at_one_account_apart(desk: Desk, service: Service) -> None:
    assert desk.run().code == 0
    assert desk.run(EVENTSYNC_NAMESPACE="staging").code == 5
    assert desk.run("--accept", "scope", EVENTSYNC_NAMESPACE="staging").code == 0
    assert len({one["idempotency_key"] for one in service.requests()}) == 2 * ROWS


def test_words_that_exclude_each_other_are_a_mistake_of_the_command(desk: Desk, service: Service) -> None:
    for words in (("--stage-only", "--publish-only"), ("--accept", "everything"), ("--status", "published")):
        said = desk.run(*words)
        assert said.code == 2, said.words
    assert service.requests("all") == []
