"""Mapping files watched on a real disk, and ticks and staleness of a feed as Dagster works them out."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from zoneinfo import ZoneInfo

import httpx
import pytest
from dagster._core.definitions.freshness import CronFreshnessPolicy, TimeWindowFreshnessPolicy
from dagster._utils.schedules import get_latest_completed_cron_tick
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.pipelines.feed_files import feed

from mappings.spec.feed import Schedule
from pipelines.cli.reloader import Reloader, watch
from pipelines.cli.webserver import DagsterRefusedError, Webserver
from pipelines.orchestration.freshness import freshness_of
from pipelines.ticks import last_tick

LOADED = {"__typename": "WorkspaceLocationEntry", "locationOrLoadError": {"__typename": "RepositoryLocation"}}
IN_VAIN_S = 60.0
LOOKUP = "  locationName: {from: GENRE, do: [{lookup: ../lists/genres.csv}]}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    feeds, lists = tmp_path / "feeds", tmp_path / "lists"
    feeds.mkdir()
    lists.mkdir()
    (lists / "genres.csv").write_text("genre,slug\nconcert,music\n", "utf-8")
    feed(feeds, more=LOOKUP, name="one")
    return feeds


def asking(folder: Path, *answers: object) -> Reloader:
    """A reloader of a webserver that gives these answers in turn, the last one for ever; a number is a bare status."""
    script = list(answers)

    def answer(_request: httpx.Request) -> httpx.Response:
        said = script.pop(0) if len(script) > 1 else script[0]
        is_status = isinstance(said, int)
        return httpx.Response(said) if is_status else httpx.Response(200, json={"data": {"reloadRepositoryLocation": said}})

    http = httpx.Client(base_url="http://dagster.example", transport=httpx.MockTransport(answer))
    return Reloader(Webserver(http, "eventsync"), folder, (folder.parent,))


FAILED = {"__typename": "PythonError", "message": "no such module"}


@pytest.mark.parametrize(
    "said",
    [LOADED | {"locationOrLoadError": FAILED}, {"__typename": "RepositoryLocationNotFound", "message": "no such module"}],
)
def test_definitions_that_cannot_be_loaded_are_an_error_with_dagsters_own_words(folder: Path, said: object) -> None:
    with pytest.raises(DagsterRefusedError, match="no such module"):
        asking(folder, said).reload()


@contextmanager
def watching(folder: Path) -> Iterator[queue.Queue[str]]:
    """Watch the folder, beginning with what it holds; yields what is told."""
    told: queue.Queue[str] = queue.Queue()
    stop = Event()
    thread = Thread(target=watch, args=(asking(folder, LOADED), told.put, stop))
    thread.start()
    try:
        assert "1 feed" in told.get(timeout=IN_VAIN_S)
        yield told
    finally:
        stop.set()
        thread.join(IN_VAIN_S)
        assert not thread.is_alive()


@pytest.mark.slow
def test_each_change_is_shown_once_and_a_broken_file_is_told_with_its_line(folder: Path) -> None:
    two = folder / "two.yaml"
    with watching(folder) as told:
        feed(folder, name="two")
        assert "2 feeds" in told.get(timeout=IN_VAIN_S)
        two.write_text(two.read_text("utf-8").replace("title:", "titel:"), "utf-8")
        assert "1 feed, 1 broken" in told.get(timeout=IN_VAIN_S)
        assert "two.yaml:5:" in told.get(timeout=IN_VAIN_S)
        two.unlink()
        assert told.get(timeout=IN_VAIN_S).endswith("1 feed")
        genres = folder.parent / "lists" / "genres.csv"
        genres.write_text(genres.read_text("utf-8") + "play,theatre\n", "utf-8")
        assert told.get(timeout=IN_VAIN_S).endswith("1 feed")
        assert told.empty()


def test_a_dagster_that_would_not_reload_is_told_of_and_asked_again(folder: Path) -> None:
    reloader, told = asking(folder, 502, LOADED), list[str]()
    assert not reloader.reload_if_changed(told.append)
    assert "does not answer" in told[0]
    for _ in range(2):
        assert reloader.reload_if_changed(told.append)
    assert len(told) == 2


ZONE = "Europe/Warsaw"


def schedule(cron: str) -> Schedule:
    return Schedule.model_validate({"cron": cron, "timezone": ZONE})


def is_stale(cron: str, *, published: str, now: str) -> bool:
    """As Dagster evaluates a policy."""
    policy = freshness_of(schedule(cron))
    at, last = (datetime.fromisoformat(moment).replace(tzinfo=ZoneInfo(ZONE)) for moment in (now, published))
    if isinstance(policy, TimeWindowFreshnessPolicy):
        return at - last >= policy.fail_window.to_timedelta()
    assert isinstance(policy, CronFreshnessPolicy)
    return last < get_latest_completed_cron_tick(policy.deadline_cron, at, ZONE) - policy.lower_bound_delta


@pytest.mark.parametrize(
    ("cron", "published", "now", "stale"),
    [
        # Monday 2031-05-05; every two hours
        ("15 */2 * * *", "2031-05-05T06:16", "2031-05-05T08:14", False),
        ("15 */2 * * *", "2031-05-05T06:16", "2031-05-05T09:14", False),
        ("15 */2 * * *", "2031-05-05T06:16", "2031-05-05T09:16", True),
        ("15 */2 * * *", "2031-05-05T08:55", "2031-05-05T09:16", False),
        # on weekdays: a weekend without a run is not stale, a missed Monday is within the hour
        ("0 6 * * 1-5", "2031-05-02T06:03", "2031-05-04T23:00", False),
        ("0 6 * * 1-5", "2031-05-02T06:03", "2031-05-05T06:59", False),
        ("0 6 * * 1-5", "2031-05-02T06:03", "2031-05-05T07:01", True),
        # every quarter of an hour
        ("*/15 * * * *", "2031-05-05T06:01", "2031-05-05T06:29", False),
        ("*/15 * * * *", "2031-05-05T06:01", "2031-05-05T06:31", True),
        # once a month, before midnight
        ("30 23 1 * *", "2031-05-01T23:31", "2031-05-31T12:00", False),
        ("30 23 1 * *", "2031-05-01T23:31", "2031-06-02T00:01", True),
    ],
)
def test_a_feed_is_stale_once_a_tick_is_old_and_nothing_was_published_since(
    cron: str, published: str, now: str, *, stale: bool
) -> None:
    assert is_stale(cron, published=published, now=now) is stale


MINUTES = st.sampled_from(["*", "0", "30", "*/15", "0,30", "5-50/15", "59", "50-10/5"])
HOURS = st.sampled_from(["*", "6", "*/2", "6,18", "6-20", "22-6", "23", "0-23/3"])


def test_a_feed_without_a_clock_is_never_stale_and_has_no_tick() -> None:
    by_looking = Schedule.model_validate({"look_every": "5m"})
    assert freshness_of(None) is None
    assert freshness_of(by_looking) is None
    assert last_tick(by_looking, datetime(2031, 5, 5, tzinfo=UTC)) is None


DAYS = st.sampled_from(["*", "1", "1,15", "30", "28-31", "*/10"])
MONTHS = st.sampled_from(["*", "6", "jun-aug", "6,SEP", "5-9/2"])
WEEKDAYS = st.sampled_from(["*", "1-5", "mon", "0", "7", "sat,sun", "fri-7"])
SUMMER = st.datetimes(datetime(2031, 5, 1), datetime(2031, 9, 30), timezones=st.just(UTC))  # noqa: DTZ001  # as hypothesis asks


@settings(max_examples=60, deadline=None)  # Dagster counts a thousand ticks of each new line
@given(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS, SUMMER)
def test_the_last_tick_is_the_one_at_which_dagster_ticks(
    minute: str, hour: str, day: str, month: str, weekday: str, at: datetime
) -> None:
    cron = f"{minute} {hour} {day} {month} {weekday}"
    ours = last_tick(schedule(cron), at)
    theirs = get_latest_completed_cron_tick(cron, at, "Europe/Warsaw")
    if ours is None or (ours.year == at.year and 4 < ours.month < 10):  # clocks are put forward and back outside
        assert ours == theirs


@pytest.mark.parametrize(
    ("cron", "at", "last"),
    [
        ("0 6 * * *", "2031-05-05T04:00", "2031-05-05T04:00"),
        ("0 6 29 2 *", "2031-05-05T04:00", "2028-02-29T05:00"),
        ("0 6 29 2 *", "2104-02-28T04:00", "2096-02-29T05:00"),
    ],
)
def test_the_last_tick_may_be_this_very_moment_or_long_ago(cron: str, at: str, last: str) -> None:
    before, found = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (at, last))
    assert last_tick(schedule(cron), before) == found
