"""The brakes on real runs: what stops a run, what a person lets through for that one run, and what else they may ask of it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from integration.desk import FEED, HEADER, TITLE, Desk, Said, line, lines
from integration.service import Service

pytestmark = pytest.mark.slow


def renamed(rows: Iterable[int], prefix: str, *, title: str = "Evening") -> list[str]:
    """The same evenings as `lines` makes, under other ids; those of another title begin at another hour."""
    hour = "19:30" if title == "Evening" else f"{8 + int(prefix)}:15"
    return [f"{prefix}{line(number, title=f'{title} {number}', hour=hour)}" for number in rows]


def dances(day_first: str, day: str) -> list[str]:
    """Dances of a May, or of the fifth of each month."""
    return [f"{day_first.format(n)},Dance {n},{day.format(n)},19:30,concert," for n in range(1, 13) if n != 5]


def stopped_by(said: Said) -> list[str]:
    """The brakes that stopped a run, whose exit code says so too."""
    assert (said.code == 5) is (said.run["outcome"] == "stopped by a brake"), said.words
    return list(said.run["brakes"]) if said.code == 5 else []


Step = tuple[str, str] | tuple[list[str] | None, str, str, int, int]
STORIES: dict[str, list[Step]] = {
    "a flood of new rows stays stopped however often it is read and what one run is allowed ends with it": [
        (lines(24), "", "done", 24, 0),
        (renamed(range(24), "9", title="Matinee"), "", "new", 24, 0),
        (None, "", "new", 24, 0),
        (None, "--accept new --limit 5", "done", 29, 24),
        (None, "", "new", 29, 24),
        (None, "--publish-only", "5", 29, 24),
        (None, "--publish-only --accept new", "done", 48, 24),
        (None, "", "done", 48, 24),
    ],
    "a programme that is new every week is let out by itself once a person has accepted it twice": [
        (renamed(range(24), "0"), "", "done", 24, 0),
        (renamed(range(24), "1", title="Week 1"), "", "new", 24, 0),
        (None, "--accept new", "done", 48, 24),
        (renamed(range(24), "2", title="Week 2"), "", "new", 48, 24),
        (None, "--accept new", "done", 72, 48),
        (renamed(range(24), "3", title="Week 3"), "--dry-run", "0", 72, 48),
        (None, "", "done", 96, 72),
        (renamed(range(80), "4", title="Week 4"), "", "new", 96, 72),
    ],
    "a word that a partner renames does not empty the feed in silence": [
        ("event:", "rows: [{keep: {column: GENRE, in: [concert]}, because: no concert}]\nevent:"),
        (lines(10), "", "done", 10, 0),
        (
            [line(number, genre="Konzert" if number < 4 else "concert") for number in range(10)],
            *("", "left_out: rule 1: no concert leaves out 4 of 10 delivered rows with upcoming events", 10, 0),
        ),
        (None, "--accept left_out", "done", 10, 4),
        (None, "", "done", 10, 4),
    ],
    "days and months change places": [
        (dances("{}.5.", "2020-05-{:02}"), "", "done", 11, 0),
        (dances("5.{}.", "2020-{:02}-05"), "", "new: equal missing rows in two of title, start and place", 11, 0),
        (None, "--accept new", "done", 22, 0),
        (None, "", "done", 22, 0),
    ],
    "titles are part of the key": [
        (lines(8), "", "done", 8, 0),
        ([f"x{line(n, title=f'EVENING no. {n}')}" for n in range(8)], "", "done: 8 (x0, x1, x2, …) held as likely copies", 8, 8),
        (None, "", "done", 8, 8),
    ],
    "another key": [
        (lines(5), "", "done", 5, 0),
        ("key: [ID]", "key: [ID, GENRE]"),
        ([line(number, title=f"Other {number}", day=f"2030-11-0{number + 1}") for number in range(5)], "", "keys", 5, 0),
        (None, "--accept keys", "done", 10, 5),
        (None, "", "done", 10, 5),
    ],
}
"""Edits of the mapping file, and runs: the rows if they are others, the run's words, how it ends (done, by which brake, by
which code) and what it says; then so many events there are, and so many rows have vanished or differ."""


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_run_is_stopped_or_let_through_as_its_rows_and_a_person_say(desk: Desk, service: Service, story: list[Step]) -> None:
    for step in story:
        if len(step) == 2:
            desk.edit(*step)
            continue
        rows, words, ending, events, different = step
        said = desk.run_with(rows, *words.split()) if rows is not None else desk.run(*words.split())
        how, _, shown = ending.partition(": ")
        assert shown in said.words, said.words
        if how.isdigit():
            assert said.code == int(how), said.words
        else:
            assert (stopped_by(said) or ["done"] * (said.code == 0)) == [how], said.words
        differing = [row for row in desk.books.rows() if row.vanished_at or row.drift_kind]
        assert (len(service.events()), len(differing)) == (events, different), step
    assert len({request["idempotency_key"] for request in service.requests()}) == len(service.events())


def test_a_feed_under_another_name_sends_nothing_again_until_a_person_wants_both(desk: Desk, service: Service) -> None:
    desk.run_with(lines(30), code=0)
    desk.edit(f"feed: {FEED}", "feed: city-hall")
    said = desk.command("run", "city-hall", "--no-dagster", "--json")
    assert (stopped_by(said), len(service.events())) == (["scope"], 30), said.words
    assert f"put `feed: {FEED}` back" in said.words
    for asking in (("status",), ("check", "--live"), ("preview", "city-hall")):
        assert f"feed {FEED} has 30 upcoming events and no mapping file" in desk.command(*asking).words
    (line,) = (line for line in desk.command("status").out.splitlines() if "its mapping file is gone" in line)
    assert line.split()[0] == FEED
    desk.command("status", FEED).assert_told(0, "its mapping file is gone", f"a file with `feed: {FEED}` lets it run again")
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


def city_hall(desk: Desk, *words: str, code: int | None = None) -> Said:
    """Run the feed under the name that it got."""
    return desk.command("run", "city-hall", "--no-dagster", "--json", *words, code=code)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("zone: Europe/Warsaw\n  timezone: Europe/Warsaw", "zone: Europe/London\n  timezone: Europe/London"),
        (TITLE, '{join: ["Town: ", {from: TITLE}]}'),
        ("key: [ID]", "key: [ID, GENRE]"),
    ],
    ids=["zone", "title", "key"],
)
def test_a_feed_that_is_renamed_and_edited_at_once_sends_nothing_again(desk: Desk, service: Service, old: str, new: str) -> None:
    desk.run_with(lines(6), code=0)
    desk.edit(f"feed: {FEED}", "feed: city-hall")
    desk.edit(old, new)
    known = f"6 of 6 rows are known to feed {FEED}"
    assert known in desk.command("preview", "city-hall", "--all", code=0).words
    assert known in desk.command("run", "city-hall", "--dry-run", code=5).words
    said = city_hall(desk)
    assert (stopped_by(said), len(service.events())) == (["scope"], 6), said.words
    said.assert_told(5, known, "resolve city-hall --state held --same-as", f"`feed: {FEED}`", "6 rows will be sent again")
    for asking in (("status", "city-hall"), ("check", "--live")):
        assert known in desk.command(*asking).words
    desk.command("resolve", "city-hall", "--state", "held", "--same-as", "--yes", code=0)
    city_hall(desk, code=0)
    assert len(service.events()) == 6


def test_a_feed_that_is_split_goes_on_once_its_rows_have_taken_over_their_events(desk: Desk, service: Service) -> None:
    desk.run_with(lines(9), code=0)
    desk.mapping(name="city.yaml", feed="city-hall")
    desk.edit("events.csv", "rest.csv")
    desk.source([*lines(4), line(40)])
    (desk.folder / "rest.csv").write_text("\n".join([HEADER, *lines(9)[4:]]) + "\n", "utf-8")
    for words in ((), ("--publish-only",)):
        said = city_hall(desk, *words, code=5)
        said.assert_told(5, "resolve city-hall --state held --same-as", "--accept scope", "4 rows will be sent again")
    desk.command("resolve", "city-hall", "--state", "held", "--same-as", "--yes", code=0)
    city_hall(desk, code=0)
    desk.run(code=0)
    city_hall(desk, code=0)
    assert len(service.events()) == 10
    assert desk.command("status", "city-hall", code=0).words.count("known to") == 0


def test_rows_that_are_renumbered_and_edited_at_once_are_held_with_their_events(desk: Desk, service: Service) -> None:
    desk.run_with(lines(8), code=0)
    rows = renamed(range(8), "9")
    rows[2], rows[5] = f"9{line(2, title='Matinee 2')}", f"9{line(5, hour='18:00')}"
    desk.run_with([*rows, line(50)], code=0)
    assert (len(service.events()), len(desk.rows("held"))) == (9, 8)
    desk.command("resolve", FEED, "--state", "held", "--same-as", "--yes", code=0)
    drifted = desk.run(code=0).run["standing"]["drift"]
    assert (len(service.events()), drifted["first"]) == (9, ["92", "95"])
    desk.run_with(rows[:7], code=0)
    desk.run_with([*rows[:7], f"x{line(7, hour='21:00')}"], code=0)
    desk.command("resolve", FEED, "x7", "--release", code=0)
    desk.run(code=0)
    assert len(service.events()) == 10


def test_a_renumbered_row_is_known_by_its_edit_too(desk: Desk, service: Service) -> None:
    desk.run_with(lines(8), code=0)
    edited = line(7, title="Matinee 7", hour="18:00")
    desk.run_with([*lines(7), edited], code=0)
    desk.run_with([*lines(7), f"9{edited}"], code=0)
    (held,) = desk.rows("held")
    assert (held["row_key"], held["candidate"]["row_key"], len(service.events())) == ("97", "7", 8)


def test_evenings_of_one_title_are_like_those_of_their_days(desk: Desk) -> None:
    desk.run_with([line(number, title="Yoga") for number in range(8)], code=0)
    desk.run_with([f"9{line(number, title='Yoga', hour='20:00')}" for number in (6, 1, 2, 3, 4, 5)], "--accept", "new", code=0)
    like = {held["row_key"]: held["candidate"]["row_key"] for held in desk.rows("held")}
    assert like == {f"9{number}": str(number) for number in range(1, 7)}


def test_evenings_of_one_title_in_a_renamed_feed_are_like_those_of_their_keys(desk: Desk) -> None:
    desk.run_with([line(number, title="Yoga") for number in range(6)], code=0)
    desk.edit(f"feed: {FEED}", "feed: city-hall")
    desk.source(line(number, title="Yoga", hour="20:00") for number in (5, 4, 3, 2, 1, 0))
    city_hall(desk, code=5)
    like = {held["row_key"]: held["candidate"]["row_key"] for held in desk.rows("held", feed="city-hall")}
    assert like == {str(number): str(number) for number in range(6)}


def test_a_change_of_one_field_in_most_rows_stops_the_new_ones_until_a_person_wants_it(desk: Desk, service: Service) -> None:
    desk.run_with(lines(30), code=0)
    swapped = [line(number, hour="20:30") for number in range(25)] + lines(31)[25:]
    said = desk.run_with(swapped)
    assert stopped_by(said) == ["changed"], said.words
    said.assert_told(5, "25 of 30 delivered rows with upcoming events have changed in startAt", "1 row will be sent")
    assert stopped_by(desk.run()) == ["changed"]
    assert desk.run_with(lines(30), code=0).run["standing"] == {}
    assert stopped_by(desk.run_with(swapped)) == ["changed"]
    desk.run("--accept", "changed", code=0)
    assert len(service.events()) == 31
    desk.run_with([*swapped, line(31)], code=0)
    assert len(service.events()) == 32
    desk.edit("brakes: {}", "brakes: {changed: off}")
    desk.edit(TITLE, '{join: ["Town: ", {from: TITLE}]}')
    desk.run(code=0)


def test_a_source_that_is_away_does_not_hold_back_what_is_staged(desk: Desk, service: Service) -> None:
    desk.run_with(lines(5), "--stage-only", code=0)
    waits, way = "5 staged rows wait", f"`eventsync run {FEED} --publish-only` sends them"
    desk.command("status", FEED, code=0).assert_told(0, waits, way)
    (desk.folder / "events.csv").rename(desk.folder / "away.csv")
    desk.run("--stage-only").assert_told(2, "there is no file", waits, way)
    said = desk.run("--limit", "3")
    said.assert_told(2, "there is no file", "2 staged rows wait", way)
    assert (said.run["publish"]["delivered"], len(service.events())) == (3, 3)
    service.switch(rate_events="1/h")
    desk.run().assert_told(2, "there is no file", "1 staged row waits", way)
    desk.run("--publish-only").assert_told(6, "1 staged row waits", way)
    assert len(service.events()) == 4
