"""A limit that lets through the same number in every length of its own, fixed or sliding, and how it is told from a bucket.

What follows for the rate is `pace_lesson`'s. Lengths are round: a window is suspected from the first 429 on, and known
once a faster stretch has let through that number again, or is met so soon as no bucket is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

from connectors.pace_curve import GUESSED, Curve
from connectors.pace_hit import Hit

_LIKE = 1.35
"""A window that is longer than it seemed by this factor is another one."""
_SAME = 0.12
"""Counts that differ by a smaller share may be those of one window."""
_FASTER = 1.15
"""A stretch is a proof of what it was stopped by, where it was faster than that by this factor."""
_SLACK_S = 0.02
"""How much closer together than they left requests may arrive: what stays unused of each length of a window."""
_BELIEVED, _SURELY = 2.0, 3.0
"""Seen so often it is known, and is not given up for a single contradiction."""
_OVERFLOWN = 0.985
"""A window is met at a slowly growing rate where that is a little beyond it."""
_FEWEST = 3
"""A window that lets through fewer is as well taken for a bucket."""
_REFILLED_S = 0.5
"""After a pause of so many seconds a bucket holds something."""
_MOST_LOST = 0.8
"""No more of a window is given up at a time."""


@dataclass(frozen=True, slots=True)
class Window:
    """`count` requests in every `length_s` seconds; at most `most` passed at once. `seen` says how often it looked like that.

    `slack_s` of each length stay unused.
    """

    count: int
    length_s: float
    most: int
    seen: float = 1.0
    slack_s: float = _SLACK_S
    is_exact: bool = True

    @property
    def rate(self) -> float:
        """Its rate in requests per second."""
        return self.count / self.length_s

    @property
    def kept_to(self) -> float:
        """The rate at which it is not met."""
        return self.count / (self.length_s + self.slack_s)

    @property
    def is_known(self) -> bool:
        """Whether it was seen often enough to be believed."""
        return self.seen >= _BELIEVED

    def after(self, hit: Hit, before: Curve) -> Window | None:
        """Return what is known of it after `hit`, met on the curve `before`; None where it is no such window."""
        if self._is_same(hit) and hit.lasted_s + hit.least_wait_s > self.length_s * _LIKE:
            return Window(min(self.count, hit.before), hit.window_s, max(self.most, hit.before), max(self.seen, _BELIEVED))
        if self.is_known and before.rate_at(hit.at) < self.rate * _FASTER:
            return self._met_again(hit, before.rate_at(hit.at))
        if hit.lasted_s < 2.0 * self.length_s and hit.before <= 2 * self.most + 1:
            return self._within(hit, before)
        is_borne = hit.sustained(2.2 * self.length_s) > self.rate * _FASTER
        return None if is_borne or hit.before < self.count else self

    def _is_same(self, hit: Hit) -> bool:
        return abs(hit.before - self.count) <= self.count * _SAME + 0.5

    def _met_again(self, hit: Hit, rate: float) -> Window | None:
        """At the rate of the window itself it is met by chance, or because it is smaller than it seemed."""
        if rate < self.rate * (1 - _SAME) or hit.before < self.count / 2:
            return replace(self, seen=min(self.seen, _BELIEVED) - 1.0)
        if not self.is_exact and hit.lasted_s > 2.0 * self.length_s:
            return replace(self, count=max(int(rate * self.length_s * _OVERFLOWN), 1), is_exact=True)
        is_by_chance = hit.lasted_s > 2.0 * self.length_s or (self.slack_s == _SLACK_S and hit.lasted_s > self.length_s)
        return replace(self, slack_s=self.slack_s + _SLACK_S) if is_by_chance else self._smaller(hit)

    def _smaller(self, hit: Hit) -> Window:
        """What passed at once may have passed in two windows: the truth is between that and half of it."""
        least, most = min(self.count, max(hit.before, 1)), max(self.most, hit.before)
        count = max(int(max(sqrt(most / 2 * least), least * _MOST_LOST)), 1)
        return replace(self, count=count, most=most, seen=max(self.seen, _BELIEVED), is_exact=False)

    def _within(self, hit: Hit, before: Curve) -> Window | None:
        """A fixed window may end meanwhile: then up to twice as many pass, which a bucket would let through too.

        A bucket would not be met so soon at the rate that it was taken for.
        """
        count, most = min(self.count, max(hit.before, 1)), max(self.most, hit.before)
        if most > 2 * count + 1 or count < _FEWEST:
            return None
        rate, length_s = before.rate_at(hit.at), self.length_s
        if hit.lasted_s < length_s and rate > self.rate * _FASTER and self._is_same(hit):
            return Window(count, max(length_s, hit.window_s), most, _SURELY)
        is_no_bucket = before.doubt < GUESSED and rate < before.limit * 1.1 and hit.stretch.wait_before_s > _REFILLED_S
        return self._smaller(hit) if is_no_bucket else Window(count, length_s, most, self.seen)
