"""What a route was seen to bear, and the rate over time that follows from it: pure values, no clock and no waiting.

Who waits for what is `pacing`'s; how a limit is met is told here by `Stretch`, from the end of one pause to the next 429.

The estimate holds for token buckets and for windows alike. A bucket of `burst` tokens that was full when the stretch
began has let through `burst` plus its rate times the seconds; a window lets through the same number in every length of
its own, so that what passed over the stretch and the wait after it is its rate. The larger one is taken: each of them
is what the route certainly bears if it is of that kind, and less than that if it is of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor, sqrt

LOWEST_RATE = 1 / 3600
"""Requests per second that are always tried."""
LONG_WAIT_S = 3.0
"""A wait of more seconds is no rounding of a short one (a date loses up to two): it says how long a window is."""
_GUESSED = 0.3
"""The doubt of a first guess."""
_STEEPEST = 0.25
_FLATTEST = 0.01
"""How far the rate begins below the estimate, and how fast it leaves it, for the least and the most certain estimate."""
_LOWEST_START = 0.1
"""However doubtful an estimate: one that is too high is found out sooner than one that is too low."""
_FIRST_PLATEAU_S = 1.0
"""Seconds until a first guess is reached: it is improved soon, or left behind."""
_PLATEAU_REQUESTS = 200
"""An estimate is held for the time of so many requests, so that meeting the limit stays rare."""
_PLATEAU_WAITS = 30.0
"""The same in waits: the dearer it is to meet the limit, the later it is tried."""
_LONGEST_WAIT_COUNTED_S = 2.0
_SHORTEST_COUNT_S = 1.0
"""Requests are not counted over less: the limits of the world are made for seconds."""
_WINDOW_COUNT_S = 10.0
"""The same for windows, which let much through at once and then nothing."""
_UNTOLD_COUNT_S = 3.0
"""The same where no wait is named: whatever is counted is a guess, and the sooner it is improved the better."""
_OF_WINDOW = 0.0
"""What a window holds beside its rate, as a bucket would."""
_BRIEF_S = 3.0
_MOST_LOST_BRIEFLY = 0.85
"""A limit that is met again within a moment tells little: so much of the estimate stands at least."""
_WAY_BACK = 1 / 3
"""How far to go back, between the estimate and what passed overall, when the estimate itself turned out too high."""
_SMALL_BURST = 2.0
"""A bucket that holds less is emptied within a moment: what was counted over a second says less than the truth."""
_MARK_AFTER = 1 / 8
_LIKE = 1.35
"""Rates that differ by less than this factor may be the same one, seen over a short time."""
_BOLD = 4.0
"""How far a first guess goes beyond what a window would let through: buckets rarely hold less than a quarter of a second's."""
_SURE = 0.05
"""A doubt that is none: an estimate is then held for its full time."""
_LONG_STRETCH_S = 5.0
"""A stretch of so many seconds tells more than any suspicion."""
_MOST_MARKS = 48


@dataclass(frozen=True, slots=True)
class Curve:
    """A rate over time: `doubt` (a share) under `limit` (requests per second) at first, at it after the plateau, then above."""

    limit: float
    since: float
    plateau_s: float
    doubt: float

    def rate_at(self, at: float) -> float:
        """Return the rate at a time on the clock of `since`, in requests per second."""
        distance = max(at - self.since, 0.0) / self.plateau_s - 1.0
        share = min(self.doubt, _LOWEST_START) if distance < 0 else max(self.doubt, _SURE)
        return max(self.limit * (1.0 + share * distance**3), LOWEST_RATE)

    def resting(self, seconds: float) -> Curve:
        """Return the curve after so many seconds in which the rate was not used, and so proves nothing."""
        return replace(self, since=self.since + seconds)

    def renewed(self, at: float, doubt: float) -> Curve:
        """Return the same estimate to begin with anew at a later time, held with less certainty."""
        return replace(self, since=at, doubt=max(self.doubt, doubt))


