"""A window of the past, as people bring it in: by dated file, by event, by a column; stopped, killed, gone on with."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest
from integration.desk import FEED, HEADER, Command, Desk, Said, line, lines
from integration.reader import Block, Reader
from integration.service import Service
from integration.waiting import until

pytestmark = pytest.mark.slow

MONTH = ("--from", "2031-01-01", "--to", "2031-01-06")
DATED = "\n  path: ../in/{date:%Y%m%d}.csv\n"


def backfill(desk: Desk, *words: str) -> Said:
    return desk.command("backfill", FEED, "--no-dagster", "--json", *words)


def start(desk: Desk, *words: str) -> Command:
    return desk.start("backfill", FEED, "--no-dagster", "--json", *words)


def slices(said: Said) -> list[tuple[str, str]]:
    return [(one["from"], one["state"]) for one in said.document["backfill"]["slices"]]


def by_dated_file(desk: Desk, rows: int, days: int = 6) -> None:
    desk.edit("\n  path: ../events.csv\n", DATED)
    (desk.folder / "in").mkdir()
    for day in range(days):
        when = date(2031, 1, 1) + timedelta(days=day)
        write_day(desk.folder / "in", f"{when:%Y%m%d}", HEADER, *(line(day * rows + number) for number in range(rows)))


def write_day(folder: Path, day: str, *lines: str) -> None:
    (folder / f"{day}.csv").write_text("\n".join(lines) + "\n", "utf-8")


def test_dated_files_are_gone_through_day_by_day_and_each_row_is_sent_once(desk: Desk, service: Service) -> None:
    by_dated_file(desk, 3)
    rehearsed = backfill(desk, *MONTH, "--dry-run", "--slice", "2")
    told = [(one["from"], one["to"], one["would_send"]) for one in rehearsed.document["slices"]]
    assert told == [("2031-01-01", "2031-01-02", 6), ("2031-01-03", "2031-01-04", 6), ("2031-01-05", "2031-01-06", 6)]
    assert (rehearsed.code, rehearsed.document["would_send"], service.events(), desk.states()) == (0, 18, [], {})
    said = backfill(desk, *MONTH)
    assert (said.code, said.document["sent"], said.document["backfill"]["by"]) == (0, 18, "file"), said.words
    assert [state for _, state in slices(said)] == ["done"] * 6
    assert "6 of 6 slices done; read 18 = new 18; new 18 = delivered 18" in said.err
    again = backfill(desk, *MONTH)
    assert (again.code, again.document["sent"]) == (0, 0)
    assert "6 of 6 slices done; read 18 = unchanged 18; new 0" in again.err
    assert len(service.events()) == 18


@pytest.mark.parametrize("words", [("--by", "file"), ("--by", "event", "--slice", "day"), ("--column", "PICTURE")])
def test_a_slice_without_rows_makes_no_run_and_is_done_with_zeros(desk: Desk, service: Service, words: tuple[str, ...]) -> None:
    days = {number: f"2031-01-0{number}" for number in (1, 3)}
    rows = {number: line(number, day=day, picture=day) for number, day in days.items()}
    desk.source(rows.values())
    if "file" in words:
        by_dated_file(desk, 0, days=2)
        for number, row in rows.items():
            write_day(desk.folder / "in", f"2031010{number}", HEADER, row)
    said = backfill(desk, "--from", "2031-01-01", "--to", "2031-01-04", *words)
    first, empty, *_ = said.document["backfill"]["slices"]
    assert (said.code, [state for _, state in slices(said)], len(service.events())) == (0, ["done"] * 4, 2), said.words
    assert [bool(one["run_id"]) for one in said.document["backfill"]["slices"]] == [True, False, True, False]
    assert (empty["counts"], empty["exit_code"]) == (dict.fromkeys(first["counts"], 0), 0)
    assert len(desk.command("runs", "--json").document["runs"]) == 2


def test_a_row_that_comes_while_a_backfill_is_at_work_is_sent_though_its_slice_was_empty(desk: Desk, service: Service) -> None:
    rows = [line(number, day="2031-01-01") for number in range(10, 18)]
    desk.mapping(in_flight=1)
    desk.source(rows)
    service.switch(latency_ms=1_000)
    command = start(desk, "--from", "2031-01-01", "--to", "2031-01-03", "--by", "event", "--slice", "day")
    until(service.requests)
    desk.source([*rows, line(2, day="2031-01-02")])
    assert [one["counts"]["delivered"] for one in command.ended(0).document["backfill"]["slices"]] == [8, 1, 0]


def test_a_source_that_cannot_be_read_fails_the_first_slice_and_not_the_search_for_empty_ones(desk: Desk) -> None:
    (desk.folder / "events.csv").unlink(missing_ok=True)
    said = backfill(desk, *MONTH)
    (run,) = desk.command("runs", "--json").document["runs"]
    assert (said.code, run["exit_code"], slices(said)) == (2, 2, [("2031-01-01", "left")]), said.words
    said.assert_told(2, "events.csv")


def test_after_a_kill_in_the_middle_of_a_slice_the_same_command_goes_on_and_each_row_is_sent_once(
    any_desk: Desk, service: Service
) -> None:
    by_dated_file(any_desk, 20, days=4)
    service.switch(latency_ms=300, idempotency="ignore")
    struck = start(any_desk, *MONTH)
    until(lambda: len(service.requests()) >= 45, what="the third slice")
    struck.kill()
    service.switch(latency_ms=0)
    assert any_desk.command("runs", "--json").document["runs"][0]["outcome"] == "lost", "before the next run records it"
    any_desk.command("status").assert_told(0, "lost")
    listed = any_desk.command("backfill", FEED, "--list", "--json").document["backfills"][0]
    assert [one["state"] for one in listed["slices"]] == ["done", "done", "working", "left", "left", "left"]
    said = backfill(any_desk, *MONTH)
    assert (said.code, [state for _, state in slices(said)]) == (0, ["done"] * 6), said.words
    assert "2 of 6 slices done" in said.err
    titles = Counter(service.titles())
    assert len(titles) == 80
    assert sum(titles.values()) - 80 <= 16, "what was in flight, with a service that ignores keys"


def test_an_interrupted_backfill_ends_in_good_order_and_says_how_to_go_on(desk: Desk, service: Service) -> None:
    by_dated_file(desk, 20, days=4)
    service.switch(latency_ms=400)
    command = start(desk, *MONTH)
    until(lambda: len(service.requests()) >= 25, what="the second slice")
    command.signal(signal.SIGINT)
    stopped = command.ended()
    assert (stopped.code, stopped.document["exit_code"]) == (130, 130)
    assert "--resume" in stopped.err
    states = [state for _, state in slices(stopped)]
    assert states == sorted(states), "what is done comes before what is left"
    assert (states[0], states[-1]) == ("done", "left")
    service.switch(latency_ms=0)
    said = backfill(desk, "--resume")
    assert (said.code, len(service.events())) == (0, 80), said.words


def test_a_second_backfill_is_turned_away_and_a_patient_run_comes_in_between_two_slices(desk: Desk, service: Service) -> None:
    desk.mapping(in_flight=4)
    by_dated_file(desk, 16, days=3)
    service.switch(latency_ms=3_000)
    command = start(desk, "--from", "2031-01-01", "--to", "2031-01-03")
    until(service.requests)
    backfill(desk, "--resume").assert_told(4, "launched by backfill")
    service.switch(latency_ms=400)
    beside = desk.run("--wait")
    assert not command.has_ended, "it came in before the backfill was over"
    said = command.ended()
    assert (said.code, [state for _, state in slices(said)]) == (0, ["done"] * 3), said.words
    assert "another run waits for the feed; it goes first" in said.err
    assert "no file matches" in beside.words, "the days that the feed itself reads are those of today"
    assert (len(service.events()), len(service.requests())) == (48, 48)


def test_by_event_only_events_of_the_window_are_sent_and_no_row_vanishes(desk: Desk, service: Service) -> None:
    desk.source([*lines(30), line(99, day="no day")])
    said = backfill(desk, "--from", "2031-01-10", "--to", "2031-01-12")
    assert (said.code, said.document["sent"], said.document["backfill"]["by"]) == (0, 3, "event"), said.words
    assert service.titles() == ["Evening 10", "Evening 11", "Evening 9"]
    run = said.document["backfill"]["slices"][0]["run_id"]
    notices = desk.command("runs", run, "--json").document["notices"]
    assert "rejected rows have no day and belong to no window: 1; `eventsync preview` shows them" in notices
    whole = desk.run("--accept", "rejected").run
    assert (whole["read"]["unchanged"], whole["read"]["new"], whole["vanished"]) == (3, 27, 0)
    again = backfill(desk, "--from", "2031-01-10", "--to", "2031-01-12")
    status = desk.command("status", "--json").document["feeds"][0]
    assert (again.document["read"], again.document["sent"]) == (3, 0), "an unchanged source is read all the same"
    assert (status["vanished"], status["last_whole_read"], status["slices_left"]) == (0, 31, 0)


def test_by_cursor_a_column_says_when_a_row_changed(desk: Desk, service: Service) -> None:
    changed = ["2030-05-01", "2030-05-02T23:30:00-03:00", "2030-05-04T10:00:00Z", "long ago"]
    desk.source(line(number, picture=when) for number, when in enumerate(changed))
    said = backfill(desk, "--from", "2030-05-02", "--to", "2030-05-04", "--column", "PICTURE")
    read = [(one["from"], one["counts"]["read"], one["counts"]["delivered"]) for one in said.document["backfill"]["slices"]]
    assert read == [("2030-05-02", 0, 0), ("2030-05-03", 1, 1), ("2030-05-04", 1, 1)], said.words
    assert service.titles() == ["Evening 1", "Evening 2"]


def test_a_limit_leaves_the_rest_for_a_later_go_until_a_person_cancels_it(desk: Desk, service: Service) -> None:
    by_dated_file(desk, 4, days=3)
    said = backfill(desk, *MONTH, "--limit", "6")
    assert (said.code, said.document["sent"], len(service.events())) == (0, 6, 6)
    assert [state for _, state in slices(said)] == ["done", "left", "left", "left", "left", "left"]
    rest = backfill(desk, "--resume", "--limit", "5")
    assert (rest.code, rest.document["sent"], len(service.events())) == (0, 5, 11)
    cancelled = desk.command("backfill", FEED, "--cancel", "--json", code=0)
    assert cancelled.document["backfill"]["state"] == "cancelled"
    backfill(desk, "--resume").assert_told(2, "has no open backfill")
    assert len(service.events()) == 11


def test_a_brake_stops_a_backfill_and_a_person_lets_it_pass(desk: Desk, service: Service) -> None:
    by_dated_file(desk, 4, days=2)
    write_day(desk.folder / "in", "20310103", HEADER, *(line(number, genre="poetry") for number in range(100, 110)))
    said = backfill(desk, *MONTH)
    assert (said.code, [state for _, state in slices(said)][:3]) == (5, ["done", "done", "left"]), said.words
    passed = backfill(desk, "--resume", "--accept", "rejected")
    assert (passed.code, passed.document["backfill"]["state"]) == (0, "done"), passed.words
    assert len(service.events()) == 8


def test_an_org_is_read_by_when_its_records_changed_and_the_feeds_bookmark_stays_where_it_is(
    desk: Desk, service: Service, put: Callable[..., None]
) -> None:
    put(a="Alfa", b="Bravo")
    assert desk.run().run["publish"]["delivered"] == 2
    put(a="Alfa", c="Charlie")
    past = backfill(desk, "--from", "2020-01-01", "--to", "2020-01-02")
    assert (past.code, past.document["read"], past.document["backfill"]["by"]) == (0, 0, "cursor"), past.words
    assert {one["run_id"] for one in past.document["backfill"]["slices"]} == {""}, "a query that counts is no run"
    whole = backfill(desk, "--from", "2020-01-01", "--to", "2099-12-31", "--slice", "9999")
    assert (whole.code, whole.document["sent"]) == (0, 1), whole.words
    onward = desk.run().run
    assert (onward["read"]["gone"], onward["vanished"], onward["publish"]["delivered"]) == (1, 1, 0), onward
    assert onward["notices"] == [], "it went on from where the first run ended"
    assert service.titles() == ["Alfa", "Bravo", "Charlie"]


def test_the_page_shows_what_the_commands_say(desk: Desk, service: Service) -> None:
    page = (Path(__file__).parents[2] / "docs" / "backfills.md").read_text("utf-8")
    (mapping,), (console,) = (
        re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL) for language in ("yaml", "console")
    )
    (desk.folder / "feeds" / "town.yaml").write_text(mapping, "utf-8")
    (desk.folder / "feeds" / "in").mkdir()
    for day, numbers in {"20260501": (1, 2), "20260503": (3, 4, 5)}.items():
        rows = (f"{number},Evening {number},2031-05-0{number}" for number in numbers)
        write_day(desk.folder / "feeds" / "in", day, "ID,TITLE,DAY", *rows)
    Reader(desk, port="none on this page").follow(Block("console", console, ""))
    assert len(service.events()) == 5
