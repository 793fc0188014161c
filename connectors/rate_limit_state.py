"""The rate of a route over time, as it follows from one estimate: a pure value, no clock and no waiting.

Where the estimate comes from is `pace_lesson`'s; who waits for what, `pacing`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import cbrt, inf, sqrt
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from connectors.retry import Clock
from mappings.errors import SyncError

LOWEST_RATE = 1 / 3600
"""Requests per second that are always tried."""
_LOWEST_START = 0.1
"""However doubtful an estimate: one that is too high is found out sooner than one that is too low."""
GUESSED = 0.3
"""The doubt of a first guess."""
SURE = 0.05
"""A doubt that is none: an estimate is then held for its full time, and left no more slowly than that."""


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
        share = min(self.doubt, _LOWEST_START) if distance < 0 else max(self.doubt, SURE)
        more = share * distance**3
        return max(self.limit * (1.0 + (more if more < 1.0 else cbrt(more))), LOWEST_RATE)

    def shifted(self, by_s: float) -> Curve:
        """Return the same curve as a clock that is `by_s` ahead tells it."""
        return replace(self, since=self.since + by_s)

    def resting(self, seconds: float) -> Curve:
        """Return the curve after so many seconds in which the rate was not used, and so proves nothing."""
        return replace(self, since=self.since + seconds)

    def renewed(self, at: float, doubt: float) -> Curve:
        """Return the same estimate to begin with anew at a later time, held with less certainty."""
        return replace(self, since=at, doubt=max(self.doubt, doubt))


_SHORTEST_COUNT_S = 1.0
"""Requests are not counted over less: the limits of the world are made for seconds."""
_MANY, _MANY_TIMES_HELD = 30, 3.0
"""So many, and so many times what the bucket holds, may be counted over less: an error of one or two weighs little then."""
_LONG_FOR_ITS_WAY = 10.0
"""That is so where answers are prompt: it has to be so many times longer than one takes, during which others have left."""
_BRIEF_S = 3.0
_MARK_AFTER = 1 / 8
_MOST_MARKS = 48
_LENGTHS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
"""How long windows are, in a world made by people."""
_SHORTEST_GUESS_S = 0.25
_ROUNDED_S = 1.2
_LATE_S = 0.1
"""How much longer one request may be on its way than another."""


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

    def shifted(self, by_s: float) -> Stretch:
        """Return the same stretch as a clock that is `by_s` ahead tells it."""
        return replace(self, began=self.began + by_s)

    def with_sent(self, at: float) -> Stretch:
        """Return the stretch after one more request was let go, at `at`."""
        since = at - self.began
        last = self.marks[-1][0] if self.marks else 0.0
        is_due = since - last >= max(0.1, since * _MARK_AFTER) and len(self.marks) < _MOST_MARKS
        marks = (*self.marks, (since, self.sent)) if is_due else self.marks
        return Stretch(self.began, self.sent + 1, self.wait_before_s, marks)


@dataclass(frozen=True, slots=True)
class Hit:
    """A limit that was met: by the request let go at `at` as number `before` + 1 of its stretch; `wait_s` is the pause.

    `is_told`: the service named it. `too_short_s` is a pause that turned out to be too short, 0.0 where none did;
    `on_its_way_s` went by until the answer was there.
    """

    stretch: Stretch
    at: float
    before: int
    wait_s: float
    is_told: bool = True
    too_short_s: float = 0.0
    on_its_way_s: float = 0.0

    def shifted(self, by_s: float) -> Hit:
        """Return the same hit as a clock that is `by_s` ahead tells it."""
        return replace(self, at=self.at + by_s, stretch=self.stretch.shifted(by_s))

    def with_wait(self, wait_s: float) -> Hit:
        """Return the hit with a pause that turned out to be longer; by a second or so that is the rounding of another answer."""
        longer_s = wait_s - self.wait_s
        return replace(self, wait_s=wait_s, on_its_way_s=self.on_its_way_s + (longer_s if longer_s < _ROUNDED_S else 0.0))

    @property
    def lasted_s(self) -> float:
        """How long the stretch lasted, never quite nothing."""
        return max(self.at - self.stretch.began, 0.001)

    @property
    def least_wait_s(self) -> float:
        """What the wait certainly was: a told one may be rounded up to the next second, ours is a guess."""
        return max(self.wait_s - self.on_its_way_s - 1.0 if self.is_told else 0.0, self.too_short_s)

    @property
    def window_s(self) -> float:
        """How long a window is, at least, that let this stretch through and then asked to wait for its end."""
        least_s = self.lasted_s + self.least_wait_s
        return next((float(length) for length in _LENGTHS_S if length >= least_s - _LATE_S), least_s)

    def likely_end(self, until: float, heard: float) -> float:
        """Return when to try again, where no wait is told: when a window of round length would end, at the latest `until`.

        At `heard` it was not over yet.
        """
        ends = (self.stretch.began + length + _LATE_S for length in _LENGTHS_S)
        return min(until, next((end for end in ends if end > heard + _SHORTEST_GUESS_S), until))

    @property
    def tried(self) -> float:
        """The rate at which requests left last, over at least a second where there was as much."""
        return max((max(self.before, 1) - sent) / (self.lasted_s - since) for since, sent in self._starts())

    def sustained(self, least_s: float) -> float:
        """The rate that was borne for so many seconds; 0.0 where the stretch was no longer."""
        return max((self._rate(mark) for mark in self._starts(least_s) if self.lasted_s >= least_s), default=0.0)

    @property
    def at_once(self) -> int:
        """How many of them left in the last moment."""
        return self.before - max((sent for _, sent in self.stretch.marks if sent < self.before), default=0)

    @property
    def as_window(self) -> float:
        """The rate of a window that let this stretch through and then asked to wait for its end."""
        return max(self.before, 1) / self.window_s

    def as_bucket(self, burst: float) -> float:
        """The rate of a bucket that held `burst` tokens when it was last full, or was refilled by the pause before."""
        return max(self.before / (self.lasted_s + self.stretch.wait_before_s), self.kept(burst))

    def kept(self, burst: float) -> float:
        """The rate of a bucket that was full when the stretch began, or at some time since."""
        return max(rate for rate, _ in self._kept(burst))

    def is_hasty(self, burst: float) -> bool:
        """Whether that rate was counted over so short a time that requests which are late disturb it."""
        return max(self._kept(burst))[1] < _SHORTEST_COUNT_S <= self.lasted_s

    @property
    def is_brief(self) -> bool:
        """Whether it was met too soon to tell much, by a route that asks for no more than a moment."""
        return self.is_told and self.lasted_s < _BRIEF_S and self.wait_s < 1.0

    def _kept(self, burst: float) -> list[tuple[float, float]]:
        """Return the rate since each mark that it may be counted from, and over how many seconds."""
        held = max(burst, 1.0)
        least, least_s = max(_MANY, _MANY_TIMES_HELD * held), _LONG_FOR_ITS_WAY * self.on_its_way_s
        many = [mark for mark in self.stretch.marks if self.before - mark[1] >= least and self.lasted_s - mark[0] >= least_s]
        counted = ((self.lasted_s - since, self.before - sent) for since, sent in {*self._starts(), *many})
        return [((passed + 0.5 - held) / max(over_s, _SHORTEST_COUNT_S / 2), over_s) for over_s, passed in counted]

    def _rate(self, mark: tuple[float, int]) -> float:
        return (self.before - mark[1]) / (self.lasted_s - mark[0])

    def _starts(self, least_s: float = _SHORTEST_COUNT_S) -> list[tuple[float, int]]:
        """Return the marks from which to count, each with the requests before it; the stretch's begin is always one."""
        return [(0.0, 0), *(mark for mark in self.stretch.marks if self.lasted_s - mark[0] >= least_s)]


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


