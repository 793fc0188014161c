"""The pace of one route as one small value: when the next request may leave, what a 429 changes, and its form as text.

Who keeps it, in memory or in a place that several workers share, is told in `pacing` and `pace_sharing`; how an
estimate is made, in `pace_lesson`. Times are seconds on one clock, the keeper's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

from pydantic import TypeAdapter, ValidationError

from connectors.pace_curve import LOWEST_RATE, Curve
from connectors.pace_hit import Hit, Stretch
from connectors.pace_lesson import Lesson

_CATCH_UP_S = 0.02
"""How late a request may leave without those after it being put off as well: timers are no more exact than that."""
_LONGEST_CATCH_UP_S = 0.25
"""The same for a route that was seen to let several through at once."""
_CREDITED = 0.8
"""How much of what a bucket holds is counted on to make up for lateness: it fills while nothing leaves."""
_FIRST_UNPACED = 32
"""So many requests at most may have left before the first answer told of a limit."""
_LONGEST_TRUST_S = 900.0
"""A pause that lasts no longer than that is obeyed by later runs too; about a longer one their first request asks."""
_FORGOTTEN_AFTER_S = 86_400.0
"""An estimate that nobody used for so long is no better than none."""
_ALL_ANSWERED_S = 0.15
"""After a pause of so many seconds every request that left before it has been answered."""
_AGING = 0.05, 0.3
"""How much less certain an estimate is that was set aside: for a moment, and for as long as it is kept at all."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A 429: to the request let go at `at`, after `before` others of its stretch, when `wave` limits had been met.

    The answer came at `heard`, and the route rests `until` then; `is_told` if the service named that time.
    """

    wave: int
    at: float
    before: int
    heard: float
    until: float
    is_told: bool = True


@dataclass(frozen=True, slots=True)
class RoutePace:
    """All that is known of a route's limit. `curve` is None while none was ever met.

    `wave` numbers the limits met, `lesson` is what the last one has to teach, `burst` is how many requests the route let
    through at a time when the first one was met, `slot_at` when the last request was let go, `resume_at` the end of the
    last pause, `told` the rate that the service itself allows. `is_pause_doubtful`: an earlier run was told of a pause so
    long that the first request asks whether it holds.
    """

    curve: Curve | None = None
    wave: int = 0
    lesson: Lesson | None = None
    burst: float = 1.0
    resume_at: float = 0.0
    slot_at: float = 0.0
    stretch: Stretch = field(default=Stretch(0.0))
    told: float | None = None
    is_pause_doubtful: bool = False

    @property
    def is_known(self) -> bool:
        """Whether anything is known of a limit."""
        return self.curve is not None or self.told is not None

    def shifted(self, by_s: float) -> RoutePace:
        """Return the same pace as a clock that is `by_s` ahead tells it."""
        return replace(
            self,
            curve=self.curve and self.curve.shifted(by_s),
            lesson=self.lesson and self.lesson.shifted(by_s),
            resume_at=self.resume_at + by_s,
            slot_at=self.slot_at + by_s,
            stretch=self.stretch.shifted(by_s),
        )

    def rate_at(self, at: float) -> float:
        """Return the rate at that time: what was learned, but no more than what is told."""
        learned = self.curve.rate_at(at) if self.curve is not None else inf
        return min(learned, self.told or inf)

    def told_of(self, rate_per_s: float) -> RoutePace:
        """Return the pace once the service has told its limit: it lowers the rate, and never raises it.

        What left before anything was known counts as well.
        """
        told = max(rate_per_s, LOWEST_RATE)
        if self.is_known:
            return replace(self, told=told)
        return replace(self, told=told, slot_at=self.slot_at + (min(self.stretch.sent, _FIRST_UNPACED) - 1) / told)

    def resting(self, until: float) -> RoutePace:
        """Return the pace with nothing left until then, as the service told: no limit was met."""
        return replace(self, resume_at=max(until, self.resume_at), slot_at=max(until, self.slot_at))

    def slot(self, at: float) -> float:
        """Return when the next request may leave: at once, evenly spaced once a rate is known, never in a pause.

        A slot may lie in the near past, so that one request's being late does not put off the others.
        """
        if not self.is_known:
            return max(at, self.resume_at)
        return max(self._even(at), at - self._catch_up_s(at), self.resume_at)

    def granted(self, slot: float, at: float) -> RoutePace:
        """Return the pace after a request took `slot`; time in which nobody asked does not count as proof of the rate."""
        if not self.stretch.sent and self.lesson and self.lesson.hit.wait_s >= _ALL_ANSWERED_S:
            lesson = self.lesson.counted()
            if lesson is not self.lesson:
                return self._taught(lesson, self.resume_at, self.wave).granted(slot, at)
        unused_s = slot - max(self._even(at), self.resume_at)
        curve = self.curve.resting(unused_s) if self.curve is not None and unused_s > 0 else self.curve
        stretch = self.stretch.with_sent(max(slot, self.stretch.began))
        return RoutePace(curve, self.wave, self.lesson, self.burst, self.resume_at, slot, stretch, self.told)

    def met(self, limit: Limit) -> RoutePace:
        """Return the pace after a 429: the first of a wave begins a pause, later ones may prolong it."""
        return self._limited(limit) if limit.wave == self.wave else self._still_limited(limit)

    def _limited(self, limit: Limit) -> RoutePace:
        """Where nothing passed since the last pause, that pause was too short, and its lesson is learned anew."""
        resume_at = max(limit.until, self.resume_at)
        if limit.before or self.lesson is None:
            way_s, last = max(limit.heard - limit.at, 0.0), self.lesson
            hit = Hit(self.stretch, limit.at, limit.before, resume_at - limit.at, limit.is_told, on_its_way_s=way_s)
            known = (last.burst_by(hit), last.next_window) if last else (1.0, None)
            lesson = Lesson(self.curve, hit, *known)
        else:
            lesson = self.lesson.with_wait_again_until(resume_at)
        if not limit.is_told:
            resume_at = max(lesson.hit.likely_end(resume_at, limit.heard), self.resume_at)
            lesson = lesson.with_wait_until(resume_at)
        return self._taught(lesson, resume_at, self.wave + 1)

    def _still_limited(self, limit: Limit) -> RoutePace:
        """A late answer of an earlier wave may say more of what was let through, or ask for a longer pause."""
        lesson, resume_at = self.lesson, max(limit.until, self.resume_at)
        if lesson is None or self.stretch.sent:
            return self if resume_at == self.resume_at else replace(self, resume_at=resume_at, slot_at=resume_at)
        if limit.wave == self.wave - 1:
            lesson = lesson.with_another(limit.at, limit.before)
        if resume_at > self.resume_at:
            lesson = lesson.with_wait_until(resume_at)
        return self if lesson is self.lesson else self._taught(lesson, resume_at, self.wave)

    def _taught(self, lesson: Lesson, resume_at: float, wave: int) -> RoutePace:
        curve, hit = lesson.curve(resume_at), lesson.hit
        goes_on = lesson.before is not None and hit.is_brief
        stretch = hit.stretch.resumed(hit.before) if goes_on else Stretch(resume_at, wait_before_s=hit.wait_s)
        slot_at = resume_at - 1.0 / curve.rate_at(resume_at)
        return RoutePace(curve, wave, lesson, lesson.next_burst, resume_at, slot_at, stretch, self.told)

    def taken_up(self, at: float) -> RoutePace:
        """Return the pace as a later run begins with it: less certain with age, and forgotten in the end.

        A pause stands, unless it is so long that it is better asked about. Nothing that so long a one has taught is believed,
        even once it is over: a service that was away for a night has no limit of two requests a day.
        """
        resume_at = self.resume_at if self.resume_at - at <= _LONGEST_TRUST_S else at
        idle_s = at - max(self.slot_at, self.resume_at)
        begins = max(at, resume_at)
        was_long = self.lesson is not None and self.lesson.hit.wait_s > _LONGEST_TRUST_S
        if self.curve is None or was_long or idle_s > _FORGOTTEN_AFTER_S or resume_at < self.resume_at:
            is_doubtful = resume_at < self.resume_at
            return RoutePace(
                wave=self.wave, resume_at=resume_at, slot_at=begins, stretch=Stretch(begins), is_pause_doubtful=is_doubtful
            )
        fresh, stale = _AGING
        doubt = fresh + (stale - fresh) * max(idle_s, 0.0) / _FORGOTTEN_AFTER_S
        wait_s = max(idle_s, 0.0) + self.stretch.wait_before_s
        curve, stretch = self.curve.renewed(begins, doubt), Stretch(begins, wait_before_s=wait_s)
        return replace(self, curve=curve, slot_at=begins, stretch=stretch, told=None)

    def _even(self, at: float) -> float:
        return self.slot_at + 1.0 / self.rate_at(at)

    def _catch_up_s(self, at: float) -> float:
        spare_s = (self.burst - 1.0) * _CREDITED / self.rate_at(at)
        return min(max(spare_s, _CATCH_UP_S), _LONGEST_CATCH_UP_S)


_PACE = TypeAdapter(RoutePace)


def as_text(pace: RoutePace) -> str:
    """Write a pace as JSON, to be kept where other workers read it."""
    return _PACE.dump_json(pace).decode()


def from_text(text: str) -> RoutePace | None:
    """Read what `as_text` wrote; None for nothing, or for what another version has written otherwise."""
    try:
        return _PACE.validate_json(text) if text else None
    except ValidationError:
        return None
