"""Plays a month: the daemon looks some times a day, and between two looks happens what the story says. The truth afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from lookalikes.notices import webhook
from month.office import CLOCK, FEED, Office, open_office
from month.service import SECRET, Service, serving
from month.story import ZONE, Happening, Partner, World
from month.worker import MonthClock
from on_dagster import desk

from state.database import StateDb
from state.opening import open_database
from state.queries import LedgerQueries, RunRecord

CRON = "30 2,14 * * *"
_LOOK = timedelta(minutes=30, seconds=20)
_HOURS = frozenset({0, 1, 6, 8, 12, 13, 20, 22})
"""The daemon looks a little after the half of these hours (UTC): all ticks are due in one of them, whatever clocks do."""
_RUNS = 1_000
MAPPING = desk.MAPPING.replace("15 */2 * * *", CRON).format(feed=FEED, source="events.csv")


@dataclass(frozen=True, slots=True)
class Span:
    """The days that are played."""

    first: date
    days: int

    @property
    def begin(self) -> datetime:
        return datetime.combine(self.first, time(), ZONE)

    @property
    def end(self) -> datetime:
        return datetime.combine(self.first + timedelta(days=self.days), time(), ZONE)


@dataclass(frozen=True, slots=True)
class Played:
    """A span that was played, with all who acted in it still there; `happened` by time."""

    span: Span
    happened: tuple[Happening, ...]
    partner: Partner
    service: Service
    office: Office
    engine: StateDb

    @property
    def runs(self) -> tuple[RunRecord, ...]:
        """All runs, by time."""
        return LedgerQueries(self.engine).runs(feed=FEED, limit=_RUNS)[::-1]


@contextmanager
def played(folder: Path, span: Span, story: Iterable[Happening]) -> Iterator[Played]:
    """Play a story in an empty folder."""
    happened = tuple(sorted(story, key=lambda happening: happening.at))
    clock = MonthClock(span.begin, folder / CLOCK)
    (folder / "feeds").mkdir()
    (folder / "feeds" / "town-hall.yaml").write_text(MAPPING, "utf-8")
    with ExitStack() as stack:
        service = stack.enter_context(serving(clock))
        inbox = stack.enter_context(webhook())
        environ = {
            "EVENT_API_BASE_URL": service.base_url,
            "EVENT_API_KEY": SECRET,
            "EVENTSYNC_FEEDS": str(folder / "feeds"),
            "EVENTSYNC_STATE_URL": f"sqlite:///{folder / 'state.db'}",
            "EVENTSYNC_NOTIFY": inbox.address(),
            "DAGSTER_HOME": str(folder / "home"),
        }
        office = stack.enter_context(open_office(folder, environ, clock, inbox))
        partner = Partner(folder / "events.csv")
        _play(World(partner, service, office), span, happened)
        engine = open_database(office.settings.state_url)
        stack.callback(engine.dispose)
        yield Played(span, happened, partner, service, office, engine)


def expected_ticks(span: Span) -> Iterator[datetime]:
    """Yield the schedule's ticks in UTC, worked out from the calendar alone: twice a day by the feed's own clock."""
    for number in range(span.days):
        for clock in (time(2, 30), time(14, 30)):
            wall = datetime.combine(span.first + timedelta(days=number), clock)
            at = wall.replace(tzinfo=ZONE, fold=1).astimezone(UTC)  # of a time that clocks show twice the second
            if at.astimezone(ZONE).replace(tzinfo=None) != wall:  # and of one that they skip the moment to which they go
                at = wall.replace(hour=wall.hour + 1, minute=0, tzinfo=ZONE).astimezone(UTC)
            yield at


def _play(world: World, span: Span, happened: Iterable[Happening]) -> None:
    looks = [Happening(at, "", lambda world, at=at: world.office.beat(at)) for at in _looks(span)]
    for happening in sorted([*looks, *happened], key=lambda one: one.at):
        world.office.clock.set(happening.at)
        happening.act(world)


def _looks(span: Span) -> Iterator[datetime]:
    at = span.begin.astimezone(UTC)
    while at + _LOOK < span.end:
        if at.hour in _HOURS:
            yield at + _LOOK
        at += timedelta(hours=1)
