"""How a run comes to its source: from the start, onward from the feed's bookmark, or for rows that a person named.

Decided before anything is opened, from what is at hand. What a read does to the bookmark is `state.gate`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.metadata import version

from connectors.sources.deliveries import NO_FILES
from mappings.engine import RowMapper
from mappings.row_plan import leaves_for_later
from mappings.spec.feed import FeedMapping
from mappings.spec.source import FileSource
from pipelines.options import RunOptions
from state.bookmark import NO_BOOKMARK, Bookmark
from state.reach import Reach

_DAILY = timedelta(days=1)
_EARLY = 0.05
"""The part of `full_every` by which a whole read may come too early: a daily schedule that starts a minute sooner than
yesterday would else be due every other day."""
_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Approach:
    """What a read takes in. `since`: the source's cursor to go on from, "" for its start; `fit`: what the rows are mapped by;
    `began`: when; `full_read_at`: when the full read began that this one builds on. `because`: why a feed that could go on
    begins anew, "" where there is nothing to tell. `moves`: the next read may go on from where this one ends.
    """

    reach: Reach = Reach.FULL
    since: str = ""
    fit: str = ""
    began: datetime | None = None
    full_read_at: datetime | None = None
    because: str = ""
    moves: bool = False

    @property
    def notices(self) -> tuple[str, ...]:
        """What whoever watches should know of it."""
        return (f"read whole: {self.because}",) if self.because else ()

    def bookmark(self, cursor: str, *, is_full: bool) -> Bookmark | None:
        """Return the bookmark that a read leaves which ended at `cursor`, None if it leaves the feed's as it is.

        `is_full`: it has read all there is, whether it was to or not. Such a read with nowhere to go on from leaves none at all:
        the next one begins anew as a matter of course.
        """
        if not self.moves:
            return None
        if not cursor:
            return NO_BOOKMARK if is_full else None
        return Bookmark(cursor, self.fit, self.began if is_full else self.full_read_at)


FROM_THE_START = Approach()
"""How a source without cursors is always read."""
PICKED = Approach(Reach.PICKED)
"""Rows are sought by their keys, or by a window of days, and what is found tells nothing of where the source ends."""


@dataclass(frozen=True, slots=True)
class AtHand:
    """What is known before a read: the feed, its compiled mapper, evidence of the service's lists, the time."""

    mapping: FeedMapping
    mapper: RowMapper
    lists: str
    began: datetime

    @property
    def fit(self) -> str:
        """Evidence of all that rows are read, mapped and judged by: while it is the same, an unchanged row stays what it is."""
        policy = self.mapping.publish
        parts = (self.lists, policy.on_change, policy.on_vanish)
        return self._digested(parts)

    @property
    def fit_today(self) -> str:
        """The same, with all that else may make another event of an unchanged row: the days that it is seen on, our own version.

        "" where any moment may.
        """
        seen_on = self.mapper.seen_on
        return "" if seen_on is None else self._digested((self.fit, seen_on, version("eventsync")))

    def _digested(self, parts: Sequence[str]) -> str:
        digest = hashlib.blake2b(self.mapping.digest, digest_size=16)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def approach_of(known: AtHand, options: RunOptions, bookmark: Bookmark = NO_BOOKMARK) -> Approach:
    """Decide how a run reads its source.

    A run that sends drafts only moves no bookmark: its rows must come again, to be seen for what the mapping makes of them.
    Where rows of one key belong together, those that changed tell nothing without the others: such a feed never goes on.
    """
    full_every = _full_every(known.mapping)
    if options.window is not None:
        return replace(PICKED, since=NO_FILES if options.window.by == "file" else "")
    if options.keys:
        return PICKED
    if full_every is None:
        return FROM_THE_START
    is_torn = known.mapper.needs_all_rows and known.mapping.source.gives_single_rows
    moves = options.status is None and not is_torn
    because = next(_reasons(known, options, bookmark, full_every), "")
    if because or is_torn or not bookmark.cursor:
        since = NO_FILES if _are_deliveries(known.mapping) and bookmark.full_read_at is not None else ""
        return Approach(since=since, fit=known.fit, began=known.began, because=because, moves=moves)
    return Approach(Reach.ONWARD, bookmark.cursor, known.fit, known.began, bookmark.full_read_at, moves=moves)


def _full_every(mapping: FeedMapping) -> timedelta | None:
    """Return how often a feed is read whole at least. What a delivery has beyond a horizon nobody would else look at again."""
    return _DAILY if _are_deliveries(mapping) and leaves_for_later(mapping.rows) else mapping.source.full_every


def _are_deliveries(mapping: FeedMapping) -> bool:
    return isinstance(mapping.source, FileSource) and mapping.source.files == "new"


def _reasons(known: AtHand, options: RunOptions, bookmark: Bookmark, full_every: timedelta) -> Iterator[str]:
    """Yield why the read begins anew, the first of which is told."""
    if options.full:
        yield "asked for"
    if bookmark.full_read_at is None:
        return
    if not bookmark.cursor:
        yield "what an earlier read has staged or held waits to be judged"
    elif bookmark.fit != known.fit:
        yield "the mapping, the source or the service's lists are not those of the last read"
    if known.began - bookmark.full_read_at >= full_every * (1 - _EARLY):
        yield f"the last whole read is {_spelt(full_every)} old, or nearly so"


def _spelt(length: timedelta) -> str:
    """Spell a length as mapping files do: 1d12h."""
    rest = round(length.total_seconds())
    told = ""
    for unit, seconds in _UNITS:
        count, rest = divmod(rest, seconds)
        told += f"{count}{unit}" if count else ""
    return told or "0s"
