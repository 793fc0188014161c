"""A feed that is struck down again and again, resumed until it is done, edited between some runs, and held to its promises.

Several such feeds after one another, each from an empty state DB and an empty service, make an ordeal.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from integration.desk import Desk, Said, WarmStart, made_desk
from integration.service import Service, serving
from torture.blows import Blow, Reach, draw_aim, draw_blow
from torture.phases import Lookout, Place, Standing, now_s
from torture.programme import Programme
from torture.promises import broken_at_the_end, broken_so_far

ROWS = 2_500
BLOWS_OF_ONE_FEED = 25
BLOWS_BETWEEN_LOOKS = 5
LEAST_OWED = 30
SHARE_EDITED = 0.3
"""How often something is edited between two runs."""
LATENCY_MS = 10
IN_GOOD_ORDER = {0, 130}
"""How a run may end that was asked to stop: done, or interrupted with its state intact."""
WITHOUT_A_SERVICE = {6}
"""How it may end beside that where its service was killed: come back later."""
CUT_SHORT = {-2, -9, -15, 143}
"""How it may end where it was given no time for that: by the signal itself."""


class BrokenPromiseError(AssertionError):
    """What does not hold, and the blow after which it was seen."""


@dataclass(frozen=True, slots=True)
class Met:
    """A blow that met a run. `aimed`: where it was meant to; `standing`: where it did."""

    blow: Blow
    aimed: Place
    standing: Standing
    code: int


@dataclass
class Toll:
    """What an ordeal has come to: blows by signal and place, those that came too late, feeds that were delivered."""

    met: list[Met] = field(default_factory=list)
    missed: int = 0
    feeds: int = 0
    rows: int = 0
    events: int = 0
    repeated: int = 0
    edits: int = 0

    @property
    def blows(self) -> int:
        return len(self.met) + self.missed

    def by_signal_and_place(self) -> Counter[tuple[str, str]]:
        return Counter((met.blow.name, str(met.standing.place)) for met in self.met)

    def by_chunk(self) -> Counter[int]:
        return Counter(met.standing.chunk for met in self.met if met.standing.place is Place.STAGING)


@dataclass
class Feed:
    """One feed at one desk under blows."""

    desk: Desk
    service: Service
    dice: random.Random
    toll: Toll
    programme: Programme
    lookout: Lookout
    start_s: float = 0.12
    last: str = "before the first blow"

    def strike(self) -> None:
        """Start a run, let it come to a place, strike it there, and see how it ends."""
        self._leave_something_to_do()
        aim, blow = draw_aim(self.dice, self._reach()), draw_blow(self.dice)
        self.lookout.turn_to_the_next_run()
        run = self.desk.start_run()
        aim.wait(self.lookout, run)
        before = self.lookout.standing(now_s())
        instant = now_s()
        self.last = f"{blow.name} aimed at {aim.place}, run {before}"
        if run.has_ended:
            self._see_its_end(blow, run.ended(), is_met=False)
            return
        blow.strike(run, self.service, self.dice)
        said = run.ended()
        standing = self.lookout.standing(instant) if blow.is_deadly else before
        self._see_its_end(blow, said, is_met=said.code != 0 or blow.hits_service)
        if said.code != 0 or blow.hits_service:
            self.toll.met.append(Met(blow, aim.place, standing, said.code))

    def finish(self) -> None:
        """Let one run go on undisturbed: it must be enough."""
        said = self.desk.run()
        if said.code != 0:
            self._refuse(f"an undisturbed run ended with {said.code}: {said.words}")
        self._refuse_all(broken_at_the_end(self.desk, self.service, self.programme))
        requests = self.service.requests()
        self.toll.feeds += 1
        self.toll.rows += len(self.programme.rows)
        self.toll.events += len(self.service.events())
        self.toll.repeated += sum(request["outcome"] == "replayed" for request in requests)
        self.toll.edits += self.programme.edits

    def look(self) -> None:
        """Hold it to what is true at every moment."""
        self._refuse_all(broken_so_far(self.service, self.programme))

    def _see_its_end(self, blow: Blow, said: Said, *, is_met: bool) -> None:
        self.toll.missed += not is_met
        allowed = IN_GOOD_ORDER | (CUT_SHORT if blow.signals else set()) | (WITHOUT_A_SERVICE if blow.hits_service else set())
        if said.code not in allowed:
            self._refuse(f"the run ended with {said.code}: {said.words}")

    def _leave_something_to_do(self) -> None:
        """A run that has nothing to send is over before it can be struck."""
        if self._reach().owed < LEAST_OWED:
            self.programme.edit("rows")

    def _reach(self) -> Reach:
        states = Counter(self.desk.states().values())
        return Reach(len(self.programme.rows), len(self.programme.rows) - states["delivered"], self.start_s)

    def _refuse_all(self, broken: list[str]) -> None:
        if broken:
            self._refuse("; ".join(broken))

    def _refuse(self, what: str) -> None:
        raise BrokenPromiseError(f"after blow {self.toll.blows} ({self.last}): {what}")


@dataclass(frozen=True, slots=True)
class Ordeal:
    """So many blows on one kind of state DB. `fresh_url` gives an empty database's address, None means a file at the desk."""

    kills: int
    seed: str
    fresh_url: Callable[[], str] | None
    advance: Callable[[Toll], None] = field(default=lambda _toll: None)
    rows: int = ROWS
    toll: Toll = field(default_factory=Toll)

    def run(self, folder: Path, warm: WarmStart) -> None:
        """Strike until all blows are spent. Raises `BrokenPromiseError` at the first promise that does not hold."""
        dice = random.Random(self.seed)
        with serving(folder / "service", latency_ms=LATENCY_MS) as service:
            while self.toll.blows < self.kills:
                service.change("/reset")
                with self._feed(folder / f"feed-{self.toll.feeds}", warm, service, dice) as feed:
                    self._strike_down(feed, min(BLOWS_OF_ONE_FEED, self.kills - self.toll.blows))

    def _strike_down(self, feed: Feed, blows: int) -> None:
        feed.programme.begin(self.rows)
        for blow in range(1, blows + 1):
            feed.strike()
            if blow % BLOWS_BETWEEN_LOOKS == 0:
                feed.look()
            if feed.dice.random() < SHARE_EDITED:
                feed.last += f", then the {feed.programme.edit()} edited"
            self.advance(feed.toll)
        feed.finish()

    @contextmanager
    def _feed(self, home: Path, warm: WarmStart, service: Service, dice: random.Random) -> Iterator[Feed]:
        home.mkdir()
        with made_desk(home, warm, self.fresh_url and self.fresh_url()) as desk, closing(Lookout(desk, service)) as lookout:
            desk.point_to(service)
            yield Feed(desk, service, dice, self.toll, Programme(desk, dice), lookout)