"""Rates that differ by less than this factor may be the same one, seen over a short time."""
_BOLD = 4.0
"""How far a first guess goes beyond what a window would let through: buckets rarely hold less than a quarter of a second's."""
_INEXACT_PLATEAU_S = 10.0
_WINDOW_PLATEAU_S = 60.0
"""A known window is kept to for so long; where its count is a guess, for less."""
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


BEAT_S = 1.0
"""How often presence is shown, and others looked for."""
_BATCH_S = 0.1
"""How much sending is reserved at a time, beside others."""
_LOOK_S = 0.05
"""How old what we know of a pause may be when a request leaves beside others, at a known limit."""
_RARE_LOOK_S = 0.2
"""The same while no limit is known: a pause is heard of within 250 ms. A look blocks the event loop for its round trips."""


class Shared(Protocol):
    """What the store holds: the pace as text ("" at first), its version, who else is there, the store's time, now and then."""

    @property
    def text(self) -> str: ...  # the class says it
    @property
    def version(self) -> int: ...
    @property
    def others(self) -> int: ...
    @property
    def now_s(self) -> float: ...
    @property
    def written_s(self) -> float: ...


class PaceStore(Protocol):
    """Where the pace of one route is kept for all of its workers. Every call raises `SyncError` where it fails."""

    def meet(self) -> Shared:
        """Show our presence, and return what there is."""

    def look(self) -> Shared:
        """Return what there is; `others` may be left at 0."""

    def change(self, turn: Callable[[Shared], str]) -> Shared:
        """Put `turn` of what there is in its place, while nobody else can, and return that."""

    def leave(self) -> None:
        """Take our presence away."""


