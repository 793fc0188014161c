"""Plays a month: the daemon looks some times a day, and between two looks the partner, the service and a person act.

The truth about all that happened is there afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from lookalikes.notices import webhook
from month.office import CLOCK, FEED, Office, open_office
from month.service import SECRET, Service, serving
from month.worker import MonthClock
from on_dagster import desk

from pipelines.run.options import RunOptions
from state.database import StateDb
from state.opening import open_database
from state.queries import LedgerQueries, RunRecord

ZONE = ZoneInfo("Europe/Warsaw")
NIGHT = time(1)
"""When the partner lays the file down: before the first tick of the day."""
AT_FIRST = 20
MANY = 12
"""So many events are new on the days on which a run is struck: more than are in flight."""
LET_OUT = 5
"""So many answers get out before the rest is kept back."""
_FIRST_DAY = date(2027, 6, 1)
CRON = "30 2,14 * * *"
_LOOK = timedelta(minutes=30, seconds=20)
_HOURS = frozenset({0, 1, 6, 8, 12, 13, 20, 22})
"""The daemon looks a little after the half of these hours (UTC): all ticks are due in one of them, whatever clocks do."""
_RUNS = 1_000
MAPPING = desk.MAPPING.replace("15 */2 * * *", CRON).format(feed=FEED, source="events.csv")


@dataclass
class Partner:
    """`rows`: title and day of each event of the agenda, by its number; `ever`: the title first laid down in good order."""

    file: Path
    rows: dict[int, tuple[str, str]] = field(default_factory=dict)
    ever: dict[int, str] = field(default_factory=dict)

    def add(self, count: int, *, day: str = "") -> None:
        """Put new events into the agenda, at its end; each on a day of its own, or all on `day`."""
        first = max({*self.ever, *self.rows}, default=0) + 1
        for number in range(first, first + count):
            self.rows[number] = (f"Evening {number}", day or str(_FIRST_DAY + timedelta(days=number)))

    def name(self, number: int, title: str) -> None:
        self.rows[number] = (title, self.rows[number][1])

    def drop(self, count: int) -> None:
        for number in sorted(self.rows)[:count]:
            del self.rows[number]

    def mend_days(self) -> None:
        self.rows |= {number: (title, "2027-06-02") for number, (title, day) in self.rows.items() if day == "soon"}

    def deliver(self, header: str = desk.HEADER) -> None:
        lines = [f"{number},{title},{day},19:30,concert" for number, (title, day) in self.rows.items()]
        self.file.write_text("\n".join([header, *lines]) + "\n", "utf-8")
        self.ever = {number: title for number, (title, day) in self.rows.items() if day.startswith("20")} | self.ever


@dataclass
class World:
    """All who act in the month."""

    partner: Partner
    service: Service
    office: Office

    def one_more(self) -> None:
        """Lay the file down as it is every night: with another event."""
        self.partner.add(1)
        self.partner.deliver()


Act = Callable[[World], object]


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happens. `told`: in the page's words, "" for what happens every night."""

    at: datetime
    told: str
    act: Act


def _at(day: date, clock: time, told: str, act: Act = World.one_more) -> Happening:
    return Happening(datetime.combine(day, clock, ZONE), told, act)


def the_month(first: date, days: int) -> Iterator[Happening]:
    """Yield all that happens from a first of March on, in no order."""
    special = list(_bad_days(first))
    busy = {happening.at.date() for happening in special if happening.at.time() == NIGHT}
    yield from special
    yield from (_at(day, NIGHT, "") for number in range(days) if (day := first + timedelta(days=number)) not in busy)


def hard_days(first: date) -> Iterator[Happening]:
    """Yield what of a month's bad days has to do with the clock, in four days of which the last has an hour less."""
    one, two, three, four = (first + timedelta(days=number) for number in range(4))
    yield _at(one, NIGHT, f"the first file, of {AT_FIRST} events", _begin)
    yield _at(one, time(12), "the service is away until 09:00", _gone_until(two, time(9)))
    yield _at(two, time(9, 30), "a person runs the feed at 09:30", _asked_for(two, time(9, 30)))
    yield _at(two, time(10), "the daemon is stopped at 10:00", lambda world: world.office.stop())
    yield _at(three, NIGHT, "the service keeps answers back until 15:00", _many_and_slow)
    yield _at(three, time(9), "the daemon is started at 09:00", lambda world: setattr(world.office, "is_up", True))
    yield _at(three, time(15), "", _let_out)
    yield _at(four, NIGHT, "the worker is killed with requests in flight (kill -9)", _many_and_slow)
    yield _at(four, time(3, 45), "", _kill)


def a_quiet_day(day: date) -> Iterator[Happening]:
    yield _at(day, NIGHT, "the first file", _begin)


