"""Which events a read says nothing of, so that their absence from it means nothing: those of unusable rows, days out of reach.

What becomes of events that are truly gone is `closing`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mappings.outcome import RowOutcome, Silence
from state.tables import storable

_SEPARATOR = re.compile(r"(?:[^\\|]|\\.)*+\|", re.DOTALL)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Unspoken:
    """What one read has left unsaid so far. `days`: the first and the last ISO day that recurring events were looked at for.

    An event of a recurring row has a key that ends in its day. A day that is over, or beyond the feed's horizon, is in no
    read, and has not vanished for that. Memory: the rows that were refused or left out whole, nothing for the others.
    """

    def __init__(self, days: tuple[str, str] | None) -> None:
        self._days = days
        self._after: dict[str, str] = {}

    @property
    def is_any(self) -> bool:
        """Whether there is anything of which this read says nothing."""
        return self._days is not None or bool(self._after)

    def hear(self, outcomes: Iterable[RowOutcome]) -> None:
        """Note what these rows leave unsaid."""
        for outcome in outcomes:
            if outcome.part.silence is not None:
                self._note(outcome.part.silence)

    def covers(self, row_key: str) -> bool:
        """Whether the absence of this entry means nothing."""
        starts = list(_ends_of_stems(row_key))
        day = row_key[starts[-1] :] if starts else ""
        is_day = _DAY.fullmatch(day) is not None
        if is_day and self._days is not None and not self._days[0] <= day <= self._days[1]:
            return True
        return any(self._is_unsaid(row_key[: start - 1], day if is_day else "\uffff") for start in starts)

    def _is_unsaid(self, stem: str, day: str) -> bool:
        after = self._after.get(stem)
        return after is not None and day > after

    def _note(self, silence: Silence) -> None:
        self._after[storable(silence.stem)] = silence.after


def _ends_of_stems(row_key: str) -> Iterator[int]:
    """Yield where each part after the first begins; a bar that belongs to a part is escaped."""
    found = _SEPARATOR.match(row_key)
    while found:
        yield found.end()
        found = _SEPARATOR.match(row_key, found.end())
