"""One worker among those that share a route: who else is there, what they have learned, and which slots are ours.

What a pace is and how it changes is `route_pace`'s; where it is kept is the store's, which is handed in. A worker that is
alone works from memory and only tells what it learned; beside others it takes its slots from the shared pace, a few at a
time. Presence is shown about once a second, so a worker that dies leaves nothing behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from connectors.pace_hit import Stretch
from connectors.retry import Clock
from connectors.route_pace import RoutePace, as_text, from_text
from mappings.errors import SyncError

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
