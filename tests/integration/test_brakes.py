"""The brakes on real runs: bad rows are named, what stops a run, and what a person lets through for that one run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from integration.desk import FEED, Desk, Said, line, lines
from integration.service import Service

pytestmark = pytest.mark.slow


def with_bad(good: int, bad: int) -> list[str]:
    """Rows of which the last ones have no day."""
    return [*lines(good), *(line(good + number, day="soon") for number in range(bad))]


def stopped_by(said: Said) -> list[str]:
    """The brakes that stopped a run, whose exit code says so too."""
    assert (said.code == 5) is (said.run["outcome"] == "stopped by a brake"), said.words
    return list(said.run["brakes"]) if said.code == 5 else []


def vanished(desk: Desk) -> int:
    count: int = desk.command("status", FEED, "--json").document["feeds"][0]["vanished"]
    return count


def publishing(desk: Desk, *lines_of_policy: str) -> None:
    """Add to the mapping's `publish` block, its last."""
    desk.edit("publish:\n", "publish:\n" + "".join(f"  {one}\n" for one in lines_of_policy))


def renamed(rows: Iterable[int], prefix: str, *, title: str = "Evening") -> list[str]:
    """The same evenings as `lines` makes, under other ids."""
    return [f"{prefix}{line(number, title=f'{title} {number}')}" for number in rows]


def test_the_share_of_rejected_rows_stops_at_the_first_row_beyond_it_and_an_acceptance_is_for_one_run(
    desk: Desk, service: Service
) -> None:
    desk.run_with(with_bad(57, 3), code=0)
    assert stopped_by(desk.run_with(with_bad(76, 5))) == ["rejected"]
    assert len(service.events()) == 57
    said = desk.run("--accept", "rejected")
    assert (said.code, len(service.events())) == (0, 76), said.words
    assert stopped_by(desk.run_with(with_bad(80, 6))) == ["rejected"]
    assert stopped_by(desk.run("--publish-only")) == []
    assert len(service.events()) == 76


def test_a_flood_of_new_rows_stays_stopped_however_often_it_is_read_and_what_one_run_is_allowed_ends_with_it(
    desk: Desk, service: Service
) -> None:
    desk.run_with(lines(24), code=0)
    desk.source(renamed(range(24), "9", title="Matinee"))
    for _ in range(2):
        said = desk.run()
        assert stopped_by(said) == ["new"]
    assert "none of the 24 known ones is still in the source" in said.words
    assert vanished(desk) == 0
    assert len(service.events()) == 24

    desk.run("--accept", "new", "--limit", "5", code=0)
    assert len(service.events()) == 29
    assert stopped_by(desk.run()) == ["new"]
    desk.run("--publish-only", code=5)
    assert len(service.events()) == 29
    desk.run("--publish-only", "--accept", "new", code=0)
    assert (len(service.events()), desk.run().code) == (48, 0)


def test_a_programme_that_is_new_every_week_is_let_out_by_itself_once_a_person_has_accepted_it_twice(
    desk: Desk, service: Service
) -> None:
    desk.run_with(renamed(range(24), "0"), code=0)
    for week in (1, 2):
        assert stopped_by(desk.run_with(renamed(range(24), str(week), title=f"Week {week}"))) == ["new"]
        desk.run("--accept", "new", code=0)
    desk.run_with(renamed(range(24), "3", title="Week 3"), "--dry-run", code=0)
    assert (desk.run().code, len(service.events())) == (0, 96)
    assert stopped_by(desk.run_with(renamed(range(80), "4", title="Week 4"))) == ["new"]


@pytest.mark.parametrize("rows", [[], lines(11)], ids=["empty", "shrunk"])
def test_a_source_that_lost_its_rows_stops_the_run_and_marks_nothing_as_vanished(
    desk: Desk, service: Service, rows: list[str]
) -> None:
    desk.run_with(lines(24), code=0)
    assert stopped_by(desk.run_with(rows)) == ["shrink"]
    assert vanished(desk) == 0
    desk.run("--accept", "shrink", code=0)
    assert vanished(desk) == 24 - len(rows)
    desk.run_with(lines(24), code=0)
    assert (vanished(desk), len(service.events())) == (0, 24)