@dataclass(frozen=True, slots=True)
class Stretch:
    """What left between two pauses. `marks`: (seconds since `began`, requests before that) at growing distances."""

    began: float
    sent: int = 0
    wait_before_s: float = 0.0
    marks: tuple[tuple[float, int], ...] = ()

    def resumed(self, before: int) -> Stretch:
        """Return the stretch as it goes on after a pause of a moment, counting it; `before` requests were let through."""
        return replace(self, sent=before, marks=tuple(mark for mark in self.marks if mark[1] <= before))

    def with_sent(self, at: float, more: int = 1) -> Stretch:
        """Return the stretch after `more` requests were let go, the first of them at `at`."""
        since = at - self.began
        last = self.marks[-1][0] if self.marks else 0.0
        is_due = since - last >= max(0.1, since * _MARK_AFTER) and len(self.marks) < _MOST_MARKS
        marks = (*self.marks, (since, self.sent)) if is_due else self.marks
        return Stretch(self.began, self.sent + more, self.wait_before_s, marks)


@dataclass(frozen=True, slots=True)
class Hit:
    """A limit that was met: by the request let go at `at` as number `before` + 1 of its stretch; `wait_s` is the pause.

    `is_told`: the service named it.
    """

    stretch: Stretch
    at: float
    before: int
    wait_s: float
    is_told: bool = True

    @property
    def lasted_s(self) -> float:
        """How long the stretch lasted, never quite nothing."""
        return max(self.at - self.stretch.began, 0.001)

    @property
    def tried(self) -> float:
        """The rate at which requests left last, over at least a second where there was as much."""
        return max((max(self.before, 1) - sent) / (self.lasted_s - since) for since, sent in self._starts())

    @property
    def sustained(self) -> float:
        """The rate that was borne for longer than the shortest windows are; 0.0 where the stretch was no longer."""
        rates = [(self.before - sent) / (self.lasted_s - since) for since, sent in self._starts(2.2) if self.lasted_s >= 2.2]
        return max(rates, default=0.0)

    @property
    def at_once(self) -> int:
        """How many of them left in the last moment."""
        return self.before - max((sent for _, sent in self.stretch.marks if sent < self.before), default=0)

    @property
    def as_window(self) -> float:
        """The rate of a window that let this stretch through and then asked to wait for its end.

        Windows are whole seconds long, and waits of seconds are rounded up.
        """
        length_s = self.lasted_s + self.wait_s
        return max(self.before, 1) / (floor(length_s) if self.wait_s >= 1.0 else length_s)

    def as_bucket(self, burst: float) -> float:
        """The rate of a bucket that held `burst` tokens when it was last full, or was refilled by the pause before."""
        return max(self.before / (self.lasted_s + self.stretch.wait_before_s), self.kept(burst))

    def kept(self, burst: float) -> float:
        """The rate of a bucket that was full when the stretch began, or at some time since."""
        window_s = _WINDOW_COUNT_S if self.is_told else _UNTOLD_COUNT_S
        least_s = window_s if burst == _OF_WINDOW else _SHORTEST_COUNT_S
        return max(
            (self.before - sent + 0.5 - max(burst, 1.0)) / max(self.lasted_s - since, _SHORTEST_COUNT_S)
            for since, sent in self._starts(least_s)
        )

    @property
    def overall(self) -> float:
        """The rate of what left since the pause before began."""
        return self.before / (self.lasted_s + self.stretch.wait_before_s)

    @property
    def is_brief(self) -> bool:
        """Whether it was met too soon to tell much, by a route that asks for no more than a moment."""
        return self.lasted_s < _BRIEF_S and self.wait_s < 1.0

    def _starts(self, least_s: float = _SHORTEST_COUNT_S) -> list[tuple[float, int]]:
        """Return the marks from which to count, each with the requests before it; the stretch's begin is always one."""
        return [(0.0, 0), *(mark for mark in self.stretch.marks if self.lasted_s - mark[0] >= least_s)]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a limit that was met has to teach: `before` is the curve until then, `burst` what was let through at a time.

    `suspected` is the rate if the limit is a window, or a bucket that holds what it lets through in a second or so: the
    commonest kinds. It holds until it is refuted. `refused`: so many requests were, as far as is known; it is settled once
    nothing more can be learned of that.
    """

    before: Curve | None
    hit: Hit
    burst: float = 1.0
    suspected: float | None = None
    refused: int = 1
    is_settled: bool = False

    def with_wait_until(self, resume_at: float) -> Lesson:
        """Return the lesson of the same limit, whose pause turned out to be longer."""
        return replace(self, hit=replace(self.hit, wait_s=resume_at - self.hit.at))

    def with_wait_again_until(self, resume_at: float) -> Lesson:
        """Return the lesson of the same limit, which a first request after the pause has met again."""
        return replace(self.with_wait_until(resume_at), is_settled=True)

    def with_another(self, at: float, before: int) -> Lesson:
        """Return the lesson of the same limit, which refused one more request: let go at `at`, after `before` others.

        Requests overtake one another: what was let through is what left until the last refused one, without the refused.
        """
        if self.is_settled:
            return self
        hit, latest = self.hit, max(self.hit.at, at)
        passed = max(hit.before + self.refused - 1, before) - self.refused
        met = replace(hit, at=latest, before=max(passed, 0), wait_s=hit.wait_s + hit.at - latest)
        return replace(self, hit=met, refused=self.refused + 1)

    @property
    def next_suspected(self) -> float | None:
        """The suspected rate, or None once this limit has refuted it."""
        if not self.hit.is_told:
            return None
        if self.before is None:
            return self.hit.as_window
        if self.suspected is None or not self.suspected / _LIKE <= self.hit.as_window <= self.suspected * _LIKE:
            return None
        is_within = self.hit.tried * 1.1 >= self.suspected >= max(self.hit.kept(self.burst), self.hit.sustained) / _LIKE
        return self.suspected if is_within else None

    @property
    def next_burst(self) -> float:
        """The tokens that a full bucket seems to hold, at least one; 0 once it looks like a window."""
        if self.before is None:
            return max(min(float(self.hit.at_once), self.hit.tried), 1.0)
        likely = self.next_suspected or self.hit.as_window
        return _OF_WINDOW if self.hit.kept(self.burst) < likely * 0.75 else self.burst

    def burst_by(self, later: Hit) -> float:
        """Return what a full bucket holds, now that `later` tells more of the rate at which it was filled meanwhile."""
        if self.before is not None:
            return self.next_burst
        return max(self.hit.before - later.kept(self.next_burst) * self.hit.lasted_s, self.next_burst / 2, 1.0)

    def curve(self, resume_at: float) -> Curve:
        """Return the curve that follows, from `resume_at` on."""
        limit, doubt = self._first() if self.before is None else self._next(self.before)
        limit = max(limit, LOWEST_RATE)
        longest_s = max(_PLATEAU_WAITS * min(self.hit.wait_s, _LONGEST_WAIT_COUNTED_S), _PLATEAU_REQUESTS / limit)
        plateau_s = _FIRST_PLATEAU_S if self.before is None else max(longest_s * min(1.0, _SURE / doubt) ** 1.5, _FIRST_PLATEAU_S)
        return Curve(limit, resume_at, plateau_s, doubt)

    def _first(self) -> tuple[float, float]:
        hit = self.hit
        is_long = hit.wait_s > LONG_WAIT_S
        return (hit.as_window if is_long else min(sqrt(hit.as_window * hit.tried), hit.as_window * _BOLD)), _GUESSED

    def _next(self, before: Curve) -> tuple[float, float]:
        hit, burst, suspected = self.hit, self.next_burst, self.next_suspected
        counted = min(max((0.5 + burst / 4) / max(hit.before - burst, 1.0), _FLATTEST), _STEEPEST)
        if hit.wait_s > LONG_WAIT_S:
            return hit.as_window, max(counted, _SURE)
        if suspected is not None and hit.lasted_s < _LONG_STRETCH_S:
            return suspected, max(counted, _SURE)
        estimate = min(max(hit.as_bucket(burst), hit.as_window), hit.tried)
        if hit.is_brief and before.doubt < _GUESSED:
            return max(estimate, before.limit * _MOST_LOST_BRIEFLY), _SURE
        if burst == _OF_WINDOW and before.rate_at(hit.at) <= before.limit * 1.01:
            nearer = (min(hit.overall, estimate) / estimate) ** _WAY_BACK
            return estimate * nearer, max(counted, min(_STEEPEST, 0.5 / hit.lasted_s))
        is_passed_quickly = burst < _SMALL_BURST and before.rate_at(hit.at) > estimate * _LIKE
        return estimate, _STEEPEST if is_passed_quickly else counted
