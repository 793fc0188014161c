"""What is done to a run: which signals, one or two in a row, or the end of the service under it; and the instant aimed at."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from signal import SIGINT, SIGKILL, SIGTERM, Signals

from integration.desk import Command
from integration.service import Service
from integration.waiting import pause, until
from torture.phases import Lookout, Place

from pipelines.run.stage import CHUNK_ROWS

GAP_S = 0.25
"""The longest time between two signals of one blow."""
SERVICE_AWAY_S = 0.3
"""The longest time that a killed service stays away."""


@dataclass(frozen=True, slots=True)
class Blow:
    """A way to strike. `hits_service`: the service is killed and started again, before any signal."""

    name: str
    signals: tuple[Signals, ...]
    hits_service: bool = False

    @property
    def is_deadly(self) -> bool:
        """Whether the run can do nothing about it."""
        return bool(self.signals) and self.signals[0] is SIGKILL and not self.hits_service

    def strike(self, run: Command, service: Service, dice: random.Random) -> None:
        if self.hits_service:
            service.stop(is_sudden=True)
            pause(dice.uniform(0, SERVICE_AWAY_S))
            service.start()
        for number in self.signals[:1]:
            run.signal(number)
        for number in self.signals[1:]:
            pause(dice.uniform(0, GAP_S))
            run.signal(number)


_CHOICES = (
    (Blow("SIGKILL", (SIGKILL,)), 40),
    (Blow("SIGTERM", (SIGTERM,)), 12),
    (Blow("SIGINT", (SIGINT,)), 12),
    (Blow("SIGTERM, SIGTERM", (SIGTERM, SIGTERM)), 7),
    (Blow("SIGINT, SIGINT", (SIGINT, SIGINT)), 7),
    (Blow("SIGTERM, SIGKILL", (SIGTERM, SIGKILL)), 7),
    (Blow("SIGINT, SIGKILL", (SIGINT, SIGKILL)), 7),
    (Blow("service", (), hits_service=True), 4),
    (Blow("service, SIGKILL", (SIGKILL,), hits_service=True), 4),
)
BLOWS = tuple(blow for blow, _ in _CHOICES)


def draw_blow(dice: random.Random) -> Blow:
    return dice.choices(BLOWS, [weight for _, weight in _CHOICES])[0]


@dataclass(frozen=True, slots=True)
class Aim:
    """An instant: so long after this can be seen of the run. `sight` is asked until it is true, or the run has ended."""

    place: Place
    sight: Callable[[Lookout], bool]
    later_s: float

    def wait(self, lookout: Lookout, run: Command) -> None:
        until(lambda: run.has_ended or self.sight(lookout), what=f"a run at {self.place}")
        pause(self.later_s)


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a run can be let go: rows of its source, rows owed, seconds that it takes to begin."""

    rows: int
    owed: int
    start_s: float


_PLACES = {
    Place.START_UP: 10,
    Place.LISTS: 12,
    Place.STAGING: 22,
    Place.GATE: 12,
    Place.CLAIMING: 12,
    Place.IN_FLIGHT: 16,
    Place.SETTLING: 12,
    Place.AFTER: 4,
}
_MOST_ROWS = 120
"""The most rows that are sent before a blow, so that a feed is not done after a few."""


def draw_aim(dice: random.Random, reach: Reach) -> Aim:
    """Draw where to strike next."""
    place = dice.choices(tuple(_PLACES), tuple(_PLACES.values()))[0]
    first = dice.uniform(0, reach.start_s) if place is Place.START_UP else 0.0
    return Aim(place, _sight(place, dice, reach), first + dice.uniform(0, _LATEST_S[place]))


_LATEST_S = {
    Place.START_UP: 0.0,
    Place.LISTS: 0.02,
    Place.STAGING: 0.02,
    Place.GATE: 0.01,
    Place.CLAIMING: 0.01,
    Place.IN_FLIGHT: 0.01,
    Place.SETTLING: 0.005,
    Place.AFTER: 0.005,
}


def _sight(place: Place, dice: random.Random, reach: Reach) -> Callable[[Lookout], bool]:
    rows = dice.randint(0, reach.rows // CHUNK_ROWS) * CHUNK_ROWS
    owed = dice.randint(1, max(min(reach.owed, _MOST_ROWS), 1))
    return {
        Place.START_UP: lambda _: True,
        Place.LISTS: Lookout.is_at_the_lists,
        Place.STAGING: lambda lookout: lookout.has_read(rows),
        Place.GATE: Lookout.is_past_staging,
        Place.CLAIMING: Lookout.is_publishing,
        Place.IN_FLIGHT: lambda lookout: lookout.has_sent(owed),
        Place.SETTLING: lambda lookout: lookout.has_settled(owed),
        Place.AFTER: Lookout.is_over,
    }[place]