def test_a_few_rows_picked_by_hand_let_nothing_else_out(desk: Desk, service: Service) -> None:
    desk.run_with(with_bad(10, 3), code=5)
    desk.run("--keys", "3", code=5)
    assert service.events() == []
    desk.run("--keys", "3", "--accept", "rejected", code=0)
    assert service.titles() == ["Evening 3"]
    desk.run("--publish-only", code=5)
    desk.run("--publish-only", "--status", "draft").assert_told(2, "keeps its status")
    assert service.titles() == ["Evening 3"]


def test_a_mapping_that_would_draft_most_events_again_is_stopped_until_a_person_wants_it(desk: Desk, service: Service) -> None:
    publishing(desk, "on_change: create_draft_again")
    desk.run_with(lines(24), code=0)
    desk.mapping(title='{join: [{from: TITLE}, "!"]}')
    publishing(desk, "on_change: create_draft_again")
    for _ in range(2):
        said = desk.run()
        assert stopped_by(said) == ["new"]
    assert "24 delivered rows have changed, and each would become another draft" in said.words
    assert len(service.events()) == 24


def test_a_feed_under_another_name_sends_nothing_again_until_a_person_wants_both(desk: Desk, service: Service) -> None:
    desk.run_with(lines(30), code=0)
    desk.edit(f"feed: {FEED}", "feed: city-hall")
    said = desk.command("run", "city-hall", "--no-dagster", "--json")
    assert (stopped_by(said), len(service.events())) == (["scope"], 30), said.words
    assert f"put `feed: {FEED}` back" in said.words
    for asking in (("status",), ("check", "--live"), ("preview", "city-hall")):
        assert f"30 events to come are of feed {FEED}, which has no mapping file" in desk.command(*asking).words
    rehearsed = desk.command("run", "city-hall", "--dry-run", code=5)
    assert f"put `feed: {FEED}` back" in rehearsed.words
    desk.command("run", "city-hall", "--no-dagster", "--accept", "scope", code=0)
    assert len(service.events()) == 60
    desk.source(lines(31))
    desk.command("run", "city-hall", "--no-dagster", code=0)
    assert len(service.events()) == 61


@pytest.mark.parametrize("lost", ["another", ""])
def test_a_feed_that_lost_its_namespace_sends_nothing_again(desk: Desk, service: Service, lost: str) -> None:
    desk.env["EVENTSYNC_NAMESPACE"] = "city"
    desk.run_with(lines(5), code=0)
    desk.env["EVENTSYNC_NAMESPACE"] = lost
    said = desk.run_with([line(number, title=f"Night {number}") for number in range(5)])
    assert (stopped_by(said), len(service.events())) == (["scope"], 5)
    assert "EVENTSYNC_NAMESPACE=city" in said.words
    for asking in (("status",), ("check", "--live")):
        assert "set EVENTSYNC_NAMESPACE=city" in desk.command(*asking).words
    desk.run("--accept", "scope", code=0)
    assert len({one["idempotency_key"] for one in service.requests()}) == 10


def test_a_word_that_a_partner_renames_does_not_empty_the_feed_in_silence(desk: Desk) -> None:
    desk.edit("event:\n", "rows: [{keep: {column: GENRE, in: [concert]}, because: no concert}]\nevent:\n")
    desk.run_with(lines(10), code=0)
    renamed_words = [line(number, genre="Konzert" if number < 4 else "concert") for number in range(10)]
    said = desk.run_with(renamed_words)
    assert stopped_by(said) == ["left_out"], said.words
    assert "rule 1: no concert leaves out 4 of 10 delivered rows whose events are to come" in said.words
    assert vanished(desk) == 0
    desk.run("--accept", "left_out", code=0)
    assert vanished(desk) == 4
    desk.run(code=0)


STOPPED = {
    "new ids for the same": (lines(24), renamed(range(24), "9"), "copies", "90 looks like 0", 24),
    "days and months change places": (
        [f"{day}.5.,Dance {day},2020-05-{day:02},19:30,concert," for day in range(1, 13) if day != 5],
        [f"5.{day}.,Dance {day},2020-{day:02}-05,19:30,concert," for day in range(1, 13) if day != 5],
        *("new", "agree with rows that are gone in two of title, start and place", 22),
    ),
    "titles are part of the key": (
        lines(8),
        [f"x{line(number, title=f'EVENING no. {number}')}" for number in range(8)],
        *("new", "agree with rows that are gone in two of title, start and place", 16),
    ),
    "another key": (
        lines(5),
        [line(number, title=f"Other {number}", day=f"2033-01-0{number + 1}") for number in range(5)],
        *("keys", "", 10),
    ),
}
"""The rows before and after, the brake and what it says, and how many events there are once it was accepted."""


