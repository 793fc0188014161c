"""What a 429 teaches about the rate of a route: which kind of limit it is, as far as can be told, and the curve that follows.

What was counted is `pace_hit`'s; what a window is, `pace_window`'s. A bucket of `burst` tokens that was full when the
stretch began has let through `burst` plus its rate times the seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

from connectors.pace_curve import GUESSED, LOWEST_RATE, SURE, Curve
from connectors.pace_hit import Hit
from connectors.pace_window import Window

_LONG_WAIT_S = 3.0
"""A wait of more seconds is no rounding of a short one (a date loses up to two): it says how long a window is."""
_STEEPEST = 0.25
_FLATTEST = 0.01
"""How far the rate begins below the estimate, and how fast it leaves it, for the least and the most certain estimate."""
_FIRST_PLATEAU_S = 1.0
"""Seconds until a first guess is reached: it is improved soon, or left behind."""
_PLATEAU_REQUESTS = 200
"""An estimate is held for the time of so many requests, so that meeting the limit stays rare."""
_PLATEAU_WAITS = 30.0
"""The same in waits: the dearer it is to meet the limit, the later it is tried."""
_LONGEST_WAIT_COUNTED_S = 2.0
_HASTY_PLATEAU_S = 4.0
"""The same for what was counted over less than a second: meeting the limit once more costs less than a rate that is too low."""
_OF_WINDOW = 0.0
"""What a window holds beside its rate, as a bucket would."""
_LEAST_LOST_BRIEFLY, _MOST_LOST_BRIEFLY = 0.03, 0.15
"""A limit that is met again within a moment tells little: no more than that of the estimate is given up."""
_TELLING = 4
"""Fewer requests between two limits tell nothing of a rate."""
_SMALL_BURST = 2.0
"""A bucket that holds less is emptied within a moment: what was counted over a second says less than the truth."""
_LIKE = 1.35
"""Rates that differ by less than this factor may be the same one, seen over a short time."""
_BOLD = 4.0
"""How far a first guess goes beyond what a window would let through: buckets rarely hold less than a quarter of a second's."""
_INEXACT_PLATEAU_S = 10.0
_WINDOW_PLATEAU_S = 60.0
"""A known window is kept to for so long; where its count is a guess, for less."""
_FEWEST = 3
_SOON_S = 2.0
"""A bucket is not met again so soon, nor by so few, at the rate that it was taken for."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a limit that was met has to teach: `before` is the curve until then, `burst` what was let through at a time.

    `window` is what the limit looked like until then, if it looked like one. `refused`: so many requests were, as far as is
    known; it is settled once nothing more can be learned of that.
    """

    before: Curve | None
    hit: Hit
    burst: float = 1.0
    window: Window | None = None
    refused: int = 1
    is_settled: bool = False

    def shifted(self, by_s: float) -> Lesson:
        """Return the same lesson as a clock that is `by_s` ahead tells it."""
        return replace(self, before=self.before and self.before.shifted(by_s), hit=self.hit.shifted(by_s))

    def with_wait_until(self, resume_at: float) -> Lesson:
        """Return the lesson of the same limit, whose pause turned out to be longer."""
        return replace(self, hit=self.hit.with_wait(resume_at - self.hit.at))

    def with_wait_again_until(self, resume_at: float) -> Lesson:
        """Return the lesson of the same limit, which a first request after the pause has met again."""
        hit = replace(self.hit, wait_s=resume_at - self.hit.at, too_short_s=self.hit.wait_s)
        return replace(self, hit=hit, is_settled=True)

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

    def counted(self) -> Lesson:
        """Return the lesson once every request of the stretch was answered: all that left passed, but for those refused."""
        passed = max(self.hit.stretch.sent - self.refused, 0)
        if self.is_settled or self.before is not None or passed == self.hit.before:
            return self
        return replace(self, hit=replace(self.hit, before=passed), is_settled=True)

    @property
    def next_window(self) -> Window | None:
        """The window that the limit looks like now."""
        if self.before is None:
            return Window(max(self.hit.before, 1), self.hit.window_s, self.hit.before)
        if self.window is None:
            return self._anew
        return self.window.after(self.hit, self.before)

    @property
    def _anew(self) -> Window | None:
        """What is met again soon at the rate of a bucket is none: it looks like a window once more."""
        hit, before = self.hit, self.before
        if before is None or hit.is_brief or hit.lasted_s > _SOON_S or hit.before < _FEWEST or before.doubt >= GUESSED:
            return None
        return Window(hit.before, hit.window_s, hit.before)

    @property
    def next_burst(self) -> float:
        """The tokens that a full bucket seems to hold, at least one; 0 once it is known to be a window."""
        if self.before is None:
            return max(min(float(self.hit.at_once), self.hit.tried), 1.0)
        window = self.next_window
        return _OF_WINDOW if window and window.is_known else self.burst

    def burst_by(self, later: Hit) -> float:
        """Return what a full bucket holds, now that `later` tells more of the rate at which it was filled meanwhile."""
        if self.before is not None:
            return self.next_burst
        return max(self.hit.before - later.kept(self.next_burst) * self.hit.lasted_s, self.next_burst / 2, 1.0)

    def curve(self, resume_at: float) -> Curve:
        """Return the curve that follows, from `resume_at` on."""
        if self.before is None:
            return Curve(max(self._first(), LOWEST_RATE), resume_at, _FIRST_PLATEAU_S, GUESSED)
        wait_s = min(self.hit.wait_s, _LONGEST_WAIT_COUNTED_S)
        window = self.next_window
        if window and window.is_known:
            limit = max(window.kept_to, LOWEST_RATE)
            if not window.is_exact:
                return Curve(limit, resume_at, _INEXACT_PLATEAU_S, SURE)
            return Curve(limit, resume_at, max(_WINDOW_PLATEAU_S, _PLATEAU_REQUESTS / limit), _FLATTEST / 2)
        limit, doubt = self._next(self.before)
        limit = max(limit, LOWEST_RATE)
        if self.hit.is_hasty(self.next_burst):
            return Curve(limit, resume_at, _HASTY_PLATEAU_S, doubt)
        longest_s = max(_PLATEAU_WAITS * wait_s, _PLATEAU_REQUESTS / limit)
        return Curve(limit, resume_at, max(longest_s * min(1.0, SURE / doubt) ** 1.5, _FIRST_PLATEAU_S), doubt)

    def _first(self) -> float:
        hit = self.hit
        if hit.wait_s > _LONG_WAIT_S:
            return hit.as_window
        return min(sqrt(hit.as_window * hit.tried), hit.as_window * _BOLD)

    def _next(self, before: Curve) -> tuple[float, float]:
        hit, burst = self.hit, self.next_burst
        counted = min(max((0.5 + burst / 4) / max(hit.before - burst, 1.0), _FLATTEST), _STEEPEST)
        if hit.wait_s > _LONG_WAIT_S:
            return hit.as_window, max(counted, SURE)
        window = self.next_window
        estimate = min(max(hit.as_bucket(burst), window.rate if window else hit.as_window), hit.tried)
        if hit.is_brief and (before.doubt < GUESSED or hit.before < _TELLING):
            lost = min(max(2.0 * before.doubt, _LEAST_LOST_BRIEFLY), _MOST_LOST_BRIEFLY)
            return max(estimate, before.limit * (1.0 - lost)), max(counted, SURE)
        is_passed_quickly = burst < _SMALL_BURST and before.rate_at(hit.at) > estimate * _LIKE
        return estimate, _STEEPEST if is_passed_quickly else counted
