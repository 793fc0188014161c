"""What happens in the month beside the schedule: the partner's nights, the bad days, what a person does, and when.

Plain values and small acts; who plays them is `play`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from month.office import Office
from month.partner import HEADER, Partner
from month.service import Service

from pipelines.run.options import RunOptions

ZONE = ZoneInfo("Europe/Warsaw")
NIGHT = time(1)
"""When the partner lays the file down: before the first tick of the day."""
AT_FIRST = 20
MANY = 12
"""So many events are new on the days on which a run is struck: more than are in flight."""
LET_OUT = 5
"""So many answers get out before the rest is kept back."""


@dataclass
class World:
    """Whoever acts in the month."""

    partner: Partner
    service: Service
    office: Office


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happens. `told`: in the page's words, "" for what happens every night."""

    at: datetime
    told: str
    act: Callable[[World], None]


def the_month(first: date, days: int) -> Iterator[Happening]:
    """Yield all that happens from a first of March on, in no order."""
    special = list(_bad_days(first))
    busy = {happening.at.date() for happening in special if happening.at.time() == NIGHT}
    yield from special
    yield from (_night(first + timedelta(days=day)) for day in range(days) if first + timedelta(days=day) not in busy)


def hard_days(first: date) -> Iterator[Happening]:
    """Yield what of a month's bad days has to do with the clock, in four days of which the last has an hour less."""

    def on(number: int, clock: time, told: str, act: Callable[[World], None]) -> Happening:
        return _at(first + timedelta(days=number), clock, told, act)

    back, by_hand = (datetime.combine(first + timedelta(days=1), time(9, minute), ZONE) for minute in (0, 30))
    yield on(0, NIGHT, f"the first file, of {AT_FIRST} events", _begin)
    yield on(0, time(12), "the service is away until 09:00", lambda world: _go_away(world, back))
    yield on(1, time(9, 30), "a person runs the feed at 09:30", lambda world: world.office.ask_for(RunOptions(), by_hand))
    yield on(1, time(10), "the daemon is stopped at 10:00", lambda world: world.office.stop())
    yield on(2, NIGHT, "the service keeps answers back until 15:00", _many_and_slow)
    yield on(2, time(9), "the daemon is started at 09:00", lambda world: world.office.start())
    yield on(2, time(15), "", _let_out)
    yield on(3, NIGHT, "the worker is killed with requests in flight (kill -9)", _many_and_slow)
    yield on(3, time(3, 45), "", _kill)


def a_quiet_time(first: date, days: int) -> Iterator[Happening]:
    """Yield the nights of some days on which nothing else happens."""
    yield _at(first, NIGHT, "the first file", _begin)
    yield from (_night(first + timedelta(days=day)) for day in range(1, days))


def _night(day: date) -> Happening:
    return _at(day, NIGHT, "", _one_more)


def _at(day: date, clock: time, told: str, act: Callable[[World], None]) -> Happening:
    return Happening(datetime.combine(day, clock, ZONE), told, act)


def _bad_days(first: date) -> Iterator[Happening]:
    def on(number: int, clock: time, told: str, act: Callable[[World], None]) -> Happening:
        return _at(first.replace(day=number), clock, told, act)

    back = datetime.combine(first.replace(day=14), time(20), ZONE)
    yield on(1, NIGHT, f"the first file, of {AT_FIRST} events", _begin)
    yield on(3, NIGHT, "an event that is online is edited", _edit)
    yield on(5, NIGHT, "the edit is taken back", _take_back)
    yield on(7, NIGHT, "two events that are over leave the file", _prune)
    yield on(8, NIGHT, "a column has another name", _rename_a_column)
    yield on(8, time(12), "the file is mended", _deliver)
    yield on(10, NIGHT, "the file is empty", lambda world: world.partner.deliver_text(""))
    yield on(10, time(12), "then only its header is there", lambda world: world.partner.deliver_text(f"{HEADER}\n"))
    yield on(12, NIGHT, "the file is late", lambda world: world.partner.take_away())
    yield on(12, time(10), "it comes at 10:00", _one_more)
    yield on(14, NIGHT, "the service is away until 20:00", lambda world: _go_away(world, back))
    yield on(16, NIGHT, "the season is over: most events leave the file", _end_the_season)
    yield on(16, time(9), "a person accepts it at 09:00", lambda world: _accept(world, first.replace(day=16)))
    yield on(18, time(10), "the daemon is stopped at 10:00", lambda world: world.office.stop())
    yield on(20, time(9), "the daemon is started at 09:00", lambda world: world.office.start())
    yield on(21, NIGHT, "two new events have no day", _add_without_days)
    yield on(22, NIGHT, "they are mended", _mend_days)
    yield on(23, NIGHT, "the service keeps answers back until 15:00", _many_and_slow)
    yield on(23, time(15), "", _let_out)
    yield on(25, NIGHT, "the worker is killed with requests in flight (kill -9)", _many_and_slow)
    yield on(25, time(2, 45), "", _kill)
    yield on(29, NIGHT, "clocks go from 02:00 to 03:00", _one_more)


def _begin(world: World) -> None:
    world.partner.add(2, day="2026-03-06")
    world.partner.add(AT_FIRST - 2)
    world.partner.deliver()


def _deliver(world: World) -> None:
    world.partner.deliver()


def _one_more(world: World) -> None:
    world.partner.add(1)
    world.partner.deliver()


def _edit(world: World) -> None:
    world.partner.change(5, title="Evening 5 in the garden")
    _one_more(world)


def _take_back(world: World) -> None:
    world.partner.change(5, title="Evening 5")
    _one_more(world)


def _prune(world: World) -> None:
    world.partner.drop(1, 2)
    _one_more(world)


def _rename_a_column(world: World) -> None:
    world.partner.add(1)
    world.partner.deliver(HEADER.replace("TITLE", "NAME"))


def _go_away(world: World, back: datetime) -> None:
    world.service.back_at = back
    _one_more(world)


def _end_the_season(world: World) -> None:
    rows = sorted(world.partner.rows)
    world.partner.drop(*rows[: len(rows) * 2 // 3])
    _one_more(world)


def _accept(world: World, day: date) -> None:
    world.office.ask_for(RunOptions(accept=("shrink",)), datetime.combine(day, time(9), ZONE))


def _add_without_days(world: World) -> None:
    world.partner.add(2, day="soon")
    _one_more(world)


def _mend_days(world: World) -> None:
    for row in [row for row in world.partner.rows.values() if row.day == "soon"]:
        world.partner.change(row.number, day="2027-06-02")
    _one_more(world)


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