@pytest.mark.parametrize("case", STOPPED)
def test_rows_that_might_double_their_events_stop_the_feed_until_a_person_accepts_them(
    desk: Desk, service: Service, case: str
) -> None:
    before, after, brake, words, events = STOPPED[case]
    desk.run_with(before, code=0)
    if brake == "keys":
        desk.edit("key: [ID]", "key: [ID, GENRE]")
    said = desk.run_with(after)
    assert (stopped_by(said), len(service.events()), words in said.words) == ([brake], len(before), True), said.words
    assert said.run["read"]["held"] == (len(after) if brake == "copies" else 0)
    desk.run("--accept", brake, code=0)
    left_over = 5 if brake == "copies" else 0  # an acceptance is for one run, and copies stay held
    assert (len(service.events()), desk.run().code) == (events, left_over)


ROWS = 100
BAD = {
    4: ({"title": ""}, "TITLE", ""),
    17: ({"day": "2031-02-30"}, "DAY", "2031-02-30"),
    31: ({"genre": "poetry"}, "GENRE", "poetry"),
    32: ({"hour": "25:61"}, "HOUR", "25:61"),
    58: ({"day": "soon"}, "DAY", "soon"),
    77: ({"genre": "konzert"}, "GENRE", "konzert"),
    99: ({"hour": "half past"}, "HOUR", "half past"),
}
"""Row numbers with what is wrong: 7 % of the rows, where a feed allows 5 %."""


def _found(rows: list[Any], place: str) -> dict[int, tuple[str, str, str]]:
    """The first reason of each row: column, value and hint, by row key."""
    assert [row[place] for row in rows] == [f"events.csv:{int(row['row_key']) + 2}" for row in rows]
    return {int(row["row_key"]): tuple(row["reasons"][0][name] for name in ("column", "found", "hint")) for row in rows}


def test_too_many_bad_rows_stop_the_feed_before_anything_is_sent_until_a_person_lets_the_good_ones_go_or_they_are_mended(
    desk: Desk, service: Service
) -> None:
    said = desk.run_with([line(number, **BAD[number][0] if number in BAD else {}) for number in range(ROWS)], code=5)
    assert service.requests() == []
    assert said.run["brakes"] == ["rejected"]
    assert {name: count for name, count in said.run["read"].items() if count} == {"read": 100, "rejected": 7, "new": 93}
    assert "7 of 100 rows rejected (7.0%" in said.run["message"]
    assert "--accept rejected" in said.run["hint"]
    shown = _found(said.run["rejections"], "origin")
    assert {key: found[:2] for key, found in shown.items()} == {key: (column, value) for key, (_, column, value) in BAD.items()}
    assert _found(desk.rows("rejected"), "place") == shown
    assert all(hint for _, _, hint in shown.values()), "every bad row comes with something that would help"
    assert "concert" in shown[77][2], "an unknown value gets the nearest known one as a hint"

    desk.run("--publish-only", "--accept", "rejected", code=0)
    assert set(service.titles()) == {f"Evening {number}" for number in range(ROWS) if number not in BAD}
    desk.run_with(lines(ROWS), code=0)
    assert (len(service.events()), desk.rows("rejected")) == (ROWS, [])


def test_the_same_refusal_of_the_first_rows_stops_the_run_and_the_next_one_sends_one_row_first(
    desk: Desk, service: Service
) -> None:
    service.switch(max_title_chars=4)
    desk.mapping(in_flight=4)
    said = desk.run_with(lines(200), code=5)
    assert "title" in said.run["message"]
    sent = len(service.requests())
    assert 25 <= sent <= 25 + 4
    assert said.run["publish"]["pending"] >= 200 - 29
    desk.run(code=5)
    assert len([request for request in service.requests()[sent:] if request["idempotency_key"]]) == 1

    service.switch(max_title_chars=300)
    desk.mapping(title="{join: [On stage, {from: TITLE, do: [collapse]}], with: ': '}")
    desk.run(code=0)
    assert len({event["title"] for event in service.events()}) == len(service.events()) == 200
