"""What a route let through from the end of one pause to the next 429, and what may be counted from that: pure values.

What follows for the rate is `pace_lesson`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
