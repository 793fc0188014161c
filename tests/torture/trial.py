"""A trial: feeds whose runs are killed again and again, resumed until done, edited meanwhile, and held to their promises."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals

from integration.desk import Command, Desk, WarmStart, made_desk
from integration.service import Service, serving
from integration.waiting import pause, until
from torture.observer import Observer, Place
from torture.promises import Programme, broken_at_the_end, broken_so_far

from pipelines.run.stage import CHUNK_ROWS

ROWS = 2_500
BLOWS_OF_ONE_FEED = 25
BLOWS_BETWEEN_CHECKS = 5
MOST_BLOWS = 10
"""The most blows for each that has to meet a run."""
LEAST_OWED = 30
MOST_SENT = 120
"""The most rows that are sent before a blow, so that a feed is not done after a few."""
SHARE_EDITED = 0.3
"""How often something is edited between two runs."""
START_S, GAP_S, SERVICE_AWAY_S = 0.12, 0.25, 0.3
"""The longest time that a run takes to begin, that lies between two signals of one blow, that a killed service stays away."""

IN_GOOD_ORDER = {0, 130}
"""How a run may end that was asked to stop: done, or interrupted with its state intact."""
WITHOUT_A_SERVICE = {6}
"""How it may end beside that where its service was killed: come back later."""
CUT_SHORT = {-2, -9, -15, 143}
"""How it may end where it was given no time for that: by the signal itself."""


@dataclass(frozen=True, slots=True)
class Blow:
    """Signals for a run, one or two in a row. `hits_service`: the service is killed and started again, before any signal."""

    signals: tuple[Signals, ...]
    weight: int
    hits_service: bool = False

    def strike(self, run: Command, service: Service, dice: random.Random) -> None:
        if self.hits_service:
            service.stop(is_sudden=True)
            pause(dice.uniform(0, SERVICE_AWAY_S))
            service.start()
        for place, number in enumerate(self.signals):
            pause(dice.uniform(0, GAP_S) if place else 0.0)
            run.signal(number)

    @property
    def allowed(self) -> set[int]:
        return IN_GOOD_ORDER | (CUT_SHORT if self.signals else set()) | (WITHOUT_A_SERVICE if self.hits_service else set())

    def __str__(self) -> str:
        return ", ".join([*["service"] * self.hits_service, *(one.name for one in self.signals)])


BLOWS = (
    *(Blow((SIGKILL,), 40), Blow((SIGTERM,), 12), Blow((SIGINT,), 12), Blow((SIGTERM, SIGTERM), 7), Blow((SIGINT, SIGINT), 7)),
    *(Blow((SIGTERM, SIGKILL), 7), Blow((SIGINT, SIGKILL), 7)),
    *(Blow((), 4, hits_service=True), Blow((SIGKILL,), 4, hits_service=True)),
)
AIMS = {
    Place.START_UP: (10, START_S),
    Place.LISTS: (12, 0.02),
    Place.STAGING: (22, 0.02),
    Place.GATE: (12, 0.01),
    Place.CLAIMING: (12, 0.01),
    Place.IN_FLIGHT: (16, 0.01),
    Place.SETTLING: (12, 0.005),
    Place.AFTER: (4, 0.005),
}
"""How often each place is aimed at, and how many seconds after it was seen the blow falls at the latest."""


@dataclass
class Toll:
    """What a trial has come to: blows by the place aimed at, those that came too late, feeds that were delivered."""

    met: Counter[Place] = field(default_factory=Counter)
    missed: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    """Of all feeds that came to their end: feeds, rows, events, repeated (rows sent once more), edits."""

    @property
    def blows(self) -> int:
        return self.met.total() + self.missed


@dataclass
class Feed:
    """One feed at one desk under blows."""

    desk: Desk
    service: Service
    dice: random.Random
    toll: Toll
    programme: Programme
    observer: Observer
    last: str = "before the first blow"

    def strike(self) -> None:
        """Start a run, strike it at a place, and see how it ends."""
        if self._owed() < LEAST_OWED:
            self.programme.edit("rows")  # a run that has nothing to send is over before it can be struck
        (aim,) = self.dice.choices(tuple(AIMS), [weight for weight, _ in AIMS.values()])
        (blow,) = self.dice.choices(BLOWS, [one.weight for one in BLOWS])
        self.observer.expect_next_run()
        run = self.desk.start_run()
        self._wait_for(aim, run)
        self.last = f"{blow} aimed at {aim}"
        is_late = run.has_ended
        if not is_late:
            blow.strike(run, self.service, self.dice)
        said = run.ended()
        self.hold([] if said.code in blow.allowed else [f"the run ended with {said.code}: {said.words}"])
        if is_late or (said.code == 0 and not blow.hits_service):
            self.toll.missed += 1
        else:
            self.toll.met[aim] += 1

    def finish(self) -> None:
        """Let one run go on undisturbed: it must be enough."""
        said = self.desk.run()
        self.hold([] if said.code == 0 else [f"an undisturbed run ended with {said.code}: {said.words}"])
        self.hold(broken_at_the_end(self.service, self.programme))
        repeated = sum(request["outcome"] == "replayed" for request in self.service.requests())
        rows, events = len(self.programme.rows), len(self.service.events())
        self.toll.sums.update(feeds=1, rows=rows, events=events, repeated=repeated, edits=self.programme.edits)

    def _wait_for(self, aim: Place, run: Command) -> None:
        staged = self.dice.randint(0, len(self.programme.rows) // CHUNK_ROWS) * CHUNK_ROWS
        rows = staged if aim is Place.STAGING else self.dice.randint(1, max(min(self._owed(), MOST_SENT), 1))
        later_s = self.dice.uniform(0, AIMS[aim][1])
        until(lambda: run.has_ended or self.observer.has_reached(aim, rows), what=f"a run at {aim}")
        pause(later_s)

    def _owed(self) -> int:
        return len(self.programme.rows) - Counter(self.desk.states().values())["delivered"]

    def hold(self, broken: list[str]) -> None:
        """Fail with the promises that are broken, if any are."""
        assert not broken, f"after blow {self.toll.blows} ({self.last}): {'; '.join(broken)}"


@dataclass(frozen=True, slots=True)
class Trial:
    """So many blows that meet a run, on one kind of state DB.

    `fresh_url` gives an empty database's address, None means a file at the desk.
    """

    kills: int
    seed: str
    fresh_url: Callable[[], str] | None
    advance: Callable[[Toll], None] = field(default=lambda _toll: None)
    rows: int = ROWS
    toll: Toll = field(default_factory=Toll)

    def run(self, folder: Path, warm: WarmStart) -> None:
        """Strike until so many blows have met a run; a busy machine makes most of them late, which proves nothing.

        Raises:
            AssertionError: a promise does not hold, or nine of ten blows are late.
        """
        dice = random.Random(self.seed)
        with serving(folder / "service", latency_ms=10) as service:
            while self.toll.met.total() < self.kills:
                assert self.toll.blows < MOST_BLOWS * self.kills, f"{self.toll.missed} of {self.toll.blows} blows were late"
                service.change("/reset")
                home = folder / f"feed-{self.toll.sums['feeds']}"
                home.mkdir()
                with made_desk(home, warm, self.fresh_url and self.fresh_url()) as desk:
                    desk.point_to(service)
                    self._strike_down(Feed(desk, service, dice, self.toll, Programme(desk, dice), Observer(desk, service)))

    def _strike_down(self, feed: Feed) -> None:
        feed.programme.add(self.rows)
        for blow in range(1, BLOWS_OF_ONE_FEED + 1):
            feed.strike()
            if blow % BLOWS_BETWEEN_CHECKS == 0:
                feed.hold(broken_so_far(feed.service, feed.programme))
            if feed.dice.random() < SHARE_EDITED:
                feed.last += f", then the {feed.programme.edit()} edited"
            self.advance(self.toll)
            if self.toll.met.total() == self.kills:
                break
        feed.finish()