def _bad_days(first: date) -> Iterator[Happening]:
    def on(number: int, clock: time, told: str, act: Act = World.one_more) -> Happening:
        return _at(first.replace(day=number), clock, told, act)

    yield on(1, NIGHT, f"the first file, of {AT_FIRST} events", _begin)
    yield on(3, NIGHT, "an event that is online is edited", _then(lambda partner: partner.name(5, "Evening 5 in the garden")))
    yield on(5, NIGHT, "the edit is taken back", _then(lambda partner: partner.name(5, "Evening 5")))
    yield on(7, NIGHT, "two events that are over leave the file", _then(lambda partner: partner.drop(2)))
    yield on(8, NIGHT, "a column has another name", _rename_a_column)
    yield on(8, time(12), "the file is mended", lambda world: world.partner.deliver())
    yield on(10, NIGHT, "the file is empty", lambda world: world.partner.file.write_text(""))
    yield on(10, time(12), "then only its header is there", lambda world: world.partner.file.write_text(f"{desk.HEADER}\n"))
    yield on(12, NIGHT, "the file is late", lambda world: world.partner.file.unlink())
    yield on(12, time(10), "it comes at 10:00")
    yield on(14, NIGHT, "the service is away until 20:00", _gone_until(first.replace(day=14), time(20)))
    yield on(
        16,
        NIGHT,
        "the season is over: most events leave the file",
        _then(lambda partner: partner.drop(len(partner.rows) * 2 // 3)),
    )
    yield on(16, time(9), "a person accepts it at 09:00", _asked_for(first.replace(day=16), time(9), "shrink"))
    yield on(18, time(10), "the daemon is stopped at 10:00", lambda world: world.office.stop())
    yield on(20, time(9), "the daemon is started at 09:00", lambda world: setattr(world.office, "is_up", True))
    yield on(21, NIGHT, "two new events have no day", _then(lambda partner: partner.add(2, day="soon")))
    yield on(22, NIGHT, "they are mended", _then(Partner.mend_days))
    yield on(23, NIGHT, "the service keeps answers back until 15:00", _many_and_slow)
    yield on(23, time(15), "", _let_out)
    yield on(25, NIGHT, "the worker is killed with requests in flight (kill -9)", _many_and_slow)
    yield on(25, time(2, 45), "", _kill)
    yield on(29, NIGHT, "clocks go from 02:00 to 03:00")


def _then(change: Callable[[Partner], object]) -> Act:
    """The partner changes the agenda and lays the file down, with another event."""

    def act(world: World) -> None:
        change(world.partner)
        world.one_more()

    return act


def _asked_for(day: date, clock: time, *accepted: str) -> Act:
    return lambda world: world.office.ask_for(RunOptions(accept=accepted), datetime.combine(day, clock, ZONE))


def _gone_until(day: date, clock: time) -> Act:
    def act(world: World) -> None:
        world.service.back_at = datetime.combine(day, clock, ZONE)
        world.one_more()

    return act


def _begin(world: World) -> None:
    world.partner.add(2, day="2026-03-06")
    world.partner.add(AT_FIRST - 2)
    world.partner.deliver()


def _rename_a_column(world: World) -> None:
    world.partner.add(1)
    world.partner.deliver(desk.HEADER.replace("TITLE", "NAME"))


def _many_and_slow(world: World) -> None:
    world.partner.add(MANY)
    world.partner.deliver()
    world.service.hold_after(LET_OUT)
    world.office.elsewhere_until = lambda: world.service.held


def _let_out(world: World) -> None:
    world.service.let_out()
    assert world.office.elsewhere.said() == {"is_success": True}


def _kill(world: World) -> None:
    world.office.elsewhere.kill()
    world.service.let_out()


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


@dataclass
class Played(World):
    """A span that was played, with all who acted in it still there; `happened` by time."""

    span: Span
    happened: tuple[Happening, ...]
    engine: StateDb

    @property
    def runs(self) -> tuple[RunRecord, ...]:
        return LedgerQueries(self.engine).runs(feed=FEED, limit=_RUNS)[::-1]


@contextmanager
def played(folder: Path, span: Span, story: Iterable[Happening]) -> Iterator[Played]:
    happened = tuple(sorted(story, key=lambda happening: happening.at))
    clock = MonthClock(span.begin, folder / CLOCK)
    (folder / "feeds").mkdir()
    (folder / "feeds" / "town-hall.yaml").write_text(MAPPING, "utf-8")
    with ExitStack() as stack:
        service = stack.enter_context(serving(clock))
        inbox = stack.enter_context(webhook())
        environ = {"EVENT_API_BASE_URL": service.base_url, "EVENT_API_KEY": SECRET, "EVENTSYNC_NOTIFY": inbox.address()}
        environ |= {"EVENTSYNC_FEEDS": f"{folder}/feeds", "EVENTSYNC_STATE_URL": f"sqlite:///{folder}/state.db"}
        environ |= {"DAGSTER_HOME": f"{folder}/home", "EVENTSYNC_FILES": f"{folder}"}
        office = stack.enter_context(open_office(folder, environ, clock, inbox))
        partner = Partner(folder / "events.csv")
        _play(World(partner, service, office), span, happened)
        engine = open_database(office.settings.state_url)
        stack.callback(engine.dispose)
        yield Played(partner, service, office, span, happened, engine)


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
    hours = (span.begin.astimezone(UTC) + timedelta(hours=number) for number in range(25 * span.days))
    looks = [at + _LOOK for at in hours if at.hour in _HOURS and at + _LOOK < span.end]
    acts = [Happening(at, "", lambda world, at=at: world.office.beat(at)) for at in looks]
    for happening in sorted([*acts, *happened], key=lambda one: one.at):
        world.office.clock.set(happening.at)
        happening.act(world)