class Sharing:
    """Our part of a shared route. A pace is in seconds of our `clock`, which never jumps; its text is in the store's time of day.

    Whoever sets the time of day so changes no pace in memory, and a text from the future counts as written now.

    Once the store has failed, `on_trouble` is told why, and we go on alone.
    """

    def __init__(self, store: PaceStore, clock: Clock, on_trouble: Callable[[SyncError], None]) -> None:
        self._store: PaceStore | None = store
        self._clock = clock
        self._on_trouble = on_trouble
        self._slots: deque[tuple[float, int]] = deque()
        self._version = -1
        self._wave = 0
        self._met_at: float | None = None
        self._looked_at = 0.0
        self.others = 0
        self.silent_until = 0.0

    def meet(self, own: RoutePace) -> RoutePace:
        """Return the pace to go by: `own`, unless others have learned something. Asks the store about once a second."""
        now = self._clock()
        if self._store is None or (self._met_at is not None and now - self._met_at < BEAT_S):
            return own
        is_first, self._met_at, had_company = self._met_at is None, now, self.others > 0
        met = self._asked(lambda store: store.meet())
        if met is None:
            return own
        self._looked_at = self._clock()
        self.others = met.others
        if is_first:
            return self._begin(met)
        if self.others and not had_company and met.version == self._version:
            return self.change(own, lambda pace: pace)
        return self._newer(own, met) if met.version != self._version else own

    def next_slot(self, own: RoutePace, wanted: int) -> tuple[RoutePace, float, int]:
        """Return the pace, our next slot in it and how many requests of its stretch go before; only beside others.

        `wanted` requests wait for slots; as many are reserved at once as leave within a moment.
        """
        if not self._slots:
            own = self.change(own, lambda pace: self._reserve(pace, wanted))
        slot, before = self._slots[0] if self._slots else (own.slot(self._clock()), own.stretch.sent)
        return own, slot, before

    def take(self) -> None:
        """Use up the slot that `next_slot` returned."""
        if self._slots:
            self._slots.popleft()

    def look(self, own: RoutePace) -> RoutePace:
        """Return the pace as others may have changed it a moment ago: a pause that they met is ours."""
        if not self.others or self._clock() - self._looked_at < (_LOOK_S if own.is_known else _RARE_LOOK_S):
            return own
        seen = self._asked(lambda store: store.look())
        if seen is None:
            return own
        self._looked_at = self._clock()
        return own if seen.version == self._version else self._newer(own, seen)

    def change(self, own: RoutePace, transition: Callable[[RoutePace], RoutePace]) -> RoutePace:
        """Return the pace after `transition`, made known to all. Applied to `own` unless others have changed it since."""
        changed = own

        def turn(there: Shared) -> str:
            nonlocal changed
            is_ours = there.version == self._version
            ahead_s = there.now_s - self._clock()
            changed = transition(own if is_ours else self._told(there, ahead_s) or own)
            return as_text(changed.shifted(ahead_s))

        put = self._asked(lambda store: store.change(turn))
        if put is None:
            return transition(own)
        self._looked_at = self._clock()
        self._version = put.version
        self._drop_slots_of_older(changed)
        return changed

    def leave(self) -> None:
        """Let the others know at once that we are gone."""
        if self._met_at is not None:
            self._asked(lambda store: store.leave())

    def _begin(self, met: Shared) -> RoutePace:
        """Begin with what was learned before; beside others, after a moment in which they have learned of us."""
        self._version = met.version
        now = self._clock()
        self.silent_until = now + BEAT_S * 1.1 if self.others else 0.0
        known = self._told(met, met.now_s - now)
        if known is None:
            return RoutePace(resume_at=now, slot_at=now, stretch=Stretch(now))
        self._wave = known.wave
        if self.others:
            return known
        pace = known.taken_up(now)
        return self.change(pace, lambda taken: taken) if pace.is_pause_doubtful else pace

    def _newer(self, own: RoutePace, seen: Shared) -> RoutePace:
        self._version = seen.version
        pace = self._told(seen, seen.now_s - self._clock()) or own
        self._drop_slots_of_older(pace)
        return pace

    def _reserve(self, pace: RoutePace, wanted: int) -> RoutePace:
        self._wave = pace.wave
        now = self._clock()
        for _ in range(max(1, min(wanted, int(min(pace.rate_at(now) * _BATCH_S, wanted))))):
            slot = max(pace.slot(now), self.silent_until)
            self._slots.append((slot, pace.stretch.sent))
            pace = pace.granted(slot, slot)
        return pace

    def _drop_slots_of_older(self, pace: RoutePace) -> None:
        if pace.wave != self._wave:
            self._slots.clear()
            self._wave = pace.wave

    @staticmethod
    def _told(seen: Shared, ahead_s: float) -> RoutePace | None:
        """Return the pace that a text tells, on our clock; the store's time is `ahead_s` ahead of it."""
        set_back_s = max(seen.written_s - seen.now_s, 0.0)
        pace = from_text(seen.text)
        return pace and pace.shifted(-ahead_s - set_back_s)

    def _asked(self, question: Callable[[PaceStore], Shared | None]) -> Shared | None:
        if self._store is None:
            return None
        try:
            return question(self._store)
        except SyncError as trouble:
            self._store, self.others = None, 0
            self._slots.clear()
            self._on_trouble(trouble)
            return None
